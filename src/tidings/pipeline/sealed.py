"""Source of sealed files, `spark.read` from the folder of a log: Parquet files, without any node.

Any Spark reads them as ordinary Parquet, too. Here they have the columns of a query to nodes, `where` is the
same filter, files and row groups that can't match are not read, and files that were replaced while the query
ran, because small ones were merged, are no trouble.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidings.errors import ConfigError, StoreDamaged, UserError
from tidings.filters import Filter
from tidings.log.chunks import FileInfo
from tidings.log.collapse import Collapser
from tidings.log.columns import Decoder
from tidings.log.segment_folder import Folder
from tidings.pipeline.batch import Pushed, columns_of, cut, log_mismatches, within
from tidings.pipeline.offsets import NodeExtent, OffsetRange
from tidings.pipeline.options import ReadBound, ReadOptions, option_error
from tidings.pipeline.partial_rows import collapsed
from tidings.protocol.channels import OTHER_EVENTS

READ_SIZE = 32 << 20
"""Bytes of columns that are in memory at once, about."""

logger = logging.getLogger("tidings")


class FolderPiece(InputPartition):
    """Input of one task: positions of one node."""

    def __init__(self, span: OffsetRange) -> None:
        self.span = span


class FolderReader(DataSourceReader):
    """Reads the files of a sealed log.

    Parameters
    ----------
    options : ReadOptions
        Options of the read; `path` is the folder.
    schema : StructType
        Columns of the result.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        assert options.path is not None
        self.options = options
        self.path = options.path
        self.columns = columns_of(options, schema)
        self.where = options.where

    def partitions(self) -> Sequence[InputPartition]:
        """List the files, and cut their positions into pieces."""
        folder = Folder(self.path)
        files = folder.files()
        if not files:
            raise _nothing_sealed(folder)
        of_nodes = {node: list(own) for node, own in groupby(files, lambda file: file.claim.node)}
        self._check_nodes(of_nodes)
        spans = [self._span(folder, node, own) for node, own in of_nodes.items()]
        return [FolderPiece(span) for span in cut(spans, self.options.partitions_min)]

    def _check_nodes(self, of_nodes: dict[str, list[FileInfo]]) -> None:
        """Check that places are given for the nodes whose files are there."""
        for name, bound in (
            ("startingOffsets", self.options.starting),
            ("endingOffsets", self.options.ending),
        ):
            unlike = of_nodes.keys() ^ (bound.places or of_nodes).keys()
            wrong = sorted(unlike, key=lambda node: (node in of_nodes, node))
            if wrong:
                problem = "are no files" if wrong[0] not in of_nodes else "is no place given"
                raise option_error(name, f"of node {wrong[0]!r} there {problem}")

    def _span(self, folder: Folder, node: str, files: list[FileInfo]) -> OffsetRange:
        standing = NodeExtent(node, files[0].claim.first, files[-1].claim.last + 1)
        first = _place(folder, files, self.options.starting, standing)
        end = _place(folder, files, self.options.ending, standing)
        first, end = within(OffsetRange(node, node, first, end), standing, self.options.fails_on_loss)
        return OffsetRange(node, node, first, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece; called in an executor, once for each attempt of a task."""
        return self._read(partition.span) if isinstance(partition, FolderPiece) else iter(())

    def _read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        if self.options.collapse is not None:
            collapser = Collapser(self.options.collapse, span.node)
            yield from collapsed(self._events(span, collapser.decoder), collapser)
            return
        yield from self._events(span, Decoder(self.columns, span.node, self.options.strict))

    def _events(self, span: OffsetRange, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        for table in self.tables(Folder(self.path), span, Filter(self.where) & OTHER_EVENTS, decoder.wanted):
            yield from (decoder.sealed(batch) for batch in table.combine_chunks().to_batches())
        log_mismatches(decoder, f"positions {span.first} to {span.end} of {self.path}")

    def tables(
        self, folder: Folder, span: OffsetRange, filter: Filter, columns: list[str] | None
    ) -> Iterator[pa.Table]:
        """Yield the matching rows of a piece, with these columns of the files."""
        position = span.first
        while position < span.end:
            try:
                tables, following = folder.read(position, span.end, filter, columns, READ_SIZE, span.node)
            except StoreDamaged as error:
                damaged = self._passed_over(folder, span, error)
                # Rows before the damaged file may have been read along with it, and were not returned.
                before = OffsetRange(span.label, span.node, position, min(damaged.claim.first, span.end))
                yield from self.tables(folder, before, filter, columns)
                position = damaged.claim.last + 1
                continue
            yield from tables
            position = following

    def _passed_over(self, folder: Folder, span: OffsetRange, error: StoreDamaged) -> FileInfo:
        """Return the damaged file, if it may be left out."""
        if not self.options.skips_corrupt:
            raise UserError(f"{self.path}: {error}; the option 'skipCorrupt' leaves the file out") from None
        logger.warning("%s: left out: %s", self.path, error)
        return next(file for file in folder.files(span.node) if file.path == error.path)


class PushedFolderReader(Pushed, FolderReader):
    """Reads the files of a sealed log, of which some need not be opened."""


def _nothing_sealed(folder: Folder) -> ConfigError:
    if folder.filesystem.get_file_info("").type == fs.FileType.NotFound:
        return option_error("path", f"there is no folder {folder}")
    problem = f"{folder} has no file of a sealed log"
    return option_error("path", f"{problem}; name the log folder of a node; tidings log seal makes files")


def _place(folder: Folder, files: list[FileInfo], bound: ReadBound, standing: NodeExtent) -> int:
    """Return the position that a bound means among the files of a node."""
    if bound.time_us is not None:
        found = (folder.position_at(file, bound.time_us) for file in files)
        return next((place for place in found if place is not None), standing.end)
    place = bound.at(standing.node)
    if isinstance(place, int):
        return max(place, 1)
    return standing.first if place == "earliest" else standing.end
