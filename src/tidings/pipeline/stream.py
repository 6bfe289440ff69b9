"""Stream source, `spark.readStream` from nodes: the log as it grows, batch after batch, each event once.

Spark keeps one object of `LogStreamReader` in a process of its own for as long as the query runs, and asks it
up to where it can read; copies of it in the executors read. So the long-lived part, the readers at the nodes,
is made when it is first needed and only there, and `partitions` and `read` know nothing but offsets.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidings.errors import UserError
from tidings.pipeline.batch import TaskInput, columns_of, pieces_of, place_of, read_piece, within
from tidings.pipeline.offsets import (
    Loss,
    NodeExtent,
    Offset,
    OffsetRange,
    advance,
    begun,
    id_of,
    later,
    losses,
    offset_of,
    places_of,
    readers_of,
    resume_at,
    spans,
)
from tidings.pipeline.options import ReadOptions, label_of, read_options
from tidings.pipeline.reader_lease import ENDING, LeasedReaders
from tidings.timers import Backoff

IDLE_S_MIN, IDLE_S_MAX = 0.001, 0.1
"""How long the answer that there is nothing new is delayed: at first, and after a while."""

logger = logging.getLogger("tidings")


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs of nodes as they grow.

    Parameters
    ----------
    options : dict
        As Spark has them. They are parsed when the query starts, not here: Spark hides errors that come
        out of a constructor behind one of its own.
    schema : StructType
        Columns of the result.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options)
        self._schema = schema
        self._readers: LeasedReaders | None = None
        self._initial: Offset | None = None
        self._begun: Offset | None = None  # where the query begins, if it does in this process
        self._targets: dict[str, int] | None = None
        self._standings: dict[str, NodeExtent] | None = None
        self._new: dict[str, int] = {}
        self._idle = Backoff(None, IDLE_S_MIN, IDLE_S_MAX)
        self._reported: set[Loss] = set()

    @cached_property
    def options(self) -> ReadOptions:
        """Options of the read; ConfigError if they are invalid."""
        return read_options(self._given, "stream")

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns in Arrow; ConfigError if no event can fill one."""
        return columns_of(self.options, self._schema)

    # Called by Spark in the driver

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the most positions of a batch; called first, once."""
        _ = self.columns
        limit = self.options.offsets_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the present end of the log; called before anything else."""
        self._readers = self._connect(passive=self.options.durable is None)
        self._targets = {label: standing.end for label, standing in self._readers.standings().items()}

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a query without a checkpoint begins; called more than once."""
        if self._initial is None:
            readers = self._connected()
            standings = readers.standings()
            ids = {label: standing.node for label, standing in standings.items()}
            places = readers.open(self._starts(readers, standings))
            self._initial = self._begun = offset_of(places, ids, readers.demanded)
        return self._initial

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the offset up to which the next batch reads; called for each trigger.

        Spark has completed what is before `start`, and calls `commit` for it only with the next batch, which
        may never come: so the readers pass it now.
        """
        readers = self._resumed(start)
        self._standings = readers.standings()
        self._check_losses(start, self._standings)
        readers.passed(_places_in(start, self._standings))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = advance(start, self._standings, most, self._targets, self._new, readers.demanded)
        if end == later(start):
            end = start
        elif start == self._begun:
            end = begun(end, start)
        self._pause(readers, is_idle=end == start)
        return end

    def _pause(self, readers: LeasedReaders, is_idle: bool) -> None:
        """Wait a little while nothing comes: Spark would call a hundred times a second."""
        if is_idle:
            readers.pause(self._idle.next_s())
        else:
            self._idle.reset()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the present ends of the nodes' logs, for Spark's progress; called after `latestOffset`."""
        if self._standings is None or self._readers is None:
            return None
        return advance({}, self._standings, reader=self._readers.demanded)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the inputs of a batch's tasks; the same for the same offsets, whenever it is called."""
        self._resumed(start).check_others(self._readers_in(end))
        return pieces_of(spans(start, end), self.options)

    def commit(self, end: Offset) -> None:
        """Pass the readers to this offset, before which Spark needs nothing; mostly `latestOffset` has."""
        self._resumed(end).passed(places_of(end))

    def stop(self) -> None:
        """End the stream, as the query or the driver has ended; `ending` says which, and what follows."""
        is_over = ENDING.wait_verdict(sys.exception())
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.close(leaves=is_over)

    # Called by Spark in executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece of a batch."""
        if not isinstance(partition, TaskInput):
            return iter(())
        return read_piece(partition, self.options, self.columns, self.options.where)

    # Readers at the nodes

    def _connect(self, passive: bool = False) -> LeasedReaders:
        ENDING.watch()
        return LeasedReaders(self.options, passive)

    def _connected(self) -> LeasedReaders:
        if self._readers is None:
            self._readers = self._connect()
        return self._readers

    def _resumed(self, start: Offset) -> LeasedReaders:
        """Return the readers, opened at the place of a query that goes on from a checkpoint."""
        readers = self._connected()
        if self._initial is None:
            standings = readers.standings()
            self._check_losses(start, standings)
            known = _places_in(start, standings)
            readers.resume(self._readers_in(start))
            new = {label: standing for label, standing in standings.items() if label not in known}
            opened = readers.open({**self._starts(readers, new), **known})
            self._new = {label: opened[label] for label in new}
            self._initial = start
        readers.check_others(self._readers_in(start))
        return readers

    def _readers_in(self, offset: Offset) -> dict[str, str]:
        """Return the readers that an offset names at nodes of this query."""
        there = {label_of(node) for node in self.options.reach.nodes}
        return {label: name for label, name in readers_of(offset).items() if label in there}

    def _starts(self, readers: LeasedReaders, standings: Mapping[str, NodeExtent]) -> dict[str, int | None]:
        """Return where new readers begin; None is the end of the log."""
        starting = self.options.starting
        starts: dict[str, int | None] = {}
        for label, standing in standings.items():
            if starting.time_us is None and starting.at(label) == "latest":
                starts[label] = None
            else:
                place = place_of(readers.bus(label), starting, label, standing)
                span = OffsetRange(label, standing.node, place, place)
                starts[label] = within(span, standing, self.options.fails_on_loss)[0]
        return starts

    def _check_losses(self, start: Offset, standings: Mapping[str, NodeExtent]) -> None:
        """End the query if events can't be read any more, or log that once if it is allowed."""
        for loss in losses(start, standings):
            if self.options.fails_on_loss:
                raise UserError(f"{loss.problem}; the option failOnDataLoss=false goes on without them")
            if loss not in self._reported:
                self._reported.add(loss)
                logger.warning("%s", loss.problem)


def _places_in(offset: Offset, standings: Mapping[str, NodeExtent]) -> dict[str, int]:
    """Return where reading goes on at each of these nodes that the offset has."""
    return {
        label: resume_at(place, id_of(offset, label), standings[label])
        for label, place in places_of(offset).items()
        if label in standings
    }
