"""`tidings queue put | get | read | headers | watch`: the messages of a queue.

`tidings queue dead` shows, replays and purges dead letters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, connects, queue_of, run
from tidings.cli.events import send_all, source_of
from tidings.cli.filter import parse
from tidings.cli.options import (
    Fields,
    Json,
    Kind,
    Name,
    QueueName,
    Timeout,
    Wait,
    Where,
    Yes,
    option,
)
from tidings.cli.printing import (
    add_row,
    age_text,
    count_text,
    event_json,
    new_table,
    print_event,
    print_events,
    print_found,
    print_result,
    shown,
    values_text,
    word,
)
from tidings.client import Bus, Message, Queue, Transaction
from tidings.errors import QueueEmpty, QueueError, QueueNotFound, UserError
from tidings.event import Event
from tidings.filters import Filter
from tidings.queues.dead_letters import MARKS
from tidings.queues.description import DEAD

if TYPE_CHECKING:
    from rich.table import Table

dead = typer.Typer()

PAGE = 100
"""Messages that are taken, printed and acknowledged together when all are wanted."""

PutCount = Annotated[int, option("Put the event so many times.", min=1)]
Delay = Annotated[float | None, option("Deliver it after so many seconds at the earliest.", min=0.0)]
NotBefore = Annotated[
    str | None, option("TIME", "Deliver it at this time at the earliest, as in 2030-05-01T08:30:00Z.")
]
GroupName = Annotated[
    str | None, option("Deliver the messages of one group one after the other, in their order.")
]
GetCount = Annotated[int, option("Get so many messages.", min=1)]
GetAll = Annotated[bool, option("--all", "Get all messages that are in it now.")]
ReadAll = Annotated[bool, option("--all", "Read all messages that are in it now.")]
WatchCount = Annotated[int | None, option("End after so many messages.", min=1)]
Into = Annotated[str | None, option("QUEUE", "Put them into this queue instead.")]


@connects
async def put(
    queue: QueueName,
    kind: Kind = None,
    fields: Fields = None,
    count: PutCount = 1,
    delay_s: Delay = None,
    not_before: NotBefore = None,
    group: GroupName = None,
    name: Name = "",
    json: Json = False,
) -> None:
    """Put an event into a queue: tidings queue put jobs job number=1

    A value is a number, true, false, "text in quotes", or any other text as it stands. Without TYPE, each
    line of standard input is an event as JSON; a line that is none is reported and passed over, and the exit
    code is then 2.
    """
    source, done = source_of(kind, fields or [], count), 0
    plan: dict[str, Any] = {"delay_s": delay_s, "not_before": moment_of(not_before), "group": group}

    async def put_chunk(chunk: list[Event]) -> None:
        nonlocal done
        try:
            await found.put_all(chunk, **plan)
        except QueueError as error:
            done += getattr(error, "put", 0)
            raise type(error)(error.queue, f"{error.problem}; {done:,} put before that") from None
        done += len(chunk)

    async with queue_of(queue, name) as found:
        await send_all(source, "putting", put_chunk)
        print_result({"put": done}, f"put {done:,}", json)
    if source.bad:
        raise typer.Exit(2)


def moment_of(text: str | None) -> datetime | None:
    """Return the time that a text says; UserError if it says none with a zone."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"--not-before {text}: give a time with its zone, as 2030-05-01T08:30:00Z") from None
    return moment


@connects
async def get(
    queue: QueueName,
    where: Where = "",
    count: GetCount = 1,
    all: GetAll = False,
    timeout: Timeout = 0.0,
    wait: Wait = False,
    json: Json = False,
) -> None:
    """Take messages out of a queue and print them: the first, --count or --all.

    A message is acknowledged when it has been printed. The exit code is 1 if there were fewer than wanted.
    `tidings queue put` reads the output of --json.
    """
    wanted = parse(where, json)
    if all and count > 1:
        raise UserError("--all and --count exclude each other; give one of them")
    _check_all(all, timeout, wait)
    with _empty_is_an_answer():
        async with bus_of() as bus:
            found = await bus.queue(queue)
            if all:
                await _take_all(bus, found, wanted, json)
                return
            for _ in range(count):
                async with found.take(wanted, timeout_s=None if wait else timeout) as message:
                    _print(message, json)


def _check_all(all: bool, timeout_s: float, wait: bool) -> None:
    if all and (timeout_s or wait):
        raise UserError("--all does not wait; leave out --timeout and --wait")


