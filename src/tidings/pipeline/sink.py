"""Spark's writers to a sink: tasks stage rows at the node, and the end of a batch publishes them all, once.

A task knows neither its batch nor whether it is the one that counts, so it stages under a name of its own and
returns that name in its commit message. The commit, on the driver, names the attempts that count; the node
publishes all of their rows at once and notes the batch with them. So a batch that Spark repeats, after
whatever has failed, is published once. Tasks also know the id of their query, which lies in its checkpoint:
by it the node distinguishes a repeated batch from one of another query that has the same number.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self, cast

from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidings.client import blocking
from tidings.errors import EventError, TidingsError
from tidings.event.header import DELIVERIES
from tidings.event.values import check_type
from tidings.ids import new_system
from tidings.pipeline.connect import CONNECT_S_MAX, connect, naming_node
from tidings.pipeline.encode_rows import RowConverter
from tidings.pipeline.options import IN_SQL, NodeReach, check_use, option_error, reach_of
from tidings.pipeline.shape import Shape, shape_of
from tidings.protocol.arguments import NAME_LENGTH_MAX

ANSWER_S_MAX = 120.0
"""Longest wait of a request for its reply, also while the connection is restored."""
_QUERY_ID = "sql.streaming.queryId"  # set by Spark for all tasks of a query, whatever its checkpoint lies in


class SinkOptions(Struct, frozen=True):
    """Sink and node, and the defaults of rows."""

    reach: NodeReach
    sink: str
    delivery: str
    type: str | None
    job: str | None = None
    """Name of a write that is not a stream; another one of that name is a repetition."""


class Staged(WriterCommitMessage):
    """Rows that a task has staged: their names, number of pieces and rows, and the query."""

    def __init__(self, run: str, attempt: str, pieces: int, rows: int, query: str | None) -> None:
        self.run = run
        self.attempt = attempt
        self.pieces = pieces
        self.rows = rows
        self.query = query


CommitMessages = Sequence[WriterCommitMessage | None]


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkWriter:
    """Make the writer of a DataFrame; ConfigError for an invalid option or column, before anything runs."""
    if overwrite:
        raise option_error("mode", "'overwrite' can't be: what was published stays; write with mode 'append'")
    return SinkWriter(sink_options(options), schema)


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkStreamWriter:
    """Make the writer of a stream; ConfigError for an invalid option or column, before anything runs."""
    if overwrite:
        problem = "'complete' can't be: what was published stays; use 'append' or 'update'"
        raise option_error("outputMode", problem)
    if any(name.lower() == "job" for name in options):
        raise option_error("job", "is for df.write; a stream is identified by its checkpoint")
    return SinkStreamWriter(sink_options(options), schema)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink; ConfigError if one is invalid."""
    check_use(options.keys(), "sink")
    given = {name.lower(): value.strip() for name, value in options.items()}
    sink, delivery = given.get("sink", ""), given.get("delivery", "persistent").lower()
    if not sink:
        hint = "" if given else f"; {IN_SQL}"
        problem = "is missing: name what is written, so that no batch is published twice"
        raise option_error("sink", f"{problem}{hint}")
    job = given.get("job")
    if job == "":
        raise option_error("job", "is empty; name the write, or leave the option out")
    for name, value in (("sink", sink), ("job", job or "")):
        if len(value) > NAME_LENGTH_MAX:
            raise option_error(name, f"has {len(value)} characters; at most {NAME_LENGTH_MAX} are allowed")
    if delivery not in DELIVERIES:
        raise option_error("delivery", f"{delivery!r} is not one of {', '.join(DELIVERIES)}")
    reach = reach_of(options)
    if len(reach.nodes) != 1:
        raise option_error("node", f"a sink is at one node, and not at {len(reach.nodes)}")
    return SinkOptions(reach, sink, delivery, _type(given.get("type")), job)


def _type(given: str | None) -> str | None:
    try:
        return None if given is None else check_type(given)
    except EventError as error:
        raise option_error("type", error.problem) from None


class SinkWork:
    """Common part of both writers. `run` is the name of one planned write; Spark carries it to its tasks.

    A node publishes each run of a sink once, so the run of a `job` has its name however often it is planned.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.run = options.job or new_system(os.urandom)
        self._options = options
        self._shape: Shape = shape_of(schema, options.delivery, options.type)

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a task under a new name; forget them again if that fails.

        Called by Spark on an executor, for each batch of a stream.

        Parameters
        ----------
        iterator : iterator of pyarrow.RecordBatch
            The rows of one partition.

        Returns
        -------
        Staged
            The names under which they are staged.
        """
        attempt = new_system(os.urandom)
        converter = RowConverter(self._shape, _partition())
        with self._reached() as node, Ahead(node, self.run, attempt) as ahead:
            for piece in converter.pieces(iterator):
                ahead.stage(piece)
            return Staged(self.run, attempt, *ahead.finish(), _query())

    def _commit(self, staged: Sequence[Staged], batch: int | None) -> None:
        """Publish the staged rows."""
        run = staged[0].run if staged else self.run
        query = staged[0].query if staged else None
        attempts = {one.attempt: one.pieces for one in staged}
        with self._reached(ANSWER_S_MAX) as node:  # all the work of the tasks depends on it
            is_new = node.commit(run, batch, attempts, query)
        which = self._options.job if batch is None else batch
        if not is_new and which is not None:
            text = "sink %r has %s %r already: it is not published again"
            kind = "job" if batch is None else "batch"
            logging.getLogger("tidings").warning(text, self._options.sink, kind, which)

    def _abort(self, run: str) -> None:
        """Forget the staged rows; a node that is away does so by itself, after a time."""
        try:
            with self._reached() as node:
                node.abort(run)
        except TidingsError as error:  # the reason why Spark gives up is more important
            logging.getLogger("tidings").warning("sink %r: %s", self._options.sink, error)

    @contextmanager
    def _reached(self, timeout_s: float = CONNECT_S_MAX) -> Iterator[SinkNode]:
        reach = self._options.reach
        node = reach.nodes[0]
        with ExitStack() as held:
            with naming_node(node):
                bus = held.enter_context(connect(reach, timeout_s=timeout_s))
            yield SinkNode(bus, node, self._options.sink)


