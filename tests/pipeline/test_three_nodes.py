"""Queries over three real nodes with TLS, in a line: they read all logs, and turn on sensors anywhere."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from guarantees.peered import ADMIN, Secured
from node.peers import Start
from overlay.test_kills import linked_nodes
from pipeline.nodes import PATIENCE_S, reading, wait_until
from pipeline.test_demand import Network
from pipeline.test_stream import COLUMNS, collected, read_once, wait_read
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter
from security.places import SECRET

from tidings import blocking
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.passwords import Token, hash_token, make_token
from tidings.security.provision import add_allowance, allowance


class Line:
    """Nodes a, b and c, each of which knows the next; c has the gateway of a thermometer."""

    def __init__(self, start: Start, home: Path) -> None:
        self.nodes = linked_nodes(start, home, "abc")
        self.nodes["c"]._flags += ("--sensor-port", "0")
        self._token = self._let_in(self.nodes["c"].directory)
        self._secret = home / "secret"
        self._secret.write_text(SECRET)
        asyncio.run(self._start())
        self._sensor_port = self._sensor_port_of(self.nodes["c"])

    async def _start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))

    def _let_in(self, directory: SecurityDirectory) -> str:
        """The token of a user who may publish readings."""
        token = make_token(os.urandom)
        with edited(directory) as lines:
            lines.add_token("roof", Token("first", hash_token(token)))
        add_allowance(directory, allowance(["roof"], ["publish"]))
        return token

    def _sensor_port_of(self, node: Secured) -> int:
        line = node._process.line()
        assert line.startswith("sensors on tls "), line
        return int(line.rpartition(":")[2])

    @contextmanager
    def network(self) -> Iterator[Network]:
        """A network with a thermometer at c."""
        tls = ssl.create_default_context(cafile=self.nodes["c"].directory.ca)
        place = ("127.0.0.1", self._sensor_port)
        with (
            socket.create_connection(place, PATIENCE_S) as plain,
            tls.wrap_socket(plain, server_hostname=place[0]) as connection,
        ):
            yield Network(connection, token=self._token)

    def restart(self, name: str, meanwhile: Callable[[], None]) -> None:
        """Kill a node, and start it again when something has been done without it."""
        asyncio.run(self.nodes[name].kill())
        meanwhile()
        asyncio.run(self.nodes[name].start())

    def bus(self, name: str) -> blocking.Bus:
        node = self.nodes[name]
        return blocking.connect(node.address, user=ADMIN, password=SECRET, ca=node.directory.ca)

    def publish(self, name: str, numbers: range) -> None:
        with self.bus(name) as bus:
            bus.publish_all([reading(1, number) for number in numbers])

    def writer(self, spark: SparkSession, names: str, where: str) -> DataStreamWriter:
        """A query that reads the logs of these nodes."""
        reach = {
            "node": ",".join(self.nodes[name].address for name in names),
            "user": ADMIN,
            "passwordFile": str(self._secret),
            "ca": str(self.nodes["a"].directory.ca),
        }
        stream = spark.readStream.format("tidings").schema(COLUMNS).options(**reach, lease="3600")
        return stream.option("where", where).load().writeStream

    def is_read(self, names: str) -> bool:
        """Whether these nodes, and no others, have a reader."""
        return [name for name in "abc" if self._readers(name)] == list(names)

    def _readers(self, name: str) -> int:
        with self.bus(name) as bus:
            return len(bus.log.status()["readers"])


@pytest.fixture(scope="module")
def line(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Line:
    return Line(start_shared, tmp_path_factory.mktemp("line"))


@pytest.mark.slow
def test_each_event_of_three_nodes_is_read_once_over_restarts_of_the_query_and_of_a_node(
    spark: SparkSession, line: Line, tmp_path: Path
) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    writer = line.writer(spark, "abc", "type = 'air.pm10'").foreachBatch(collected(folder))
    writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    wait_until(lambda: line.is_read("abc"))
    for number, name in enumerate("abc"):
        line.publish(name, range(100 * number, 100 * number + 100))
    wait_read(query, folder, 300)
    query.stop()
    for number, name in enumerate("abc", start=3):
        line.publish(name, range(100 * number, 100 * number + 100))
    query = writer.start()
    line.restart("b", lambda: line.publish("a", range(600, 700)))
    line.publish("b", range(700, 800))
    wait_read(query, folder, 800)
    query.stop()
    assert query.exception() is None
    assert read_once(folder) == list(range(800))


@pytest.mark.slow
def test_a_query_turns_on_a_sensor_at_another_node_and_its_reading_is_read_once(
    spark: SparkSession, line: Line
) -> None:
    with line.network() as network:
        far = line.writer(spark, "a", "type = 'temp'").format("noop").start()
        assert network.hear() == "subscribe"  # a knows of c by b alone
        far.stop()
        assert network.hear() == "unsubscribe"
        every = line.writer(spark, "abc", "type = 'temp'").format("memory").queryName("three").start()
        assert network.hear() == "subscribe"
        wait_until(lambda: line.is_read("abc"))
        network.sense(20.5, 21.5)
        wait_until(lambda: spark.table("three").count() >= 2)
        every.processAllAvailable()
        assert spark.table("three").count() == 2
        every.stop()
        assert network.hear() == "unsubscribe"
