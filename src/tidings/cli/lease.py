"""`tidings lease`: run any program as a member of a group, for as long as the group needs it.

The program need not know of tidings. This command is its location: it renews the lease while the program
runs, however busy that is, ends it when the group does, with all that it has started, and says why.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.agents.arguments import AgentInfo
from tidings.cli.agent import Budget, amounts, open_group, parse_amounts
from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Json, argument, option, seconds
from tidings.cli.printing import add_row, new_table, print_found, print_json, print_result, shown, to_json
from tidings.client.agent import Member
from tidings.client.agents import AgentGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


app = typer.Typer(no_args_is_help=True)

LEASE_S = 30.0
ENDED_EXIT = 3
"""Exit code when the program was ended before it had finished by itself."""
CANNOT_RUN = 127
"""Exit code of a program that is not there, as shells have it."""

Group = Annotated[
    str, option("GROUP", "The group, by id or name; a name that no group has opens one of its own.")
]
Command = Annotated[list[str], argument("COMMAND", "The program and its arguments, behind --.")]
AgentName = Annotated[str, option("--agent", "NAME", "What the agent is called.", show_default="the program")]
LeaseTime = Annotated[float, seconds("--lease", "How long it may live when the group can't be asked.")]
Timeout = Annotated[float | None, seconds("--timeout", "For a new group: end it after so long.")]
Which = Annotated[str, argument("TARGET", "An agent, by id, or a group, by id or name.")]
OnlyGroup = Annotated[str, argument("GROUP", "Only the members of this group.")]


@app.command(context_settings={"allow_interspersed_args": False})
@connects
async def run(
    command: Command,
    group: Group = "",
    agent: AgentName = "",
    lease: LeaseTime = LEASE_S,
    timeout: Timeout = None,
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Run COMMAND as a member of a group: tidings lease run --group trip -- python job.py

    It gets SIGTERM when the group ends or the lease is over, and after the grace SIGKILL; so does all that it
    has started. It finds its group in TIDINGS_GROUP. The exit code is that of COMMAND, or 3 if it was ended.
    """
    share = parse_amounts(budget or [])
    async with bus_of(reconnect=True) as bus:
        wanted = await open_group(bus, group or command[0], share, timeout, lease)
        async with wanted:
            member = await _start(wanted, command, agent, share, lease, json)
            await member.wait()
    ended, reason = member.ended, member.stop_reason
    code = CANNOT_RUN if ended is None else ended.code
    if json:
        killed = 0 if ended is None else ended.killed
        print_json({"agent": member.id, "exit": code, "reason": reason or "done", "killed": killed})
    elif reason is not None:
        typer.echo(f"ended: {reason}", err=True)
    if reason is not None:
        raise typer.Exit(ENDED_EXIT)
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)


async def _start(
    group: AgentGroup, command: list[str], name: str, share: dict[str, float], lease_s: float, json: bool
) -> Member:
    """Start the program, and have it ended by the signals that end this command."""
    files: dict[str, Any] = {
        "stdin": None,
        "stdout": sys.stderr if json else None,
        "own_group": not sys.stdin.isatty(),
    }
    starting = asyncio.ensure_future(group.run(*command, name=name, budget=share, lease_s=lease_s, **files))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, starting.add_done_callback, _stop)
    member = await starting
    terms = member.limits
    bound = f"if the group can't be asked, it ends after {terms.orphan_s_max:g} s at most"
    typer.echo(f"agent {terms.agent} of group {group.id}: lease {terms.lease_s:g} s; {bound}", err=True)
    return member


def _stop(starting: asyncio.Future[Member]) -> None:
    """End a program, also one that was still being started when the signal came."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().stop()


@app.command("list")
@connects
async def show(group: OnlyGroup = "", json: Json = False) -> None:
    """Show the agents that run, and how long their leases last."""
    async with bus_of() as bus:
        groups = [group] if group else [one.group for one in await bus.groups() if one.phase != "ended"]
        found = [agent for one in groups for agent in (await bus.group_info(one)).agents]
    running = [one for one in found if one.state != "ended"]
    print_found(running, json, to_json, _table, "no leases")


def _table(found: Sequence[AgentInfo]) -> Table:
    table = new_table("agent", "name", "group", "where", "lease", "left", "holds")
    for one in found:
        left = "released" if one.released else "" if one.lease_left_s is None else f"{one.lease_left_s:.0f} s"
        names = shown(one.name), shown(one.group_name), shown(one.where)
        add_row(table, one.agent, *names, f"{one.lease_s:g} s", left, amounts(one.held))
    return table


@app.command()
@connects
async def renew(target: Which, json: Json = False) -> None:
    """Renew leases as a person who still wants the result: of an agent, or of all members of a group."""
    async with bus_of() as bus:
        renewed = await bus.renew_agents(target)
    print_result({"renewed": renewed}, f"renewed {renewed:,}", json)


@app.command()
@connects
async def release(target: Which, json: Json = False) -> None:
    """Let an agent, or all members of a group, live without a lease, for as long as their group does."""
    async with bus_of() as bus:
        await bus.release_agent(target)
    print_result({"released": target}, f"released {shown(target)}", json)
