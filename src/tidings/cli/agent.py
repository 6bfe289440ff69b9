"""`tidings agent`: groups of agents, who is in them, what they cost, and why each has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.agents.arguments import AgentInfo, GroupInfo
from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Json, argument, option
from tidings.cli.printing import add_row, new_table, print_found, print_json, print_result, shown, to_json

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)

Which = Annotated[str, argument("GROUP", "The group, by its id or name.")]
Target = Annotated[
    str, argument("TARGET", "A group, by id or name, or an agent, by id, with those below it.")
]
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


@app.command()
@connects
async def show(group: Which, json: Json = False) -> None:
    """Show a group: its condition, its members, where they are, and why they have ended."""
    async with bus_of() as bus:
        found = await bus.group_info(group)
    if json:
        print_json(found)
        return
    typer.echo(headline(found))
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
async def tree(group: Which, json: Json = False) -> None:
    """Draw a group: who has started whom, from when until when, and why each has ended."""
    async with bus_of() as bus:
        found = await bus.group_info(group)
    if json:
        print_json(found)
        return
    typer.echo(headline(found))
    for line in drawn(found.agents):
        typer.echo(line)


@app.command()
@connects
async def stop(target: Target, json: Json = False) -> None:
    """End a group or an agent, with all below it: within the grace, then by force."""
    async with bus_of() as bus:
        await bus.stop_agents(target)
    print_result({"stopped": target}, f"ordered {shown(target)} to end", json)


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
