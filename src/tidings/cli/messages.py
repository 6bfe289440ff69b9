"""`tidings queue put | get | read | headers | watch`: what goes in, comes out and is in there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import bus_of, connects, queue_of
from tidings.cli.events import send_all, source_of
from tidings.cli.filter import parse
from tidings.cli.options import Address, Fields, Json, Kind, Name, QueueName, Timeout, Wait, Where
from tidings.cli.printing import (
    add_row,
    age_text,
    event_json,
    new_table,
    print_event,
    print_events,
    print_found,
    to_json,
    values_text,
    word,
)
from tidings.errors import QueueEmpty, QueueError, UserError

if TYPE_CHECKING:
    from rich.table import Table

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
async def put(
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
    async with queue_of(queue, node, name) as found:
        filler = Filler(found)
        await send_all(source, "putting", filler.put)
        typer.echo(to_json({"put": filler.done}) if json else f"put {filler.done:,}")
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
async def get(
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
    with _empty_is_an_answer():
        async with bus_of(node) as bus:
            found = await bus.queue(queue)
            if all:
                await _take_all(bus, found, wanted, json)
                return
            for _ in range(count):
                async with found.take(wanted, timeout_s=None if wait else timeout) as message:
                    _print(message, json)


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
                _print(message, json)
        left = 0 if None in page else left - PAGE


async def _next(tx: Transaction, queue: Queue, wanted: Filter) -> Message | None:
    try:
        return await tx.get(queue, wanted, timeout_s=0)
    except QueueEmpty:
        return None


@connects
async def read(
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
    with _empty_is_an_answer():
        async with queue_of(queue, node) as found:
            if all:
                for event in await found.read_all(wanted):
                    print_event(event, json)
            else:
                print_event(await found.read(wanted, timeout_s=None if wait else timeout), json)


@connects
async def headers(queue: QueueName, where: Where = "", node: Address = None, json: Json = False) -> None:
    """Show what is in a queue, without the bodies; nothing is taken."""
    wanted = parse(where, json)
    async with queue_of(queue, node) as found:
        events = await found.headers(wanted)
    none = f"nothing{' that matches' if where else ''} is in {queue}"
    print_found(events, json, event_json, _header_table, none)


def _header_table(events: Sequence[Event]) -> Table:
    columns = ("age", "priority", "type", "attributes", "from", "id")
    table = new_table(*columns, numbers=("age", "priority"), wide=("attributes", "id"))
    for event in events:
        cells = (event.type, values_text(event.attributes), word(event.source or "–"), event.id or "–")
        add_row(table, age_of(event), str(event.priority), *cells)
    return table


@connects
async def watch(
    queue: QueueName,
    where: Where = "",
    count: WatchCount = None,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Print what is put into a queue from now on, until Ctrl-C or --count; nothing is taken."""
    wanted = parse(where, json)
    async with queue_of(queue, node, name, reconnect=True) as found, found.watch(wanted) as events:
        typer.echo(f"watching {queue}; Ctrl-C ends", err=True)
        await print_events(events, count, json)


@contextmanager
def _empty_is_an_answer() -> Iterator[None]:
    """Have an empty queue told by the exit code 1."""
    try:
        yield
    except QueueEmpty as error:
        typer.echo(f"tidings: {error}", err=True)
        raise typer.Exit(1) from None


def _print(message: Message, json: bool) -> None:
    again = f" (delivery {message.deliveries})" if message.deliveries > 1 else ""
    print_event(message.event, json, again)


def age_of(event: Event) -> str:
    """How long ago the queue took it in."""
    received = event.received
    return age_text(None if received is None else max(0.0, time.time() - received.timestamp()))
