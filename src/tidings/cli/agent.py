"""`tidings agent`: groups of agents, who is in them, what they cost, and why each has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidings.agents.arguments import AgentInfo, GroupInfo
from tidings.agents.conditions import any_of
from tidings.cli.connection import bus_of, connects
from tidings.cli.experiments import write_picture
from tidings.cli.options import Json, argument, option
from tidings.cli.printing import add_row, new_table, print_found, print_json, print_result, shown, to_json
from tidings.client.agents import LEASE_S, AgentGroup
from tidings.errors import GroupNotFound, UserError
from tidings.event import Event
from tidings.event.json import from_json
from tidings.filters import Filter

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client import Bus

app = typer.Typer(no_args_is_help=True)

Which = Annotated[str, argument("GROUP", "The group, by its id or name.")]
Target = Annotated[
    str, argument("TARGET", "A group, by id or name, or an agent, by id, with those below it.")
]
Kind = Annotated[str, argument("CLASS", "The class, by import path: trips.agents:Hotels.")]
AgentName = Annotated[str, option("--name", "NAME", "What the agent is called.", show_default="the class")]
At = Annotated[str, option("--at", "NODE", "Where it begins.", show_default="this node")]
State = Annotated[str, option("--state", "JSON", "Its state.")]
Budget = Annotated[
    list[str] | None, option("--budget", "UNIT=AMOUNT", "Its share of the budget; may be repeated.")
]
Svg = Annotated[Path | None, option("--svg", "FILE", "Write a picture of the run instead.")]
Kept = Annotated[
    Path | None,
    option("--events", "FILE", "Its events, as `tidings subscribe --json` prints them."),
]
Deputies = Annotated[
    list[str] | None, argument("NODE", "The nodes beside its home.", show_default="show them")
]
Alone = Annotated[bool, option("--alone", "Have its home alone keep it.")]
All = Annotated[bool, option("--all", "Show also groups that have ended.")]


@app.command("list")
@connects
async def show_all(all: All = False, json: Json = False) -> None:
    """Show the groups of a node, and what they have spent."""
    async with bus_of() as bus:
        found = [one for one in await bus.groups() if all or one.phase != "ended"]
    print_found(found, json, to_json, _groups, "no groups")


def _groups(found: Sequence[GroupInfo]) -> Table:
    table = new_table("id", "group", "state", "reason", "running", "members", "spent", "held")
    for one in found:
        counts = str(one.running), str(one.members)
        money = amounts(one.spent), amounts(one.held)
        add_row(table, one.group, shown(one.name), one.phase, one.reason or "", *counts, *money)
    return table


async def _shown(group: str, json: bool) -> GroupInfo | None:
    """Fetch a group, and print how it stands, or all of it with `json`, after which nothing is left to do."""
    async with bus_of() as bus:
        found = await bus.group_info(group)
    if json:
        print_json(found)
        return None
    typer.echo(headline(found))
    return found


@app.command()
@connects
async def show(group: Which, json: Json = False) -> None:
    """Show a group: its condition, its members, where they are, and why they have ended."""
    found = await _shown(group, json)
    if found is not None:
        print_found(found.agents, json, to_json, _agents, "no members")


def _agents(found: Sequence[AgentInfo]) -> Table:
    table = new_table("agent", "name", "state", "reason", "where", "life", "spent", "held", "lease")
    for one in found:
        lease = (
            "released" if one.released else "" if one.lease_left_s is None else f"{one.lease_left_s:.0f} s"
        )
        about = one.state, one.reason or "", shown(one.where), str(one.life)
        add_row(table, one.agent, shown(one.name), *about, amounts(one.spent), amounts(one.held), lease)
    return table


@app.command()
@connects
async def tree(group: Which, svg: Svg = None, json: Json = False) -> None:
    """Draw a group: who has started whom, from when until when, and why each has ended.

    With --svg it is a picture of the run, with where each was and when, from the events in the log.
    """
    if svg is not None:
        async with bus_of() as bus:
            write_picture(svg, await bus.draw_group(group))
        return
    found = await _shown(group, json)
    for line in drawn(found.agents) if found is not None else ():
        typer.echo(line)


@app.command()
@connects
async def start(
    group: Which,
    kind: Kind,
    name: AgentName = "",
    at: At = "",
    state: State = "{}",
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Start an agent that moves, of a class that a node trusts: tidings agent start trip trips:Hotels --at b

    A group that is not there, or has ended, is opened: it ends with the first result. The class is not
    imported here.
    """
    share = parse_amounts(budget or [])
    async with bus_of() as bus:
        wanted = await open_group(bus, group, share)
        given = _decoded(state)
        await wanted.class_at(kind, at)  # before a group is opened for it
        await wanted.listen()
        try:
            agent = await wanted.start(kind, given, name=name, at=at, budget=share)
        finally:
            await wanted.hang_up()
    print_result({"agent": agent}, agent, json)