class SinkWriter(SinkWork, DataSourceArrowWriter):
    """Publishes the rows of a DataFrame, all at once.

    Parameters
    ----------
    options : SinkOptions
        Options of the sink and of its rows.
    schema : StructType
        Columns of the DataFrame.
    """

    def commit(self, messages: CommitMessages) -> None:
        """Publish the rows that all tasks have staged; called by Spark on the driver.

        Parameters
        ----------
        messages : list of Staged
            Messages that the tasks have returned.
        """
        self._commit(_staged(messages), None)

    def abort(self, messages: CommitMessages) -> None:  # noqa: ARG002 - all of the run goes
        """Forget the staged rows; called by Spark on the driver when a task has failed for good.

        Parameters
        ----------
        messages : list of Staged or None
            Messages that the tasks have returned.
        """
        self._abort(self.run)


class SinkStreamWriter(SinkWork, DataSourceStreamArrowWriter):
    """Publishes the rows of a stream, batch by batch, each batch once.

    Parameters
    ----------
    options : SinkOptions
        Options of the sink and of its rows.
    schema : StructType
        Columns of the stream.
    """

    def commit(self, messages: CommitMessages, batchId: int) -> None:  # noqa: N803
        """Publish the rows that all tasks of a batch have staged; called by Spark on the driver.

        Parameters
        ----------
        messages : list of Staged
            Messages that the tasks have returned.
        batchId : int
            Number of the batch, which is the same when it is repeated.
        """
        self._commit(_staged(messages), batchId)

    def abort(self, messages: CommitMessages, batchId: int) -> None:  # noqa: ARG002, N803
        """Forget the staged rows; called by Spark on the driver when a task has failed for good.

        Parameters
        ----------
        messages : list of Staged or None
            Messages that the tasks have returned; this writer is not the object that its tasks had.
        batchId : int
            Number of the batch.
        """
        for run in {message.run: None for message in _staged(messages)}:
            self._abort(run)


def _staged(messages: CommitMessages) -> list[Staged]:
    return [cast("Staged", message) for message in messages if message is not None]


def _partition() -> str:
    """Return the partition, as words for errors, if it is known."""
    context = TaskContext.get()
    return "" if context is None else f" of partition {context.partitionId()}"


def _query() -> str | None:
    """Return the id of the streaming query of this task; a new checkpoint has another."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


class SinkNode:
    """Node of a sink, as writers see it; a connection that breaks is waited out."""

    def __init__(self, bus: blocking.Bus, address: str, sink: str) -> None:
        self._sink = bus.sink(sink)
        self._address = address

    def stage(self, run: str, attempt: str, number: int, raw: bytes) -> int:
        """Stage a piece; return the number of rows of the attempt so far."""
        with naming_node(self._address):
            return self._sink.stage(run, attempt, number, raw, timeout_s=ANSWER_S_MAX)

    def commit(self, run: str, batch: int | None, attempts: dict[str, int], query: str | None) -> bool:
        """Publish; return False if that was done before."""
        with naming_node(self._address):
            return self._sink.commit(run, batch, attempts, query=query, timeout_s=ANSWER_S_MAX)

    def abort(self, run: str, attempts: list[str] | None = None) -> None:
        """Forget the staged rows."""
        with naming_node(self._address):
            self._sink.abort(run, attempts, timeout_s=ANSWER_S_MAX)


class Ahead:
    """Stages the pieces of one attempt, each while the next one is made; inside `with`, to be finished."""

    def __init__(self, node: SinkNode, run: str, attempt: str) -> None:
        self._node = node
        self._run = run
        self._attempt = attempt
        self._pieces = self._rows = 0
        self._under_way: Future[int] | None = None
        self._thread = ThreadPoolExecutor(1, "tidings staging")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self._thread.shutdown()
        if kind is not None:
            with suppress(TidingsError):  # the earlier error is more important
                self._node.abort(self._run, [self._attempt])

    def stage(self, piece: bytes) -> None:
        """Send a piece, when the one before it has arrived."""
        self._wait()
        asked = self._run, self._attempt, self._pieces, piece
        self._under_way = self._thread.submit(self._node.stage, *asked)
        self._pieces += 1

    def finish(self) -> tuple[int, int]:
        """Wait for the last piece; return the number of pieces, and of rows."""
        self._wait()
        return self._pieces, self._rows

    def _wait(self) -> None:
        if self._under_way is not None:
            self._rows = self._under_way.result()
