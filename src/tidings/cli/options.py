"""Options that several commands have, and times, ages and sizes as they are typed.

Those of a node's settings are made from `NodeConfig`, which is the only place where the settings are written.
A secret is in a file or in the environment, or is entered at a prompt; it is never an argument, which all
users of the machine could see.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer
from msgspec.structs import fields

from tidings.errors import UserError
from tidings.node.settings import SETTINGS, Setting

Command = TypeVar("Command", bound=Callable[..., Any])

NODE = "tidings://127.0.0.1:7300"
"""Address of a node that is not this machine's own, by default."""
GATEWAY = "127.0.0.1:4242"
_TLS = "With TLS"

_NODE: dict[str, Any] = {
    "envvar": "TIDINGS_NODE",
    "metavar": "ADDRESS",
    "help": "The node: HOST:PORT, tidings://…, tidings+tls://… or tidings+unix:///PATH.",
    "show_default": f"this machine's, or {NODE}",
}


def option(*texts: str, **more: Any) -> Any:
    """Return an option of these flags (else its name is one), this metavar, if it has one, and this help."""
    flags = [text for text in texts if text.startswith("-")]
    *metavar, help = texts[len(flags) :]
    return typer.Option(*flags, metavar=metavar[0] if metavar else None, help=help, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Return an argument, which has no flag."""
    return typer.Argument(metavar=metavar, help=help, **more)


def seconds(flag: str, help: str) -> Any:
    """Return an option for a time, 0 or more seconds."""
    return option(flag, "SECONDS", help, min=0.0)


Address = Annotated[str | None, typer.Option("--node", **_NODE)]
Place = Annotated[str | None, typer.Argument(**_NODE)]
Name = Annotated[str, option("The client's name.")]
Json = Annotated[bool, option("--json", "Print JSON, one object a line.")]
Yes = Annotated[bool, option("--yes", "-y", "Do not ask for confirmation.")]

# Events and queues

Kind = Annotated[
    str | None, argument("TYPE", "The type; without it, standard input has events as lines of JSON.")
]
Fields = Annotated[
    list[str] | None, argument("NAME=VALUE", "Attributes and header fields; body=@FILE for a file.")
]
QueueName = Annotated[str, argument("QUEUE", "Its name, an alias, or its id.", show_default=False)]
Where = Annotated[str, option("FILTER", "Only messages that match, such as: color = 'blue'")]
Timeout = Annotated[float, seconds("--timeout", "How long to wait for a message.")]
Wait = Annotated[bool, option("--wait", "Wait without a time limit.")]

# A gateway, spoken to as sensors do

Gateway = Annotated[str, option("HOST:PORT", "The gateway; the port is 4242.", envvar="TIDINGS_GATEWAY")]
Udp = Annotated[bool, option("--udp", "Use UDP.")]
Tls = Annotated[bool, option("--tls", "Use TLS.", rich_help_panel=_TLS)]
Ca = Annotated[Path | None, option("FILE", "Trusted certificates; implies TLS.", rich_help_panel=_TLS)]
TokenFile = Annotated[Path | None, option("FILE", "The token of the user.", rich_help_panel=_TLS)]
OnlyAsked = Annotated[bool, option("--only-asked", "Leave out readings without a subscription.")]


# Options that are made


def with_options(*options: inspect.Parameter, before: str | None = None) -> Callable[[Command], Command]:
    """Add options to a command, which gets them as keywords; before one of its own, or at the end."""

    def extend(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name])
            for one in inspect.signature(command).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        at = next((at for at, one in enumerate(own) if one.name == before), len(own))
        kind = own[at].kind if at < len(own) else inspect.Parameter.KEYWORD_ONLY
        own[at:at] = [one.replace(kind=kind) for one in options]
        command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in own}
        return command

    return extend


def options_of(
    table: Mapping[str, tuple[Any, Any]], defaults: type[msgspec.Struct] | None = None
) -> Iterator[inspect.Parameter]:
    """Yield the options of these names, types and `typer.Option`s.

    One that is not given has the default of the struct's field of that name, and without a struct None.
    """
    known = {} if defaults is None else {one.name: one.default for one in fields(defaults)}
    return (_option(name, kind, option, known.get(name)) for name, (kind, option) in table.items())


def settings_options(*names: str, **defaults: Any) -> Iterator[inspect.Parameter]:
    """Yield options for all or the named settings of a node; one that is not given is None.

    The help shows the default of the setting, or the one given here.
    """
    for name in names or SETTINGS:
        setting = SETTINGS[name]
        yield _option(name, setting.kind, _setting_option(setting, defaults.get(name, setting.default)))


def _setting_option(setting: Setting, default: Any) -> Any:
    flags = setting.flag if setting.contrary is None else f"{setting.flag}/--{setting.contrary}"
    is_shown = default is not None and setting.kind is not bool
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return typer.Option(
        flags,
        metavar=setting.metavar,
        help=setting.help,
        show_default=shown if is_shown else False,
        autocompletion=(lambda: list(setting.choices)) if setting.choices else None,
    )


CREDENTIALS = {
    "user": "The user.",
    "password_file": "The user's password.",
    "token_file": "A token of the user.",
    "ca": "Trusted certificates.",
    "cert": "A certificate.",
    "key": "The key of the certificate.",
}
"""The options for a client's credentials, with their help."""


def credential_options(panel: str = _TLS, prefix: str = "", /, **helps: str) -> Iterator[inspect.Parameter]:
    """Yield the options for credentials; with a prefix, variables that begin with it may hold them too."""
    for name, help in {**CREDENTIALS, **helps}.items():
        variable = prefix + name.upper() if prefix else None
        metavar = "NAME" if name == "user" else "FILE"
        option = typer.Option(envvar=variable, metavar=metavar, help=help, rich_help_panel=panel)
        yield _option(name, str, option)


def _option(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    """Return an option that has this default unless it is given."""
    of_both = kind | None if default is None else kind
    annotation = Annotated[of_both, option]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


NODE_OPTION = _option("node", str, typer.Option("--node", **_NODE))

# Times, ages and sizes as they are typed

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_AGE_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def read_age(text: str, option: str) -> timedelta:
    """Return an age, such as `90s`, `30min`, `12h` or `7d`."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise UserError(f"{option}: {text!r} is no age such as 30min, 12h or 7d")
    return timedelta(seconds=float(found[1]) * _AGE_S[found[2]])


def read_moment(text: str, option: str, now: datetime) -> datetime:
    """A time in ISO 8601, in UTC if it has no zone, or an age, which counts from now."""
    if _AGE.fullmatch(text):
        return now - read_age(text, option)
    try:
        return read_time(text)
    except ValueError:
        problem = f"{text!r} is neither a time such as 2026-05-01T08:30 nor an age such as 12h"
        raise UserError(f"{option}: {problem}") from None


def read_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC if it has no zone; ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_size(text: str, option: str) -> int:
    """So many bytes, such as `500MB` or `20G`."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f"{option}: {text!r} is no size such as 500MB or 20G")
    return int(float(found[1]) * _SIZES[found[2].lower()])
