"""The folder of a sealed log as a DataFrame: the same rows as from the node, without one."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pipeline.nodes import PATIENCE_S, reading, running
from pyspark.sql import SparkSession, types
from pyspark.sql.datasource import CaseInsensitiveDict

from tidings import Event, blocking
from tidings.errors import ConfigError, UserError
from tidings.log.chunks import LivePart, SealedPart
from tidings.log.segment_folder import Folder
from tidings.pipeline.batch import default_schema
from tidings.pipeline.source import TidingsSource

COLUMNS = types.StructType().add("position", "long").add("type", "string").add("number", "long")


class Sealed:
    """A folder with three files of one node's log, ten events in each, and the rows that the node tells."""

    def __init__(self, path: Path, node: str, rows: list[dict[str, Any]], stored_us: list[int]) -> None:
        self.path = path
        self.node = node
        self.rows = rows
        self.stored_us = stored_us


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    home = tmp_path_factory.mktemp("sealed")
    folder = Folder(home / "log")
    with running(home / "node") as node:
        for ten in range(3):
            odd = Event("note", {"text": "é", "number": f"no {ten}"}, delivery="persistent", body=b"\0")
            node.publish(*[reading(1.5, ten * 10 + one) for one in range(9)], odd)
        rows = read(default_schema(), node=node.address)
        with blocking.connect(f"tidings://{node.address}") as bus:
            parts = [part for found, _ in bus.log.parts(1) for part in found if isinstance(part, LivePart)]
        name = node.node.driver.broker.node
    for first in (1, 11, 21):
        own = [part for part in parts if first <= part.first < first + 10]
        folder.write(own, name, first, first + 9)
    return Sealed(home / "log", name, rows, [part.stored_us for part in parts])


def read(schema: types.StructType, **options: Any) -> list[dict[str, Any]]:
    """All rows, piece by piece, as executors read them."""
    given = CaseInsensitiveDict({name: str(value) for name, value in options.items()})
    reader = TidingsSource(given).reader(schema)
    reader, pieces = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]


def positions(sealed: Sealed, **options: Any) -> list[int]:
    return [row["position"] for row in read(COLUMNS, path=sealed.path, **options)]


def test_files_have_the_rows_that_their_node_had(sealed: Sealed) -> None:
    found = read(default_schema(), path=sealed.path)
    assert len(found) == 30
    for one, other in zip(found, sealed.rows, strict=True):
        assert dict(one.pop("attributes")) == dict(other.pop("attributes"))
        assert one == other


def test_a_filter_means_the_same_in_files(sealed: Sealed) -> None:
    assert positions(sealed, where="number BETWEEN 11 AND 13") == [12, 13, 14]
    assert positions(sealed, where="text = 'é'") == [10, 20, 30]
    assert positions(sealed, where="value > 2") == []


def test_pieces_together_are_everything_once(sealed: Sealed) -> None:
    for pieces in (1, 2, 7, 100):
        assert positions(sealed, minPartitions=pieces) == list(range(1, 31))


def test_bounds_are_positions_by_the_id_of_the_node(sealed: Sealed) -> None:
    starting, ending = f'{{"{sealed.node}": 9}}', f'{{"{sealed.node}": 12}}'
    assert positions(sealed, startingOffsets=starting, endingOffsets=ending) == [9, 10, 11]
    assert positions(sealed, startingOffsets="latest") == []
    with pytest.raises(ConfigError, match="startingOffsets': of node 'else' there are no files"):
        positions(sealed, startingOffsets='{"else": 1}')
    with pytest.raises(UserError, match=r"positions 9 to 99 are wanted, .* failOnDataLoss=false"):
        positions(sealed, startingOffsets=starting, endingOffsets=f'{{"{sealed.node}": 99}}')


def test_bounds_are_times(sealed: Sealed) -> None:
    before_ms = min(sealed.stored_us) // 1000 - 1
    after_ms = max(sealed.stored_us) // 1000 + 1
    assert positions(sealed, startingTimestamp=before_ms, endingTimestamp=after_ms) == list(range(1, 31))
    assert positions(sealed, startingTimestamp=after_ms) == []
    assert positions(sealed, endingTimestamp=before_ms) == []


def test_a_value_that_does_not_fit_is_null_there_too(sealed: Sealed) -> None:
    schema = types.StructType().add("number", "long").add("mismatches", "long")
    found = read(schema, path=sealed.path)
    assert [row["mismatches"] for row in found] == ([0] * 9 + [1]) * 3
    with pytest.raises(UserError, match="column 'number', position 10: a value is str"):
        read(schema, path=sealed.path, mode="failfast")


def test_a_damaged_file_is_named_and_can_be_left_out(sealed: Sealed, tmp_path: Path) -> None:
    for file in Folder(sealed.path).files():
        content = (sealed.path / file.path).read_bytes()
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        is_second = file.claim.first == 11
        (tmp_path / file.path).write_bytes(
            content[:100] + b"\0" * (len(content) - 100) if is_second else content
        )
    with pytest.raises(UserError, match="the option 'skipCorrupt' leaves the file out"):
        read(COLUMNS, path=tmp_path)
    left = [row["position"] for row in read(COLUMNS, path=tmp_path, skipCorrupt="true")]
    assert left == [*range(1, 11), *range(21, 31)]


def test_a_folder_that_is_not_there_or_has_no_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="option 'path': there is no folder"):
        read(COLUMNS, path=tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(
        ConfigError, match=rf"option 'path': {tmp_path} has no file of a sealed log; name the"
    ):
        read(COLUMNS, path=tmp_path)


def test_a_node_gives_what_it_has_sealed_and_tells_what_was_pruned(tmp_path: Path) -> None:
    with running(tmp_path) as node, blocking.connect(f"tidings://{node.address}") as bus:
        for first in (1, 6, 11):
            node.publish(*[reading(1.0, number) for number in range(first, first + 5)])
            if first < 11:
                bus.log.seal(timeout_s=PATIENCE_S)
        kinds = {type(part) for found, _ in bus.log.parts(1) for part in found}
        assert kinds == {LivePart, SealedPart}
        found = read(COLUMNS, node=node.address, minPartitions=2)
        assert [(row["position"], row["number"]) for row in found] == [(one, one) for one in range(1, 16)]
        bus.log.prune(6, timeout_s=PATIENCE_S)
        since = {"node": node.address, "startingOffsets": f'{{"{node.address}": 3}}'}
        with pytest.raises(
            UserError, match=r"positions 3 to 16 are wanted, but what comes before position 6"
        ):
            read(COLUMNS, **since)
        left = read(COLUMNS, **since, failOnDataLoss="false")
        assert [row["position"] for row in left] == list(range(6, 16))


def test_spark_reads_the_folder_with_the_path_of_load(spark: SparkSession, sealed: Sealed) -> None:
    frame = spark.read.format("tidings").schema(COLUMNS).load(str(sealed.path))
    assert sorted(row.position for row in frame.where("type = 'note'").collect()) == [10, 20, 30]
    spring = datetime.now(UTC) - timedelta(days=1)
    times = spark.read.format("tidings").schema("time timestamp").load(str(sealed.path))
    assert all(row.time.astimezone(UTC) > spring for row in times.collect())
