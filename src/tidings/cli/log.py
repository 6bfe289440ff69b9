"""`tidings log`: what a node has kept; shown, read, verified, sealed, pruned."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from zlib import crc32

import typer
from rich.progress import TaskProgressColumn, TimeRemainingColumn

from tidings.cli.connection import bus_of, connects, run
from tidings.cli.filter import parse
from tidings.cli.options import Json, argument, option, read_age, read_moment, read_size
from tidings.cli.printing import (
    add_row,
    age_text,
    new_table,
    print_event,
    print_json,
    print_result,
    print_table,
    progress_bar,
    shown,
    some,
    word,
)
from tidings.client import Bus
from tidings.errors import UserError
from tidings.event import Event
from tidings.filters import Filter

if TYPE_CHECKING:
    from tidings.log.chunks import FileInfo

app = typer.Typer(no_args_is_help=True)

LOOK_S = 0.25
"""Seconds between two looks whether the log has grown, for a command that follows it."""

Where = Annotated[str, option("FILTER", "Only events that match, such as: value > 40")]
Lines = Annotated[int, option("-n", "--lines", "Begin with so many events.", min=0)]
Follow = Annotated[bool, option("--follow/--no-follow", "Follow new events, until Ctrl-C.")]
Start = Annotated[int | None, option("The position to begin at.", min=0)]
End = Annotated[int | None, option("The position to end before.", min=0)]
Since = Annotated[str | None, option("WHEN", "Begin with events stored then: a time, or 12h ago.")]
Until = Annotated[str | None, option("WHEN", "End with events stored before then.")]
Limit = Annotated[int | None, option("End after so many events.", min=1)]
Ids = Annotated[str | None, option("ID,…", "The events with these ids, however old.")]
Skip = Annotated[bool, option("--skip", "Skip pruned and damaged parts.")]
Place = Annotated[str | None, option("--folder", "PATH|URI", "The files in a folder, without asking a node.")]
Before = Annotated[int | None, option("Files that end before this position.", min=0)]
OlderThan = Annotated[str | None, option("AGE", "Files older than this, such as 30d.")]
Size = Annotated[str | None, option("SIZE", "The oldest files, until this much is left: 20GB.")]
Force = Annotated[bool, option("--force", "Also files that readers still need.")]
Text = Annotated[str | None, argument("FILTER", "The events to keep: type LIKE 'air.%'")]
Name = Annotated[str | None, option("Its name; by default, derived from the filter.")]
Listed = Annotated[bool, option("--list", "List the filters to keep.")]
Owner = Annotated[str | None, option("CLIENT", "With --remove: its owner, also of a reader; needs manage.")]
Removed = Annotated[str | None, option("NAME", "Remove this name.")]


@app.callback()
def log() -> None:
    """Read and manage the log of a node."""


# Events


@app.command()
@connects
async def tail(where: Where = "", lines: Lines = 10, follow: Follow = True, json: Json = False) -> None:
    """Show the last events of the log, and follow new ones.

    For example: tidings log tail; or: tidings log tail -n 100 --no-follow --where "type = 'air.pm10'"
    """
    wanted = parse(where, json)
    async with bus_of(reconnect=follow) as bus:
        position = (await bus.log.status())["end"]
        for event in await _last(bus, wanted, lines, position):
            print_event(event, json)
        while follow:
            end = (await bus.log.status())["end"]
            async for _, event in bus.log.read(position, end, where=wanted, skip=True, skip_pruned=True):
                print_event(event, json)
            position = max(position, end)
            await asyncio.sleep(LOOK_S)


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


@app.command()
@connects
async def read(
    where: Where = "",
    start: Start = None,
    end: End = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    ids: Ids = None,
    skip: Skip = False,
    json: Json = False,  # noqa: ARG001  # it is JSON anyway
) -> None:
    """Print events of the log as JSON, one a line, in the order in which they were stored.

    For example: tidings log read --since 12h --where "value > 40"; or: tidings log read --ids ID,ID
    """
    wanted, now = parse(where, json=False), datetime.now(UTC)
    begin = None if since is None else read_moment(since, "--since", now)
    finish = None if until is None else read_moment(until, "--until", now)
    async with bus_of() as bus:
        if ids is not None:
            for event in await bus.log.find(one.strip() for one in ids.split(",")):
                print_event(event, json=True)
            return
        read = partial(bus.log.read, start, end, since=begin, until=finish)
        found = read(where=wanted, skip=skip, skip_pruned=skip)
        async with aclosing(found) as events:  # type: ignore[type-var]  # it is a generator
            async for _, event in some(events, limit):
                print_event(event, json=True)


# What there is


@app.command("list")
@connects
async def show_list(folder: Place = None, json: Json = False) -> None:
    """Show the bounds of the log, its sealed files, and its readers.

    For example: tidings log list; or: tidings log list --folder s3://city-log/hall
    """
    if folder is not None:
        _print_files(_folder(folder).files(), json)
        return
    async with bus_of() as bus:
        status = await bus.log.status()
    if json:
        print_json(status)
    else:
        _print_status(status)


def _print_status(status: dict[str, Any]) -> None:
    typer.echo(f"node      {status['node']} ({shown(status['name'])})")
    typer.echo(f"log       positions {status['first']:,} to {status['end'] - 1:,}")
    files = f"in {status['files']:,} files, {status['sealed_bytes']:,} bytes"
    where = f", in {status['folder']}" if status["folder"] else ""
    typer.echo(f"sealed    up to {status['sealed']:,}, {files}{where}")
    _print_readers(status["readers"], status["end"])


def _print_readers(readers: list[dict[str, Any]], end: int) -> None:
    if not readers:
        return
    table = new_table("reader", "owner", "behind", "lease", "filter", numbers=("behind",), wide=("filter",))
    for one in readers:
        behind = f"{max(0, end - 1 - one['cursor']):,}" if one["holds"] else "–"
        lease = age_text(one["lease_s"]) if one["lease_s"] else "–"
        add_row(table, word(one["name"]), word(one["owner"] or "–"), behind, lease, shown(one["filter"]))
    print_table(table)


def _print_files(files: list[FileInfo], json: bool) -> None:
    if json:
        for file in files:
            claim = file.claim
            reply = {"path": file.path, "node": claim.node, "first": claim.first, "last": claim.last}
            print_json({**reply, "date": str(file.date), "bytes": file.size})
        return
    table = new_table("date", "node", "first", "last", "bytes", numbers=("first", "last", "bytes"))
    for file in files:
        numbers = (f"{number:,}" for number in (file.claim.first, file.claim.last, file.size))
        add_row(table, str(file.date), file.claim.node, *numbers)
    print_table(table)


# Looking after it


@app.command()
@connects
def verify(folder: Place = None, json: Json = False) -> None:
    """Check the whole log where it is stored, and report damage.

    The exit code is 1 if there is any.

    For example: tidings log verify; or: tidings log verify --folder /var/lib/tidings/log
    """
    problems: list[str] = []

    async def work() -> None:
        async with bus_of() as bus:
            with _progress() as show:
                async for found, position, end in bus.log.verify():
                    problems.extend(found)
                    show(position, end)

    if folder is None:
        run(work())
    else:
        problems += _verify_folder(folder)
    text = "\n".join(shown(problem) for problem in problems) or "all is as it was written"
    print_result({"problems": problems}, text, json)
    if problems:
        raise typer.Exit(1)


def _verify_folder(place: str) -> list[str]:
    folder = _folder(place)
    done, total = 0, sum(file.size for file in folder.files())
    with _progress() as show:

        def begin(file: FileInfo) -> None:
            nonlocal done
            show(done, total)
            done += file.size

        return [str(problem) for problem in folder.verify(begin)]


def _folder(place: str) -> Any:
    from tidings.log.segment_folder import Folder

    return Folder(place)


def _progress() -> AbstractContextManager[Callable[[int, int | None], None]]:
    """A bar with the part that is done, and the time that the rest will take."""
    return progress_bar("verifying", TaskProgressColumn(), TimeRemainingColumn())


@app.command()
@connects
async def seal(json: Json = False) -> None:
    """Seal the log as it is now into files, and wait until that is done.

    For example: tidings log seal
    """
    async with bus_of() as bus:
        sealed = await bus.log.seal()
    print_result({"sealed": sealed}, f"sealed up to position {sealed:,}", json)


@app.command()
@connects
async def prune(
    before: Before = None,
    older_than: OlderThan = None,
    size: Size = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Remove sealed files, the oldest first: whole ones only, and none that a reader still needs.

    With --before, only files that end before that position; of these, those past the age or size.

    For example: tidings log prune --older-than 30d; or: tidings log prune --size 20GB
    """
    if before is None and older_than is None and size is None:
        raise UserError("no limit is given; use --before, --older-than or --size")
    age = None if older_than is None else read_age(older_than, "--older-than")
    asked = {
        "since": None if age is None else datetime.now(UTC) - age,
        "size_max": None if size is None else read_size(size, "--size"),
        "force": force,
    }
    async with bus_of() as bus:
        reply = await bus.log.prune(before, **asked)  # type: ignore[arg-type]
    if json:
        print_json(reply)
        return
    typer.echo(f"the log begins at position {reply['first']:,}; {reply['bytes']:,} bytes are left in files")
    if reply["kept_for"]:
        names = ", ".join(word(name) for name in reply["kept_for"])
        typer.echo(f"more was kept for: {names} (--force removes it nevertheless)", err=True)


