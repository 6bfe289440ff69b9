"""`tidings top`: what a node is doing, as it changes.

Two samples of the node's status give the rates between them; what is shown is made from those two alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from tidings.cli.connection import Address, Json, bus_at, connects, find_node, run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidings.client import Bus

DURABLES_SHOWN = 20
QUEUES_SHOWN = 20
PEERS_SHOWN = 20

Once = Annotated[bool, typer.Option("--once", help="Show one screen and end.")]
Every = Annotated[float, typer.Option(min=0.01, metavar="SECONDS", help="How often to look.")]

Status = Mapping[str, Any]


class Counted(Struct, frozen=True):
    """Something that is counted: how often in all, and each second of late."""

    what: str
    reason: str
    total: int
    per_s: float


class Waiting(Struct, frozen=True):
    """A durable subscription and what waits for it."""

    name: str
    owner: str
    depth: int
    oldest_age_s: float | None


class Queued(Struct, frozen=True):
    """A queue: what waits in it, is in readers' hands, and waits for it; and how long the next has waited."""

    name: str
    messages: int
    in_flight: int
    waiting: int
    age_s: float


class Neighbour(Struct, frozen=True):
    """Another node, how it stands, and how many messages wait here for it."""

    name: str
    state: str
    waiting: int
    for_s: float


class Summary(Struct, frozen=True):
    """What is shown."""

    node: str
    sessions: int
    subscriptions: int
    advertisements: int
    position: int
    counts: list[Counted]
    durables: list[Waiting]
    queues: list[Queued]
    peers: list[Neighbour] = []


@connects
def top(node: Address = None, once: Once = False, every: Every = 1.0, json: Json = False) -> None:
    """Show rates, subscriptions, what waits and what was dropped, until Ctrl-C."""

    async def work() -> None:
        address = find_node(node)
        async with bus_at(address) as bus:
            await (_print(bus, once, every, json) if once or json else _watch(bus, address, every))

    run(work())


async def _print(bus: Bus, once: bool, every_s: float, json: bool) -> None:
    from rich.console import Console

    before = await _sample(bus)
    while True:
        await asyncio.sleep(every_s)
        after = await _sample(bus)
        summary = summarize(*before, *after)
        if json:
            typer.echo(msgspec.json.encode(summary).decode())
        else:
            Console(highlight=False).print(screen(summary))
        if once:
            return
        before = after


async def _watch(bus: Bus, address: str, every_s: float) -> None:
    from rich.live import Live

    before = await _sample(bus)
    with Live(f"looking at {address} …", screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(every_s)
            after = await _sample(bus)
            live.update(screen(summarize(*before, *after)), refresh=True)
            before = after


async def _sample(bus: Bus) -> tuple[float, Status]:
    status = await bus.status()
    return time.monotonic(), status


_NEIGHBOUR = Neighbour.__struct_fields__


def summarize(before_s: float, before: Status, after_s: float, after: Status) -> Summary:
    """What two samples say; a node that was restarted in between has counted from nothing."""
    known = {(what, reason): times for what, reason, times in before["counts"]}
    elapsed_s = max(after_s - before_s, 1e-9)
    counts = [
        Counted(what, reason, times, max(0, times - known.get((what, reason), 0)) / elapsed_s)
        for what, reason, times in after["counts"]
    ]
    durables = [
        Waiting(one["name"], one["owner"], one["depth"], one.get("oldest_age_s")) for one in after["durables"]
    ]
    durables.sort(key=lambda one: (-one.depth, one.owner, one.name))
    figures = {
        name: after[name] for name in ("node", "sessions", "subscriptions", "advertisements", "position")
    }
    queues = [Queued(**one) for one in after.get("queues", ())]
    queues.sort(key=lambda one: (-one.messages, one.name))
    peers = [Neighbour(**{name: one[name] for name in _NEIGHBOUR}) for one in after.get("peers", ())]
    return Summary(**figures, counts=counts, durables=durables, queues=queues, peers=peers)


def screen(summary: Summary) -> RenderableType:
    """The whole screen."""
    from rich.console import Group
    from rich.text import Text

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


def _counts_table(summary: Summary) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table("counted", "reason", box=None, header_style="dim", pad_edge=False)
    table.add_column("each second", justify="right")
    table.add_column("in all", justify="right")
    for one in summary.counts:
        style = "red" if one.what == "dropped" and one.per_s else ""
        table.add_row(one.what, Text(one.reason), f"{one.per_s:,.0f}", f"{one.total:,}", style=style)
    return table


def _durables_table(summary: Summary) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    if not summary.durables:
        return Text("no durable subscriptions", style="dim")
    table = Table("durable subscription", "owner", box=None, header_style="dim", pad_edge=False)
    table.add_column("waiting", justify="right")
    table.add_column("oldest", justify="right")
    for one in summary.durables[:DURABLES_SHOWN]:
        table.add_row(Text(one.name), Text(one.owner), f"{one.depth:,}", age_text(one.oldest_age_s))
    more = len(summary.durables) - DURABLES_SHOWN
    if more > 0:
        table.add_row(Text(f"and {more:,} more", style="dim"))
    return table


def _queues_table(summary: Summary) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table("queue", box=None, header_style="dim", pad_edge=False)
    for name in ("messages", "in flight", "readers", "next"):
        table.add_column(name, justify="right")
    for one in summary.queues[:QUEUES_SHOWN]:
        counts = (f"{count:,}" for count in (one.messages, one.in_flight, one.waiting))
        table.add_row(Text(one.name), *counts, age_text(one.age_s if one.messages else None))
    more = len(summary.queues) - QUEUES_SHOWN
    if more > 0:
        table.add_row(Text(f"and {more:,} more", style="dim"))
    return table


def _peers_table(summary: Summary) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table("peer", "state", box=None, header_style="dim", pad_edge=False)
    for name in ("for", "waiting"):
        table.add_column(name, justify="right")
    for one in summary.peers[:PEERS_SHOWN]:
        style = "" if one.state == "there" else "red"
        table.add_row(Text(one.name), one.state, age_text(one.for_s), f"{one.waiting:,}", style=style)
    more = len(summary.peers) - PEERS_SHOWN
    if more > 0:
        table.add_row(Text(f"and {more:,} more", style="dim"))
    return table


def age_text(age_s: float | None) -> str:
    """An age in the largest unit that leaves a whole number; a dash where it is not known."""
    if age_s is None:
        return "–"
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if age_s >= size_s:
            return f"{age_s / size_s:.0f} {unit}"
    return f"{age_s:.0f} s"
