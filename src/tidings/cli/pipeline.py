"""`tidings pipeline`: run a pipeline on Spark, and pack what its executors need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidings.cli.filter import parse
from tidings.cli.options import Json, credential_options, with_options
from tidings.cli.printing import print_json, progress_line
from tidings.errors import ConfigError, UserError

if TYPE_CHECKING:
    from tidings.pipeline.city.declarative import TableSummary
    from tidings.pipeline.city.settings import CitySettings
    from tidings.pipeline.running import BatchProgress, Total

app = typer.Typer(no_args_is_help=True)

PIPELINES = ("city",)
FOLDER = "city-pipeline"
"""Where the tables of a run go, unless the command says otherwise."""
ONE_CELL = "all readings are in one cell, though their places differ: choose a smaller --cell-size"
READINGS = "value IS NOT NULL"
"""Events that a new project reads, unless the command says otherwise."""
_SPARK = "Spark"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Which pipeline: city.", show_default=False)]
Node = Annotated[
    str | None,
    typer.Option(
        envvar="TIDINGS_NODE",
        metavar="HOST:PORT[,…]",
        help="The node, or several, as Spark's driver and executors reach them.",
        show_default="127.0.0.1:7300",
    ),
]
Where = Annotated[str | None, typer.Option(metavar="FILTER", help="The filter of readings.")]
Rules = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The limits of plausible values and of alarms.")
]
Window = Annotated[
    str | None, typer.Option(metavar="TIME", help="The length of a window, such as '5 minutes'.")
]
Watermark = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long a window waits for late readings.")
]
CellSize = Annotated[float | None, typer.Option(help="The side of a cell, in the units of posx and posy.")]
Continuous = Annotated[
    bool, typer.Option("--continuous", help="One query until Ctrl-C or SIGTERM, instead of one run.")
]
Trigger = Annotated[
    str, typer.Option(metavar="TIME", help="With --continuous: how often Spark starts a batch.")
]
SilentBy = Annotated[
    str,
    typer.Option(metavar="clock|time", help="With --continuous: measure silence by the clock or event time."),
]
Starting = Annotated[
    str | None,
    typer.Option(
        metavar="earliest|latest",
        help="Where the first run begins.",
        show_default="latest if --continuous, else earliest",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="The checkpoint, and without --continuous the tables.",
        show_default=f"./{FOLDER}; with --continuous it is forgotten",
    ),
]
Durable = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A durable reader, for which the node keeps readings between runs."),
]
AllowLoss = Annotated[
    bool, typer.Option("--allow-loss", help="Go on if events are gone that should have been read.")
]
Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The name of the sink, by which the node recognises repeats."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check whether it could run.")]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="spark://…, yarn, k8s://… or sc://…",
        show_default="SPARK_REMOTE, or this machine",
        rich_help_panel=_SPARK,
    ),
]
Archive = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="What 'tidings pipeline pack' made, for the executors.", rich_help_panel=_SPARK
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark.", rich_help_panel=_SPARK),
]


@app.command()
@with_options(*credential_options("With TLS", "TIDINGS_"))
def run(
    name: Name,
    node: Node = None,
    where: Where = None,
    rules: Rules = None,
    window: Window = None,
    watermark: Watermark = None,
    cell_size: CellSize = None,
    continuous: Continuous = False,
    trigger: Trigger = "5 seconds",
    silent_by: SilentBy = "clock",
    starting: Starting = None,
    checkpoint: Checkpoint = None,
    durable: Durable = None,
    allow_loss: AllowLoss = False,
    sink: Sink = None,
    dry_run: DryRun = False,
    master: Master = None,
    archive: Archive = None,
    conf: Conf = None,
    json: Json = False,
    **who: Any,
) -> None:
    """Read a node's readings with Spark, and publish aggregates and alarms there.

    Without --continuous the readings since the last run are read into tables, and the command ends.
    """
    check_name(name)
    from tidings.pipeline.city.settings import CitySettings, time_span

    settings = CitySettings(
        node=node,
        where=where,
        rules=None if rules is None else str(rules.resolve()),
        window=window,
        watermark=watermark,
        cell_size=None if cell_size is None else str(cell_size),
        starting=starting or (None if continuous else "earliest"),
        reader=durable,
        allow_loss="true" if allow_loss else None,
        sink=sink,
        **who,
    )
    config = spark_config(conf or [], archive)
    trigger_s = time_span(trigger, "trigger")
    check(settings, silent_by)
    if where is not None:
        parse(where, json)  # which prints its notes
    if continuous and not dry_run:
        run_query(settings, master, checkpoint, trigger_s, silent_by == "clock", config, json)
    elif continuous:
        tell_dry(settings, json)
    else:
        run_tables(settings, master, checkpoint, dry_run, config, json)


@app.command()
def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new folder, and its project.", show_default=False)
    ],
    node: Node = None,
    where: Where = None,
    json: Json = False,
) -> None:
    """Write a Declarative Pipelines project of about 20 lines that reads a node into tables."""
    from tidings.pipeline.city.settings import NODE
    from tidings.pipeline.new_project import write_project

    parse(READINGS if where is None else where, json)
    folder = write_project(name, Path(), node or NODE, where or READINGS)
    run = "spark-pipelines run --conf spark.sql.catalogImplementation=hive"
    if json:
        print_json({"folder": str(folder.absolute()), "run": run})
    else:
        typer.echo(f"{folder} is ready; run it with\n  cd {folder}\n  {run}")


@app.command()
def pack(
    file: Annotated[Path, typer.Argument(metavar="OUT.zip", help="The file to write.", show_default=False)],
    small: Annotated[
        bool, typer.Option("--small", help="Leave out pyarrow, pandas and numpy: the executors have them.")
    ] = False,
    json: Json = False,
) -> None:
    """Pack the packages for executors whose Python has no tidings: same system and Python version as here."""
    from tidings.pipeline.executor_archive import pack as pack_all

    packed = pack_all(file, small)
    if json:
        print_json(packed)
    else:
        typer.echo(f"{packed.file}: {packed.size / 2**20:.1f} MiB, {', '.join(packed.packages)}")
        typer.echo(f"for {packed.platform} with Python {packed.python}")


# What was typed


def check_name(name: str) -> None:
    """Raise UserError if there is no such pipeline."""
    if name not in PIPELINES:
        raise UserError(f"there is no pipeline {name!r}; there is {', '.join(PIPELINES)}")


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


def check(settings: CitySettings, silent_by: str) -> None:
    """Raise an error for mistakes that can be found before Spark is started, which takes a while."""
    from tidings.pipeline.options import read_options
    from tidings.pipeline.session import check_packages

    if silent_by not in ("clock", "time"):
        raise ConfigError("--silent-by", "", f"{silent_by!r} is neither clock nor time")
    check_packages()
    read_options(settings.source(), "stream")
    settings.loaded_rules()


def check_nodes(settings: CitySettings, master: str | None) -> None:
    """Raise Disconnected if a node is not there, as far as this machine can tell."""
    from tidings.cli.connection import find_node
    from tidings.pipeline.options import read_options

    if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        return  # Spark runs elsewhere, and may reach what this machine does not
    for address in read_options(settings.source(), "stream").reach.nodes:
        find_node(address)


# The two ways to run


def run_query(
    settings: CitySettings,
    master: str | None,
    checkpoint: str | None,
    trigger_s: float,
    by_clock: bool,
    config: dict[str, str],
    json: bool,
) -> None:
    """Run the continuous query; a line for each micro-batch, and the totals at the end."""
    from tidings.pipeline.city.continuous import ContinuousPlan, run_continuously
    from tidings.pipeline.running import Stop

    check_nodes(settings, master)
    plan = ContinuousPlan(
        settings=settings,
        master=master,
        checkpoint=checkpoint,
        trigger_s=trigger_s,
        by_clock=by_clock,
        config=config,
    )
    stop = Stop()
    with stop.by_signals(), progress_line(not json) as show:

        def tell(progress: BatchProgress) -> None:
            if json:
                print_json(progress)
            elif progress.rows or progress.alarms:
                show(str(progress))

        show("starting Spark")
        total = run_continuously(plan, tell, stop, lambda: print_started(json))
    print_total(total, json)


def print_started(json: bool) -> None:
    """Say that the query runs."""
    if json:
        print_json({"state": "running"})
    else:
        typer.echo("the city pipeline runs; Ctrl-C ends it", err=True)


def print_total(total: Total, json: bool) -> None:
    """Print the totals of a query."""
    if json:
        print_json({"state": "stopped", **msgspec.to_builtins(total)})
        return
    typer.echo(f"{total.rows:,} readings in {total.batches:,} batches, {total.alarms:,} alarms")
    for reason, count in sorted(total.rejected.items()):
        typer.echo(f"  rejected, {reason}: {count:,}")
    if total.one_cell:
        typer.echo(ONE_CELL)


def tell_dry(settings: CitySettings, json: bool) -> None:
    """Print what would be read and written; errors were raised before."""
    if json:
        print_json({"source": settings.source(), "sink": settings.target()})
    else:
        typer.echo(f"reads {settings.reach()['node']} where {settings.source()['where']}")


def run_tables(
    settings: CitySettings,
    master: str | None,
    checkpoint: str | None,
    dry_run: bool,
    config: dict[str, str],
    json: bool,
) -> None:
    """Run the declarative project once; its steps as they end, and what the tables hold then."""
    from tidings.pipeline.city.declarative import DeclarativeRun, run_once

    check_nodes(settings, master)
    folder = checkpoint or FOLDER
    run = DeclarativeRun(settings=settings, folder=folder, master=master, dry=dry_run, config=config)
    with progress_line(not json) as show:
        show("starting Spark")
        summary = run_once(run, show)
    print_summary(summary, folder, json)


def print_summary(summary: TableSummary | None, folder: str, json: bool) -> None:
    """Print the contents of the tables."""
    if json:
        print_json({"dry": True} if summary is None else summary)
    elif summary is None:
        typer.echo("the pipeline is in order; nothing was read")
    else:
        rejected = sum(summary.rejected.values())
        typer.echo(f"{summary.raw:,} readings: {summary.clean:,} believed, {rejected:,} rejected")
        for reason, count in sorted(summary.rejected.items()):
            typer.echo(f"  rejected, {reason}: {count:,}")
        typer.echo(f"{summary.aggregates:,} rows of aggregates, {sum(summary.alarms.values()):,} alarms")
        for type, count in sorted(summary.alarms.items()):
            typer.echo(f"  {type}: {count:,}")
        if summary.one_cell:
            typer.echo(ONE_CELL)
        typer.echo(f"the tables are in {folder}")
