"""One collapse in one batch of a continuous query: the stored state and the rows of the batch give the next.

The result depends on the state before the batch and on the rows of the batch only, so a batch that Spark
repeats gives the same.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own examples call it
from pyspark.sql.types import StructField, StructType

from tidings.errors import FlowError
from tidings.pipeline.attribute_columns import quoted
from tidings.pipeline.flow.collapsing import TOO_MANY, Collapsing, late_rows
from tidings.pipeline.flow.frames import spark_type
from tidings.pipeline.flow.stored_state import BUCKETS, Manifest, StoredState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class StateStep(NamedTuple):
    """Results of a collapse in a batch."""

    changes: DataFrame
    """Rows of the state that differ from those before the batch."""
    late: DataFrame
    good: DataFrame
    """Rows that the collapse has taken."""
    before: DataFrame | None
    """Stored parts before the batch, of the keys of these rows and of others."""


class Found(Struct, frozen=True):
    """Facts about the rows of a batch that a collapse takes."""

    keys: dict[int, int]
    """Number of keys in each bucket that the batch changes."""
    newest_us: int
    nodes: tuple[str, str]
    """First and last of the nodes, by name."""


class StatefulCollapse:
    """A collapse whose state is stored; `is_ordered` if it is expanded."""

    def __init__(self, collapsing: Collapsing, stored: StoredState, is_ordered: bool) -> None:
        self._collapsing = collapsing
        self._stored = stored
        self._is_ordered = is_ordered
        self._node = collapsing.node
        self._keys = collapsing.keys
        self._results = [f"r{number}" for number in range(len(collapsing.node.columns))]
        self._held: list[DataFrame] = []

    def run(self, frame: DataFrame, batch: int) -> StateStep:
        """Work off the rows of a batch and store the state after it; results are valid until `release`."""
        manifest = self._stored.before(batch)
        good, late = self._collapsing.judged(frame, self._watermark(manifest.newest_us))
        parts = self._keep(self._parts(good))
        found = self._find(parts)
        if found is None:
            return StateStep(self._collapsing.collapsed(good), late, good, None)
        self._check_order(found, manifest)
        before = self._before(parts, manifest, found)
        if sum(manifest.keys.values()) + sum(found.keys.values()) > self._collapsing.edge.keys_max:
            refused = self._keep(self._refused(parts, before, manifest))
            parts = parts.join(refused, self._keys, "left_anti")
            good, rest = self._divided(good, refused)
            late = late.unionByName(rest)
        merged = self._keep(self._merged(parts, before))
        self._write(merged, batch, manifest, found)
        return StateStep(self._changes(merged), late, good, before)

    def release(self) -> None:
        """Forget the DataFrames of the last batch."""
        while self._held:
            self._held.pop().unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._held.append(frame.persist())
        return frame

    def _watermark(self, newest_us: int | None) -> int | None:
        late_s = self._collapsing.edge.late_s
        return None if newest_us is None or late_s is None else newest_us - round(late_s * 1_000_000)

    def _parts(self, good: DataFrame) -> DataFrame:
        """Return the rows merged by key, with the bucket, the first place and the last node of each key."""
        facts = F.min(F.struct("n", "s")).alias("place"), F.max("n").alias("last")
        merged = self._collapsing.merged(self._collapsing.lifted(good), *facts)
        return merged.withColumn("bucket", self._bucket())

    def _bucket(self) -> Column:
        return F.pmod(F.xxhash64(*self._keys), F.lit(BUCKETS)).cast("int")

    def _find(self, parts: DataFrame) -> Found | None:
        facts = F.count("*"), F.unix_micros(F.max("p0")), F.min("place.n"), F.max("last")
        rows = [tuple(row) for row in parts.groupBy("bucket").agg(*facts).collect()]
        if not rows:
            return None
        nodes = min(row[3] for row in rows), max(row[4] for row in rows)
        return Found({row[0]: row[1] for row in rows}, max(row[2] for row in rows), nodes)

    def _check_order(self, found: Found, manifest: Manifest) -> None:
        nodes = {*found.nodes, *([manifest.node] if manifest.node else [])}
        if self._is_ordered and len(nodes) > 1 and "node" not in self._node.by:
            names = ", ".join(sorted(nodes))
            problem = f"expand needs the events of one node, in their order, not of {names}"
            raise FlowError(
                self._node.place, f"{problem}; read one node, have it in the key, or expand over history"
            )

    def _before(self, parts: DataFrame, manifest: Manifest, found: Found) -> DataFrame | None:
        """Return the stored rows of the buckets that the batch changes."""
        paths = self._stored.paths(manifest, found.keys)
        if not paths:
            return None
        inner = {*self._keys, *self._collapsing.parts}
        columns = [field for field in parts.schema.fields if field.name in inner]
        types = map(spark_type, self._node.columns.values())
        columns += [StructField(name, type) for name, type in zip(self._results, types, strict=True)]
        return parts.sparkSession.read.schema(StructType(columns)).parquet(*paths)

    def _refused(self, parts: DataFrame, before: DataFrame | None, manifest: Manifest) -> DataFrame:
        """Return the new keys for which there is no room: those whose first events come last."""
        known = None if before is None else before.select(*self._keys)
        new = parts if known is None else parts.join(known, self._keys, "left_anti")
        room = max(0, self._collapsing.edge.keys_max - sum(manifest.keys.values()))
        admitted = new.orderBy("place", *self._keys).limit(room).select(*self._keys)
        return new.select(*self._keys).join(admitted, self._keys, "left_anti")

    def _divided(self, good: DataFrame, refused: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return the rows of all other keys, and those of refused ones as late rows."""
        columns = self._collapsing.columns
        keyed = good.select("*", *self._collapsing.keyed())
        taken = keyed.join(refused, self._keys, "left_anti").select(*map(quoted, columns))
        rest = keyed.join(refused, self._keys, "left_semi")
        return taken, late_rows(rest, self._node.name, F.lit(TOO_MANY), columns)

    def _merged(self, parts: DataFrame, before: DataFrame | None) -> DataFrame:
        """Return the rows of all keys in the changed buckets: parts, results, and whether they are new."""
        both = parts.select(*self._keys, *self._collapsing.parts, F.lit(True).alias("is_new"))
        old = F.lit(None).alias("old")
        if before is not None:
            both = both.unionByName(before.withColumn("is_new", F.lit(False)), allowMissingColumns=True)
            old = F.first(F.when(~F.col("is_new"), F.struct(*self._results)), ignorenulls=True).alias("old")
        both = both.withColumn("bucket", self._bucket()).repartition("bucket")
        is_new = F.bool_or("is_new").alias("is_new")
        results = zip(self._collapsing.results(), self._results, strict=True)
        rows = self._collapsing.merged_in(both, ["bucket"], is_new, old)
        named = [column.alias(name) for column, name in results]
        rows = rows.select(*self._keys, *self._collapsing.parts, *named, "bucket", "is_new", "old")
        is_same = F.lit(False) if before is None else F.coalesce(self._same(), F.lit(False))
        changed = (F.col("is_new") & ~is_same).alias("is_changed")
        return rows.select("*", changed).drop("old", "is_new")

    def _same(self) -> Column:
        """Return whether a row is as it was, its time aside."""
        named = zip(self._results, self._node.columns, strict=True)
        same = [F.col(f"old.{one}").eqNullSafe(F.col(one)) for one, name in named if name != "time"]
        return F.col("old").isNotNull() & reduce(and_, same)

    def _changes(self, merged: DataFrame) -> DataFrame:
        named = zip(self._results, self._node.columns, strict=True)
        return merged.where("is_changed").select(*[F.col(one).alias(name) for one, name in named])

    def _write(self, merged: DataFrame, batch: int, manifest: Manifest, found: Found) -> None:
        """Store the changed buckets, without the windows that no event can reach any more."""
        newest = max(found.newest_us, manifest.newest_us or found.newest_us)
        rows = merged.drop("is_changed")
        end, width = self._watermark(newest), self._collapsing.edge.window_s
        if width is not None and end is not None:
            rows = rows.where(F.unix_micros(self._keys[-1]) + self._collapsing.width_us > end)
        counted = Observation()
        numbers = [F.count_if(F.col("bucket") == one).alias(f"n{one}") for one in found.keys]
        written = rows.observe(counted, *numbers).write.partitionBy("bucket").mode("overwrite")
        written.parquet(self._stored.place(batch))
        counts = {one: counted.get[f"n{one}"] for one in found.keys}
        after = Manifest(
            buckets={**manifest.buckets, **dict.fromkeys(found.keys, batch)},
            keys={**manifest.keys, **counts},
            newest_us=newest,
            node=found.nodes[0] if self._is_ordered else None,
            results=tuple(self._node.columns),
        )
        self._stored.write(batch, after)
