"""`tidings queue`: create, find and delete queues; `messages` has the commands for their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidings.cli import messages
from tidings.cli.connection import bus_of, connects, queue_of, run
from tidings.cli.events import read_fields
from tidings.cli.filter import parse
from tidings.cli.options import (
    Json,
    QueueName,
    Where,
    Yes,
    argument,
    option,
    options_of,
    with_options,
)
from tidings.cli.printing import (
    add_row,
    count_text,
    new_table,
    print_found,
    print_result,
    shown,
    to_json,
    values_text,
    word,
)
from tidings.cli.work import work
from tidings.errors import UserError
from tidings.queues.description import Description

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)


class Scope(StrEnum):
    """Nodes at which queues are looked up."""

    local = "local"
    remote = "remote"
    both = "both"


Name = Annotated[str | None, argument("NAME", "The name; without it, the id.")]
Properties = Annotated[
    list[str] | None, option("--property", "-p", "NAME=VALUE", "A property to find it by; may be repeated.")
]
Bind = Annotated[str | None, option("FILTER", "Put publications that match this into it.")]
NameSought = Annotated[str | None, argument("NAME", "Only the queue of this name or id.")]
TextPart = Annotated[str | None, option("Only those whose text contains this.")]
ScopeSought = Annotated[Scope, option("Where to look: at the node, at other nodes, or both.")]
Target = Annotated[str, argument("QUEUE", "The queue.")]
NewName = Annotated[str, argument("NAME", "The alias.")]

REDELIVERY = "Redeliver a message that is not acknowledged in this time; default 60, 0: never."
DELIVERIES = "Deliveries after which a message becomes a dead letter; default 10, 0: never."
PAUSES = "Pauses before the second, third and later deliveries; after the last one, a dead letter."
WISH = {
    "text": (str, option("Its purpose, in words.")),
    "type": (str, option("How messages are stored: sqlite, volatile or a type added to the node.")),
    "persistent": (
        bool,
        option("--persistent/--volatile", "Whether messages survive a restart of the node."),
    ),
    "keep": (
        bool,
        option("--keep/--no-keep", "Whether the queue itself does; by default, as its messages."),
    ),
    "priorities": (bool, option("--priorities", "Deliver the highest priority first.")),
    "priority": (int, option("The default priority of messages, 0 to 9.")),
    "ageing_s": (float, option("Waiting time that counts as one level of priority.")),
    "expiry": (bool, option("--expiry", "Drop messages when their ttl_s is over.")),
    "ttl_s": (float, option("The default ttl_s of messages.")),
    "lease_s_max": (float, option("The longest ttl_s; a longer one is shortened.")),
    "max_messages": (int, option("The most messages that it accepts.")),
    "max_bytes": (int, option("The most bytes that its messages hold.")),
    "passive": (bool, option("--passive", "Create no demand for events.")),
    "redelivery_s": (float, option(REDELIVERY, min=0.0)),
    "deliveries_max": (int, option(DELIVERIES, min=0)),
    "retry_s": (str, option("SECONDS,…", PAUSES)),
    "rate": (float, option("Messages a second for all consumers together.")),
    "compress": (bool, option("--compress", "Compress messages on disk.")),
}
"""Options for creating a queue, by the names of `Description`."""
SOUGHT = {
    "id": (str, option("Only the one with this id.")),
    "type": (str, option("Only those of this type.")),
    "persistent": (
        bool,
        option("--persistent/--volatile", "Only those whose messages survive a restart."),
    ),
    "keep": (bool, option("--keep/--no-keep", "Only those that survive a restart themselves.")),
    "priorities": (
        bool,
        option("--priorities/--no-priorities", "Only those with priorities, or without."),
    ),
    "expiry": (bool, option("--expiry/--no-expiry", "Only those whose messages expire, or don't.")),
    "max_messages": (int, option("Only those of this size; 0: without a limit.", min=0)),
}
"""Options for finding queues, likewise."""


@app.command()
@connects
@with_options(*options_of(WISH))
async def create(
    name: Name = None, properties: Properties = None, bind: Bind = None, json: Json = False, **given: Any
) -> None:
    """Create a queue, such as: tidings queue create jobs --priorities

    If it exists with the same description, nothing changes; if it differs, that is an error.
    """
    wish = said(given)
    wish |= {key: wish[key] or None for key in ("redelivery_s", "deliveries_max") if key in wish}  # 0: never
    if given["retry_s"] is not None:
        wish["retry_s"] = _pauses(given["retry_s"])
    if properties:
        wish["properties"] = read_fields(properties)
    if bind is not None:
        wish["bind"] = str(parse(bind, json))
    async with bus_of() as bus:
        made = (await bus.create_queue(name, **wish)).description
        typer.echo(description_json(made) if json else f"queue {made.name} is ready")


def _pauses(text: str) -> list[float]:
    try:
        return [float(one) for one in text.split(",")]
    except ValueError:
        raise UserError(f"--retry-s {text}: give seconds with commas between, such as 1,5,30") from None


@app.command()
@connects
def delete(queue: QueueName, yes: Yes = False, json: Json = False) -> None:
    """Delete a queue with its messages, or only an alias."""

    async def look() -> Description:
        async with bus_of() as bus:
            named = [one for one in await bus.lookup(queue) if one.alias_of is not None]
            return named[0] if named else (await bus.queue(queue)).description

    async def remove() -> None:
        async with bus_of() as bus:
            await bus.delete_queue(queue)

    found = run(look())
    count = found.messages + found.in_flight + found.delayed
    if count and found.alias_of is None and not yes:
        typer.confirm(f"Delete {queue} with {count_text(count, 'message')}?", abort=True, err=True)
    run(remove())
    print_result({"deleted": queue}, f"deleted {queue}", json)


@app.command("list")
@connects
@with_options(*options_of(SOUGHT))
async def show_list(
    name: NameSought = None,
    text: TextPart = None,
    properties: Properties = None,
    scope: ScopeSought = Scope.local,
    json: Json = False,
    **given: Any,
) -> None:
    """Show the queues of the node, or those that match the options."""
    wanted, sought = read_fields(properties or []), said(given)
    if given["max_messages"] == 0:
        sought["max_messages"] = None
    async with bus_of() as bus:
        found = await bus.lookup(name, wanted or None, text, scope.value, **sought)
    none = "no queue agrees" if name or text or wanted or sought else "no queues"
    table = partial(_queue_table, has_nodes=scope is not Scope.local)
    print_found(found, json, description_json, table, none)


def said(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in given.items() if value is not None}


def _queue_table(found: Sequence[Description], has_nodes: bool) -> Table:
    numbers = ("messages", "in flight", "readers")
    table = new_table("queue", "type", *numbers, "about", numbers=numbers, wide=("queue", "about"))
    for one in sorted(found, key=lambda one: (one.name, one.node)):
        name = f"{one.name}@{one.node}" if has_nodes and one.node else one.name
        counts = (f"{one.messages:,}", f"{one.in_flight:,}", f"{one.waiting:,}")
        add_row(table, word(name), one.type, *counts, about(one))
    return table


def about(one: Description) -> str:
    """Return a summary of a queue, on one line."""
    if one.alias_of is not None:
        return f"another name of {one.alias_of}"
    parts = [shown(one.text)] if one.text else []
    if one.bind is not None:
        parts.append(f"takes {one.bind or 'all there is'}")
    if one.properties:
        parts.append(values_text(one.properties))
    parts += [
        f"{count:,} {what}" for count, what in ((one.delayed, "delayed"), (one.groups, "groups")) if count
    ]
    return ", ".join(parts)


@app.command()
@connects
async def describe(queue: QueueName, json: Json = False) -> None:
    """Show the description of a queue."""
    async with queue_of(queue) as found:
        description = found.description
        typer.echo(description_json(description) if json else _facts(description))


def _facts(description: Description) -> str:
    facts = msgspec.structs.asdict(description)
    facts["properties"] = values_text(description.properties) or None
    return "\n".join(f"{name:<15} {_fact(value)}" for name, value in facts.items())


def _fact(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(_fact, value)) or "–"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return shown(value) or "''"


@app.command()
@connects
async def alias(name: NewName, queue: Target, json: Json = False) -> None:
    """Give a queue an alias."""
    async with bus_of() as bus:
        description = (await bus.create_alias(name, queue)).description
    text = f"{name} is another name of {description.name}"
    print_result({"alias": name, "queue": description.name}, text, json)


@app.command()
@connects
def purge(queue: QueueName, where: Where = "", yes: Yes = False, json: Json = False) -> None:
    """Delete the messages of a queue, or those that match."""
    wanted = parse(where, json)

    async def look() -> int:
        async with queue_of(queue) as found:
            return found.description.messages + found.description.delayed

    async def throw() -> int:
        async with queue_of(queue) as found:
            return await found.purge(wanted)

    if not yes and (count := run(look())):
        which = f"{count_text(count, 'message')} of {queue}"
        which = f"the messages of {queue} that match" if where else which
        typer.confirm(f"Throw away {which}?", abort=True, err=True)
    gone = run(throw())
    print_result({"purged": gone}, f"threw away {count_text(gone, 'message')}", json)


def description_json(description: Description) -> str:
    """Return the description of a queue as one line of JSON, with its defaults."""
    return to_json(msgspec.structs.asdict(description))


for command in (messages.put, messages.get, messages.read, messages.headers, messages.watch, work):
    app.command()(command)
app.add_typer(messages.dead, name="dead")
