"""The format `failing`: that of tidings, with tasks and commits that fail where the name of the sink says so.

It is a module of its own, as Spark's workers import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tidings.pipeline.sink import CommitMessages, SinkStreamWriter, SinkWriter, Staged, sink_options
from tidings.pipeline.source import TidingsSource

ONCE, ALWAYS, AFTER_COMMIT = "fails-once", "fails-always", "fails-after-commit"


class FailingWriter(SinkWriter):
    """Fails when all rows of a task are staged."""

    def write(self, iterator: Iterator[Any]) -> Staged:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        name = self._options.sink
        if name == ALWAYS or (name == ONCE and context.attemptNumber() == 0):
            raise RuntimeError("as the test wants it")
        return staged


class FailingStreamWriter(SinkStreamWriter):
    """Fails when a batch is published, the first time; that it has is noted in a file."""

    def commit(self, messages: CommitMessages, batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        note = Path(self._options.sink)
        if note.name == AFTER_COMMIT and not note.exists():
            note.touch()
            raise RuntimeError("as the test wants it")


class FailingSource(TidingsSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "failing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FailingWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return FailingStreamWriter(sink_options(self.options), schema)
