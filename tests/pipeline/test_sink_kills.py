"""A real node that is killed while a sink is written to: every batch is published once nonetheless."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL

from node.peers import Process, Start
from pipeline.test_sink import COLUMNS, rows
from pyspark.sql.datasource import CaseInsensitiveDict

from tidings import blocking
from tidings.pipeline.sink import SinkStreamWriter, make_stream_writer

BATCHES = 3
ROWS = 20_000


def begin(start: Start, home: Path) -> Process:
    """A node with that home, which answers."""
    process = start("--dir", str(home / "node"), "--unix", str(home / "socket"))
    process.address()
    return process


def writer(address: str) -> SinkStreamWriter:
    given = CaseInsensitiveDict({"node": address, "sink": "s"})
    return make_stream_writer(given, COLUMNS, False)


def test_each_batch_is_published_once_however_often_the_node_is_killed(start: Start, tmp_path: Path) -> None:
    address = f"tidings+unix://{tmp_path / 'socket'}"
    process = begin(start, tmp_path)
    with ThreadPoolExecutor(1) as threads:
        for batch in range(BATCHES):
            staged = writer(address).write(rows(*range(batch * ROWS, (batch + 1) * ROWS)))
            committing = threads.submit(writer(address).commit, [staged], batch)
            process.stop(SIGKILL)  # before the commit, or while it is under way
            process = begin(start, tmp_path)
            committing.result()
            writer(address).commit([staged], batch)
    with blocking.connect(address) as bus:
        assert [event["n"] for _, event in bus.log.read()] == list(range(BATCHES * ROWS))
        (sink,) = bus.status()["sinks"]
    assert (sink["batch"], sink["staged_bytes"]) == (BATCHES - 1, 0)
