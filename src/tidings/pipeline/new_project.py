"""A new Declarative Pipelines project that reads a node: two files, about twenty lines, ready to run.

The checkpoints lie in the folder of the project, so that two projects never continue each other's streams.
Spark takes only absolute places for them: a project that is moved needs its `storage` changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidings.errors import UserError
from tidings.pipeline.project import SPEC_FILE, TABLES_FILE, write_files

_NAME = re.compile(r"[A-Za-z]\w*(?:-\w+)*", re.ASCII)

_SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
"""
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


def check_name(name: str) -> None:
    """Raise UserError for a name that is none of a pipeline."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no name of a project; use letters, digits, _ and -, such as air-quality"
        )


def new_project_files(name: str, folder: Path, node: str, where: str) -> dict[str, str]:
    """Return the files of a project, by their paths in its folder; UserError for an invalid name."""
    check_name(name)
    storage = (folder.absolute() / "checkpoints").as_uri()
    tables = _TABLES.format(node=repr(node), where=repr(where))
    return {SPEC_FILE: _SPEC.format(name=name, storage=storage), TABLES_FILE: tables}


def write_project(name: str, parent: Path, node: str, where: str) -> Path:
    """Write a project into a new folder of that name, and return the folder; UserError if it exists."""
    folder = parent / name
    files = new_project_files(name, folder, node, where)
    if folder.exists():
        raise UserError(f"{folder} exists; choose another name, or remove it")
    write_files(folder, files)
    return folder