@app.command()
@connects
async def keep(
    text: Text = None,
    name: Name = None,
    listed: Listed = False,
    remove: Removed = None,
    owner: Owner = None,
    json: Json = False,
) -> None:
    """Keep all events that match FILTER in the log from now on.

    For example: tidings log keep "type LIKE 'air.%'" --name air; or: tidings log keep --remove air
    """
    if sum((text is not None, listed, remove is not None)) != 1:
        raise UserError("give either a filter to keep, --list or --remove NAME")
    wanted = None if text is None else parse(text, json)
    async with bus_of() as bus:
        if wanted is not None:
            called = name or f"keep-{crc32(str(wanted).encode()):08x}"
            await bus.log.keep(called, wanted)
            print_result({"name": called}, f"kept from now on, as {word(called)}", json)
        elif remove is not None:
            await bus.log.leave(remove, owner=owner)
            print_result({"name": remove}, f"{word(remove)} is kept no longer", json)
        else:
            _list_kept((await bus.log.status())["readers"], json)


def _list_kept(readers: list[dict[str, Any]], json: bool) -> None:
    kept = [one for one in readers if not one["holds"]]
    if json:
        for one in kept:
            print_json({"name": one["name"], "filter": one["filter"], "owner": one["owner"]})
        return
    table = new_table("name", "owner", "filter", wide=("filter",))
    for one in kept:
        add_row(table, word(one["name"]), word(one["owner"] or "–"), shown(one["filter"]))
    print_table(table)
