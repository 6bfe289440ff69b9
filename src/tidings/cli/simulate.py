"""`tidings simulate`: what can be repeated by its seed.

Storms over a node and its clients are in virtual time; a city full of sensors speaks to a real gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tidings.channels.description import PROTOCOLS, ChannelOrder, ChannelProtocol
from tidings.cli.connection import run_quickly
from tidings.cli.experiments import OUT, Grid, OnSpark, Out, Seeds, experiment, write_picture
from tidings.cli.options import (
    GATEWAY,
    Ca,
    Gateway,
    Json,
    Tls,
    TokenFile,
    Udp,
    option,
    options_of,
    with_options,
)
from tidings.cli.printing import (
    add_row,
    new_table,
    print_found,
    print_json,
    print_result,
    progress_line,
    to_json,
)
from tidings.cli.simulate_adhoc import run_adhoc
from tidings.sensors.city import Load
from tidings.sensors.link import place_of
from tidings.sensors.simulation import CityTally, Simulation
from tidings.simulator import overlay_storm, peer_storm, queue_storm, storm
from tidings.simulator.agent_costs import DetectionCost, detection_costs
from tidings.simulator.agents import AgentFault, swarm
from tidings.simulator.channel_faults import ChannelFault
from tidings.simulator.channel_storm import NAMES as CHANNEL_NODES
from tidings.simulator.channel_storm import ChannelPlan, channel_storm
from tidings.simulator.city import city
from tidings.simulator.overlay_costs import overlay_costs
from tidings.simulator.overlay_pictures import overlay_picture
from tidings.simulator.overlay_routes import overlay_routes
from tidings.simulator.overlay_storm import NAMES

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)
app.command("adhoc")(run_adhoc)
HOPS = 2
"""Links between an agent and the middle of the star for which the costs of finding orphans are counted."""
DRAWN = 24
"""Nodes in a picture, unless their number is given."""

Seed = Annotated[int, option("The seed of the first storm; the others follow.")]
Runs = Annotated[int, option("The number of storms.", min=1)]
StormsOrNetworks = Annotated[
    int | None, option("The number of storms, without it 10; of networks of more than 7 nodes, 1.", min=1)
]
Duration = Annotated[float, option("--duration-s", "The simulated seconds of each storm.", min=0.1)]
Nodes = Annotated[int, option("N", "The number of nodes; clients use the queues of all.", min=1, max=5)]
LinkedNodes = Annotated[
    int | None,
    option(
        "N",
        "The number of nodes; without it, 3 to 7. More than 7 have tables alone: see above.",
        min=2,
        max=10_000,
    ),
]
Picture = Annotated[
    Path | None,
    option("FILE", "Draw a network instead: its tree, and a switch to a better one, with their costs."),
]
Agents = Annotated[int, option("N", "Agents that are started, at most.", min=1, max=1_000)]
Locations = Annotated[int, option("N", "Locations where they run.", min=1, max=1_000)]
Fault = Annotated[AgentFault, option("NAME", "A mistake to build in, which is found.")]
OneOrder = Annotated[
    ChannelOrder | None, option("--order", "ORDER", "That of the channels; without it, each.")
]
OneProtocol = Annotated[
    ChannelProtocol | None, option("--protocol", "NAME", "That of the channels; without it, they take turns.")
]
Deaths = Annotated[int, option("N", "Nodes without members that die.", min=0, max=len(CHANNEL_NODES) - 4)]
ChannelMistake = Annotated[ChannelFault, option("NAME", "A mistake to build in, which is found.")]
LOAD = {
    "networks": (int, option("N", "The number of networks.", min=1)),
    "sensors": (int, option("N", "Sensors of each network.", min=1, max=10_000)),
    "types": (list[str], option("--type", "TYPE", "What they measure; may be repeated.", show_default=False)),
    "rate": (float, option("N", "Messages a second and network; 0: as many as possible.", min=0.0)),
    "readings": (int, option("N", "Readings of each message.", min=1)),
    "mobility": (float, option("M/S", "The speed of every fourth network.", min=0.0)),
    "churn": (float, option("N", "Networks a minute that leave or lose their connection.", min=0.0)),
    "smog": (int, option("N", "The number of networks in a corner with bad air.", min=0)),
    "connections": (int, option("N", "Connections that networks share; without it, one each.", min=1)),
    "always": (bool, option("--always", "Send without demand.")),
    "seed": (int, option("--seed", "The seed of the city and its values.")),
    "duration_s": (float, option("--duration", "SECONDS", "How long; without it, until Ctrl-C.", min=0.1)),
}
"""The options for the load of a city, by its fields, which have the defaults."""


@app.command("storm")
def run_storms(seed: Seed = 0, runs: Runs = 10, duration_s: Duration = 15.0, json: Json = False) -> None:
    """Run the node's own code through storms of faults: cuts, partitions, slow links, crashes, a full disk.

    Nothing promised may be lost, nothing may come twice unmarked, and order must hold; then everything is
    healed and must arrive. A storm that fails is reported with its seed, and the exit code is 1.
    """
    _run(storm, seed, runs, duration_s, json)


@app.command("queues")
def run_queue_storms(
    seed: Seed = 0, runs: Runs = 10, duration_s: Duration = 15.0, nodes: Nodes = 1, json: Json = False
) -> None:
    """Run queues of all kinds through the same storms: puts, gets, settlements and transactions.

    No message may be lost, held by two clients or redelivered unmarked, and a transaction is done whole
    or not at all; then everything is healed and the queues must run empty. With several nodes, clients use
    the queues of all of them, and the log and a sink of their own.
    """
    run = queue_storm if nodes == 1 else partial(peer_storm, nodes=nodes)
    _run(run, seed, runs, duration_s, json)


@app.command("overlay")
def run_overlay_storms(
    seed: Seed = 0,
    runs: StormsOrNetworks = None,
    duration_s: Duration = 15.0,
    nodes: LinkedNodes = None,
    svg: Picture = None,
    grid: Grid = None,
    seeds: Seeds = 5,
    spark: OnSpark = False,
    out: Out = OUT,
    json: Json = False,
) -> None:
    """Run linked nodes through the same storms, while subscriptions at all of them come and go.

    A durable subscription in force gets each reliable event once and in order, wherever it was published;
    then everything is healed: all nodes must agree on one tree and on what is wanted, and keep nothing.

    With more than 7 nodes there is no storm, and only routing is simulated: ten subscriptions for each node,
    to as many types as there are nodes. The sizes of all tables are compared with those of flooding, and the
    links that events pass with those that an oracle needs, which knows every subscription.

    With --grid the costs of trees are measured instead: messages to build and to switch them, and to join
    and leave a group, and the weights of links that an event takes. Parameters: nodes, degree (links of a
    node), members (part of the nodes), churn (part of the members that change), strategy (tree, sender,
    insertion), records (true: flooded records too), repair (true: a node dies), whole (true: one of as many
    whole nodes dies). With --svg one such network is drawn, with its tree after a switch and after a death.
    """
    if grid:
        experiment(overlay_costs, grid, seeds, seed, spark, out, json)
        return
    if svg is not None:
        write_picture(svg, overlay_picture(seed, nodes or DRAWN))
        return
    if nodes is None or nodes <= len(NAMES):
        _run(partial(overlay_storm, nodes=nodes or 0), seed, runs or 10, duration_s, json)
        return
    with progress_line(not json) as show:
        _run(lambda one, _: overlay_routes(one, nodes, show), seed, runs or 1, duration_s, json)


@app.command("channel")
def run_channel_storms(
    seed: Seed = 0,
    runs: Runs = 10,
    duration_s: Duration = 15.0,
    order: OneOrder = None,
    protocol: OneProtocol = None,
    deaths: Deaths = 0,
    fault: ChannelMistake = "",
    json: Json = False,
) -> None:
    """Run channels of each order through storms, while members send, and move from node to node.

    Each member gets each event once and in the order of its sender; in a causal channel none before one that
    its sender knew, in a total channel all in one order. With --fault that fails, and the exit code is 1.
    """

    def storm(order: ChannelOrder, seed: int, duration_s: float) -> object:
        found = protocol or PROTOCOLS[seed % len(PROTOCOLS)]
        return channel_storm(seed, duration_s, ChannelPlan(order, protocol=found, deaths=deaths), fault)

    orders = (order,) if order else get_args(ChannelOrder)
    if sum(_failed(partial(storm, one), seed, runs, duration_s, json) for one in orders):
        raise typer.Exit(1)


def _run(run: Callable[[int, float], object], first: int, runs: int, duration_s: float, json: bool) -> None:
    """Run storms one after the other, and print what came of each; Exit if one fails."""
    if _failed(run, first, runs, duration_s, json):
        raise typer.Exit(1)


def _failed(run: Callable[[int, float], object], first: int, runs: int, duration_s: float, json: bool) -> int:
    """The same, but return how many have failed."""

    def show(seed: int) -> None:
        verdict = run(seed, duration_s)
        print_result(verdict, f"seed {seed}: {verdict}", json)

    return _count_failed(show, first, runs)


def _count_failed(run: Callable[[int], None], first: int, runs: int) -> int:
    """Run something once for each seed; return how many runs failed, which are reported."""
    failed = 0
    for seed in range(first, first + runs):
        try:
            run(seed)
        except AssertionError as error:
            failed += 1
            typer.echo(f"seed {seed}: FAILED: {error}", err=True)
    return failed


@app.command("agents")
def run_swarms(
    seed: Seed = 0,
    runs: Runs = 20,
    agents: Agents = 30,
    locations: Locations = 6,
    fault: Fault = "",
    json: Json = False,
) -> None:
    """Simulate groups of agents: lost messages, partitions, killed locations; and what finding orphans costs.

    Checked is that no useful agent ends, that no orphan outlives its bound, that agents which can be reached
    end one delay and grace after their group, and that the money adds up. A run that fails is reported with
    its seed, and the exit code is 1.

    The costs are links that messages cross in one interval: active detection where nobody has said anything
    (worst) or all have (best), and leases that are asked for and granted by events (basic), by an event and a
    message (direct), or by one event for all (channel). Each is counted, and computed by its formula.
    """
    failed = _count_failed(partial(_print_swarm, agents, locations, fault, json), seed, runs)
    print_found(list(detection_costs(agents, agents * 9 // 10, HOPS)), json, to_json, _cost_table, "")
    if failed:
        raise typer.Exit(1)


def _print_swarm(agents: int, locations: int, fault: AgentFault, json: bool, seed: int) -> None:
    report = swarm(seed, agents, locations, fault)
    ends = ", ".join(f"{count} {reason}" for reason, count in report.ends.items())
    ended = f"ended {report.ended_s_max:.1f} s after the group, orphans {report.orphan_s_max:.1f} s"
    money = f"{report.spent:g} spent, {report.written_off:g} written off"
    print_result(report, f"seed {seed}: {report.agents} agents: {ends}; {ended}; {money}", json)


def _cost_table(costs: Sequence[DetectionCost]) -> Table:
    table = new_table("detection", "counted", "formula", numbers=("counted", "formula"))
    for cost in costs:
        add_row(table, cost.way, f"{cost.counted:,.0f}", f"{cost.formula:,.0f}")
    return table


@app.command("city")
def run_cities(seed: Seed = 0, runs: Runs = 1, duration_s: Duration = 60.0, json: Json = False) -> None:
    """Simulate a city of 1,000 sensors in virtual time, with a gateway, a node, and subscribers.

    Networks move, leave and lose connections. Every wanted reading arrives where it should, at most one per
    cent more is sent than an all-knowing gateway would request, and in the end all are silent.
    """
    _run(city, seed, runs, duration_s, json)


@app.command("sensors")
@with_options(*options_of(LOAD, Load), before="udp")
def run_sensors(
    gateway: Gateway = GATEWAY,
    udp: Udp = False,
    tls: Tls = False,
    ca: Ca = None,
    token_file: TokenFile = None,
    json: Json = False,
    **load: Any,
) -> None:
    """Simulate a city of sensors that send a real gateway the readings that it requests.

    Values follow a daily curve, with noise and outliers. With --always they are sent without demand, as
    sensors do that can't be controlled.
    """
    place = place_of(gateway, udp=udp, tls=tls, ca=ca, token=token_file)
    with progress_line(not json) as show:
        simulation = Simulation(place, Load(**load), lambda tally: show(city_text(tally)))
        is_whole = run_quickly(simulation.run())
    print_city(simulation.tally, json)
    if not is_whole:
        raise typer.Exit(130)


def city_text(tally: CityTally) -> str:
    """Return the counts of a simulated city so far, in words."""
    trouble = f", {tally.errors:,} errors ({tally.last_error})" if tally.last_error else ""
    return (
        f"{tally.elapsed_s:5.0f} s  {tally.networks:,} networks, {tally.connections:,} connections  "
        f"{tally.messages:,} messages, {tally.readings:,} readings, {tally.heard:,} heard{trouble}"
    )


def print_city(tally: CityTally, json: bool) -> None:
    """Print the totals of a simulated city."""
    if json:
        print_json(tally)
        return
    seconds = max(tally.elapsed_s, 1e-9)
    typer.echo(
        f"{tally.messages:,} messages with {tally.readings:,} readings in {tally.elapsed_s:.1f} s: "
        f"{tally.messages / seconds:,.0f} and {tally.readings / seconds:,.0f} a second"
    )
    typer.echo(f"{tally.heard:,} messages heard; {tally.switched:,} times a sensor was switched or narrowed")
    typer.echo(f"{tally.unwanted:,} readings sent that nobody wanted, {tally.withheld:,} kept back")
    if tally.last_error:
        typer.echo(f"{tally.errors:,} errors, the last: {tally.last_error}")
