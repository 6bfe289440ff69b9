"""`tidings publish`: events from the command line, or from lines of JSON."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Iterable
from itertools import islice, repeat
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from tidings.cli.connection import Address, Json, Name, find_node, run
from tidings.errors import CodecError, UserError

if TYPE_CHECKING:
    from tidings.event import Event

READ_SIZE = 64 << 10
CHUNK = 1_000
"""Events that are handed over, and counted on the screen, at once."""

Kind = Annotated[
    str | None, typer.Argument(metavar="[TYPE]", help="The type; without it, events come as lines of JSON.")
]
Fields = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Attributes and header fields.")
]
Delivery = Annotated[
    str | None, typer.Option(metavar="HOW", help="transient, reliable or persistent: how safe it must be.")
]
Count = Annotated[int, typer.Option(min=1, help="Publish the event so many times.")]


def publish(
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
    from tidings.event import Event

    if kind is None:
        source: Source = Lines(delivery)
    else:
        source = Repeated(Event(kind, **read_fields(fields or []), **_delivery(delivery)), count)
    published = 0

    async def work() -> None:
        nonlocal published
        published = await _publish(source, name, find_node(node))

    run(work())
    typer.echo(f'{{"published":{published}}}' if json else f"published {published:,}")
    if source.bad:
        raise typer.Exit(2)


def read_fields(fields: Iterable[str]) -> dict[str, Any]:
    """Names and values; UserError for what is not NAME=VALUE or comes twice."""
    read: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals or not name:
            raise UserError(f"{field!r} is not NAME=VALUE")
        if name in read:
            raise UserError(f"{name} is given twice")
        read[name] = read_value(text)
    return read


def read_value(text: str) -> Any:
    """The number, truth or quoted text that this is as JSON; otherwise the text itself."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _delivery(delivery: str | None) -> dict[str, str]:
    return {} if delivery is None else {"delivery": delivery}


class Source:
    """Where events come from, in chunks; `bad` counts what was no event."""

    bad = 0
    total: int | None = None

    def chunks(self) -> AsyncIterator[list[Event]]:
        """The events."""
        raise AssertionError("each kind of source has its own")


class Repeated(Source):
    """One event, many times."""

    def __init__(self, event: Event, count: int) -> None:
        self.event, self.total = event, count

    async def chunks(self) -> AsyncIterator[list[Event]]:
        """The events."""
        remaining = repeat(self.event, self.total or 0)
        while chunk := list(islice(remaining, CHUNK)):
            yield chunk


class Lines(Source):
    """The lines of standard input, read beside the loop: who writes them may take its time."""

    def __init__(self, delivery: str | None) -> None:
        self._changes = _delivery(delivery)
        self._number = 0

    async def chunks(self) -> AsyncIterator[list[Event]]:
        """The events."""
        rest = b""
        stdin = cast("io.BufferedReader", sys.stdin.buffer)
        while data := await asyncio.to_thread(stdin.read1, READ_SIZE):
            *lines, rest = (rest + data).split(b"\n")
            yield self._events(lines)
        yield self._events([rest])

    def _events(self, lines: list[bytes]) -> list[Event]:
        from tidings.event.json import from_json

        events: list[Event] = []
        for line in lines:
            self._number += 1
            if not line.strip():
                continue
            try:
                event = from_json(line)
                events.append(event.evolve(**self._changes) if self._changes else event)
            except (CodecError, UserError) as error:
                self.bad += 1
                typer.echo(f"line {self._number}: {error}", err=True)
        return events


async def _publish(source: Source, name: str, address: str) -> int:
    """Publish all; how many there were."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    import tidings

    console = Console(stderr=True)
    columns = (TextColumn("publishing"), BarColumn(), MofNCompleteColumn())
    published = 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=source.total)
        async with tidings.connect(address, name=name, reconnect=False) as bus:
            async for chunk in source.chunks():
                await bus.publish_all(chunk)
                published += len(chunk)
                progress.update(task, completed=published)
    return published
