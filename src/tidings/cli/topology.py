"""`tidings topology`: the nodes of a network and their links, and the way of an event between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.events import read_body, read_fields
from tidings.cli.options import Fields, Json, argument, option
from tidings.cli.printing import print_json, print_result, shown
from tidings.client import Bus
from tidings.event import Event
from tidings.overlay.changes import NetworkSight
from tidings.overlay.drawing import svg, text
from tidings.overlay.records import NodeRecord

app = typer.Typer(invoke_without_command=True)

LOOK_S = 0.2
"""How often `--watch` looks."""

Svg = Annotated[Path | None, option("--svg", "FILE", "Draw the network to this file, as SVG.")]
Watch = Annotated[bool, option("--watch", "Print each change of a link or node, until Ctrl-C.")]
Gone = Annotated[str, argument("NAME", "The name or id of the neighbour.")]
TracedKind = Annotated[str, argument("TYPE", "The type of the event.")]


@app.callback()
@connects
async def topology(
    context: typer.Context, draw_to: Svg = None, watches: Watch = False, json: Json = False
) -> None:
    """Show the nodes of the network and their links, as the node knows them."""
    if context.invoked_subcommand is not None:
        return
    async with bus_of() as bus:
        reply = await bus.topology()
        if watches:
            await _watch(bus, NetworkSight(reply), json)
    records = msgspec.convert(reply["records"], list[NodeRecord])
    if draw_to is not None:
        draw_to.write_text(svg(records, reply["node"]))
    if json:
        print_json(reply)
    elif draw_to is None:
        typer.echo(text(records, reply["node"]))
        for line in _links(reply["links"]):
            typer.echo(line)


async def _watch(bus: Bus, before: NetworkSight, json: bool) -> None:
    """Print how much there is, and then what changes, for ever."""
    nodes = sum(len(ends) == 1 for ends in before.states)
    links = len(before.states) - nodes
    print_result({"nodes": nodes, "links": links}, f"watching {nodes} nodes and {links} links", json)
    while True:
        await asyncio.sleep(LOOK_S)
        sight = NetworkSight(await bus.topology())
        for change in sight.since(before):
            now = datetime.now(UTC)
            if json:
                print_json({"at": now.isoformat(), **msgspec.structs.asdict(change)})
            else:
                typer.echo(f"{now:%H:%M:%S}.{now.microsecond // 1000:03} {shown(change)}")
        before = sight


def _links(links: list[dict[str, Any]]) -> Iterator[str]:
    for link in links:
        name, state = shown(link["name"] or link["node"]), link["state"]
        tables = f"wants {link['wanted']} filters, is announced {link['announced']}"
        waiting = f", {link['behind']} positions behind" if link["behind"] else ""
        yield f"link to {name}: {state}; {tables}{waiting}"


@app.command()
@connects
async def trace(kind: TracedKind, fields: Fields = None, json: Json = False) -> None:
    """Show which way an event would take: tidings topology trace air.pm10 value=41.2

    Nothing is published. Each hop is shown with the filter by which the event passes, or with the reason why
    it does not.
    """
    event = Event(kind, **read_body(read_fields(fields or [])))
    async with bus_of() as bus:
        reply = await bus.trace(event)
    if json:
        print_json(reply)
        return
    for line in _traced(reply, reply["at_us"], 0):
        typer.echo(line)


@app.command()
@connects
async def remove(neighbour: Gone, json: Json = False) -> None:
    """Forget a neighbour that is gone for good, and drop the events that wait for it.

    While the link to it is there this is refused.
    """
    async with bus_of() as bus:
        await bus.remove_link(neighbour)
    print_result({"removed": neighbour}, f"removed the link to {shown(neighbour)}", json)


def _traced(reply: dict[str, Any], begun_us: int, depth: int) -> Iterator[str]:
    """Yield the lines of one node and of those behind it."""
    indent = "  " * depth
    late_ms = (reply["at_us"] - begun_us) / 1e3
    count = reply["subscriptions"]
    many = "" if count == 1 else "s"
    yield f"{indent}{shown(reply['node'])}: {count} subscription{many} ({late_ms:+.1f} ms)"
    for hop in reply["hops"]:
        passed = f" by: {shown(hop['passed'])}" if "passed" in hop else ""
        yield f"{indent}  to {shown(hop['to'])}{passed}{': ' + shown(hop['why']) if 'why' in hop else ''}"
        if "there" in hop:
            yield from _traced(hop["there"], begun_us, depth + 2)
