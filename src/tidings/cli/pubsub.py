"""`tidings publish`, `subscribe`, `durable` and `advertisement`: events that come and go through a node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_at, bus_of, connects, find_node
from tidings.cli.events import send_all, source_of
from tidings.cli.filter import Text, parse, read_pattern
from tidings.cli.options import Fields, Json, Kind, Name, argument, option, read_time
from tidings.cli.printing import (
    add_row,
    new_table,
    print_events,
    print_found,
    print_json,
    print_result,
    print_table,
    shown,
    some,
    to_json,
    word,
)
from tidings.client import Bus
from tidings.client.advertisements import OfferList
from tidings.errors import NotAllowed, Refused, UserError
from tidings.event.header import DELIVERIES
from tidings.filters import Converter, Filter, Taxonomy
from tidings.filters.tokens import needs_taxonomy
from tidings.patterns import Pattern

if TYPE_CHECKING:
    from rich.table import Table

durables = typer.Typer(no_args_is_help=True)
advertisements = typer.Typer(no_args_is_help=True)


# Publishing


Delivery = Annotated[
    str | None,
    option(
        "HOW",
        "The delivery mode: transient, reliable or persistent.",
        autocompletion=lambda: list(DELIVERIES),
    ),
]
Times = Annotated[int, option("Publish the event so many times.", min=1)]


@connects
async def publish(
    kind: Kind = None,
    fields: Fields = None,
    delivery: Delivery = None,
    count: Times = 1,
    name: Name = "",
    json: Json = False,
) -> None:
    """Publish an event: tidings publish air.pm10 value=41.2 street=quay

    A value is a number, true, false, "text in quotes", or any other text as it stands. Without TYPE, each
    line of standard input is an event as JSON; a line that is none is reported and passed over, and the exit
    code is then 2.
    """
    changes = {} if delivery is None else {"delivery": delivery}
    source = source_of(kind, fields or [], count, **changes)
    async with bus_of(name) as bus:
        sent = await send_all(source, "publishing", bus.publish_all)
    published = sent - bus.refused
    print_result({"published": published}, f"published {published:,}", json)
    if source.bad or bus.refused:
        raise typer.Exit(2)


# Subscribing

Durable = Annotated[str | None, option("NAME", "The name of a durable subscription, kept by the node.")]
Since = Annotated[str | None, option("WHEN", "Begin with stored events: a position, or a time in ISO 8601.")]
Last = Annotated[bool, option("--last", "Begin with the newest event of each thing.")]
Passive = Annotated[bool, option("--passive", "Create no demand for events.")]
PatternText = Annotated[
    str | None,
    option("PATTERN", "Print the matches of a pattern instead: \"a[type = 'x'] THEN b[…] WITHIN 5 min\"."),
]
Convert = Annotated[
    list[str] | None,
    option("--convert", "NAME=UNIT", "Convert an attribute: --convert value=µg/m³; may be repeated."),
]
Count = Annotated[int | None, option("End after so many events.", min=1)]


@connects
async def subscribe(
    text: Text = "",
    durable: Durable = None,
    since: Since = None,
    last: Last = False,
    passive: Passive = False,
    pattern: PatternText = None,
    convert: Convert = None,
    count: Count = None,
    name: Name = "",
    json: Json = False,
) -> None:
    """Print the events that match FILTER, until Ctrl-C or --count.

    On a durable subscription an event is acknowledged when it has been printed. A match of a pattern is
    printed as an event, with the values that its RETURN names. Terms of IS_A and units, as in
    value > 50 'µg/m³', are those that the node was given with --concepts, and the usual units.
    """
    if pattern is not None and text:
        raise UserError("--pattern: a pattern has its filters in its steps; leave FILTER out")
    units = read_units(convert or [])
    needs = needs_taxonomy(pattern or text)
    wanted = None if needs else _wanted(text, pattern, json)  # a mistake is shown though no node is there
    address = find_node()
    async with bus_at(address, name) as bus:
        taxonomy = await bus.taxonomy() if needs or units else None
        beginning = None if since is None else read_since(since)
        subscription = bus.subscribe(
            _wanted(text, pattern, json, taxonomy) if wanted is None else wanted,
            durable=durable,
            since=beginning,
            last=last,
            passive=passive,
            convert=Converter(units, taxonomy) if units else None,
        )
        async with subscription as events:
            typer.echo(f"subscribed at {address}; Ctrl-C ends", err=True)
            _warn_missing(events.missing)
            await print_events(events, count, json)


def _warn_missing(nodes: Sequence[str]) -> None:
    """Name the nodes that could not be asked."""
    if nodes:
        typer.echo(f"could not be asked: {', '.join(map(shown, nodes))}", err=True)


def _wanted(text: str, pattern: str | None, json: bool, taxonomy: Taxonomy | None = None) -> Filter | Pattern:
    """The filter or pattern, or the end of the command with its mistake on display."""
    if pattern is not None:
        return read_pattern(pattern, json, taxonomy)
    return parse(text, json, taxonomy)


def read_units(given: Sequence[str]) -> dict[str, str]:
    """Return the units that attributes are converted to."""
    units: dict[str, str] = {}
    for one in given:
        name, equals, unit = one.partition("=")
        if not (name and equals and unit):
            raise UserError(f"--convert: {one!r} is not NAME=UNIT, such as value=µg/m³")
        units[name] = unit
    return units


def read_since(text: str) -> int | datetime:
    """A position or a moment; a moment without a zone is in UTC."""
    if text.isdecimal():
        return int(text)
    try:
        return read_time(text)
    except ValueError:
        raise UserError(
            f"--since: {text!r} is neither a position nor a time such as 2026-05-01T08:30"
        ) from None


# Durable subscriptions

Which = Annotated[str, argument("NAME", "The name of the durable subscription.")]
Owner = Annotated[
    str | None,
    option("CLIENT", "The client it belongs to, if not to --name; takes the right to manage everything."),
]


@durables.command("list")
@connects
async def show_durables(json: Json = False) -> None:
    """Show the durable subscriptions of the node, and how many events wait for each."""
    async with bus_of() as bus:
        found = await _durables(bus)
    print_found(found, json, to_json, _durable_table, "no durable subscriptions")


async def _durables(bus: Bus) -> list[dict[str, Any]]:
    """Return those of clients; `tidings log list` shows the readers of the log."""
    return [one for one in (await bus.status())["durables"] if not one.get("archive")]


def _durable_table(found: Sequence[dict[str, Any]]) -> Table:
    table = new_table("durable subscription", "owner", "waiting", numbers=("waiting",))
    for one in found:
        add_row(table, word(one["name"]), word(one["owner"] or "–"), f"{one['depth']:,}")
    return table


@durables.command()
@connects
async def delete(which: Which, owner: Owner = None, name: Name = "", json: Json = False) -> None:
    """Delete a durable subscription with the events that wait for it.

    A client that has it open is notified that it has ended.
    """
    async with bus_of(name) as bus:
        try:
            await bus.unsubscribe(which, owner=owner)
        except Refused as error:
            if error.code != "not-found":
                raise
            raise Refused(error.code, error.problem + await _owners(bus, which)) from None
    print_result({"deleted": which}, f"deleted {word(which)}", json)


async def _owners(bus: Bus, which: str) -> str:
    """Name the clients that have one of that name, in words to be added; none if that may not be seen."""
    try:
        owners = [word(one["owner"]) for one in await _durables(bus) if one["name"] == which]
    except NotAllowed:
        return ""
    return f"; other clients have one: --owner {' or --owner '.join(owners)}" if owners else ""


# Advertisements

Wanted = Annotated[str, argument("FILTER", "Only those that overlap this filter.")]
Lists = Annotated[int | None, option("End after so many lists.", min=1)]


@advertisements.command("list")
@connects
async def show_advertisements(text: Wanted = "", json: Json = False) -> None:
    """Show the current advertisements."""
    wanted = parse(text, json)
    async with bus_of() as bus:
        _print_offers(await bus.advertisements(wanted), json)


@advertisements.command()
@connects
async def watch(text: Wanted = "", count: Lists = None, json: Json = False) -> None:
    """Show the advertisements, and again after each change, until Ctrl-C or --count."""
    wanted = parse(text, json)
    async with bus_of() as bus:
        async for offers in some(bus.watch_advertisements(wanted), count):
            _print_offers(offers, json)


def _print_offers(offers: OfferList, json: bool) -> None:
    _warn_missing(offers.missing)
    if json:
        listed = [{"filter": one.text, "source": one.source} for one in offers]
        print_json({"advertisements": listed, "missing": offers.missing})
    elif offers:
        table = new_table("source", "may publish", wide=("may publish",))
        for one in offers:
            add_row(table, shown(one.source) or "-", shown(one.text))
        print_table(table)
    else:
        typer.echo("nothing is advertised", err=True)