def _decoded(state: str) -> object:
    try:
        return msgspec.json.decode(state)
    except msgspec.DecodeError as error:
        raise UserError(f"--state is no JSON: {error}") from None


@app.command()
@connects
async def follow(group: Which, json: Json = False) -> None:
    """Show what happens in a group, from its beginning to its end, as the log has it."""
    async with bus_of() as bus:
        found = await bus.group_info(group)
        where = Filter("type LIKE 'agent.%' AND group = :group", group=found.group)
        async with bus.subscribe(
            where, since=datetime.fromtimestamp(found.opened_us / 1e6, UTC), passive=True
        ) as events:
            async for event in events:
                if json:
                    print_json({**event.attributes, "type": event.type, "time": event.time})
                else:
                    typer.echo(told_event(event))
                if event.type == "agent.closed":
                    return


def told_event(event: Event) -> str:
    """Return a line that says what has happened in a group."""
    names = "agent_name", "reason", "problem", "what", "step", "where"
    parts = [shown(str(event[name])) for name in names if name in event]
    money = [
        f"{event[name]:g} {name.removeprefix('amount.')}"
        for name in event.attributes
        if name[:7] == "amount."
    ]
    moment = event.time.strftime("%H:%M:%S.%f")[:-3]
    return " ".join([moment, event.type.removeprefix("agent."), *parts, *money])


@app.command()
@connects
async def stop(target: Target, json: Json = False) -> None:
    """End a group or an agent, with all below it: within the grace, then by force."""
    async with bus_of() as bus:
        await bus.stop_agents(target)
    print_result({"stopped": target}, f"ordered {shown(target)} to end", json)


@app.command()
@connects
async def deputies(group: Which, nodes: Deputies = None, alone: Alone = False, json: Json = False) -> None:
    """Have other nodes keep a group with its home, or show which do: tidings agent deputies trip b c

    Those that are named replace the ones before, one at a time, while the group runs. There are two to six.
    """
    if nodes and alone:
        raise UserError("--alone is without nodes: give nodes or --alone")
    async with bus_of() as bus:
        changes = bus.set_deputies(group, *nodes or ()) if nodes or alone else bus.group_info(group)
        found = await changes
    kept_by = ", ".join(shown(one) for one in found.kept_by) or "its home alone"
    print_result({"group": found.group, "kept_by": found.kept_by}, f"kept by {kept_by}", json)


@app.command()
@connects
async def takeover(group: Which, events: Kept = None, json: Json = False) -> None:
    """Have this node be the home of a group whose home is gone.

    A node that keeps the group asks the other deputies. Any other node needs all events of the group, as a
    durable subscription has them: tidings subscribe "type LIKE 'agent.%'" --durable kept --json > kept.jsonl
    """
    async with bus_of() as bus:
        if events is None:
            taken = await bus.take_over(group)
        else:
            found = [from_json(line) for line in events.read_bytes().splitlines() if line.strip()]
            taken = await bus.take_over(_newest(group, found))
    print_result(taken, f"this node is the home of {headline(taken).removeprefix('group ')}", json)


def _newest(group: str, events: Sequence[Event]) -> list[Event]:
    """Return the events of the group that was opened last under this id or name."""
    named = [one for one in events if group in (one.get("group"), one.get("group_name"))]
    opened = [one["group"] for one in named if one.type == "agent.opened"]
    return [one for one in named if opened and one["group"] == opened[-1]]


