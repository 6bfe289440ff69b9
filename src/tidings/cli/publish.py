"""`tidings publish`: events from the command line, or from lines of JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.events import send_all, source_of
from tidings.cli.options import Address, Fields, Json, Kind, Name
from tidings.cli.printing import to_json


def deliveries() -> list[str]:
    """Return the delivery modes; called by the completion of a shell."""
    from tidings.event.header import DELIVERIES

    return list(DELIVERIES)


Delivery = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="The delivery mode: transient, reliable or persistent.",
        autocompletion=deliveries,
    ),
]
Count = Annotated[int, typer.Option(min=1, help="Publish the event so many times.")]


@connects
async def publish(
    kind: Kind = None,
    fields: Fields = None,
    delivery: Delivery = None,
    count: Count = 1,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Publish an event: tidings publish air.pm10 value=41.2 street=quay

    A value is a number, true, false, "text in quotes", or any other text as it stands. Without TYPE, each
    line of standard input is an event as JSON; a line that is none is reported and passed over, and the exit
    code is then 2.
    """
    changes = {} if delivery is None else {"delivery": delivery}
    source = source_of(kind, fields or [], count, **changes)
    async with bus_of(node, name) as bus:
        sent = await send_all(source, "publishing", bus.publish_all)
    published = sent - bus.refused
    typer.echo(to_json({"published": published}) if json else f"published {published:,}")
    if source.bad or bus.refused:
        raise typer.Exit(2)
