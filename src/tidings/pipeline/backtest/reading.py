"""Spark's format `tidings_backtest`: history, matched and counted where it is read.

Each task maps the saved index, reads its piece of history as bytes of a node or tables of sealed files, and
returns the counters of its tally as rows. So nothing but counters passes through Spark. The reads are those
of a batch query: no reader is opened at a node, no sensor turned on, nothing published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidings.event import Batch
from tidings.filters import Filter
from tidings.index_files import open_index
from tidings.log.arrow.attributes import whole
from tidings.log.arrow.table_events import TableEvents
from tidings.log.chunks import LivePart, Part, SealedPart
from tidings.log.columns import Decoder
from tidings.log.schema import POSITION, TIME
from tidings.log.segment_folder import Folder
from tidings.matching import Index, Matches
from tidings.pipeline.backtest.steps import STEP_COLUMNS, step_batches
from tidings.pipeline.backtest.tally import Chunk, CounterRow, Tally, TallyPlan
from tidings.pipeline.batch import LogReader, TaskInput, read_parts
from tidings.pipeline.options import ReadOptions, read_options
from tidings.pipeline.sealed import FolderPiece, FolderReader

FORMAT: Final = "tidings_backtest"
PLAN: Final = "plan"
"""Option with the plan, as JSON; all others are options of reading."""
TABLE_ROWS_MAX: Final = 1 << 16
"""Rows of a table that are matched at once: their values stand in memory for each lane."""
COLUMNS: Final = "case long, matched long, first_us long, last_us long, detail string"

_COUNTERS: Final = pa.schema([
    ("case", pa.int64()),
    ("matched", pa.int64()),
    ("first_us", pa.int64()),
    ("last_us", pa.int64()),
    ("detail", pa.string()),
])  # fmt: skip
_SEEN: Final = pa.schema([POSITION, pa.field("time", TIME), pa.field("type", pa.string())])

Found = tuple[Matches[int], Chunk]


class CountingPlan(msgspec.Struct, frozen=True):
    """Plan of the tasks, and the saved index: the file of this name among Spark's files, or at this path.

    With patterns, under the numbers of their cases, the events that are steps are returned, not counters.
    """

    tally: TallyPlan
    index: str
    patterns: tuple[str, ...] = ()


class BacktestSource(DataSource):
    """Source of counters.

    Parameters
    ----------
    options : dict
        Options of a batch read (docs/spark.md), and `plan`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of counters or of steps."""
        return STEP_COLUMNS if self._plan().patterns else COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        """Return a reader that counts."""
        given = {name: value for name, value in dict(self.options).items() if name != PLAN}
        options = read_options(given, "batch")
        return (LogCounter if options.path is None else FolderCounter)(options, self._plan())

    def _plan(self) -> CountingPlan:
        return msgspec.json.decode(dict(self.options)[PLAN], type=CountingPlan)


class LogCounter(LogReader):
    """Counts the matches in the logs of nodes."""

    def __init__(self, options: ReadOptions, plan: CountingPlan) -> None:
        self.options = options
        self.where = options.where
        self.plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Count one piece; called in an executor, once for each attempt of a task."""
        if not isinstance(partition, TaskInput):
            return iter(())
        index, node = opened(self.plan.index), partition.span.node
        replies = read_parts(partition, self.options, self.where)
        found = (match_parts(index, parts, node, self.plan.tally.by_type) for parts in replies)
        return returned(self.plan, chain.from_iterable(found))


class FolderCounter(FolderReader):
    """Counts the matches in the files of a sealed log."""

    def __init__(self, options: ReadOptions, plan: CountingPlan) -> None:
        assert options.path is not None
        self.options = options
        self.path = options.path
        self.where = options.where
        self.plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Count one piece; called in an executor, once for each attempt of a task."""
        if not isinstance(partition, FolderPiece):
            return iter(())
        index, span = opened(self.plan.index), partition.span
        tables = self.tables(Folder(self.path), span, Filter(self.where), None)
        found = (match_all(index, table, span.node, self.plan.tally.by_type) for table in tables)
        return returned(self.plan, chain.from_iterable(found))


@lru_cache(1)
def _opened(path: str) -> Index[int]:
    return open_index(path)


def opened(name: str) -> Index[int]:
    """Return the saved index, opened once in a worker process: from Spark's files, or from its own place."""
    copied = Path(SparkFiles.get(Path(name).name))
    return _opened(str(copied) if copied.exists() else name)


def returned(plan: CountingPlan, found: Iterable[Found]) -> Iterator[pa.RecordBatch]:
    """Yield what a task returns: counters, or the events that are steps."""
    return step_batches(plan.patterns, found) if plan.patterns else counted(plan, found)


def counted(plan: CountingPlan, found: Iterable[Found]) -> Iterator[pa.RecordBatch]:
    """Yield the counters of a task, when all is counted."""
    tally = Tally(plan.tally)
    for matches, chunk in found:
        tally.add(matches, chunk)
    columns = zip(*tally.rows(), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COUNTERS, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_COUNTERS)


def rows_of(table: pa.Table) -> Iterator[CounterRow]:
    """Yield the counters in the result of the query."""
    cells = (table.column(name).to_pylist() for name in CounterRow._fields)
    yield from map(CounterRow._make, zip(*cells, strict=True))


# Matching


def match_parts(index: Index[int], parts: Sequence[Part], node: str, by_type: bool) -> Iterator[Found]:
    """Yield the matches in the parts of a reply; consecutive live ones of one origin are matched at once."""
    for origin, run in groupby(parts, lambda part: part.origin if isinstance(part, LivePart) else None):
        own = list(run)
        if origin is not None:
            yield _match_live(index, [part for part in own if isinstance(part, LivePart)], node, by_type)
            continue
        for part in own:
            assert isinstance(part, SealedPart)
            with pa.ipc.open_stream(part.table) as stream:
                yield from match_all(index, stream.read_all(), node, by_type)


def _match_live(index: Index[int], parts: list[LivePart], node: str, by_type: bool) -> Found:
    batch = Batch.join([Batch(part.raw, part.origin) for part in parts])
    seen = Decoder(_SEEN if by_type else _SEEN.remove(2)).lives(parts)
    return index.match_rows(batch), _chunk(node, seen, batch, by_type)


def match_all(index: Index[int], table: pa.Table, node: str, by_type: bool) -> Iterator[Found]:
    """Yield the matches in a table with the columns of files."""
    for begin in range(0, len(table), TABLE_ROWS_MAX):
        part = table.slice(begin, TABLE_ROWS_MAX)
        events = TableEvents(part)
        yield index.match_rows(events), _chunk(node, part, events, by_type)


def _chunk(node: str, seen: Any, events: Batch | TableEvents, by_type: bool) -> Chunk:
    positions = whole(seen.column("position")).to_numpy()
    times = whole(seen.column("time")).cast(pa.int64()).to_numpy()
    types = seen.column("type").to_pylist() if by_type else None
    return Chunk(node, positions, times, types, events.__getitem__)
