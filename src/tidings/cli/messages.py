"""`tidings queue put | get | read | headers | watch`: what goes in, comes out and is in there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import Address, Json, Name, connects, run
from tidings.cli.events import Fields, Kind, send_all, source_of
from tidings.cli.filter import parse, to_json
from tidings.cli.queue_bus import (
    QueueName,
    Timeout,
    Wait,
    Where,
    add_row,
    bus_of,
    new_table,
    patience,
    print_table,
    queue_of,
)
from tidings.cli.subscribe import line_of, show, word
from tidings.cli.top import age_text
from tidings.errors import QueueEmpty, QueueError, UserError

if TYPE_CHECKING:
    from tidings.client import Bus, Message, Queue, Transaction
    from tidings.event import Event
    from tidings.filters import Filter

PAGE = 100
"""Messages that are taken, printed and acknowledged together when all are wanted."""

PutCount = Annotated[int, typer.Option("--count", min=1, help="Put the event so many times.")]
GetCount = Annotated[int, typer.Option("--count", min=1, help="Get so many.")]
GetAll = Annotated[bool, typer.Option("--all", help="Get all that are in it now.")]
ReadAll = Annotated[bool, typer.Option("--all", help="Read all that are in it now.")]
WatchCount = Annotated[int | None, typer.Option("--count", min=1, help="End after so many.")]


@connects
def put(
    queue: QueueName,
    kind: Kind = None,
    fields: Fields = None,
    count: PutCount = 1,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Put an event into a queue: tidings queue put jobs job number=1

    A value is a number, true, false, "text in quotes", or any other text as it stands. Without TYPE, each
    line of standard input is an event as JSON; a line that is none is reported and passed over, and the exit
    code is then 2.
    """
    source = source_of(kind, fields or [], count)

    async def fill() -> None:
        async with queue_of(queue, node, name) as found:
            filler = Filler(found)
            await send_all(source, "putting", filler.put)
            typer.echo(to_json({"put": filler.done}) if json else f"put {filler.done:,}")

    run(fill())
    if source.bad:
        raise typer.Exit(2)


class Filler:
    """Puts events into a queue and counts them; a refusal says how many were put before it."""

    def __init__(self, queue: Queue) -> None:
        self.done = 0
        self._queue = queue

    async def put(self, chunk: list[Event]) -> None:
        """Put some more."""
        try:
            await self._queue.put_all(chunk)
        except QueueError as error:
            self.done += getattr(error, "put", 0)
            raise type(error)(error.queue, f"{error.problem}; {self.done:,} put before that") from None
        self.done += len(chunk)


@connects
def get(
    queue: QueueName,
    where: Where = "",
    count: GetCount = 1,
    all: GetAll = False,
    timeout: Timeout = 0.0,
    wait: Wait = False,
    node: Address = None,
    json: Json = False,
) -> None:
    """Take messages out of a queue and print them: the first, --count or --all.

    A message is acknowledged when it has been printed. The exit code is 1 if there were fewer than wanted.
    What --json prints, `tidings queue put` reads.
    """
    wanted = parse(where, json)
    if all and count > 1:
        raise UserError("--all and --count can't be had together")
    _check_all(all, timeout, wait)

    async def take() -> None:
        async with bus_of(node) as bus:
            found = await bus.queue(queue)
            if all:
                await _take_all(bus, found, wanted, json)
                return
            for _ in range(count):
                async with found.take(wanted, timeout_s=patience(timeout, wait)) as message:
                    _print(message.event, json, message.deliveries)

    _run(take())


def _check_all(all: bool, timeout_s: float, wait: bool) -> None:
    if all and (timeout_s or wait):
        raise UserError("--all is for what is there now, without --timeout or --wait")


async def _take_all(bus: Bus, queue: Queue, wanted: Filter, json: bool) -> None:
    """Take page after page, each in a transaction that ends when it has been printed.

    Others may go on putting: no more are taken than there were at the beginning.
    """
    left = queue.description.messages
    while left > 0:
        async with bus.transaction() as tx:
            page = await asyncio.gather(*(_next(tx, queue, wanted) for _ in range(min(PAGE, left))))
            for message in filter(None, page):
                _print(message.event, json, message.deliveries)
        left = 0 if None in page else left - PAGE


async def _next(tx: Transaction, queue: Queue, wanted: Filter) -> Message | None:
    try:
        return await tx.get(queue, wanted, timeout_s=0)
    except QueueEmpty:
        return None


@connects
def read(
    queue: QueueName,
    where: Where = "",
    all: ReadAll = False,
    timeout: Timeout = 0.0,
    wait: Wait = False,
    node: Address = None,
    json: Json = False,
) -> None:
    """Print the first message that matches, or --all, and leave it where it is.

    The exit code is 1 if there was none.
    """
    wanted = parse(where, json)
    _check_all(all, timeout, wait)

    async def look() -> None:
        async with queue_of(queue, node) as found:
            if all:
                for event in await found.read_all(wanted):
                    _print(event, json)
            else:
                _print(await found.read(wanted, timeout_s=patience(timeout, wait)), json)

    _run(look())


@connects
def headers(queue: QueueName, where: Where = "", node: Address = None, json: Json = False) -> None:
    """Show what is in a queue, without the bodies; nothing is taken."""
    wanted = parse(where, json)

    async def look() -> None:
        async with queue_of(queue, node) as found:
            events = await found.headers(wanted)
        if json:
            for event in events:
                _print(event, json)
        elif events:
            _print_headers(events)
        else:
            typer.echo(f"nothing{' that matches' if where else ''} is in {queue}", err=True)

    run(look())


def _print_headers(events: list[Event]) -> None:
    columns = ("age", "priority", "type", "attributes", "from", "id")
    table = new_table(*columns, numbers=("age", "priority"), wide=("attributes", "id"))
    for event in events:
        cells = (event.type, values_text(event.attributes), word(event.source or "–"), event.id or "–")
        add_row(table, age_of(event), str(event.priority), *cells)
    print_table(table)


@connects
def watch(
    queue: QueueName,
    where: Where = "",
    count: WatchCount = None,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Print what is put into a queue from now on, until Ctrl-C or --count; nothing is taken."""
    wanted = parse(where, json)

    async def follow() -> None:
        async with queue_of(queue, node, name, reconnect=True) as found, found.watch(wanted) as events:
            typer.echo(f"watching {queue}; Ctrl-C ends", err=True)
            await show(events, count, json)

    run(follow())


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a command for which an empty queue is an answer, told by the exit code 1."""

    async def answered() -> None:
        try:
            await work
        except QueueEmpty as error:
            typer.echo(f"tidings: {error}", err=True)
            raise typer.Exit(1) from None

    run(answered())


def _print(event: Event, json: bool, deliveries: int = 1) -> None:
    from tidings.event.json import to_json as event_json

    again = f" (delivery {deliveries})" if deliveries > 1 else ""
    typer.echo(event_json(event).decode() if json else line_of(event) + again)


def values_text(values: Mapping[str, object]) -> str:
    """Attributes on one line."""
    return " ".join(f"{name}={word(value)}" for name, value in values.items())


def age_of(event: Event) -> str:
    """How long ago the queue took it in."""
    received = event.received
    return age_text(None if received is None else max(0.0, time.time() - received.timestamp()))
