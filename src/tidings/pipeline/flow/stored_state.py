"""States of a continuous query in files: for each batch the buckets that it has changed, and a manifest.

    CHECKPOINT/flow/state/NODE/17.json            the manifest of the state after batch 17
    CHECKPOINT/flow/state/NODE/17/bucket=3/…      the rows of one bucket of keys, as batch 17 has left them

A batch reads the manifest of the newest batch before it, and writes files of its own number only. So Spark
may repeat the last batch as often as it likes, with the same result, until it begins the next: only then is
the state before it removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.errors import StoreDamaged, UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 16
"""Parts into which the keys of a state are divided; a batch rewrites those that it changes."""
FORMAT = 1
"""Version of the files."""
FOLDER = "flow"
_MANIFEST = ".json"


class Manifest(Struct, frozen=True, kw_only=True):
    """State after a batch: where its buckets are, and what the next batch must know."""

    format: int = FORMAT
    buckets: dict[int, int] = {}
    """Batch that has written each bucket."""
    keys: dict[int, int] = {}
    """Number of keys in each bucket."""
    newest_us: int | None = None
    """Time of the newest event of all batches."""
    node: str | None = None
    """Node of the events, if their order counts."""
    results: tuple[str, ...] = ()
    """Names of the columns r0, r1…: those of the state."""


class Identity(Struct, frozen=True, kw_only=True):
    """Identity of the results in a checkpoint: its random name, and the graph that they belong to."""

    id: str
    graph: str
    fingerprint: str
    format: int = FORMAT


class StateFolder:
    """Folder in any file system that Spark knows, by Hadoop's own interface."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._jvm: Any = spark.sparkContext._jvm
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()

    def _place(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)
        return path.getFileSystem(self._conf), path

    def names(self) -> list[str]:
        """Return the names of all files and folders in it; none if it does not exist."""
        system, path = self._place("")
        if not system.exists(path):
            return []
        return [status.getPath().getName() for status in system.listStatus(path)]

    def write(self, name: str, raw: bytes) -> None:
        """Write a file, or replace it."""
        system, path = self._place(name)
        stream = system.create(path, True)
        try:
            stream.write(bytearray(raw))
            stream.hsync()
        finally:
            stream.close()

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        system, path = self._place(name)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        system, path = self._place(name)
        system.delete(path, True)


class StoredState:
    """Stored state of one node."""

    def __init__(self, spark: SparkSession, checkpoint: str, node: str) -> None:
        self._folder = StateFolder(spark, state_folder(checkpoint, node))

    def before(self, batch: int) -> Manifest:
        """Return the state before a batch, and remove all that neither it nor the batch needs."""
        names = self._folder.names()
        earlier = [version for version in _versions(names) if version < batch]
        if not earlier:
            return Manifest()
        newest = max(earlier)
        manifest = self._read(newest)
        needed = {*map(str, manifest.buckets.values()), f"{newest}{_MANIFEST}"}
        for name in names:
            if name not in needed and not name.startswith("."):
                self._folder.remove(name)
        return manifest

    def _read(self, version: int) -> Manifest:
        name = f"{version}{_MANIFEST}"
        raw = self._folder.read(name)
        return _decoded(raw or b"", f"{self._folder.path}/{name}")

    def paths(self, manifest: Manifest, buckets: Iterable[int]) -> list[str]:
        """Return the folders of these buckets; those that have no rows are left out."""
        found = [(manifest.buckets[one], one) for one in sorted(buckets) if manifest.keys.get(one)]
        return [f"{self._folder.path}/{version}/bucket={bucket}" for version, bucket in found]

    def place(self, batch: int) -> str:
        """Return the folder that a batch writes its buckets to."""
        return f"{self._folder.path}/{batch}"

    def write(self, batch: int, manifest: Manifest) -> None:
        """Make this the state after the batch, whose buckets are written."""
        self._folder.write(f"{batch}{_MANIFEST}", msgspec.json.encode(manifest))


def identify(spark: SparkSession, checkpoint: str, graph: str, fingerprint: str, id: str) -> Identity:
    """Return the identity of a checkpoint, or give it this one; UserError if it belongs to another graph."""
    folder = StateFolder(spark, f"{checkpoint}/{FOLDER}")
    raw = folder.read("identity.json")
    if raw is None:
        made = Identity(id=id, graph=graph, fingerprint=fingerprint)
        folder.write("identity.json", msgspec.json.encode(made))
        return made
    try:
        found = msgspec.json.decode(raw, type=Identity)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"{folder.path}/identity.json", str(error)) from None
    if (found.graph, found.fingerprint) != (graph, fingerprint):
        raise UserError(
            f"checkpoint {checkpoint} has the states of another graph, or of {found.graph!r} before it was "
            "changed; use another checkpoint"
        )
    return found


def state_folder(checkpoint: str, node: str) -> str:
    """Return the folder of the state of a node."""
    return f"{checkpoint}/{FOLDER}/state/{node}"


def _versions(names: Iterable[str]) -> list[int]:
    stems = [name.removesuffix(_MANIFEST) for name in names if name.endswith(_MANIFEST)]
    return [int(stem) for stem in stems if stem.isdecimal()]


def _decoded(raw: bytes, place: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreDamaged(place, str(error)) from None
    if manifest.format > FORMAT:
        raise StoreDamaged(place, f"has format {manifest.format}, of a newer tidings")
    return manifest


def state_rows(checkpoint: str, node: str) -> Any:
    """Return the stored state of a node as an Arrow table, without Spark; UserError if there is none.

    It is the state after the last batch that was written. The checkpoint must be a folder of this machine.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(state_folder(checkpoint.removeprefix("file://"), node))
    versions = _versions(path.name for path in folder.glob(f"*{_MANIFEST}")) if folder.is_dir() else []
    if not versions:
        raise UserError(f"checkpoint {checkpoint} has no state of {node!r}")
    name = f"{max(versions)}{_MANIFEST}"
    manifest = _decoded((folder / name).read_bytes(), str(folder / name))
    places = [folder / str(batch) / f"bucket={one}" for one, batch in sorted(manifest.buckets.items())]
    files = [path for place in places for path in sorted(place.glob("*.parquet"))]
    wanted = [f"r{number}" for number in range(len(manifest.results))]
    tables = [pq.ParquetFile(path).read(columns=wanted) for path in files]
    if not tables:
        return pa.table({result: pa.array([], pa.null()) for result in manifest.results})
    table = pa.concat_tables(tables).rename_columns(list(manifest.results))
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):  # Spark may write times without a zone: they are in UTC
            table = table.set_column(number, field.name, table[number].cast(pa.timestamp("us", "UTC")))
    return table
