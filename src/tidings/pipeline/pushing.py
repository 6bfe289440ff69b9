"""Conditions of a query that Spark hands over, so that nodes and files send only what it needs.

They become part of the filter that is sent along. A reader with `pushFilters` makes Spark refuse the query
unless `spark.sql.python.filterPushdown.enabled` is set, so a query asks for one by the option `pushdown`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.types import StructType

from tidings.errors import FilterError
from tidings.filters import Filter
from tidings.pipeline.batch import LogReader
from tidings.pipeline.options import ReadOptions
from tidings.pipeline.sealed import FolderReader


class Pushed(DataSourceReader):
    """Takes over what it can of a query's conditions; a mixin for readers that have a `where`."""

    where: str

    def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:  # noqa: N802
        """The conditions that Spark must still apply; called once, while the query is planned."""
        pushed, left_over = Filter.from_spark(filters)
        try:
            self.where = str(Filter(self.where) & pushed)
        except FilterError:  # too much for one filter
            return filters
        return left_over


class PushedLogReader(Pushed, LogReader):
    """Reads the logs of nodes, which do the choosing."""


class PushedFolderReader(Pushed, FolderReader):
    """Reads the files of a sealed log, of which some need not be opened."""


def pushed_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """The reader that takes conditions over, for nodes or for a folder."""
    return (PushedLogReader if options.path is None else PushedFolderReader)(options, schema)
