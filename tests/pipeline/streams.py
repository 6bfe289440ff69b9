"""Readers of streams as Spark's driver has them, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pipeline.nodes import Running
from pyspark.sql import types
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidings.pipeline import reader_lease
from tidings.pipeline.offsets import Offset
from tidings.pipeline.reader_lease import QueryEnding
from tidings.pipeline.source import TidingsSource
from tidings.pipeline.stream import LogStreamReader

ALL = ReadAllAvailable()
COLUMNS = types.StructType().add("position", "long").add("number", "long")

Make = Callable[..., LogStreamReader]


@contextmanager
def making_streams() -> Iterator[Make]:
    """Makes readers of streams as Spark's driver does, and stops those that are left."""
    made: list[LogStreamReader] = []

    def make(node: Running | str, schema: types.StructType = COLUMNS, **options: Any) -> LogStreamReader:
        address = node if isinstance(node, str) else node.address
        given = CaseInsensitiveDict({name: str(value) for name, value in options.items()})
        source = pickle.loads(pickle.dumps(TidingsSource(CaseInsensitiveDict({"node": address, **given}))))
        made.append(source.streamReader(schema))
        return made[-1]

    with pytest.MonkeyPatch.context() as only_here:
        only_here.setattr(QueryEnding, "watch", lambda self: None)
        yield make
        only_here.setattr(reader_lease, "LEAVE_S_MAX", 0.1)  # some nodes are gone by now
        for reader in made:
            reader.stop()


def numbers(reader: LogStreamReader, start: Offset, end: Offset) -> list[int]:
    """What a batch between two offsets has, read as executors read it."""
    copy = pickle.loads(pickle.dumps(LogStreamReader(reader._given, reader._schema)))
    pieces = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [row["number"] for piece in pieces for batch in copy.read(piece) for row in batch.to_pylist()]


def batch(reader: LogStreamReader, start: Offset) -> tuple[list[int], Offset]:
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return numbers(reader, start, end), end
