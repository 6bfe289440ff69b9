"""`tidings pipeline`: run a pipeline on Spark, and pack what its executors need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidings.cli import graph
from tidings.cli.filter import parse
from tidings.cli.graph import Name, Node, Where
from tidings.cli.options import (
    CREDENTIALS,
    Json,
    argument,
    credential_options,
    option,
    options_of,
    with_options,
)
from tidings.cli.printing import print_json, print_result, progress_line
from tidings.errors import ConfigError, UserError

if TYPE_CHECKING:
    from tidings.pipeline.known import Pipeline, RunReport
    from tidings.pipeline.plan import Plan, Use
    from tidings.pipeline.running import BatchProgress, Total
    from tidings.pipeline.settings import RunSettings

app = typer.Typer(no_args_is_help=True)

FOLDER = "{}-pipeline"
"""Folder for the tables of a run of a pipeline, unless the command names another."""
SILENT_BY = "With --continuous: measure silence by the clock or event time."
MASTER = "spark://…, yarn, k8s://… or sc://…"

Continuous = Annotated[bool, option("--continuous", "One query until Ctrl-C or SIGTERM, instead of one run.")]
Trigger = Annotated[str, option("TIME", "With --continuous: how often Spark starts a batch.")]
Starting = Annotated[
    str | None,
    option(
        "earliest|latest", "Where the first run begins.", show_default="latest if --continuous, else earliest"
    ),
]
Checkpoint = Annotated[
    str | None,
    option(
        "DIR",
        "The checkpoint, and without --continuous the tables.",
        show_default=f"./{FOLDER.format('NAME')}; with --continuous it is forgotten",
    ),
]
Durable = Annotated[
    str | None, option("NAME", "A durable reader, for which the node keeps readings between runs.")
]
AllowLoss = Annotated[bool, option("--allow-loss", "Go on if events are gone that should have been read.")]
Sink = Annotated[str | None, option("NAME", "The name of the sink, by which the node recognises repeats.")]
DryRun = Annotated[bool, option("--dry-run", "Only check whether it could run.")]


def in_panel(panel: str, metavar: str | None, help: str, **more: Any) -> Any:
    """Return an option that the help shows in a panel."""
    return typer.Option(metavar=metavar, help=help, rich_help_panel=panel, **more)


in_city, in_agents, in_spark = (
    partial(in_panel, panel) for panel in ("The city pipeline", "The agents pipeline", "Spark")
)
OWN = {
    "rules": (Path, in_city("FILE", "The limits of plausible values and of alarms.", resolve_path=True)),
    "window": (str, in_city("TIME", "The length of a window, such as '5 minutes'; of agents, too.")),
    "watermark": (str, in_city("TIME", "How long a window waits for late readings; of agents, too.")),
    "cell_size": (float, in_city(None, "The side of a cell, in the units of posx and posy.")),
    "silent_by": (str, in_city("clock|time", SILENT_BY, show_default="clock")),
    "limits": (str, in_agents("NAME=N,…", "Limits of a group in a window, such as starts=50,cost.usd=20.")),
}
"""Options that only some pipelines have."""
SPARK = {
    "master": (str, in_spark("URL", MASTER, show_default="SPARK_REMOTE, or this machine")),
    "archive": (Path, in_spark("FILE", "What 'tidings pipeline pack' made, for the executors.")),
    "conf": (list[str], in_spark("KEY=VALUE", "A setting of Spark.")),
}


app.command("list")(graph.show_list)
app.command()(graph.check)
app.command()(graph.draw)
app.command()(graph.state)
app.command()(graph.init)


@app.command()
@with_options(*options_of(OWN), *options_of(SPARK), *credential_options("With TLS", "TIDINGS_"))
def run(
    name: Name,
    node: Node = None,
    where: Where = None,
    continuous: Continuous = False,
    trigger: Trigger = "5 seconds",
    starting: Starting = None,
    checkpoint: Checkpoint = None,
    durable: Durable = None,
    allow_loss: AllowLoss = False,
    sink: Sink = None,
    dry_run: DryRun = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Read the events of a node with Spark, and publish what a pipeline makes of them.

    Without --continuous the events since the last run are read into tables, and the command ends.
    """
    from tidings.pipeline.known import find
    from tidings.pipeline.settings import time_span

    pipeline = find(name)
    own = {name: str(value) for name in OWN if (value := given[name]) is not None}
    master, archive, conf = (given[name] for name in SPARK)
    common = {
        "node": node,
        "where": where,
        "starting": starting or (None if continuous else "earliest"),
        "reader": durable,
        "allow_loss": "true" if allow_loss else None,
        "sink": sink,
        **{name: given[name] for name in CREDENTIALS},
    }
    settings = with_own(pipeline, msgspec.structs.replace(pipeline.settings, **common), own)
    config = spark_config(conf or [], archive)
    trigger_s = time_span(trigger, "trigger")
    plan = check_run(pipeline, settings, "query" if continuous else "tables")
    if where is not None:
        parse(where, json)  # which prints its notes
    if not continuous:
        run_tables(pipeline, settings, master, checkpoint, dry_run, config, json)
    elif dry_run:
        print_dry(plan, settings, json)
    else:
        run_query(pipeline, settings, master, checkpoint, trigger_s, config, json)


