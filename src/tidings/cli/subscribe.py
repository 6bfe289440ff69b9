"""`tidings subscribe`: show the events that match, as they come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import Address, Json, Name, bus_at, connects, find_node, run
from tidings.errors import UserError

if TYPE_CHECKING:
    from tidings.client import Subscription
    from tidings.event import Event

Text = Annotated[str, typer.Argument(metavar="[FILTER]", help="A condition, such as: value > 40")]
Durable = Annotated[
    str | None, typer.Option(metavar="NAME", help="Have the node keep what comes while this is away.")
]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Begin with stored events: a position, or a time in ISO 8601."),
]
Last = Annotated[bool, typer.Option("--last", help="Begin with the newest event of each thing.")]
Passive = Annotated[bool, typer.Option("--passive", help="Take what flows; ask nobody to make events.")]
Count = Annotated[int | None, typer.Option(min=1, help="End after so many events.")]


@connects
def subscribe(
    text: Text = "",
    durable: Durable = None,
    since: Since = None,
    last: Last = False,
    passive: Passive = False,
    count: Count = None,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Print the events that match FILTER, until Ctrl-C or --count.

    On a durable subscription an event is acknowledged when it has been printed.
    """
    from tidings.cli.filter import parse

    wanted = parse(text, json)

    async def work() -> None:
        address = find_node(node)
        async with bus_at(address, name) as bus:
            beginning = None if since is None else read_since(since)
            subscription = bus.subscribe(wanted, durable=durable, since=beginning, last=last, passive=passive)
            async with subscription as events:
                typer.echo(f"subscribed at {address}; Ctrl-C ends", err=True)
                await show(events, count, json)

    run(work())


def read_since(text: str) -> int | datetime:
    """A position or a moment; a moment without a zone is in UTC."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"--since: {text!r} is neither a position nor a time such as 2026-05-01T08:30"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def show(events: Subscription, count: int | None, json: bool) -> None:
    """Print the events as they come, so many of them if that is said."""
    from tidings.event.json import to_json

    shown = dropped = 0
    async for event in events:
        if events.dropped > dropped:
            typer.echo(f"{events.dropped - dropped} events did not come: too slow", err=True)
            dropped = events.dropped
        typer.echo(to_json(event).decode() if json else line_of(event))
        shown += 1
        if shown == count:
            return


def line_of(event: Event) -> str:
    """An event on one line, for people; what it carries can't break the line or move the cursor."""
    moment = event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    values = "".join(f" {name}={word(value)}" for name, value in event.attributes.items())
    body = "" if event.body is None else f" ({len(event.body)} bytes)"
    return f"{moment} {event.type}{values}{body}"


def word(value: object) -> str:
    """A value as one word, quoted if it would not be one, or would be taken for something else."""
    if isinstance(value, datetime):
        return value.isoformat()
    text = str(value)
    is_plain = isinstance(value, str) and text.isprintable() and text and " " not in text
    return text if is_plain or isinstance(value, bool | int | float) else repr(value)


def shown(text: object) -> str:
    """A text as it stands, unless it would break the line or move the cursor."""
    return str(text) if str(text).isprintable() else repr(text)
