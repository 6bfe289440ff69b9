"""`tidings pipeline backtest`: count what filters, patterns or access rules would have matched in history."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from tidings.cli.graph import Node
from tidings.cli.options import (
    CREDENTIALS,
    Json,
    argument,
    credential_options,
    option,
    options_of,
    read_moment,
    with_options,
)
from tidings.cli.pipeline import SPARK, app, check_nodes, spark_config
from tidings.cli.printing import add_row, count_text, new_table, print_json, print_table, progress_line
from tidings.errors import TidingsError, UserError

if TYPE_CHECKING:
    from tidings.pipeline.backtest.cases import Kind
    from tidings.pipeline.backtest.run import BacktestReport, CaseResult

SHOWN_MAX: Final = 50
"""Cases that are printed for people, those with the most matches; --json prints all."""
TYPES_SHOWN: Final = 5
FIRINGS_SHOWN: Final = 20
"""Matches of a pattern that are printed for people, the first ones; --json prints all that are listed."""

File = Annotated[
    Path,
    argument(
        "FILE",
        "Filters, as TOML, lines of JSON or plain lines; patterns, as TOML; or an access.toml.",
        show_default=False,
    ),
]
Concepts = Annotated[
    Path | None, option("FILE", "Terms and units that filters use: a .toml, .json or RDF file.")
]
Folder = Annotated[str | None, option("DIR", "The folder of a sealed log, instead of a node.")]
Since = Annotated[str, option("TIME", "Count events stored since then: 30d, 12h, or a time.")]
Until = Annotated[str | None, option("TIME", "Count only events stored before then.")]
Where = Annotated[str, option("FILTER", "Count only events that match this as well.")]
Samples = Annotated[int, option("Events to show for each case.", min=0)]
Seed = Annotated[int, option("Choose the samples; the same seed chooses the same ones.")]
Tasks = Annotated[int | None, option("Tasks at least.", min=1, show_default="as many as there are cores")]


@app.command()
@with_options(*options_of(SPARK), *credential_options("With TLS", "TIDINGS_"))
def backtest(
    file: File,
    node: Node = None,
    path: Folder = None,
    since: Since = "30d",
    until: Until = None,
    where: Where = "",
    samples: Samples = 3,
    seed: Seed = 0,
    tasks: Tasks = None,
    concepts: Concepts = None,
    json: Json = False,
    **others: Any,
) -> None:
    """Count on Spark what filters, or the rules of an access.toml, would have matched in history.

    Of a pattern, each time is reported at which it would have fired. Nothing is published, and no sensor is
    turned on.
    """
    from tidings.filters import Taxonomy
    from tidings.pipeline.backtest.cases import read_cases
    from tidings.pipeline.backtest.run import backtest as run_backtest
    from tidings.pipeline.options import read_options
    from tidings.pipeline.running import failure
    from tidings.pipeline.session import check_packages, spark_session
    from tidings.pipeline.settings import OPTIONS

    cases = read_cases(file, None if concepts is None else Taxonomy.load(concepts))
    given = {"where": where, **place_of(node, path), **period_of(since, until, datetime.now(UTC))}
    master, archive, conf = (others[name] for name in SPARK)
    given |= {OPTIONS.get(name, name): str(others[name]) for name in CREDENTIALS if others[name] is not None}
    if tasks is not None:
        given["minPartitions"] = str(tasks)
    check_packages()
    read_options(given, "batch")
    config = spark_config(conf or [], archive)
    if path is None:
        check_nodes(given, master)
    with progress_line(not json) as show:
        show("starting Spark")
        spark = spark_session(master, "tidings backtest", **config)
        try:
            show(f"counting the matches of {count_text(len(cases.cases), 'case')}")
            report = run_backtest(spark, cases, given, samples=samples, seed=seed)
        except TidingsError:
            raise
        except Exception as error:  # of Spark's, with one of ours somewhere in it
            raise failure(error, "back-test") from error
        finally:
            spark.stop()
    print_report(report, json)


def place_of(node: str | None, path: str | None) -> dict[str, str]:
    """Return the options for what is read: a folder if one is named, else a node."""
    return {"path": path} if path is not None else {"node": node or "127.0.0.1:7300"}


def period_of(since: str, until: str | None, now: datetime) -> dict[str, str]:
    """Return the options for the period."""
    begin = read_moment(since, "--since", now)
    period = {"startingTimestamp": begin.isoformat()}
    if until is not None:
        end = read_moment(until, "--until", now)
        if end <= begin:
            raise UserError(f"--until: {until!r} is not after --since {since!r}")
        period["endingTimestamp"] = end.isoformat()
    return period


# Printing


def print_report(report: BacktestReport, json: bool) -> None:
    """Print a line of JSON for the whole and one for each case, or a table with the samples below it."""
    if json:
        whole = msgspec.to_builtins(report)
        found = whole.pop("cases")
        print_json(whole)
        for case in found:
            print_json(case)
        return
    if report.first is None:
        typer.echo("there are no events in this period", err=True)
        return
    span = f"from {_time(report.first)} to {_time(report.last)}"
    typer.echo(f"{count_text(report.events, 'event')}, {span}")
    shown = sorted(report.cases, key=lambda case: -case.count)[:SHOWN_MAX]
    if len(shown) == len(report.cases):
        shown = report.cases
    print_table(table_of(shown, report.kind))
    if len(shown) < len(report.cases):
        more = len(report.cases) - len(shown)
        typer.echo(f"and {count_text(more, 'case')} with fewer matches; --json lists all")
    for case in shown:
        print_firings(case)
        print_samples(case)


def table_of(cases: list[CaseResult], kind: Kind) -> Any:
    """Return the table of cases."""
    name = "user" if kind == "access" else "case"
    last = {"access": "types", "filters": "filter", "patterns": "pattern"}[kind]
    what = "fired" if kind == "patterns" else "events"
    columns = (name, what, "share", "per hour", "first", "last", last)
    table = new_table(*columns, numbers=(what, "share", "per hour"), wide=(last,))
    for case in cases:
        rate = "" if case.per_hour is None else f"{case.per_hour:,.1f}"
        about = types_text(case.types) if case.types is not None else case.where
        cells = (f"{case.count:,}", f"{case.share:.2%}", rate, _time(case.first), _time(case.last))
        add_row(table, case.name, *cells, about)
    return table


def types_text(types: dict[str, int]) -> str:
    """Return the most frequent types, with their counts."""
    most = sorted(types.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{name} {count:,}" for name, count in most[:TYPES_SHOWN]]
    return ", ".join([*shown, *(["…"] if len(most) > TYPES_SHOWN else [])])


def print_firings(case: CaseResult) -> None:
    """Print when a pattern would have fired, and what it could not use."""
    if case.fired:
        typer.echo(f"\n{case.name} would have fired at")
    for one in (case.fired or [])[:FIRINGS_SHOWN]:
        typer.echo(f"  {_time(one.end)}  {', '.join(map(str, one.key))}".rstrip())
    if case.fired is not None and case.count > FIRINGS_SHOWN:
        typer.echo(f"  and {case.count - FIRINGS_SHOWN:,} times later; --json lists them")
    if case.timeouts:
        typer.echo(f"{case.name}: {count_text(case.timeouts, 'run')} timed out")
    for reason, count in (case.unused or {}).items():
        typer.echo(f"{case.name}: {count_text(count, 'event')} not used: {reason}")


def print_samples(case: CaseResult) -> None:
    """Print the samples of a case."""
    if case.samples:
        typer.echo(f"\n{case.name}, {count_text(len(case.samples), 'sample')}")
    for sample in case.samples:
        typer.echo(f"  {msgspec.json.encode(sample).decode()}")


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
