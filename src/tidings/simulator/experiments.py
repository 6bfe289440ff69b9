"""Experiments: one simulation, run for each point of a grid of parameters and for several seeds.

A *run* is a function of a seed and keyword parameters that returns figures. Each run becomes a row: the
parameters, the seed, the figures, and an error in place of figures if it failed. A row is written as a
Parquet file of its own when the run has ended, under a name that is made of all that decides it; so an
experiment that was stopped goes on where it was, and rows from many machines lie in one folder. What runs
where is up to the caller: here one after the other, in `pipeline/experiments.py` as tasks of Spark.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, get_type_hints

import msgspec

from tidings.errors import MissingExtra, UserError

Run = Callable[..., Mapping[str, float | None]]
"""Takes `seed` and keyword parameters; returns figures by their names."""
Point = dict[str, Any]
"""Values of the parameters."""
Row = dict[str, Any]
"""A point, `seed`, figures, and `error`: a text, or None."""
POINTS_MAX = 10_000
"""Points of one grid."""
ERROR_LENGTH_MAX = 500
"""Characters of an error in a row."""

# Student's t for 95 %, by the degrees of freedom
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_STUDENT_MORE = ((15, 2.13), (20, 2.09), (30, 2.04), (60, 2.00))


def parameters_of(run: Run) -> dict[str, inspect.Parameter]:
    """Return the parameters that a grid may name."""
    found = inspect.signature(run).parameters
    return {name: one for name, one in found.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}


def parse_grid(run: Run, texts: Iterable[str]) -> list[Point]:
    """Return the points of a grid: all combinations of `NAME=VALUE,VALUE…`."""
    known, hints = parameters_of(run), get_type_hints(run)
    axes: dict[str, list[Any]] = {}
    for text in texts:
        name, is_given, values = text.partition("=")
        if name not in known or not is_given or not values:
            names = ", ".join(known)
            raise UserError(f"--grid: {text!r} is not NAME=VALUE,VALUE…; the names are {names}")
        axes[name] = [_value(name, value, hints[name]) for value in values.split(",")]
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(points) > POINTS_MAX:
        raise UserError(f"--grid: {len(points)} points are too many; at most {POINTS_MAX} are allowed")
    return points


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"--grid: {name}={text}: {error}") from None


class Task(NamedTuple):
    """One run of an experiment."""

    point: Point
    seed: int

    def path(self, folder: Path, run: Run) -> Path:
        """Return where its row is written."""
        name = f"{run.__module__}.{run.__qualname__}"
        about = msgspec.json.encode([name, sorted(self.point.items()), self.seed])
        return folder / f"{blake2b(about, digest_size=12).hexdigest()}.parquet"


def tasks_of(points: Iterable[Point], seeds: int, first: int = 0) -> list[Task]:
    """Return the runs of an experiment: all points with each seed."""
    return [Task(point, seed) for seed in range(first, first + seeds) for point in points]


def row_of(run: Run, task: Task) -> Row:
    """Run once; an error becomes a row as well."""
    about = {**task.point, "seed": task.seed}
    try:
        return {**about, **run(task.seed, **task.point), "error": None}
    except Exception as error:  # a run that fails is a result
        told = f"{type(error).__name__}: {error}"
        return {**about, "error": told[:ERROR_LENGTH_MAX]}


def write_row(run: Run, task: Task, folder: Path) -> None:
    """Run once, and write the row, unless it is there."""
    parquet, arrow = _parquet()
    path = task.path(folder, run)
    if not path.exists():
        table = arrow.Table.from_pylist([row_of(run, task)])
        part = path.with_suffix(".part")
        parquet.write_table(table, part)
        part.replace(path)


def read_rows(run: Run, tasks: Iterable[Task], folder: Path) -> list[Row]:
    """Return the rows of runs that were written, in the order of the runs."""
    parquet, _ = _parquet()
    paths = [task.path(folder, run) for task in tasks]
    return [row for path in paths if path.exists() for row in parquet.read_table(path).to_pylist()]


def run_experiment(
    run: Run,
    points: Sequence[Point],
    seeds: int,
    first: int,
    folder: Path,
    show: Callable[[str], None] = lambda _text: None,
) -> list[Row]:
    """Run everything that was not run yet, one after the other, and return all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = tasks_of(points, seeds, first)
    for number, task in enumerate(tasks, 1):
        write_row(run, task, folder)
        show(f"{number} of {len(tasks)} runs")
    return read_rows(run, tasks, folder)


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("experiments", "node") from None
    return pq, pa


# What came of it


class Estimate(NamedTuple):
    """Mean of a figure over the seeds of a point, within bounds that hold with 95 %."""

    point: Point
    runs: int
    mean: float
    low: float
    high: float


def figures_of(run: Run, rows: Iterable[Row]) -> list[str]:
    """Return the names of the figures in rows, in their order."""
    others = {*parameters_of(run), "seed", "error"}
    return list(dict.fromkeys(name for row in rows for name in row if name not in others))


def summary(rows: Iterable[Row], figure: str, by: Sequence[str]) -> list[Estimate]:
    """Return the mean of a figure for each combination of some parameters; failed runs count for nothing."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        value = row.get(figure)
        if row.get("error") is None and value is not None:
            found.setdefault(tuple(row.get(name) for name in by), []).append(float(value))
    return [_estimate(dict(zip(by, key, strict=True)), values) for key, values in found.items()]


def _estimate(point: Point, values: Sequence[float]) -> Estimate:
    mean = fmean(values)
    spread = student(len(values) - 1) * stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0
    return Estimate(point, len(values), mean, mean - spread, mean + spread)


def student(freedom: int) -> float:
    """Return Student's t for 95 %, or a little more than it."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return next((t for least, t in reversed(_STUDENT_MORE) if freedom >= least), _STUDENT[-1])


def series(rows: Sequence[Row], x: str, y: str, by: str | None) -> Iterator[tuple[str, list[Estimate]]]:
    """Yield the lines of a plot: a figure over a parameter, one line for each value of another."""
    axes = [x] if by is None else [x, by]
    lines: dict[str, list[Estimate]] = {}
    for one in summary(rows, y, axes):
        lines.setdefault("" if by is None else str(one.point[by]), []).append(one)
    for name, found in lines.items():
        yield name, sorted(found, key=lambda one: float(one.point[x]))
