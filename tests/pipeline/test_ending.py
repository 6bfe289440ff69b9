"""How a streaming query ends, and what becomes of its readers then: stopped, killed, or stopped too early."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from pipeline.collecting import collecting
from pipeline.nodes import PATIENCE_S, Running, reading, running, wait_until
from pipeline.streams import ALL, Make, batch, making_streams, numbers
from pyspark.sql import SparkSession

from tidings import Event, blocking
from tidings.client.blocking import Log
from tidings.errors import Disconnected, TidingsError
from tidings.pipeline import reader_lease
from tidings.pipeline.offsets import Offset
from tidings.pipeline.reader_lease import ENDING, QueryEnding
from tidings.pipeline.stream import LogStreamReader

TESTS = Path(__file__).parents[1]
START_S_MAX = 180.0
"""How long a program with a Spark of its own may take on a busy machine."""
DRIVER = 100


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "node") as node:
        yield node


@pytest.fixture
def stream() -> Iterator[Make]:
    with making_streams() as make:
        yield make


@pytest.fixture
def parents(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says which parents the process has, one after the other, and the last one from then on."""

    def set_parents(*those: int | Callable[[], int]) -> None:
        left = chain(those, repeat(those[-1]))

        def parent() -> int:
            one = next(left)
            return one() if callable(one) else one

        monkeypatch.setattr(os, "getppid", parent)

    monkeypatch.setattr(reader_lease, "LOOK_S", 0.0)
    return set_parents


# What the process can tell


def test_a_query_is_over_if_nothing_went_wrong_or_spark_says_so(parents: Callable[..., None]) -> None:
    parents(DRIVER)
    for error in (None, SystemExit(0)):
        assert QueryEnding().wait_verdict(error)


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError(), KeyboardInterrupt()])
def test_a_driver_that_dies_a_moment_after_its_connection_has_ended_no_query(
    parents: Callable[..., None], error: BaseException
) -> None:
    parents(DRIVER, DRIVER, DRIVER, 1)
    assert not QueryEnding().wait_verdict(error)


def test_a_query_is_over_if_spark_says_so_after_the_end_of_the_connection(
    parents: Callable[..., None],
) -> None:
    parents(DRIVER)
    made = QueryEnding()

    def tell() -> int:
        made._on_sigterm(signal.SIGTERM, None)  # raises nothing, for the cleaning up has begun
        return DRIVER

    parents(DRIVER, tell)
    assert made.wait_verdict(EOFError())
    assert made.is_stopped


def test_a_query_is_over_if_its_driver_lives_on_without_a_connection(
    parents: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_lease, "VERDICT_S_MAX", 0.0)
    parents(DRIVER)
    assert QueryEnding().wait_verdict(EOFError())


@pytest.mark.parametrize("error", [ValueError(), Disconnected("gone")])
def test_a_call_that_fails_ends_no_query_and_waits_for_nothing(error: BaseException) -> None:
    assert not QueryEnding().wait_verdict(error)


def test_a_signal_ends_the_work_once() -> None:
    made = QueryEnding()
    with pytest.raises(SystemExit):
        made._on_sigterm(signal.SIGTERM, None)
    made._on_sigterm(signal.SIGTERM, None)
    assert made.wait_verdict(SystemExit(0))


# What becomes of the readers


def end_by(error: BaseException, reader: LogStreamReader) -> None:
    """What Spark's worker does: the reader is stopped while the error is on its way."""
    try:
        raise error
    except BaseException:
        reader.stop()


def wanted(*numbers: int) -> list[Event]:
    """Transient events: they are in the log only if a reader wants them."""
    return [Event("wanted", {"number": number}) for number in numbers]


def checkpoint_of(reader: LogStreamReader) -> Offset:
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.commit(end)
    return end


