"""The classes of all commands and groups: how their help reads, and what an unknown command is answered.

Commands are registered as usual; `use` then gives all of them these classes, so that none has to name one.
"""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


class _Readable:
    """What commands and groups have in common; beside a class of typer."""

    help: str | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = flowing(self.help)

    def get_params(self, ctx: Any) -> Any:
        """Return the options and arguments, with that for help."""
        return plain_flags(super().get_params(ctx))  # type: ignore[misc]  # of the class beside this one


class Command(_Readable, TyperCommand):
    """A command."""


class Group(_Readable, TyperGroup):
    """A group of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; if none has such a name, the error lists all of them."""
        names = [name for name, command in self.commands.items() if not command.hidden]
        is_unknown = args[0] not in self.commands and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing and not get_close_matches(args[0], names):
            ctx.fail(f"No such command {args[0]!r}; the commands are: {', '.join(names)}.")
        return super().resolve_command(ctx, args)


def flowing(text: str | None) -> str | None:
    """Return a help text with each paragraph on one line, which is wrapped to the width of the terminal."""
    return None if text is None else _BREAK.sub(" ", inspect.cleandoc(text))


def plain_flags(parameters: list[Any]) -> list[Any]:
    """Return the parameters; flags, which take no value, show none."""
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


def use(app: typer.Typer) -> None:
    """Give these classes to all commands and groups below."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        assert group.typer_instance is not None  # else it could not be a group
        use(group.typer_instance)
