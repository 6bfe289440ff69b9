"""The tree of commands, how their help reads, and the reply to an unknown command.

Each command imports what it works with when it runs: `tidings --help` stays quick. Commands are registered as
usual; `use` then gives all of them the classes of this module, so that none has to name one.
"""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import tidings
from tidings.cli import (
    backtest,
    backup,
    bench,
    demo,
    filter,
    links,
    log,
    node,
    pipeline,
    pubsub,
    queue,
    request,
    run,
    security,
    sensor,
    simulate,
    top,
    user,
)
from tidings.errors import UserError

_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


class _Readable:
    """What commands and groups have in common; beside a class of typer."""

    help: str | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = flowing(self.help)

    def get_params(self, ctx: Any) -> Any:
        """Return the options and arguments, with that for help; flags, which take no value, show none."""
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the class beside this one
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return parameters


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


def use(app: typer.Typer) -> None:
    """Give these classes to all commands and groups below."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        assert group.typer_instance is not None  # else it could not be a group
        use(group.typer_instance)


# The commands

app = typer.Typer(
    help="News of events, for things that come and go.",
    no_args_is_help=True,
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(node.app, name="node")
app.command()(node.gateway)
app.command()(pubsub.publish)
app.command()(pubsub.subscribe)
app.command()(node.ping)
app.command()(request.request)
app.command()(request.reply)
app.command()(run.run)
app.command()(top.top)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(demo.demo)
app.add_typer(queue.app, name="queue", help="Create queues, put messages into them and get them out.")
app.add_typer(pubsub.advertisements, name="advertisement", help="Show the events that sources may publish.")
app.add_typer(pubsub.durables, name="durable", help="Show and delete durable subscriptions.")
app.add_typer(links.sessions, name="session", help="Show and end the sessions of a node's clients.")
app.add_typer(log.app, name="log", help="Read and manage the log of a node.")
app.add_typer(links.peers, name="peer", help="Show the other nodes that a node knows.")
app.add_typer(security.app, name="security", help="Make and check the security directory of a node.")
app.add_typer(user.app, name="user", help="Manage the users of a node and their credentials.")
app.add_typer(sensor.app, name="sensor", help="Show sensor networks, and send readings to a gateway.")
pipeline.app.command()(backtest.backtest)
app.add_typer(pipeline.app, name="pipeline", help="Run pipelines on Spark, and pack their environment.")
app.add_typer(filter.app, name="filter", help="Check filters, and try them on events.")
app.add_typer(simulate.app, name="simulate", help="Simulate faults in virtual time, or a city of sensors.")
app.add_typer(bench.app, name="bench", help="Run benchmarks, beside reference code in the same run.")


def show_version(wanted: bool) -> None:
    """Print the version and end, if asked. Called by typer before any command."""
    if wanted:
        typer.echo(f"tidings {tidings.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options before the command."""


@app.command(hidden=True)
def tour() -> None:
    """Name the command that has replaced this one; the name goes with the next release."""
    raise UserError("there is no tour any more; use 'tidings demo'")


use(app)
