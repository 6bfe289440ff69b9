"""`tidings top`: what a node is doing, as it changes.

Two samples of the node's status give the rates between them; what is shown is made from those two alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Annotated, Any, TextIO

import msgspec
import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidings.cli.connection import bus_at, connects, find_node
from tidings.cli.options import Json, option
from tidings.cli.printing import add_row, age_text, new_table, print_json, print_table
from tidings.client import Bus

DURABLES_SHOWN = 20
QUEUES_SHOWN = 20
PEERS_SHOWN = 20
READ_SIZE = 64
"""Bytes of keys that are read at once."""

Once = Annotated[bool, option("--once", "Show one screen and end.")]
Every = Annotated[float, option("SECONDS", "Seconds between two samples.", min=0.01)]

Status = Mapping[str, Any]


class Counted(Struct, frozen=True):
    """A counter: its total, and its recent rate per second."""

    what: str
    reason: str
    total: int
    per_s: float


class Waiting(Struct, frozen=True):
    """A durable subscription and what waits for it."""

    name: str
    owner: str
    depth: int
    oldest_age_s: float | None = None


class Queued(Struct, frozen=True):
    """A queue: its messages, in flight and delayed ones, waiting readers, and the age of the next message."""

    name: str
    messages: int
    in_flight: int
    waiting: int
    age_s: float
    delayed: int = 0


class PeerRow(Struct, frozen=True):
    """Another node, its state, and how many messages wait here for it."""

    name: str
    state: str
    waiting: int
    for_s: float


class NodeSummary(Struct, frozen=True):
    """The contents of a screen."""

    node: str
    sessions: int
    subscriptions: int
    advertisements: int
    position: int
    counts: list[Counted]
    durables: list[Waiting]
    queues: list[Queued]
    peers: list[PeerRow] = []


@connects
async def top(once: Once = False, every: Every = 1.0, json: Json = False) -> None:
    """Show rates, subscriptions, waiting messages and dropped events, until q or Ctrl-C.

    Without a terminal, or with --json, it prints one screen or one object per interval, until the reader of
    its output is gone.
    """
    address = find_node()
    is_live = not (once or json) and sys.stdout.isatty()
    async with bus_at(address) as bus:
        await (_watch(bus, address, every) if is_live else _print(bus, once, every, json))


async def _print(bus: Bus, once: bool, every_s: float, json: bool) -> None:
    async with aclosing(_summaries(bus, every_s)) as summaries:
        async for summary in summaries:
            if json:
                print_json(summary)
            else:
                print_table(screen(summary))
            if once:
                return
            if not json:
                typer.echo()


async def _watch(bus: Bus, address: str, every_s: float) -> None:
    async def show() -> None:
        async for summary in _summaries(bus, every_s):
            live.update(screen(summary), refresh=True)

    with key_pressed("qQ") as left, Live(f"looking at {address} …", screen=True, auto_refresh=False) as live:
        showing, leaving = asyncio.ensure_future(show()), asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait({showing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if showing.done():
                showing.result()
        finally:
            leaving.cancel()
            showing.cancel()
            await asyncio.gather(showing, leaving, return_exceptions=True)


async def _summaries(bus: Bus, every_s: float) -> AsyncGenerator[NodeSummary, None]:
    """Yield a summary after each interval, without end."""
    before = await _sample(bus)
    while True:
        await asyncio.sleep(every_s)
        after = await _sample(bus)
        yield summarize(*before, *after)
        before = after


async def _sample(bus: Bus) -> tuple[float, Status]:
    status = await bus.status()
    return time.monotonic(), status


def summarize(before_s: float, before: Status, after_s: float, after: Status) -> NodeSummary:
    """Compute a screen from two samples; a node that was restarted in between has counted from 0."""
    known = {(what, reason): times for what, reason, times in before["counts"]}
    elapsed_s = max(after_s - before_s, 1e-9)
    counts = [
        Counted(what, reason, times, max(0, times - known.get((what, reason), 0)) / elapsed_s)
        for what, reason, times in after["counts"]
    ]
    durables = msgspec.convert(after["durables"], list[Waiting])  # without what newer nodes add
    durables.sort(key=lambda one: (-one.depth, one.owner, one.name))
    figures = {
        name: after[name] for name in ("node", "sessions", "subscriptions", "advertisements", "position")
    }
    queues = msgspec.convert(after.get("queues", ()), list[Queued])
    queues.sort(key=lambda one: (-one.messages, one.name))
    peers = msgspec.convert(after.get("peers", ()), list[PeerRow])
    return NodeSummary(**figures, counts=counts, durables=durables, queues=queues, peers=peers)


def screen(summary: NodeSummary) -> RenderableType:
    """The whole screen."""
    head = Text(f"node {summary.node}", style="bold")
    figures = (
        f"{summary.sessions:,} connections   {summary.subscriptions:,} subscriptions   "
        f"{summary.advertisements:,} advertisements   position {summary.position:,}"
    )
    tables = [_counts_table(summary), _durables_table(summary)]
    if summary.queues:
        tables.append(_queues_table(summary))
    if summary.peers:
        tables.append(_peers_table(summary))
    return Group(head, Text(figures), *tables)


def _counts_table(summary: NodeSummary) -> Table:
    table = new_table("counted", "reason", "each second", "in all", numbers=("each second", "in all"))
    for one in summary.counts:
        style = "red" if one.what == "dropped" and one.per_s else ""
        add_row(table, one.what, one.reason, f"{one.per_s:,.0f}", f"{one.total:,}", style=style)
    return table


def _durables_table(summary: NodeSummary) -> RenderableType:
    if not summary.durables:
        return Text("no durable subscriptions", style="dim")
    numbers = ("waiting", "oldest")
    table = new_table("durable subscription", "owner", *numbers, numbers=numbers)
    for one in summary.durables[:DURABLES_SHOWN]:
        add_row(table, one.name, one.owner, f"{one.depth:,}", age_text(one.oldest_age_s))
    return _with_rest(table, len(summary.durables) - DURABLES_SHOWN)


def _queues_table(summary: NodeSummary) -> Table:
    numbers = ("messages", "delayed", "in flight", "readers", "next")
    table = new_table("queue", *numbers, numbers=numbers)
    for one in summary.queues[:QUEUES_SHOWN]:
        counts = (f"{count:,}" for count in (one.messages, one.delayed, one.in_flight, one.waiting))
        add_row(table, one.name, *counts, age_text(one.age_s if one.messages else None))
    return _with_rest(table, len(summary.queues) - QUEUES_SHOWN)


def _peers_table(summary: NodeSummary) -> Table:
    table = new_table("peer", "state", "for", "waiting", numbers=("for", "waiting"))
    for one in summary.peers[:PEERS_SHOWN]:
        style = "" if one.state == "there" else "red"
        add_row(table, one.name, one.state, age_text(one.for_s), f"{one.waiting:,}", style=style)
    return _with_rest(table, len(summary.peers) - PEERS_SHOWN)


def _with_rest(table: Table, more: int) -> Table:
    """The table, with a row that says how many there is no room for."""
    if more > 0:
        add_row(table, f"and {more:,} more", style="dim")
    return table


# Keys


@contextmanager
def key_pressed(keys: str, terminal: TextIO | None = None) -> Iterator[asyncio.Event]:
    """An event that is set when one of the keys is pressed, or when the terminal is gone.

    The terminal is standard input unless one is given. Without a terminal, and on Windows, it is never set.
    """
    pressed, stream = asyncio.Event(), terminal or sys.stdin
    if sys.platform == "win32" or stream is None or not stream.isatty():
        yield pressed
        return
    with _unbuffered(stream.fileno()) as descriptor:
        loop = asyncio.get_running_loop()

        def read() -> None:
            data = _read(descriptor)
            if not data or any(key.encode() in data for key in keys):
                loop.remove_reader(descriptor)
                pressed.set()

        loop.add_reader(descriptor, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_SIZE)
    except OSError:  # Linux reports EIO when the other end of a terminal is closed
        return b""


@contextmanager
def _unbuffered(descriptor: int) -> Iterator[int]:
    """Have the terminal pass on each key at once and not show it; Ctrl-C goes on to interrupt."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)
    try:
        yield descriptor
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
