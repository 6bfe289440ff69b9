"""The tree of commands, how their help reads, and the reply to an unknown command.

The module of a command is imported when that command is used, so it may import at its top what it works with,
and `tidings --help` stays quick. Commands are registered as usual; `use` then gives all of them the classes
of this module, so that none has to name one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group
from typer.models import Default

import tidings
from tidings.cli.conversion import convert_plainly
from tidings.errors import UserError

COMMANDS = {
    "gateway": (
        "node:gateway",
        "Run a gateway between sensor networks and a node, until it is stopped with Ctrl-C or SIGTERM.",
    ),
    "publish": ("pubsub:publish", "Publish an event: tidings publish air.pm10 value=41.2 street=quay"),
    "subscribe": ("pubsub:subscribe", "Print the events that match FILTER, until Ctrl-C or --count."),
    "ping": ("node:ping", "Connect to a node, and print how long its answer takes."),
    "request": (
        "request:request",
        "Publish a request and print the first reply: tidings request price item=pear",
    ),
    "reply": (
        "request:reply",
        "Answer requests of TYPE, until Ctrl-C or --count, with the given attributes or by a command.",
    ),
    "run": ("run:run", "Run an app: its handlers of events, messages and requests."),
    "top": (
        "top:top",
        "Show rates, subscriptions, waiting messages and dropped events, until q or Ctrl-C.",
    ),
    "backup": ("backup:backup", "Write a snapshot of a node's store to one file, while the node runs."),
    "restore": (
        "backup:restore",
        "Restore the directory of a node from a backup; `tidings node --dir DIR` then continues from there.",
    ),
    "demo": (
        "demo:demo",
        "Run a node, a gateway, a city of sensors, a queue with workers and Spark, and show their work.",
    ),
    "node": ("node:app", "Run a node until it is stopped with Ctrl-C or SIGTERM."),
    "queue": ("queue:app", "Create queues, put messages into them and get them out."),
    "agent": ("agent:app", "Show groups of agents, what they cost and why they ended; end them."),
    "lease": ("lease:app", "Run any program as a member of a group, and manage leases."),
    "channel": ("channel:app", "Create channels, send events to their members and print them."),
    "advertisement": ("pubsub:advertisements", "Show the events that sources may publish."),
    "durable": ("pubsub:durables", "Show and delete durable subscriptions."),
    "session": ("links:sessions", "Show and end the sessions of a node's clients."),
    "log": ("log:app", "Read and manage the log of a node."),
    "peer": ("links:peers", "Show the other nodes that a node knows."),
    "adhoc": ("adhoc:app", "Show what a node carries for hosts that it meets by chance."),
    "topology": ("topology:app", "Show the nodes of the network and their links, as the node knows them."),
    "security": ("security:app", "Make and check the security directory of a node."),
    "user": ("user:app", "Manage the users of a node and their credentials."),
    "sensor": ("sensor:app", "Show sensor networks, and send readings to a gateway."),
    "pipeline": ("backtest:app", "Run pipelines on Spark, and pack their environment."),
    "filter": ("filter:app", "Check filters, and try them on events."),
    "simulate": ("simulate:app", "Simulate faults in virtual time, or a city of sensors."),
    "bench": ("bench:app", "Run benchmarks, beside reference code in the same run."),
    "tour": ("app:tour", ""),
}
"""The module and object of each command, and its line in the list of commands; without one it is hidden."""

PANELS = {
    "Events": ("publish", "subscribe", "request", "reply", "advertisement", "durable", "filter", "log"),
    "Queues, channels and agents": ("queue", "run", "channel", "agent", "lease"),
    "Nodes": ("node", "ping", "top", "session", "backup", "restore", "security", "user"),
    "Networks of nodes": ("peer", "topology", "adhoc"),
    "Sensors and Spark": ("gateway", "sensor", "pipeline"),
    "Try and measure": ("demo", "simulate", "bench"),
}
"""The commands as the list shows them; one that is in no panel comes last."""
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}

_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


class _Readable:
    """Common part of commands and groups; beside a class of typer."""

    help: str | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.help is not None:  # each paragraph on one line, which is wrapped to the width of the terminal
            self.help = _BREAK.sub(" ", inspect.cleandoc(self.help))

    def get_params(self, ctx: Any) -> Any:
        """Return the options and arguments, with that for help; flags, which take no value, show none."""
        parameters = super().get_params(ctx)  # type: ignore[misc]  # of the class beside this one
        for one in parameters:
            convert_plainly(one)
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return parameters


class Command(_Readable, TyperCommand):
    """A command."""


class CommandGroup(_Readable, TyperGroup):
    """A group of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; if none has such a name, the error lists all of them."""
        listed = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        names = [name for name, command in listed.items() if command is not None and not command.hidden]
        is_unknown = args[0] not in listed and not args[0].startswith("-")
        if is_unknown and not ctx.resilient_parsing and not get_close_matches(args[0], names):
            ctx.fail(f"No such command {args[0]!r}; the commands are: {', '.join(names)}.")
        return super().resolve_command(ctx, args)


def use(app: typer.Typer) -> None:
    """Give these classes to all commands and groups below."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = CommandGroup
        assert group.typer_instance is not None  # else it could not be a group
        use(group.typer_instance)


# The commands


class Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        place, line = COMMANDS[name]
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f"tidings.cli.{module}"), attribute)
        parent = typer.Typer()
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=name, help=Default(None) if found.registered_callback else line)
        else:
            parent.command(name, hidden=not line)(found)
        use(parent)
        return get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class RootGroup(CommandGroup):
    """The group of all commands; those that are only listed are not imported."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = Commands()  # type: ignore[assignment]  # nobody adds one

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as it is called
        """Return the names, in the order of the panels."""
        return [*_PANEL_OF, *(name for name in COMMANDS if name not in _PANEL_OF)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as it is called
        """Return what a list shows of a command; `resolve_command` returns the command itself."""
        _, line = COMMANDS.get(cmd_name, (None, None))
        if line is None:
            return None
        return Command(cmd_name, help=line, hidden=not line, rich_help_panel=_PANEL_OF.get(cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is used."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[name], rest


app = typer.Typer(
    help="Event middleware for sensors, applications and agents that come and go.",
    no_args_is_help=True,
    cls=RootGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def tour() -> None:
    """Name the command that has replaced this one; the name goes with the next release."""
    raise UserError("there is no tour any more; use 'tidings demo'")
