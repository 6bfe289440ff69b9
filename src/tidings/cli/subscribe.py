"""`tidings subscribe`: show the events that match, as they come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from tidings.cli.connection import bus_at, connects, find_node
from tidings.cli.filter import parse
from tidings.cli.options import Address, Json, Name
from tidings.cli.printing import print_events
from tidings.cli.quantities import read_time
from tidings.errors import UserError

Text = Annotated[str, typer.Argument(metavar="FILTER", help="A condition, such as: value > 40")]
Durable = Annotated[
    str | None, typer.Option(metavar="NAME", help="The name of a durable subscription, kept by the node.")
]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Begin with stored events: a position, or a time in ISO 8601."),
]
Last = Annotated[bool, typer.Option("--last", help="Begin with the newest event of each thing.")]
Passive = Annotated[bool, typer.Option("--passive", help="Create no demand for events.")]
Count = Annotated[int | None, typer.Option(min=1, help="End after so many events.")]


@connects
async def subscribe(
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
    wanted = parse(text, json)
    address = find_node(node)
    async with bus_at(address, name) as bus:
        beginning = None if since is None else read_since(since)
        subscription = bus.subscribe(wanted, durable=durable, since=beginning, last=last, passive=passive)
        async with subscription as events:
            typer.echo(f"subscribed at {address}; Ctrl-C ends", err=True)
            await print_events(events, count, json)


def read_since(text: str) -> int | datetime:
    """A position or a moment; a moment without a zone is in UTC."""
    if text.isdecimal():
        return int(text)
    try:
        return read_time(text)
    except ValueError:
        raise UserError(
            f"--since: {text!r} is neither a position nor a time such as 2026-05-01T08:30"
        ) from None