@app.command()
def pack(
    file: Annotated[Path, argument("OUT.zip", "The file to write.", show_default=False)],
    small: Annotated[
        bool, option("--small", "Leave out pyarrow, pandas and numpy: the executors have them.")
    ] = False,
    json: Json = False,
) -> None:
    """Pack the packages for executors whose Python has no tidings: same system and Python version as here."""
    from tidings.pipeline.executor_archive import pack as pack_all

    packed = pack_all(file, small)
    about = f"{packed.file}: {packed.size / 2**20:.1f} MiB, {', '.join(packed.packages)}"
    print_result(packed, f"{about}\nfor {packed.platform} with Python {packed.python}", json)


# What was typed


def with_own(pipeline: Pipeline, settings: RunSettings, own: dict[str, str]) -> RunSettings:
    """Return the settings with those that only some pipelines have; UserError if this one does not."""
    for name in own:
        if name not in settings.__struct_fields__:
            raise UserError(f"--{name.replace('_', '-')} is no option of the pipeline {pipeline.name!r}")
    return msgspec.structs.replace(settings, **own)


def spark_config(pairs: list[str], archive: Path | None) -> dict[str, str]:
    """Spark's settings as they were typed, and those that bring the archive to the executors."""
    from tidings.pipeline.executor_archive import archive_config, lend

    config: dict[str, str] = {}
    if archive is not None:
        config = archive_config(archive)
        lend()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError("--conf", "", f"{pair!r} is no setting of Spark; use spark.KEY=VALUE")
        config[key] = value
    return config


def check_run(pipeline: Pipeline, settings: RunSettings, use: Use) -> Plan:
    """Return the plan; raise an error for mistakes that can be found before Spark is started."""
    from tidings.pipeline.options import read_options
    from tidings.pipeline.session import check_packages

    check_packages()
    plan = pipeline.plan(settings, use)
    if settings.where is not None and len(plan.sources) > 1:
        raise UserError(f"--where can't replace the filters of {len(plan.sources)} sources: change the graph")
    for source in plan.sources:
        read_options(settings.source(source.where, source.name), "stream")
    return plan


def check_nodes(options: Mapping[str, str], master: str | None) -> None:
    """Raise Disconnected if a node in the options is not there, as far as this machine can see."""
    from tidings.cli.connection import find_node
    from tidings.pipeline.options import reach_of

    if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        return  # Spark runs elsewhere, and may reach what this machine does not
    for address in reach_of(options).nodes:
        find_node(address)


# The two ways to run


def run_query(
    pipeline: Pipeline,
    settings: RunSettings,
    master: str | None,
    checkpoint: str | None,
    trigger_s: float,
    config: dict[str, str],
    json: bool,
) -> None:
    """Run the continuous query; a line for each micro-batch, and the totals at the end."""
    from tidings.pipeline.continuous import ContinuousRun, run_continuously
    from tidings.pipeline.running import stopped_by_signals

    check_nodes(settings.reach(), master)
    run = ContinuousRun(
        pipeline=pipeline,
        settings=settings,
        master=master,
        checkpoint=checkpoint,
        trigger_s=trigger_s,
        config=config,
    )
    with stopped_by_signals() as stop, progress_line(not json) as show:

        def show_batch(progress: BatchProgress) -> None:
            if json:
                print_json(pipeline.report.fields(progress))
            elif progress.rows or any(progress.published.values()):
                show(pipeline.report.line(progress))

        show("starting Spark")
        total = run_continuously(run, show_batch, stop, lambda: print_started(pipeline.name, json))
    print_total(pipeline.report, total, json)


def print_started(name: str, json: bool) -> None:
    """Say that the query runs."""
    if json:
        print_json({"state": "running"})
    else:
        typer.echo(f"the {name} pipeline runs; Ctrl-C ends it", err=True)


def print_total(report: RunReport, total: Total, json: bool) -> None:
    """Print the totals of a query."""
    print_result({"state": "stopped", **report.fields(total)}, "\n".join(report.total_lines(total)), json)


def print_dry(plan: Plan, settings: RunSettings, json: bool) -> None:
    """Print what would be read and written; errors were raised before."""
    sources = [settings.source(source.where) for source in plan.sources]
    lines = [f"reads {source['node']} where {source['where']}" for source in sources]
    found = {"source": sources[0], "sources": sources, "sink": settings.target()}
    print_result(found, "\n".join(lines), json)


def run_tables(
    pipeline: Pipeline,
    settings: RunSettings,
    master: str | None,
    checkpoint: str | None,
    dry_run: bool,
    config: dict[str, str],
    json: bool,
) -> None:
    """Run the declarative project once; its steps as they end, and what the tables hold then."""
    from tidings.pipeline.declarative import DeclarativeRun, run_once

    check_nodes(settings.reach(), master)
    folder = checkpoint or FOLDER.format(pipeline.name)
    run = DeclarativeRun(
        pipeline=pipeline, settings=settings, folder=folder, master=master, dry=dry_run, config=config
    )
    with progress_line(not json) as show:
        show("starting Spark")
        found = run_once(run, show)
    print_tables(pipeline.report, found, folder, json)


def print_tables(report: RunReport, found: dict[str, Any] | None, folder: str, json: bool) -> None:
    """Print the contents of the tables."""
    if found is None:
        print_result({"dry": True}, "the pipeline is in order; nothing was read", json)
    else:
        print_result(found, "\n".join([*report.table_lines(found), f"the tables are in {folder}"]), json)
