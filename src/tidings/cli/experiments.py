"""Options and output of experiments: `--grid` of any simulation; see `simulator/experiments.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.cli.options import option
from tidings.cli.printing import add_row, new_table, print_json, print_table, progress_line
from tidings.errors import UserError
from tidings.simulator.experiments import (
    Row,
    Run,
    figures_of,
    parse_grid,
    run_experiment,
    summary,
)
from tidings.simulator.plotting import plot_svg

OUT = Path("experiment")
"""Folder of an experiment, unless one is named."""

Grid = Annotated[
    list[str] | None,
    option("NAME=V,V", "Run an experiment instead: these values of a parameter; may be repeated."),
]
Seeds = Annotated[int, option("N", "Seeds for each point of the grid.", min=1, max=10_000)]
OnSpark = Annotated[bool, option("--spark", "Run the experiment on Spark, one run a task.")]
Out = Annotated[Path, option("DIR", "The folder of its rows and plots; what is there is not run again.")]


def experiment(
    run: Run, grid: Sequence[str], seeds: int, first: int, is_on_spark: bool, out: Path, json: bool
) -> None:
    """Run an experiment, write a plot of each figure, and print its rows as JSON or their means as a table.

    The first parameter with several numbers is the horizontal axis of plots, the next one makes lines. The
    exit code is 1 if a run has failed.
    """
    points = parse_grid(run, grid)
    names = list(points[0])
    with progress_line(not json) as show:
        if is_on_spark:
            rows = _on_spark(run, points, seeds, first, out)
        else:
            rows = run_experiment(run, points, seeds, first, out, show)
    figures = figures_of(run, rows)
    for name in _plots(rows, names, figures, out):
        typer.echo(f"plot: {name}", err=True)
    if json:
        for row in rows:
            print_json(row)
    else:
        _print_means(rows, names, figures)
    failed = [row for row in rows if row["error"] is not None]
    for row in failed:
        about = " ".join(f"{name}={row[name]}" for name in [*names, "seed"])
        typer.echo(f"{about}: FAILED: {row['error']}", err=True)
    if failed:
        raise typer.Exit(1)


def _on_spark(run: Run, points: Sequence[dict[str, Any]], seeds: int, first: int, out: Path) -> list[Row]:
    from tidings.pipeline.experiments import run_on_spark
    from tidings.pipeline.session import spark_session

    spark = spark_session(None, "tidings experiment")
    try:
        return run_on_spark(spark, run, points, seeds, first, out)
    finally:
        spark.stop()


def _plots(rows: Sequence[Row], names: Sequence[str], figures: Sequence[str], out: Path) -> list[Path]:
    """Write a plot of each figure, if a parameter has several numbers."""
    several = [name for name in names if len({row[name] for row in rows}) > 1]
    numbers = [name for name in several if all(_is_number(row[name]) for row in rows)]
    if not numbers:
        return []
    across = numbers[0]
    lines = next((name for name in several if name != across), None)
    paths = []
    for figure in figures:
        if summary(rows, figure, [across]):
            paths.append(out / f"{figure}.svg")
            paths[-1].write_text(plot_svg(rows, across, figure, lines))
    return paths


def _is_number(value: object) -> bool:
    """Whether a value has a place on an axis, as a size in messages has that is a text."""
    return value.isdecimal() if isinstance(value, str) else type(value) in (int, float)


def _print_means(rows: Sequence[Row], names: Sequence[str], figures: Sequence[str]) -> None:
    table = new_table("figure", *names, "runs", "mean", "±", numbers=("runs", "mean", "±"))
    for figure in figures:
        for one in summary(rows, figure, names):
            spread = f"{one.high - one.mean:,.4g}"
            add_row(table, figure, *map(str, one.point.values()), str(one.runs), f"{one.mean:,.6g}", spread)
    print_table(table)


def write_picture(path: Path, svg: str) -> None:
    """Write a picture; UserError if that is not possible."""
    try:
        path.write_text(svg)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}") from error
