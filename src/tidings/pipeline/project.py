"""Files of Declarative Pipelines projects and flow graphs.

The project of a pipeline is two generated files, which `spark-pipelines run` runs too. The definitions are
made from the pipeline when Spark loads them, so the project follows its changes.

A new project reads a node: two files, about twenty lines, ready to run. The checkpoints lie in the folder of
the project, so that two projects never continue each other's streams. Spark takes only absolute places for
them: a project that is moved needs its `storage` changed. A new graph is a few lines of TOML that run as they
are.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidings.errors import UserError
from tidings.pipeline.flow.graph import NAME_HINT, is_pipeline_name
from tidings.pipeline.plan import Plan
from tidings.pipeline.running import STATE_STORE

SPEC_FILE, TABLES_FILE = "spark-pipeline.yml", "transformations/tables.py"

_SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
"""
_HEAD = """\
# The pipeline {name} as a Spark Declarative Pipelines project, which `tidings pipeline run` runs.
# To run it by hand, from here, with each setting as `--conf spark.tidings.{name}.KEY=VALUE`:
#
#   spark-pipelines run --conf spark.sql.catalogImplementation=hive
#
# docs/pipeline.md has all settings `spark.tidings.{name}.…`.
# Two projects must not share the checkpoints in `storage`: give a copy of this one another place.
"""
_STATES = """\
  # State with timers needs this store.
  spark.sql.streaming.stateStore.providerClass: {store}
  spark.sql.shuffle.partitions: "4"
"""
_DEFINED = '''\
"""Tables of the pipeline {name}, as tidings defines them; `spark` is put here by Spark.

{tables}
"""

from tidings.pipeline.definitions import define

define(globals()["spark"], {quoted})
'''
_TABLES = '''\
"""Readings of a node as a table, and their means; `spark` is put here by Spark."""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

OPTIONS = {{"node": {node}, "where": {where}, "startingOffsets": "earliest"}}


@dp.table
def readings():
    """All readings; a run adds those since the last run."""
    source = spark.readStream.format("tidings").options(**OPTIONS)
    return source.schema("type string, time timestamp, value double").load()


@dp.materialized_view
def means():
    """Number and mean of the readings of each type."""
    sums = F.count("*").alias("count"), F.avg("value").alias("mean")
    return spark.read.table("readings").groupBy("type").agg(*sums)
'''
_GRAPH = """\
# Run it with: tidings pipeline run {file} --continuous
# See what it makes with: tidings subscribe "type LIKE '{types}.%'"
name = {name}
late = {late}                # events that come too late

[history.readings]
where = {where}
columns = {{ type = "string", value = "double" }}

[history.high]
from = "readings"
select = "value > 40"
publish = {high}

[state.means]                # for each type and minute
from = "readings"
by = "type"
window_s = 60
late_s = 600
collapse = {{ count = "count()", mean = "mean(value)", highest = "highest(value)" }}
publish = {means}
"""


def project_files(plan: Plan, origin: str, storage: str) -> dict[str, str]:
    """Return the files of the project of a pipeline, by their paths in its folder."""
    spec = (_HEAD + _SPEC + _STATES).format(name=plan.name, storage=storage, store=STATE_STORE)
    tables = _DEFINED.format(name=plan.name, quoted=_quoted(origin), tables="\n".join(_rows(plan)))
    return {SPEC_FILE: spec, TABLES_FILE: tables}


def _rows(plan: Plan) -> list[str]:
    """Return a line for each step: its name, what it is for Spark, and what it is made from."""
    rows = []
    for step in plan.steps:
        kind = "materialized view" if step.is_recomputed else "table" if step.is_stored else "view"
        about = f": {step.about}" if step.about else ""
        rows.append(f"{step.name:<14} {kind:<18} of {', '.join(step.after)}{about}")
    return rows


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder, and replace those that are there."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder / path, text)


def write_text(path: Path, text: str) -> None:
    """Write a file that the user has named; UserError if it can't be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}") from None


# New projects and graphs


def new_project_files(name: str, folder: Path, node: str, where: str) -> dict[str, str]:
    """Return the files of a project, by their paths in its folder; UserError for an invalid name."""
    _check_name(name)
    storage = (folder.absolute() / "checkpoints").as_uri()
    tables = _TABLES.format(node=repr(node), where=repr(where))
    return {SPEC_FILE: _SPEC.format(name=name, storage=storage), TABLES_FILE: tables}


def write_project(name: str, parent: Path, node: str, where: str) -> Path:
    """Write a project into a new folder of that name, and return the folder; UserError if it exists."""
    folder = parent / name
    files = new_project_files(name, folder, node, where)
    _check_new(folder)
    write_files(folder, files)
    return folder


def write_graph(path: Path, where: str) -> Path:
    """Write a graph into a new file and return its path; UserError if the file exists."""
    name = path.stem
    _check_name(name)
    _check_new(path)
    types = f"flow.{name}"
    texts = {
        "name": name,
        "where": f"({where}) AND NOT STARTS_WITH(type, '{types}.')",
        **{what: f"{types}.{what}" for what in ("high", "means", "late")},
    }
    quoted = {key: _quoted(text) for key, text in texts.items()}
    write_text(path, _GRAPH.format(file=path, types=types, **quoted))
    return path


def _check_name(name: str) -> None:
    if not is_pipeline_name(name):
        raise UserError(f"{name!r} is no name of a pipeline; {NAME_HINT}")


def _check_new(path: Path) -> None:
    if path.exists():
        raise UserError(f"{path} exists; choose another name, or remove it")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