async def _take_all(bus: Bus, queue: Queue, wanted: Filter, json: bool) -> None:
    """Take page after page, each in a transaction that ends when it has been printed.

    It takes no more messages than there were at the beginning, even if other clients go on putting.
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
    json: Json = False,
) -> None:
    """Print the first message that matches, or --all, and leave it where it is.

    The exit code is 1 if there was none.
    """
    wanted = parse(where, json)
    _check_all(all, timeout, wait)
    with _empty_is_an_answer():
        async with queue_of(queue) as found:
            if all:
                for event in await found.read_all(wanted):
                    print_event(event, json)
            else:
                print_event(await found.read(wanted, timeout_s=None if wait else timeout), json)


@connects
async def headers(queue: QueueName, where: Where = "", json: Json = False) -> None:
    """Show the messages of a queue without their bodies; nothing is taken."""
    wanted = parse(where, json)
    async with queue_of(queue) as found:
        events = await found.headers(wanted)
    none = f"no {'matching ' if where else ''}message in {queue}"
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
    queue: QueueName, where: Where = "", count: WatchCount = None, name: Name = "", json: Json = False
) -> None:
    """Print messages that are put into a queue from now on, until Ctrl-C or --count; nothing is taken."""
    wanted = parse(where, json)
    async with queue_of(queue, name, reconnect=True) as found, found.watch(wanted) as events:
        typer.echo(f"watching {queue}; Ctrl-C ends", err=True)
        await print_events(events, count, json)


@contextmanager
def _empty_is_an_answer() -> Iterator[None]:
    """Turn an empty queue into the exit code 1."""
    try:
        yield
    except QueueEmpty as error:
        typer.echo(f"tidings: {error}", err=True)
        raise typer.Exit(1) from None


def _print(message: Message, json: bool) -> None:
    again = f" (delivery {message.deliveries})" if message.deliveries > 1 else ""
    print_event(message.event, json, again)


def age_of(event: Event) -> str:
    """Return how long ago the queue accepted it."""
    received = event.received
    return age_text(None if received is None else max(0.0, time.time() - received.timestamp()))


# Dead letters


@dead.callback(invoke_without_command=True)
@connects
async def show_dead(context: typer.Context, where: Where = "", json: Json = False) -> None:
    """Show the dead letters: messages that were rejected, delivered too often or had no room.

    The queue of a letter and the reason are attributes, so --where can select them:
    tidings queue dead --where "dead.queue = 'jobs'"
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    wanted = parse(where, json)
    async with bus_of() as bus:
        letters = await _letters(bus, wanted)
    none = "no dead letters" + (" that match" if where else "")
    print_found(letters, json, event_json, _letter_table, none)


def _refuse_options(context: typer.Context, command: str) -> None:
    """Refuse options before the command, such as --where, which would have no effect."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"--{name} stands behind {command}: tidings queue dead {command} --{name} …")


async def _letters(bus: Bus, wanted: Filter) -> list[Event]:
    """Return the dead letters that match, without their bodies; none if there never were any."""
    try:
        return await (await bus.queue(DEAD)).headers(wanted)
    except QueueNotFound:
        return []


def _letter_table(letters: Sequence[Event]) -> Table:
    columns = ("queue", "reason", "deliveries", "age", "type", "attributes")
    table = new_table(*columns, numbers=("deliveries", "age"), wide=("reason", "attributes"))
    for letter in letters:
        values = letter.attributes
        queue, reason, deliveries = (values.get(name, "–") for name in MARKS)
        own = {name: value for name, value in values.items() if name not in MARKS}
        row = (word(queue), shown(reason), str(deliveries), age_of(letter), letter.type, values_text(own))
        add_row(table, *row)
    return table


@dead.command("replay")
@connects
async def replay_dead(where: Where = "", queue: Into = None, json: Json = False) -> None:
    """Put dead letters back into their queues, if these still exist, or into another queue."""
    wanted = parse(where, json)
    async with bus_of() as bus:
        if queue is not None:
            await bus.queue(queue)  # is refused even if there is nothing to put into it
        count = await bus.replay_dead(wanted, queue)
        left = len(await _letters(bus, wanted))
    print_result({"replayed": count, "left": left}, f"replayed {_letters_text(count)}", json)
    if left and not json:
        typer.echo(f"left: {_letters_text(left)} of queues that are gone; --queue names another", err=True)


@dead.command("purge")
@connects
def purge_dead(where: Where = "", yes: Yes = False, json: Json = False) -> None:
    """Delete all dead letters, or those that match."""
    wanted = parse(where, json)

    async def look() -> int:
        async with bus_of() as bus:
            return len(await _letters(bus, wanted))

    async def throw() -> int:
        async with bus_of() as bus:
            return await (await bus.queue(DEAD)).purge(wanted)

    count = run(look())
    if count and not yes:
        typer.confirm(f"Throw away {_letters_text(count)}?", abort=True, err=True)
    gone = run(throw()) if count else 0
    print_result({"purged": gone}, f"threw away {_letters_text(gone)}", json)


def _letters_text(count: int) -> str:
    return count_text(count, "dead letter")
