"""A pattern in a declarative pipeline: a stream that the module makes, straight from the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import patience
from pipeline.flow_oracle import moment
from pipeline.nodes import Running, running
from pyspark.sql import SparkSession

from tidings import Event, blocking
from tidings.pipeline.running import STATE_STORE

ROOT = Path(__file__).parents[2]
SPEC = """\
name: pairs
storage: {storage}
libraries:
  - glob:
      include: tables.py
configuration:
  spark.sql.streaming.stateStore.providerClass: {store}
"""
TABLES = """\
from pyspark import pipelines as dp

from tidings import Pattern
from tidings.pipeline.patterns import matches

PATTERN = Pattern("a[type = 'A'] THEN b[type = 'B'] WITHIN 5 min BY k LATE 0 s")
OPTIONS = {{"node": "{node}", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}}
source = spark.readStream.format("tidings").options(**OPTIONS)
columns = "time timestamp, node string, position long, type string, k string"
found = matches(PATTERN, source.schema(columns).load()).select("k", "kind", "start", "end")


@dp.table
def pairs():
    return found
"""


def run(project: Path, server: str) -> None:
    """Do what `spark-pipelines run` does, on the Spark that tests share."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_REMOTE": server}
    command = [
        sys.executable,
        "-m",
        "pyspark.pipelines.cli",
        "run",
        "--spec",
        str(project / "spark-pipeline.yml"),
    ]
    ended = subprocess.run(
        command,
        env=environment,
        cwd=project,
        timeout=patience(300),
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def publish(node: Running, *happened: tuple[str, float, str]) -> None:
    with blocking.connect(f"tidings://{node.address}") as bus:
        for kind, time_s, key in happened:
            bus.publish(Event(kind, {"k": key}, time=moment(time_s), delivery="persistent"))


@pytest.mark.slow
def test_a_table_of_a_declarative_pipeline_has_the_matches_of_a_stream_of_its_module(
    spark: SparkSession, server: str, tmp_path: Path
) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(
        SPEC.format(storage=(tmp_path / "checkpoints").as_uri(), store=STATE_STORE)
    )
    with running(tmp_path / "node") as node:
        (tmp_path / "tables.py").write_text(TABLES.format(node=node.address))
        publish(node, ("A", 0, "x"), ("A", 1, "y"), ("B", 2, "x"), ("A", 60, "z"), ("A", 61, "z"))
        run(tmp_path, server)
    assert [row.asDict() for row in spark.table("pairs").select("k", "kind").collect()] == [
        {"k": "x", "kind": "match"}
    ]
    spark.sql("DROP TABLE pairs")
