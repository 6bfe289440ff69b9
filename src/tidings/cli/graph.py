"""`tidings pipeline list`, `check`, `draw`, `state` and `init`: none of these commands starts Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, current_user, identifies, reaching
from tidings.cli.filter import parse
from tidings.cli.options import Address, Json, argument, option
from tidings.cli.printing import add_row, count_text, new_table, print_json, print_table, shown, word
from tidings.errors import UserError

if TYPE_CHECKING:
    from tidings.client import Bus
    from tidings.pipeline.plan import MissingRight, NeededRight, Plan, Step

SUFFIXES = (".svg", ".mmd")
MISSING = 1
"""Exit code of `check` if the node is away or a right is missing, and of `state` if there are no rows."""
READINGS = "value IS NOT NULL"
"""Events that a new graph or project reads, unless the command says otherwise."""
TABLES = "tables"
"""Folder of the tables in that of a declarative run."""
QUIET_S = 1.0
"""Time after which no further event of a state is expected."""

Name = Annotated[
    str, argument("FILE|NAME", "A graph in TOML or Python, or a built-in pipeline.", show_default=False)
]
Node = Annotated[
    str | None,
    option(
        "HOST:PORT[,…]",
        "The node, or several, as Spark's driver and executors reach them.",
        envvar="TIDINGS_NODE",
        show_default="127.0.0.1:7300",
    ),
]
Where = Annotated[str | None, option("FILTER", "The filter of events.")]
NewName = Annotated[str, argument("NAME[.toml]", "The new graph, or the new folder.", show_default=False)]
ToFile = Annotated[Path | None, option("FILE", "Write it to FILE.svg or FILE.mmd.")]
States = Annotated[list[str] | None, argument("[STATE]...", "Only these states.", show_default=False)]
FromCheckpoint = Annotated[str | None, option("DIR", "The checkpoint of a run.")]
AsSvg = Annotated[bool, option("--svg", "Print SVG instead of Mermaid.")]


@identifies
async def show_list(node: Address = None, json: Json = False) -> None:
    """List the built-in pipelines, and with --node the sinks of those that have published there."""
    from tidings.pipeline.known import BUILT_IN, find

    found: list[dict[str, Any]] = [{"name": name, "about": find(name).about} for name in BUILT_IN]
    sinks: list[dict[str, Any]] = []
    if node is not None:
        async with bus_of(node=node) as bus:
            sinks = (await bus.status()).get("sinks", [])
    if json:
        print_json({"pipelines": found, "sinks": sinks})
        return
    _print_rows(("pipeline", "about"), [(one["name"], one["about"]) for one in found])
    if node is not None:
        rows = [(one["name"], one["owner"] or "–", str(one["batch"])) for one in sinks]
        _print_rows(("sink", "owner", "last batch"), rows)


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = new_table(*columns)
    for row in rows:
        add_row(table, *map(shown, row))
    print_table(table)


@identifies
async def check(name: Name, node: Address = None, json: Json = False) -> None:
    """Check a pipeline without Spark; with --node also whether the user has the rights that it needs.

    A right is missing if the rules of the user do not cover what the pipeline reads or publishes; the part
    that they do not cover is printed, and the rule that would grant it, and the exit code is 1.
    """
    from tidings.pipeline.plan import gap_of, needs

    plan = plan_of(name)
    wanted = list(needs(plan))
    gaps: dict[NeededRight, MissingRight] | None = None
    user = "USER"
    if node is not None:
        with reaching(node, json):
            async with bus_of(node=node) as bus:
                rights = await bus.log.rights()
        gaps = {need: gap for need in wanted if (gap := gap_of(need, rights[need.action])) is not None}
        user = current_user() or user
    if json:
        print_json(_checked(plan, gaps, user))
    else:
        _print_check(plan, wanted, gaps, user)
    if gaps:
        raise typer.Exit(MISSING)


def _checked(plan: Plan, gaps: dict[NeededRight, MissingRight] | None, user: str) -> dict[str, Any]:
    missing = None if gaps is None else [_missing_fields(gap, user) for gap in gaps.values()]
    return {
        "pipeline": plan.name,
        "tables": {step.name: step.kind for step in plan.steps},
        "missing": missing,
    }


def _missing_fields(gap: MissingRight, user: str) -> dict[str, Any]:
    need = gap.need
    place = {"action": need.action, "name": need.name, "where": need.where}
    return {**place, "part": gap.part, "rule": need.rule(user)}


def _print_check(
    plan: Plan, wanted: list[NeededRight], gaps: dict[NeededRight, MissingRight] | None, user: str
) -> None:
    _print_rows(
        ("table", "kind", "made from", "how"),
        [(step.name, step.kind, ", ".join(step.arrows), step.about) for step in plan.steps],
    )
    typer.echo("")
    for need in wanted:
        verb = "reads" if need.action == "subscribe" else "publishes"
        right = "" if gaps is None else f": {_right(gaps.get(need))}"
        typer.echo(f"{verb} {need.name} where {need.where}{right}")
    if gaps:
        typer.echo("\nThe access list of the node needs")
        for need in gaps:
            typer.echo(f"\n{need.rule(user)}")
    else:
        typer.echo(f"{plan.name} is in order")


def _right(gap: MissingRight | None) -> str:
    if gap is None:
        return "allowed"
    return "not allowed" if gap.is_whole else f"allowed in part, but not where {gap.part}"


def draw(name: Name, to: ToFile = None, svg: AsSvg = False, json: Json = False) -> None:
    """Draw a pipeline, as Mermaid or SVG; without --to it is printed."""
    from tidings.pipeline import drawing
    from tidings.pipeline.project import write_text

    if to is not None and to.suffix not in SUFFIXES:
        raise UserError(f"--to {to}: the name must end with {' or '.join(SUFFIXES)}")
    plan = plan_of(name)
    is_svg = svg if to is None else to.suffix == ".svg"
    picture = drawing.svg(plan) if is_svg else drawing.mermaid(plan)
    if to is not None:
        write_text(to, picture)
    count = len(plan.sources) + len(plan.steps)
    if json:
        print_json({"pipeline": plan.name, "boxes": count, "picture": picture if to is None else str(to)})
    else:
        typer.echo(picture if to is None else f"{to}: {count} boxes", nl=to is not None)


@identifies
async def state(
    name: Name,
    states: States = None,
    checkpoint: FromCheckpoint = None,
    node: Address = None,
    json: Json = False,
) -> None:
    """Show the states of a pipeline: as stored in a checkpoint, or as last published at the node.

    At the node these are the newest event of each key. The exit code is 1 if there are no rows.
    """
    wanted = _states(plan_of(name), states or [])
    rows = {step.name: await _rows(step, checkpoint, node) for step in wanted}
    for step in wanted:
        if json:
            for row in rows[step.name]:
                print_json({"state": step.name, **row})
        else:
            typer.echo(f"{step.name}: {count_text(len(rows[step.name]), 'row')}")
            _print_state(rows[step.name])
    if not any(rows.values()):
        raise typer.Exit(MISSING)


def _states(plan: Plan, names: list[str]) -> list[Step]:
    found = {step.name: step for step in plan.steps if step.kind == "state"}
    for name in names:
        if name not in found:
            raise UserError(f"{plan.name} has no state {name!r}; there is {', '.join(found) or 'none'}")
    return [step for step in found.values() if not names or step.name in names]


async def _rows(step: Step, checkpoint: str | None, node: str | None) -> list[dict[str, Any]]:
    if checkpoint is not None:
        return stored_rows(checkpoint, step.name)
    if not step.is_published:
        raise UserError(f"{step.name!r} is not published; name a --checkpoint")
    async with bus_of(node=node) as bus:
        return await _last_rows(bus, step)


def stored_rows(checkpoint: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a state; UserError if the checkpoint has none of this name.

    The checkpoint is a folder of this machine: that of a continuous query, or of a declarative run.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidings.pipeline.flow.stored_state import FOLDER, state_rows

    home = Path(checkpoint.removeprefix("file://"))
    stored = home / TABLES / name.lower()
    if (home / FOLDER).is_dir():
        table = state_rows(checkpoint, name)
    elif stored.is_dir():
        table = pq.read_table(stored)
        for number, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):  # Spark's, which lack their zone
                table = table.set_column(number, field.name, table[number].cast(pa.timestamp("us", "UTC")))
    else:
        raise UserError(f"checkpoint {checkpoint} has no state {name!r}; run the pipeline with --checkpoint")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


async def _last_rows(bus: Bus, step: Step) -> list[dict[str, Any]]:
    """Return the newest event of each key; what is not there after QUIET_S is taken not to come."""
    from tidings.pipeline.plan import published_filter

    found: dict[str | None, dict[str, Any]] = {}
    async with bus.subscribe(published_filter(step), last=True, passive=True) as events:
        with suppress(TimeoutError):
            while True:
                event = await asyncio.wait_for(anext(events), QUIET_S)
                found[event.subject] = {"subject": event.subject, "time": event.time, **event.attributes}
    return list(found.values())


def _print_state(rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [["–" if row.get(name) is None else word(row[name]) for name in columns] for row in rows]
        _print_rows(columns, cells)


def init(name: NewName, node: Node = None, where: Where = None, json: Json = False) -> None:
    """Write a graph of a few lines that runs, NAME.toml, or a Declarative Pipelines project, a folder NAME.

    The project has about 20 lines of Python, to be changed at will, and reads a node into tables.
    """
    parse(READINGS if where is None else where, json)
    path, run = _new_graph(name, where) if name.endswith(".toml") else _new_project(name, node, where)
    if json:
        kind = "file" if path.is_file() else "folder"
        print_json({kind: str(path.absolute()), "run": run[-1]})
    else:
        typer.echo("\n  ".join([f"{path} is ready; run it with", *run]))


def _new_graph(name: str, where: str | None) -> tuple[Path, list[str]]:
    from tidings.pipeline.project import write_graph

    path = write_graph(Path(name), where or READINGS)
    return path, [f"tidings pipeline run {path} --continuous"]


def _new_project(name: str, node: str | None, where: str | None) -> tuple[Path, list[str]]:
    from tidings.pipeline.project import write_project
    from tidings.pipeline.settings import NODE

    folder = write_project(name, Path(), node or NODE, where or READINGS)
    return folder, [f"cd {folder}", "spark-pipelines run --conf spark.sql.catalogImplementation=hive"]


def plan_of(name: str) -> Plan:
    """Return the plan of a pipeline over history; an error has its place in the file."""
    from tidings.pipeline.known import find

    pipeline = find(name)
    return pipeline.plan(pipeline.settings, "history")
