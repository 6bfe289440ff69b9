"""Spark's format `tidings`: events of nodes as DataFrames, and DataFrames as events.

Spark makes these objects again and again, in several processes, and sends them about; so nothing connects
before something is to be read. Options are checked as soon as Spark passes them, in `load()`.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from tidings.errors import MissingExtra

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType
except ImportError:
    raise MissingExtra("Spark's format 'tidings'", "spark") from None

from tidings.pipeline.options import check_options, collapse_of, read_options


class TidingsSource(DataSource):
    """Source and sink of events; docs/spark.md has its options.

    Parameters
    ----------
    options : dict
        As the query gives them; their names are not case-sensitive.

    Examples
    --------
    >>> spark.read.format("tidings").option("node", "127.0.0.1:7300").load()  # doctest: +SKIP
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_options(options)

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "tidings"

    def schema(self) -> StructType:
        """Return the columns of a query that names none."""
        from tidings.pipeline.batch import default_schema

        terms = collapse_of(self.options)
        if terms is None:
            return default_schema()
        from tidings.pipeline.partial_rows import partial_schema

        return partial_schema(terms)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of history: from nodes, or from the folder of a sealed log."""
        options = read_options(self.options, "batch")
        if options.path is not None:
            from tidings.pipeline.sealed import FolderReader, PushedFolderReader

            return (PushedFolderReader if options.pushdown else FolderReader)(options, schema)
        from tidings.pipeline.batch import LogReader, PushedLogReader

        return (PushedLogReader if options.pushdown else LogReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of the log as it grows."""
        from tidings.pipeline.stream import LogStreamReader

        return LogStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that publishes the rows of a DataFrame."""
        from tidings.pipeline.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer that publishes the rows of a stream, each once."""
        from tidings.pipeline.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
