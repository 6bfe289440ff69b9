"""`tidings channel`: named groups whose members get the same events, at whichever node they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.channels.description import (
    ChannelDelivery,
    ChannelInfo,
    ChannelOrder,
    ChannelProtocol,
    ChannelStatus,
)
from tidings.cli.connection import bus_of, connects
from tidings.cli.events import send_all, source_of
from tidings.cli.filter import parse
from tidings.cli.options import Fields, Json, Kind, Name, argument, option, read_moment
from tidings.cli.printing import (
    add_row,
    new_table,
    print_event,
    print_found,
    print_json,
    print_result,
    print_table,
    shown,
    some,
    to_json,
)
from tidings.event import Event

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)

Which = Annotated[str, argument("CHANNEL", "Its name, or NAME@NODE if several have that name.")]
New = Annotated[str, argument("NAME", "The name of the channel.")]
Delivery = Annotated[
    ChannelDelivery,
    option(
        "HOW",
        "transient: for members that are there; reliable: stored until all members have it; persistent: kept "
        "in the log, too.",
    ),
]
Order = Annotated[
    ChannelOrder,
    option("ORDER", "fifo: of each sender; causal: nothing before what its sender knew; total: one for all."),
]
Types = Annotated[list[str] | None, option("--type", "TYPE", "A type of its events; may be repeated.")]
Private = Annotated[bool, option("--private", "Hide it: only its reference finds it.")]
Protocol = Annotated[
    ChannelProtocol | None,
    option(
        "NAME",
        "Whom joining nodes ask: broadcast, all; insertion, those around them, then more; rendezvous, those "
        "to which the channel is hashed.",
    ),
]
Size = Annotated[int | None, option("N", "Choose the protocol for so many nodes with members.", min=1)]
Fluctuation = Annotated[float | None, option("N", "For so many joins and leaves for each event.", min=0.0)]
Reference = Annotated[str | None, option("TEXT", "The reference of a private channel.")]
Renewed = Annotated[str, argument("REFERENCE", "What finds it now.")]
Where = Annotated[str, option("--where", "FILTER", "Of its events, those that match.")]
Count = Annotated[int | None, option("End after so many events.", min=1)]
Durable = Annotated[str | None, option("NAME", "Keep reliable events under this name while this is away.")]
Expedited = Annotated[bool, option("--expedited", "Skip the order of the channel: members get it at once.")]
Since = Annotated[str | None, option("TIME", "What was stored since then first: 12h, or a time.")]
Until = Annotated[bool, option("--end", "Keep its events no longer.")]
Update = Annotated[str | None, option("KEY", "Supersede events of this key that members have not got yet.")]
Changes = Annotated[
    bool, option("--changes", "Do not join: print who joins and leaves, and members lost with their node.")
]
Sought = Annotated[str, argument("NAME", "Only channels of this name.")]
Member = Annotated[str, argument("NAME", "What was given to `channel watch --durable`.")]
Secret = Annotated[str | None, argument("CHANNEL", "Its name; none with --reference.")]


@app.command()
@connects
async def create(
    name: New,
    delivery: Delivery = "transient",
    types: Types = None,
    private: Private = False,
    order: Order = "fifo",
    protocol: Protocol = None,
    size: Size = None,
    fluctuation: Fluctuation = None,
    json: Json = False,
) -> None:
    """Create a channel, which exists until it is deleted.

    Without --protocol, --size or --fluctuation nodes that join ask all others.
    """
    given = {"size": size, "fluctuation": fluctuation}
    expect = {what: value for what, value in given.items() if value is not None}
    async with bus_of() as bus:
        channel = await bus.create_channel(
            name,
            order=order,
            delivery=delivery,
            types=tuple(types or ()),
            private=private,
            protocol=protocol,
            expect=expect or None,
        )
    made = {"id": channel.id, "name": channel.name, "reference": channel.reference}
    made["protocol"] = channel.protocol
    how = f"; its reference is {channel.reference}" if private else ""
    print_result(made, f"created channel {shown(name)}{how}", json)


@app.command("list")
@connects
async def list_(name: Sought = "", json: Json = False) -> None:
    """Show the channels of all nodes that can be reached, and where their members are."""
    async with bus_of() as bus:
        found = await bus.channels(name)
    print_found(found, json, to_json, _table, "no channels")


def _table(found: Sequence[ChannelInfo]) -> Table:
    table = new_table("channel", "created at", "delivery", "order", "types", "members", wide=("members",))
    for one in found:
        members = _counted(one.members)
        types = ", ".join(one.types) or "all"
        add_row(table, shown(one.name), shown(one.node), one.delivery, one.order, types, members)
    return table


@app.command()
@connects
async def show(name: Secret = None, reference: Reference = None, json: Json = False) -> None:
    """Show what is measured of a channel: members, links, events, and how often members change."""
    async with bus_of() as bus:
        channel = await bus.channel(name, reference=reference)
        found = await channel.status()
    if json:
        print_json(found)
    else:
        print_table(_status(found))


def _status(found: ChannelStatus) -> Table:
    table = new_table("channel", shown(found.name), wide=(shown(found.name),))
    changes = "no events yet" if found.fluctuation is None else f"{found.fluctuation:.3g} an event"
    rows = {
        "created at": f"{shown(found.node)}, {found.delivery}, {found.order}, {found.protocol}",
        "types": ", ".join(found.types) or "all",
        "members": f"{sum(found.members.values())}: {_counted(found.members)}",
        "extent": f"{len(found.links)} links, {found.extent:.1%} of the network's tree by weight",
        "events": f"{sum(found.sent.values()):,}, {found.rate:.3g}/s: {_counted(found.sent)}",
        "changes": f"{found.joins} joins, {found.leaves} leaves: {changes}",
    }
    if found.missing:
        rows["not reached"] = ", ".join(map(shown, found.missing))
    for what, value in rows.items():
        add_row(table, what, value)
    return table


def _counted(numbers: Mapping[str, int]) -> str:
    """Return how many there are at each node."""
    return ", ".join(f"{shown(node)} {count:,}" for node, count in sorted(numbers.items())) or "none"


@app.command()
@connects
async def send(
    name: Which,
    kind: Kind = None,
    fields: Fields = None,
    reference: Reference = None,
    expedited: Expedited = False,
    update: Update = None,
    json: Json = False,
) -> None:
    """Send an event to the members of a channel: tidings channel send trip position lat=52.5

    Without TYPE, each line of standard input is an event as JSON.
    """
    source = source_of(kind, fields or [], 1)
    async with bus_of() as bus:
        channel = await bus.channel(None if reference else name, reference=reference)
        async with channel:

            async def send_each(events: Sequence[Event]) -> None:
                for event in events:
                    await channel.send(event, expedited=expedited, update=update)

            sent = await send_all(source, "sending", send_each)
    print_result({"sent": sent - bus.refused}, f"sent {sent - bus.refused:,}", json)
    if source.bad or bus.refused:
        raise typer.Exit(2)


@app.command()
@connects
async def watch(
    name: Secret = None,
    where: Where = "",
    durable: Durable = None,
    reference: Reference = None,
    since: Since = None,
    count: Count = None,
    client: Name = "",
    changes: Changes = False,
    json: Json = False,
) -> None:
    """Join a channel and print its events, until Ctrl-C or --count."""
    wanted = parse(where, json)
    begin = None if since is None else read_moment(since, "--since", datetime.now(UTC))
    async with bus_of(client) as bus:
        if changes:
            found = await bus.channel(name, reference=reference)
            async for event in some(found.changes(), count):
                print_event(event, json)
            return
        channel = await bus.channel(name, reference=reference, where=wanted, durable=durable, since=begin)
        async with channel:
            typer.echo(f"joined channel {shown(channel.name)}; Ctrl-C ends", err=True)
            async for event in some(channel, count):
                print_event(event, json)


@app.command()
@connects
async def history(
    name: Secret = None,
    where: Where = "",
    reference: Reference = None,
    since: Since = None,
    json: Json = False,
) -> None:
    """Print what is stored of a persistent or archived channel, at all nodes that can be reached."""
    wanted = parse(where, json)
    begin = None if since is None else read_moment(since, "--since", datetime.now(UTC))
    async with bus_of() as bus:
        channel = await bus.channel(name, reference=reference)
        async for event in channel.history(since=begin, where=wanted):
            print_event(event, json)
        missing = ", ".join(map(shown, channel.missing))
    if missing:
        typer.echo(f"could not be asked: {missing}", err=True)
        raise typer.Exit(2)


@app.command()
@connects
async def archive(
    name: Secret = None, reference: Reference = None, end: Until = False, json: Json = False
) -> None:
    """Have this node keep all events of a channel, for when those that have them can't be reached."""
    async with bus_of() as bus:
        channel = await bus.channel(name, reference=reference, archive=not end)
        async with channel:
            pass
    told = "no longer archives" if end else "archives"
    print_result({"archived": not end}, f"the node {told} channel {shown(channel.name)}", json)


@app.command()
@connects
async def renew(reference: Renewed, json: Json = False) -> None:
    """Give a private channel a new reference: nobody joins by the former one any more."""
    async with bus_of() as bus:
        channel = await bus.channel(reference=reference)
        async with channel:
            new = await channel.renew()
    print_result({"reference": new}, f"the reference of channel {shown(channel.name)} is {new}", json)


@app.command()
@connects
async def leave(name: Member, client: Name = "", json: Json = False) -> None:
    """End a membership with a durable name; what waits for it is dropped."""
    async with bus_of(client) as bus:
        await bus.unsubscribe(name)
    print_result({"left": name}, f"{shown(name)} is no member any more", json)


@app.command()
@connects
async def delete(name: Which, reference: Reference = None, json: Json = False) -> None:
    """Delete a channel: its members get no more events."""
    async with bus_of() as bus:
        channel = await bus.channel(None if reference else name, reference=reference)
        await channel.delete()
    print_result({"deleted": channel.id}, f"deleted channel {shown(channel.name)}", json)
