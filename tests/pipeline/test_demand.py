"""A streaming query turns sensors on, and its end turns them off, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from effort import patience
from pipeline.nodes import PATIENCE_S, Running, running, wait_until
from pyspark.sql import SparkSession

TESTS = Path(__file__).parents[1]
START_S_MAX = patience(180.0)
"""How long a program with a Spark of its own may take to start on a busy machine."""


class Network:
    """A network with one thermometer, at the end of a connection to a gateway."""

    def __init__(self, connection: socket.socket, **members: str) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        sensors = [{"name": "t", "type": "temp"}]
        self._say({"register": {"sensing-id": "roof", "sensors": sensors, **members}})

    def _say(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def sense(self, *values: float) -> None:
        readings = [{"name": "t", "type": "temp", "value": value} for value in values]
        self._say({"sensing": {"sensing-id": "roof", "sensors": readings}})

    def hear(self) -> str:
        """What the gateway wants of the thermometer: `subscribe` or `unsubscribe`."""
        (word,) = json.loads(self._lines.readline())
        return str(word)


@contextmanager
def network_of(node: Running, patience_s: float = PATIENCE_S) -> Iterator[Network]:
    host, _, port = node.node.sensor_addresses[0].split()[-1].rpartition(":")
    with socket.create_connection((host, int(port)), patience_s) as connection:
        yield Network(connection)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node", sensor_port=0) as node:
        yield node


def test_a_query_turns_a_sensor_on_and_reads_it_and_its_end_turns_it_off(
    spark: SparkSession, node: Running
) -> None:
    stream = spark.readStream.format("tidings").schema("value double")
    frame = stream.options(node=node.address, where="type = 'temp'", lease="3600").load()
    with network_of(node) as network:
        query = frame.writeStream.format("memory").queryName("thermometer").start()
        assert network.hear() == "subscribe"
        network.sense(20.5, 21.5)
        wait_until(lambda: spark.table("thermometer").count() == 2)
        assert sorted(row.value for row in spark.table("thermometer").collect()) == [20.5, 21.5]
        query.stop()
        assert network.hear() == "unsubscribe"


@pytest.mark.slow
def test_a_driver_that_is_killed_turns_its_sensors_off_when_its_lease_ends(node: Running) -> None:
    source = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"
    with network_of(node, START_S_MAX) as network:
        driver = subprocess.Popen(
            [sys.executable, str(TESTS / "pipeline" / "killed.py"), node.address, "2"],
            env={**os.environ, "PYTHONPATH": source},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert network.hear() == "subscribe"
        finally:
            os.killpg(driver.pid, signal.SIGKILL)  # with its Java, and the process that keeps up the lease
            driver.wait(PATIENCE_S)
        assert network.hear() == "unsubscribe"
    wait_until(lambda: node.readers == [])
