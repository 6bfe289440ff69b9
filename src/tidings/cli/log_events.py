"""`tidings log tail` and `tidings log read`: events of the log, the last ones or those that are asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import Address, Json, connects, run
from tidings.cli.filter import parse
from tidings.cli.quantities import read_moment
from tidings.cli.queue_bus import bus_of
from tidings.cli.subscribe import line_of

if TYPE_CHECKING:
    from tidings.client import Bus
    from tidings.event import Event
    from tidings.filters import Filter

LOOK_S = 0.25
"""How often it is looked whether the log has grown, for who follows it."""

Where = Annotated[str, typer.Option(metavar="FILTER", help="Only events that match, such as: value > 40")]
Lines = Annotated[int, typer.Option("-n", "--lines", min=0, help="Begin with so many events.")]
Follow = Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what comes, until Ctrl-C.")]
Start = Annotated[int | None, typer.Option(min=0, help="The position to begin at.")]
End = Annotated[int | None, typer.Option(min=0, help="The position to end before.")]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Begin with what was stored then: a time, or 12h ago.")
]
Until = Annotated[str | None, typer.Option(metavar="WHEN", help="End with what was stored before then.")]
Limit = Annotated[int | None, typer.Option(min=1, help="End after so many events.")]
Ids = Annotated[str | None, typer.Option(metavar="ID,…", help="The events with these ids, however old.")]
Skip = Annotated[bool, typer.Option("--skip", help="Pass over what was pruned or is damaged.")]


@connects
def tail(
    where: Where = "", lines: Lines = 10, follow: Follow = True, node: Address = None, json: Json = False
) -> None:
    """Show the last events of the log, and go on with what comes.

    For example: tidings log tail; or: tidings log tail -n 100 --no-follow --where "type = 'air.pm10'"
    """
    wanted = parse(where, json)

    async def work() -> None:
        async with bus_of(node, reconnect=follow) as bus:
            position = (await bus.log.status())["end"]
            for event in await _last(bus, wanted, lines, position):
                _show(event, json)
            while follow:
                end = (await bus.log.status())["end"]
                async for _, event in bus.log.read(position, end, where=wanted, skip=True, skip_pruned=True):
                    _show(event, json)
                position = max(position, end)
                await asyncio.sleep(LOOK_S)

    run(work())


async def _last(bus: Bus, wanted: Filter, count: int, end: int) -> list[Event]:
    """So many of the last events that match: looks back, further and further."""
    first = max(1, (await bus.log.status())["first"])
    found: deque[Event] = deque(maxlen=count or None)
    step = max(count, 1_000)
    while count and len(found) < count and end > first:
        start = max(first, end - step)
        earlier: deque[Event] = deque(maxlen=count)
        async for _, event in bus.log.read(start, end, where=wanted, skip=True, skip_pruned=True):
            earlier.append(event)
        found = deque([*earlier, *found], maxlen=count)
        end, step = start, 2 * step
    return list(found)


@connects
def read(
    where: Where = "",
    start: Start = None,
    end: End = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    ids: Ids = None,
    skip: Skip = False,
    node: Address = None,
    json: Json = False,  # noqa: ARG001  # it is JSON anyway
) -> None:
    """Print events of the log as JSON, one a line, in the order in which they were stored.

    For example: tidings log read --since 12h --where "value > 40"; or: tidings log read --ids ID,ID
    """
    wanted, now = parse(where, json=False), datetime.now(UTC)
    begin = None if since is None else read_moment(since, "--since", now)
    finish = None if until is None else read_moment(until, "--until", now)

    async def work() -> None:
        async with bus_of(node) as bus:
            if ids is not None:
                for event in await bus.log.find(one.strip() for one in ids.split(",")):
                    _show(event, json=True)
                return
            left = limit
            bounds = {"since": begin, "until": finish}
            found = bus.log.read(start, end, **bounds, where=wanted, skip=skip, skip_pruned=skip)
            async with aclosing(found) as events:  # type: ignore[type-var]  # it is a generator
                async for _, event in events:
                    _show(event, json=True)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    run(work())


def _show(event: Event, json: bool) -> None:
    from tidings.event.json import to_json as event_json

    typer.echo(event_json(event).decode() if json else line_of(event))