def test_a_driver_that_dies_leaves_its_reader_for_the_query_that_goes_on(
    node: Running, stream: Make, parents: Callable[..., None]
) -> None:
    first = stream(node, where="type = 'wanted'", lease="3600")
    checkpoint = checkpoint_of(first)
    (told,) = node.readers
    parents(DRIVER)
    end_by(EOFError(), first)
    assert node.readers == [told]
    node.publish(*wanted(1, 2))
    second = stream(node, where="type = 'wanted'", lease="3600")
    assert batch(second, checkpoint)[0] == [1, 2]
    assert [one["name"] for one in node.readers] == [told["name"]]
    second.stop()
    assert node.readers == []


def test_a_reader_that_stays_has_all_of_its_lease_left(
    node: Running, stream: Make, parents: Callable[..., None]
) -> None:
    reader = stream(node, lease="3600")
    reader.initialOffset()
    (archive,) = node.node.driver.broker.cursors.archives
    ends_at = archive.ends_at
    parents(DRIVER)
    end_by(EOFError(), reader)
    assert archive.ends_at > ends_at


def test_a_checkpoint_whose_reader_is_gone_is_no_silent_loss(
    node: Running, stream: Make, parents: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    first = stream(node, where="type = 'wanted'", lease="3600")
    checkpoint = checkpoint_of(first)
    parents(DRIVER)
    end_by(EOFError(), first)
    with blocking.connect(f"tidings://{node.address}") as bus:
        bus.log.leave(node.readers[0]["name"])  # as if its lease had ended
    node.publish(*wanted(1))
    for options in ({}, {"durable": "city"}):
        with pytest.raises(
            TidingsError, match=rf"node {node.address}: the reader 'spark-.*' is gone: .*lease"
        ):
            stream(node, where="type = 'wanted'", **options).latestOffset(checkpoint, ALL)
    anyway = stream(node, where="type = 'wanted'", failOnDataLoss="false")
    assert batch(anyway, checkpoint)[0] == []
    assert "is gone" in caplog.text
    node.publish(*wanted(2))
    assert batch(anyway, checkpoint)[0] == [2]


def test_a_query_that_is_killed_in_its_first_batch_repeats_that_and_no_more(
    node: Running, stream: Make, parents: Callable[..., None]
) -> None:
    node.publish(Event("wanted", {"number": 0}, delivery="persistent"))
    first = stream(node, where="type = 'wanted'", lease="3600")
    start = first.initialOffset()
    node.publish(*wanted(1, 2))
    found, end = batch(first, start)
    assert found == [1, 2]
    parents(DRIVER)
    end_by(EOFError(), first)
    node.publish(*wanted(3))
    second = stream(node, where="type = 'wanted'", lease="3600")
    assert numbers(second, second.initialOffset(), end) == [1, 2]
    assert batch(second, end)[0] == [3]
    with blocking.connect(f"tidings://{node.address}") as bus:
        bus.log.leave(next(one["name"] for one in node.readers if one["passive"]))
    third = stream(node, where="type = 'wanted'", lease="3600")
    with pytest.raises(TidingsError, match="is gone"):
        numbers(third, third.initialOffset(), end)


def test_the_end_of_the_first_batch_is_where_an_idle_query_stays(node: Running, stream: Make) -> None:
    reader = stream(node)
    start = reader.initialOffset()
    node.publish(reading(1, 1))
    found, end = batch(reader, start)
    assert found == [1]
    assert batch(reader, end) == ([], end)
    node.publish(reading(2, 2))
    assert batch(reader, end)[0] == [2]


def test_a_query_that_was_stopped_goes_on_from_its_checkpoint(node: Running, stream: Make) -> None:
    first = stream(node, where="type = 'wanted'")
    checkpoint = checkpoint_of(first)
    first.stop()
    for options in ({"durable": "city"}, {}):
        assert batch(stream(node, where="type = 'wanted'", **options), checkpoint)[0] == []


def test_a_query_that_has_become_durable_may_be_idle_for_longer_than_a_lease(
    node: Running, stream: Make
) -> None:
    first = stream(node, where="type = 'wanted'")
    checkpoint = checkpoint_of(first)
    first.stop()
    for _ in range(2):
        durable = stream(node, where="type = 'wanted'", durable="city")
        assert batch(durable, checkpoint)[0] == []
        assert [one["name"] for one in node.readers] == ["city"]  # the other one has no lease that could end
        durable.stop()


def test_a_reader_that_is_gone_at_one_node_of_several_is_no_silent_loss(
    tmp_path: Path, stream: Make, parents: Callable[..., None]
) -> None:
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        addresses = sorted([one.address, two.address])
        first = stream(",".join(addresses), where="type = 'wanted'", lease="3600")
        checkpoint = checkpoint_of(first)
        parents(DRIVER)
        end_by(EOFError(), first)
        with blocking.connect(f"tidings://{addresses[1]}") as bus:
            bus.log.leave(one.readers[0]["name"])
        durable = stream(",".join(addresses), where="type = 'wanted'", durable="city")
        with pytest.raises(TidingsError, match=rf"node {addresses[1]}: the reader 'spark-.*' is gone"):
            durable.latestOffset(checkpoint, ALL)
        durable.stop()


def test_a_reader_whose_place_is_taken_has_nothing_kept_beyond_what_the_query_wants(
    node: Running, stream: Make, parents: Callable[..., None]
) -> None:
    first = stream(node, where="type = 'wanted'", lease="3600")
    start = first.initialOffset()
    node.publish(*wanted(1))
    end = batch(first, start)[1]
    parents(DRIVER)
    end_by(EOFError(), first)
    second = stream(node, where="type = 'wanted'", lease="3600")
    assert numbers(second, second.initialOffset(), end) == [1]
    assert [one["filter"] for one in node.readers] == ["type = 'wanted'"] * 2


def test_a_durable_reader_that_somebody_has_removed_is_no_silent_loss(node: Running, stream: Make) -> None:
    first = stream(node, durable="city")
    checkpoint = checkpoint_of(first)
    first.stop()
    with blocking.connect(f"tidings://{node.address}") as bus:
        bus.log.leave("city")
    with pytest.raises(TidingsError, match="the reader 'city' is gone"):
        stream(node, durable="city").latestOffset(checkpoint, ALL)


def test_checkpoints_without_readers_go_on(node: Running, stream: Make) -> None:
    first = stream(node)
    older = {key: value for key, value in checkpoint_of(first).items() if not key.startswith("READER")}
    first.stop()
    assert older.keys() == {node.address, f"ID {node.address}"}
    assert batch(stream(node), older)[0] == []


def test_a_query_for_what_is_there_now_needs_no_reader_between_its_runs(node: Running, stream: Make) -> None:
    first = stream(node)
    first.prepareForTriggerAvailableNow()
    checkpoint = checkpoint_of(first)
    assert checkpoint.keys() == {node.address, f"ID {node.address}"}
    first.stop()
    second = stream(node)
    second.prepareForTriggerAvailableNow()
    assert batch(second, checkpoint)[0] == []


def test_a_query_that_is_stopped_before_the_node_has_answered_leaves_it(
    node: Running, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Log.reader

    def interrupted(self: Log, *arguments: Any, **options: Any) -> dict[str, Any]:
        ask(self, *arguments, **options)
        raise SystemExit(0)  # as SIGTERM does while the answer is waited for

    monkeypatch.setattr(Log, "reader", interrupted)
    reader = stream(node, lease="3600")
    with pytest.raises(SystemExit) as stopped:
        reader.initialOffset()
    assert len(node.readers) == 1
    end_by(stopped.value, reader)
    assert node.readers == []


def test_a_query_that_is_stopped_before_its_lease_is_kept_up_leaves_the_node(
    node: Running, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        if self.name == "tidings lease":
            raise SystemExit(0)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    reader = stream(node, lease="3600")
    with pytest.raises(SystemExit) as stopped:
        reader.initialOffset()
    end_by(stopped.value, reader)
    assert node.readers == []


def test_a_signal_that_comes_just_before_the_stop_does_not_keep_the_reader_there(
    node: Running, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stream(node, lease="3600")
    reader.initialOffset()
    at_exit: list[Callable[[], None]] = []
    assert reader._readers is not None
    monkeypatch.setattr(reader_lease.atexit, "unregister", at_exit.append)
    monkeypatch.setattr(ENDING, "_is_stopped", True)
    reader._readers._close_at_exit()
    assert node.readers == []
    assert at_exit == [reader._readers._close_at_exit]


# In Spark


class Slow:
    """A way to a node on which answers stay from the request on that opens a reader."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._node = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.holds = threading.Event()
        self._open: list[socket.socket] = []
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # the test is over
                return
            node = socket.create_connection(self._node)
            self._open += [client, node]
            threading.Thread(target=self._pass, args=(client, node, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(node, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if is_request and b"log.reader" in data:
                    self.holds.set()
                if is_request or not self.holds.is_set():
                    target.sendall(data)
        except OSError:
            pass

    def close(self) -> None:
        """Before the node is closed."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._serving.join(PATIENCE_S)
        for one in (self._listening, *self._open):
            one.close()


@contextmanager
def slow_way(node: Running) -> Iterator[Slow]:
    way = Slow(node.address)
    try:
        yield way
    finally:
        way.close()


def test_a_query_that_is_stopped_while_its_first_batch_is_planned_leaves_the_node(
    spark: SparkSession, node: Running
) -> None:
    stream = spark.readStream.format("tidings").schema("value double")
    with slow_way(node) as way:
        query = stream.options(node=way.address, lease="3600").load().writeStream.format("noop").start()
        assert way.holds.wait(PATIENCE_S)
        wait_until(lambda: len(node.readers) == 1)
        query.stop()
        wait_until(lambda: node.readers == [])


def test_queries_that_are_stopped_at_once_leave_the_node(spark: SparkSession, node: Running) -> None:
    stream = spark.readStream.format("tidings").schema("value double")
    for _ in range(3):
        query = stream.options(node=node.address, lease="3600").load().writeStream.format("noop").start()
        wait_until(lambda: len(node.readers) == 1)
        query.stop()
        wait_until(lambda: node.readers == [])


def start_driver(node: Running, folder: Path) -> subprocess.Popen[bytes]:
    """A program of its own with a query that writes what it reads into files."""
    source = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"
    return subprocess.Popen(
        [sys.executable, str(TESTS / "pipeline" / "collecting.py"), node.address, str(folder)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def descendants(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").glob("*"):
        with suppress(FileNotFoundError):  # a thread of a Java ends at any moment
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def collected(folder: Path) -> list[int]:
    return sorted(int(word) for file in folder.glob("out/*") for word in file.read_text().split())


@pytest.mark.slow
def test_a_driver_killed_within_its_lease_misses_nothing(
    spark: SparkSession, node: Running, tmp_path: Path
) -> None:
    node.publish(Event("wanted", {"number": -1}, delivery="persistent"))  # before the query begins
    (tmp_path / "out").mkdir()
    driver = start_driver(node, tmp_path)
    try:
        wait_until(lambda: len(node.readers) == 1, START_S_MAX)
        node.publish(*wanted(*range(100)))
        wait_until(lambda: len(collected(tmp_path)) == 100, START_S_MAX)
        (java,) = [one for one in children(driver.pid) if "java" in Path(f"/proc/{one}/comm").read_text()]
        workers = descendants(java)
        os.kill(java, signal.SIGKILL)
        driver.kill()
        driver.wait(PATIENCE_S)
        node.publish(*wanted(*range(100, 5_000)))
        wait_until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers))
        node.publish(*wanted(*range(5_000, 10_000)))
        assert len(node.readers) == 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    again = collecting(spark, node.address, tmp_path).trigger(availableNow=True).start()
    assert again.awaitTermination(START_S_MAX)  # raises what has gone wrong
    assert collected(tmp_path) == list(range(10_000))
