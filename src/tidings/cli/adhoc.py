"""`tidings adhoc`: what a node carries for hosts that meet by chance, whom it meets, and why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.events import read_body, read_fields
from tidings.cli.options import Fields, Json, argument, option
from tidings.cli.printing import add_row, age_text, new_table, print_found, print_json, print_result, shown
from tidings.cli.printing import to_json as as_json
from tidings.client.adhoc import PlaceKind
from tidings.event import Event

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)

Id = Annotated[str, argument("ID", "The id of a message, or of an event that was put at this node.")]
Place = Annotated[str, argument("NAME", "The name of a queue or topic.")]
Topic = Annotated[bool, option("--topic", "It is a topic, not a queue.")]
Host = Annotated[str, option("--at", "HOST", "It is at this host, which may never have been met.")]
Replicas = Annotated[
    int, option("--replicas", "N", "So many hosts that are often met may stand in for this one.", min=0)
]
Follow = Annotated[bool, option("--follow", "The queue goes to the host of its main reader.")]

CastType = Annotated[str, argument("TYPE", "The type of the event.")]
Area = Annotated[str, argument("AREA", "The area, a polygon in WKT.")]
X = Annotated[float, argument("X", "The first number of the place.")]
Y = Annotated[float, argument("Y", "The second.")]


@app.command()
@connects
async def status(json: Json = False) -> None:
    """Show what the node carries, for itself and for others, and what it has counted."""
    async with bus_of() as bus:
        told = await bus.adhoc_status()
    if json:
        print_json(told)
        return
    typer.echo(f"host {told['host']}, strategy {told['strategy']}, {_signed(told['signed'])}")
    typer.echo(f"carries {told['messages']} messages, {told['bytes']} of {told['bytes_max']} bytes")
    typer.echo(f"here: {', '.join(told['here']) or 'nobody'}")
    for what, reasons in told["counted"].items():
        counts = ", ".join(
            str(times) if reason == "all" else f"{reason} {times}" for reason, times in reasons.items()
        )
        typer.echo(f"{what}: {counts}")
    for one in told["carried"]:
        typer.echo(
            f"{one['id']} for {', '.join(one['waits_for'])}: {one['left_s']} s left, {one['bytes']} bytes"
        )


def _signed(is_signed: bool) -> str:
    return "signed" if is_signed else "not signed: hosts of this machine only"


@app.command()
@connects
async def neighbours(json: Json = False) -> None:
    """Show the hosts that are met now, and those that were."""
    async with bus_of() as bus:
        found = await bus.adhoc_neighbours()
    print_found(found, json, as_json, _table, "no host was met")


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = new_table("host", "met", "received", "sent")
    for one in found:
        when = "now" if one["here"] else f"{age_text(one['ago_s'])} ago"
        add_row(table, shown(one["host"]), when, str(one["bytes_received"]), str(one["bytes_sent"]))
    return table


@app.command()
@connects
async def why(id: Id, json: Json = False) -> None:
    """Show where a message is as far as the node knows, who has it, and why it waits."""
    async with bus_of() as bus:
        told = await bus.adhoc_why(id)
    if json:
        print_json(told)
        return
    typer.echo(f"{told['id']}: {told['state']}")
    if told["delivered_to"]:
        typer.echo(f"delivered to {', '.join(told['delivered_to'])}")
    if told.get("waits_for"):
        near = f", of which {', '.join(told['near'])} is near" if told["near"] else ", of which none is near"
        typer.echo(f"waits for {', '.join(told['waits_for'])}{near}")
        typer.echo(f"{told['left_s']} s of its life are left; {told['copies']} copies, {told['hops']} hops")


@app.command()
@connects
async def hold(
    name: Place,
    topic: Topic = False,
    at: Host = "",
    replicas: Replicas = 0,
    follow: Follow = False,
    json: Json = False,
) -> None:
    """Hold a queue or topic, and announce it; or enter that another host does."""
    kind: PlaceKind = "topic" if topic else "queue"
    async with bus_of() as bus:
        await bus.adhoc_hold(name, kind=kind, host=at, replicas=replicas, follow=follow)
    where = f"known at {at}" if at else "held here"
    about = {"name": name, "kind": kind, "host": at, "replicas": replicas, "follow": follow}
    print_result(about, f"{kind} {shown(name)} is {where}", json)


@app.command()
@connects
async def cast(area: Area, kind: CastType, fields: Fields = None, json: Json = False) -> None:
    """Have an event carried to all nodes within an area, such as 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))'."""
    event = Event(kind, **read_body(read_fields(fields or [])))
    async with bus_of() as bus:
        id = await bus.adhoc_cast(area, event)
    print_result({"id": id}, f"{id} is carried to all within", json)


@app.command()
@connects
async def move(x: X, y: Y, json: Json = False) -> None:
    """Say where the node is from now on; two dashes before a place that is below 0."""
    async with bus_of() as bus:
        await bus.adhoc_move(x, y)
    print_result({"place": [x, y]}, f"the node is at {x:g}, {y:g}", json)


@app.command()
@connects
async def release(name: Place, json: Json = False) -> None:
    """Hold a queue or topic no longer, or forget an entry."""
    async with bus_of() as bus:
        await bus.adhoc_release(name)
    print_result({"name": name}, f"{shown(name)} is released", json)
