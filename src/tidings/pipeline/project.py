"""Declarative Pipelines project of a pipeline: two generated files, which `spark-pipelines run` runs too.

The definitions are made from the pipeline when Spark loads them, so the project follows its changes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidings.pipeline.plan import Plan
from tidings.pipeline.running import STATE_STORE

SPEC_FILE, TABLES_FILE = "spark-pipeline.yml", "transformations/tables.py"

_SPEC = """\
# The pipeline {name} as a Spark Declarative Pipelines project, which `tidings pipeline run` runs.
# To run it by hand, from here, with each setting as `--conf spark.tidings.{name}.KEY=VALUE`:
#
#   spark-pipelines run --conf spark.sql.catalogImplementation=hive
#
# docs/pipeline.md has all settings `spark.tidings.{name}.…`.
# Two projects must not share the checkpoints in `storage`: give a copy of this one another place.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  # State with timers needs this store.
  spark.sql.streaming.stateStore.providerClass: {store}
  spark.sql.shuffle.partitions: "4"
"""
_TABLES = '''\
"""Tables of the pipeline {name}, as tidings defines them; `spark` is put here by Spark.

{tables}
"""

from tidings.pipeline.definitions import define

define(globals()["spark"], {quoted})
'''


def project_files(plan: Plan, origin: str, storage: str) -> dict[str, str]:
    """Return the files of the project, by their paths in its folder."""
    tables = "\n".join(_rows(plan))
    return {
        SPEC_FILE: _SPEC.format(name=plan.name, storage=storage, store=STATE_STORE),
        TABLES_FILE: _TABLES.format(
            name=plan.name, quoted=msgspec.json.encode(origin).decode(), tables=tables
        ),
    }


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
        (folder / path).write_text(text, encoding="utf-8")
