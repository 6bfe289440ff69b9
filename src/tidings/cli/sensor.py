"""`tidings sensor`: what a gateway knows, recordings played to it, and the devices of an MQTT broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidings.cli.connection import bus_of, connects, run_quickly
from tidings.cli.options import (
    GATEWAY,
    Ca,
    Gateway,
    Json,
    OnlyAsked,
    Tls,
    TokenFile,
    Udp,
    argument,
    option,
)
from tidings.cli.printing import (
    add_row,
    new_table,
    print_json,
    print_result,
    print_table,
    progress_line,
)
from tidings.client.sessions import DemandInfo
from tidings.errors import CodecError, NoAnswer
from tidings.gateway.coverage import KnownSensors
from tidings.sensors.columns import parse_columns
from tidings.sensors.link import host_and_port, place_of
from tidings.sensors.mqtt import Bridge, Bridged, session_class
from tidings.sensors.replay import Played, Player, Recording
from tidings.sensors.topics import load_map

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)

LIST = "tidings.gateway.list"
"""The request to which a gateway answers, as JSON in the body, with all it knows of its networks."""

NETWORKS_SHOWN = 3
"""Networks that are named beside a filter that they serve."""
SERVED = {"full": "fully", "part": "in part", "none": "not"}

Timeout = Annotated[float, option("SECONDS", "How long to wait.", min=0.1)]
Subscriptions = Annotated[bool, option("--subscriptions", "Whether the sensors serve each subscription.")]
Where = Annotated[str, option("--network", "ID", "Only this network.")]
File = Annotated[Path, argument("FILE", "CSV with a header line; may be gzipped (.gz).", show_default=False)]
Speed = Annotated[float, option("N", "N times as fast as recorded; 0: as fast as possible.", min=0.0)]
ColumnsOption = Annotated[
    str | None,
    option(
        "MAPPING",
        "Which column is what, such as: timestamp=time,name=sensor,posx=lon,posy=lat,"
        "value:air.pm10=pm10. Without it, by the names of the columns.",
    ),
]
NetworkColumn = Annotated[
    str | None, option("COLUMN", "The column of the network. Without it, each sensor is one.")
]
MqttBroker = Annotated[str, option("HOST[:PORT]", "The MQTT broker.", show_default=False)]
Topics = Annotated[
    list[str] | None, option("FILTER", "The topics to subscribe to; by default, those of the map.")
]
MapFile = Annotated[
    Path, option("--map", "FILE", "How messages become readings, as TOML.", show_default=False)
]
Username = Annotated[str | None, option("NAME", "The user at the broker.")]
PasswordFile = Annotated[Path | None, option("FILE", "The password for the broker.")]
SessionName = Annotated[str, option("NAME", "The MQTT client id, by which the broker keeps the session.")]
BrokerTls = Annotated[bool, option("--broker-tls", "Use TLS to the broker.")]
BrokerCa = Annotated[Path | None, option("FILE", "Trusted certificates of the broker; implies TLS.")]


# What a gateway knows


@app.command("list")
@connects
async def show(
    network: Where = "", subscriptions: Subscriptions = False, timeout: Timeout = 5.0, json: Json = False
) -> None:
    """List sensor networks and their sensors: which are on, the requested range and rate, and for whom.

    With --subscriptions: the filters that clients of the node have subscribed with, and whether the sensors
    serve each of them fully, in part or not.
    """
    async with bus_of(reconnect=True) as bus:
        try:
            answer = await bus.request(LIST, timeout_s=timeout)
        except NoAnswer:
            raise NoAnswer("no gateway answers; start the node with --sensor-port") from None
        demands = await bus.demands() if subscriptions else []
    networks = read_list(answer.body or b"")
    networks = [one for one in networks if network in ("", one["sensing-id"])]
    if subscriptions:
        print_coverage(demands, networks, json)
    else:
        print_list(networks, json)


def read_list(body: bytes) -> list[dict[str, Any]]:
    """The networks in a gateway's answer; CodecError if it is none."""
    try:
        networks = msgspec.json.decode(body, type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise CodecError("$", f"the gateway's answer is no list of networks: {error}") from None
    for index, network in enumerate(networks):
        if not isinstance(network.get("sensing-id"), str) or not isinstance(network.get("sensors"), list):
            raise CodecError(f"$[{index}]", "is no network")
    return networks


def print_list(networks: list[dict[str, Any]], json: bool) -> None:
    """Networks as a table with a row for each sensor, or one a line as JSON."""
    if json:
        for network in networks:
            print_json(network)
    elif not networks:
        typer.echo("no sensor networks")
    else:
        print_table(sensor_table(networks))


def sensor_table(networks: list[dict[str, Any]]) -> Table:
    """One row a sensor; the network stands in the first of its rows."""
    columns = ("network", "user", "from", "sensor", "type", "range", "on", "asked", "why")
    table = new_table(*columns, wide=("why",))
    for network in networks:
        head = (network["sensing-id"], network.get("owner") or "–", _origin(network))
        for sensor in network["sensors"] or [{}]:
            add_row(table, *head, *_sensor_cells(sensor))
            head = ("", "", "")
    return table


def _origin(network: dict[str, Any]) -> str:
    """Return the transport, address and state of a network."""
    parts = (network.get("transport"), network.get("peer"), network.get("state"))
    return " ".join(part for part in parts if part and part != "here") or "–"


def _sensor_cells(sensor: dict[str, Any]) -> tuple[str, ...]:
    is_on = sensor.get("on")
    return (
        sensor.get("name") or "–",
        sensor.get("type") or "–",
        _range(sensor.get("range")),
        "–" if is_on is None else "on" if is_on else "off",
        _range(sensor.get("asked")) if is_on else "–",
        "; ".join(sensor.get("filters") or ()) or "–",
    )


def _range(ends: list[float | None] | None) -> str:
    if ends is None:
        return "all"
    low, high = ("" if end is None else f"{end:g}" for end in ends)
    return f"{low}…{high}"


def print_coverage(demands: list[DemandInfo], networks: list[dict[str, Any]], json: bool) -> None:
    """Print for each filter whether the networks serve it, as a table or one a line as JSON."""
    try:
        sensors = KnownSensors(networks)
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError("$", f"the gateway's answer has a network that can't be read: {error!r}") from None
    table = new_table("served", "subscriptions", "filter", "by", wide=("filter", "by"))
    for demand in demands:
        coverage = sensors.coverage(demand.filter)
        if json:
            print_json({"subscriptions": demand.subscriptions, **msgspec.to_builtins(coverage)})
        else:
            by = ", ".join(islice(coverage.networks, NETWORKS_SHOWN)) or "–"
            more = len(coverage.networks) - NETWORKS_SHOWN
            add_row(
                table,
                SERVED[coverage.served],
                str(demand.subscriptions),
                demand.filter or "everything",
                f"{by} and {more:,} more" if more > 0 else by,
            )
    if not json and not demands:
        typer.echo("no subscriptions")
    elif not json:
        print_table(table)


# Recordings


@app.command()
def replay(
    file: File,
    gateway: Gateway = GATEWAY,
    speed: Speed = 1.0,
    columns: ColumnsOption = None,
    network: NetworkColumn = None,
    only_asked: OnlyAsked = False,
    udp: Udp = False,
    tls: Tls = False,
    ca: Ca = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Play recorded readings to a gateway, in the order and with the pauses of their times.

    Every reading keeps its time, and has arrived when the command ends. Invalid lines are reported.
    """
    place = place_of(gateway, udp=udp, tls=tls, ca=ca, token=token_file)
    recording = Recording(file, None if columns is None else parse_columns(columns), network)

    with progress_line(not json) as show:
        player = Player(
            recording,
            place,
            speed=speed,
            only_asked=only_asked,
            report=lambda played: show(played_text(played)),
            on_problem=lambda problem: typer.echo(f"tidings: {problem}", err=True),
        )
        is_whole = run_quickly(player.play())
    print_played(player.played, recording, json)
    if not is_whole:
        raise typer.Exit(130)


def played_text(played: Played) -> str:
    """Return how far a recording was played, in words."""
    return (
        f"{played.share:4.0%}  {played.readings:,} readings of {played.networks:,} networks read, "
        f"{played.arrived:,} arrived  {played.arrived / max(played.elapsed_s, 1e-9):,.0f}/s"
    )


def print_played(played: Played, recording: Recording, json: bool) -> None:
    """Print the counts of a recording, and the lines that could not be read."""
    found = {name: getattr(recording, name) for name in ("lines", "empty", "late", "bad")}
    named = [{"line": line, "problem": problem} for line, problem in recording.bad_lines]
    if json:
        print_json({**msgspec.to_builtins(played), **found, "bad_lines": named})
        return
    typer.echo(
        f"{played.arrived:,} readings of {played.networks:,} networks arrived, "
        f"from {recording.lines:,} lines in {played.elapsed_s:.1f} s"
    )
    details = {"empty values": recording.empty, "readings nobody wanted": played.unwanted}
    details |= {"lines out of order": recording.late, "lines that can't be read": recording.bad}
    if any(details.values()):
        typer.echo(", ".join(f"{count:,} {what}" for what, count in details.items() if count))
    for line, problem in recording.bad_lines:
        typer.echo(f"  line {line}: {problem}")


# MQTT


@app.command()
def mqtt(
    broker: MqttBroker,
    map_file: MapFile,
    gateway: Gateway = GATEWAY,
    topics: Topics = None,
    username: Username = None,
    password_file: PasswordFile = None,
    session: SessionName = "tidings",
    broker_tls: BrokerTls = False,
    broker_ca: BrokerCa = None,
    only_asked: OnlyAsked = False,
    tls: Tls = False,
    ca: Ca = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Bridge the devices of an MQTT broker to a gateway as sensor networks, until Ctrl-C.

    The bridge acknowledges a message to the broker after the gateway has it, and publishes the demand for a
    network, retained, under tidings/interest/NETWORK for its devices.
    """
    mapping = load_map(map_file)
    place = place_of(gateway, udp=False, tls=tls, ca=ca, token=token_file)
    session_class()
    from tidings.sensors.mqtt_session import MqttBroker

    host, port = host_and_port(broker, 1883)
    home = MqttBroker(
        host, port, username, password_file, session, broker_tls or broker_ca is not None, broker_ca
    )
    with suppress(KeyboardInterrupt), progress_line(not json) as show:
        bridge = Bridge(
            mapping,
            home,
            place,
            filters=topics or None,
            only_asked=only_asked,
            report=lambda tally: show(bridged_text(tally)),
            on_problem=lambda problem: typer.echo(f"tidings: {problem}", err=True),
        )
        asyncio.run(bridge.run())
    print_result(bridge.tally, bridged_text(bridge.tally), json)
    raise typer.Exit(130)


def bridged_text(tally: Bridged) -> str:
    """Return the counts of a bridge so far, in words."""
    extra = {"repeats": tally.repeated, "bad": tally.bad, "dropped": tally.dropped}
    rest = "".join(f", {count:,} {what}" for what, count in extra.items() if count)
    return (
        f"{tally.messages:,} messages of {tally.networks:,} networks, {tally.arrived:,} readings arrived, "
        f"{tally.acknowledged:,} messages acknowledged{rest}"
    )