@app.command()
@connects
async def cost(group: Which, json: Json = False) -> None:
    """Show what a group was given, and what became of it, for the group and for each agent."""
    async with bus_of() as bus:
        found = await bus.group_info(group)
    kinds = "given", "spent", "refunded", "held", "written_off"
    units = sorted({unit for kind in kinds for unit in getattr(found, kind)})
    sums = {unit: {kind: getattr(found, kind).get(unit, 0) for kind in kinds} for unit in units}
    if json:
        print_json({"group": found.group, "units": sums})
        return
    print_found(units, json, to_json, lambda _units: _costs(found, sums), "no budget")


def _costs(found: GroupInfo, sums: dict[str, dict[str, float]]) -> Table:
    table = new_table("unit", "who", "given", "spent", "refunded", "held", "written off")
    for unit, money in sums.items():
        add_row(table, unit, shown(found.name), *(f"{value:g}" for value in money.values()))
        for one in found.agents:
            if unit in one.given:
                parts = (one.given, one.spent, None, one.held, None)
                add_row(
                    table,
                    "",
                    shown(one.name),
                    *("" if part is None else f"{part.get(unit, 0):g}" for part in parts),
                )
    return table


async def open_group(
    bus: Bus, group: str, budget: dict[str, float], timeout_s: float | None = None, lease_s: float = LEASE_S
) -> AgentGroup:
    """The group of this id or name, or a new one that ends with its first result."""
    try:
        found = await bus.group_info(group)
    except GroupNotFound:
        found = None
    if found is not None and found.phase == "open":
        return bus.join_group(found.group, lease_s=lease_s)
    return bus.group(group, any_of(), timeout_s=timeout_s, budget=budget, lease_s=lease_s)


def parse_amounts(given: list[str]) -> dict[str, float]:
    """Read the values of --budget."""
    found: dict[str, float] = {}
    for one in given:
        unit, equals, value = one.partition("=")
        try:
            found[unit] = float(value)
        except ValueError:
            equals = ""
        if not equals or not unit:
            raise UserError(f"--budget is UNIT=AMOUNT, such as usd=5, not {one!r}")
    return found


def amounts(given: dict[str, float]) -> str:
    """Return amounts as text."""
    return ", ".join(f"{value:g} {unit}" for unit, value in given.items())


def headline(found: GroupInfo) -> str:
    """Return a line that says how a group stands."""
    reason = f": {found.reason}" if found.reason else ""
    why = f" ({found.problem})" if found.problem else ""
    state = f"{found.phase}{reason}{why}; its condition is {found.condition}"
    return f"group {shown(found.name)} ({found.group}) is {state}"


def drawn(agents: Sequence[AgentInfo]) -> Iterator[str]:
    """Yield the lines of the picture of a group."""
    below: dict[str, list[AgentInfo]] = {}
    for one in agents:
        below.setdefault(one.parent, []).append(one)

    def lines(parent: str, front: str) -> Iterator[str]:
        children = below.get(parent, [])
        for place, one in enumerate(children):
            is_last = place == len(children) - 1
            yield f"{front}{'└─' if is_last else '├─'} {_told(one)}"
            yield from lines(one.agent, f"{front}{'   ' if is_last else '│  '}")

    yield from lines("", "")


def _told(one: AgentInfo) -> str:
    begun = _clock(one.entered_us)
    until = f"{begun} to {_clock(one.ended_us)}" if one.ended_us else f"since {begun}"
    why = f", {one.reason}" if one.reason else ""
    lost = ", lost" if one.lost else ""
    problem = f" ({shown(one.problem)})" if one.problem else ""
    spent = f", spent {amounts(one.spent)}" if one.spent else ""
    return f"{shown(one.name)} at {shown(one.where)}, {until}{why}{lost}{problem}{spent}"


def _clock(moment_us: int | None) -> str:
    return datetime.fromtimestamp((moment_us or 0) / 1e6, UTC).strftime("%H:%M:%S")
