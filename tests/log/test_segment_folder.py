"""The folder of sealed files: what is written is found again, whatever happens on the way."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from strategies import identical

from tests.filters import conditions
from tests.log.merging import merge
from tests.log.parting import STORED_US, all_events, part_of, parts
from tidings import Event, Filter
from tidings.errors import ConfigError, StoreDamaged
from tidings.event.header import Header
from tidings.ids import Origin
from tidings.log import segment_file, upkeep
from tidings.log.arrow.decode_rows import events_of
from tidings.log.chunks import FileClaim, FileInfo, LivePart
from tidings.log.segment_folder import Folder

DAY_US = 86_400_000_000


def in_memory() -> Folder:
    return Folder("log", fs._MockFileSystem(datetime.now(UTC)))


def readings(first: int, count: int, system: str = "abc") -> LivePart:
    held = [
        Event.unchecked(n, "air.pm10", STORED_US + n, {"value": n / 4, "sensor": f"s{n % 7}"})
        for n in range(first, first + count)
    ]
    return part_of(held, first, Origin(system, 1, "me"))


def positions(tables: list[pa.Table]) -> list[int]:
    return [position for table in tables for position in table.column("position").to_pylist()]


def held_in(folder: Folder, filter: Filter | None = None, size_max: int = 1 << 20) -> list[tuple[int, Event]]:
    """All events of a folder, read piece by piece."""
    found: list[tuple[int, Event]] = []
    at, end = 1, 1_000_000
    while at < end:
        tables, following = folder.read(at, end, filter or Filter(), size_max=size_max)
        assert following > at
        at = following
        for table in tables:
            found += zip(table.column("position").to_pylist(), events_of(table), strict=True)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Ten files of ten readings each, at positions 1 to 100."""
    made = Folder(tmp_path / "log")
    for first in range(1, 101, 10):
        made.write([readings(first, 10)], "n1")
    return made


# Writing and listing


def test_a_file_lies_under_its_date_and_is_told_by_its_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    info = folder.write([readings(1, 5)], "n1", first=1, last=8)
    assert info.path == "date=2023-11-14/n1-00000000000000000001-00000000000000000008.parquet"
    assert info.size == (tmp_path / info.path).stat().st_size
    assert folder.files() == [info]
    assert str(folder) == str(tmp_path)


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "none")
    assert folder.files() == []
    assert folder.read(1, 100) == ([], 100)
    assert folder.verify() == []


def test_a_uri_names_a_folder_too(tmp_path: Path) -> None:
    Folder(tmp_path).write([readings(1, 5)], "n1")
    assert len(Folder(f"file://{tmp_path}").files()) == 1
    with pytest.raises(ConfigError, match="nowhere://x"):
        Folder("nowhere://x")


def test_parts_of_two_dates_are_two_files(tmp_path: Path) -> None:
    early, late = readings(1, 2), readings(3, 2)
    late = LivePart(3, 2, b"", "abc", 1, None, STORED_US + DAY_US, late.raw)
    folder = Folder(tmp_path)
    with pytest.raises(ValueError, match="one date"):
        folder.write([early, late], "n1")
    for _, held in segment_file.by_date([early, late]):
        folder.write(held, "n1")
    assert [file.date for file in folder.files()] == [date(2023, 11, 14), date(2023, 11, 15)]


def test_files_of_several_nodes_are_kept_apart(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for node in ("n1", "n2"):
        folder.write([readings(1, 5)], node)
    assert len(folder.files()) == 2
    assert [file.claim.node for file in folder.files("n2")] == ["n2"]
    assert positions(folder.read(1, 10, node="n2")[0]) == [1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="n1, n2"):
        folder.read(1, 10)


def test_a_superseded_file_is_passed_over_told_and_cleaned(folder: Folder) -> None:
    folder.write([readings(1, 30)], "n1")
    assert [file.claim.last for file in folder.files()] == [30, 40, 50, 60, 70, 80, 90, 100]
    assert positions(folder.read(1, 101)[0]) == list(range(1, 101))
    assert sum("superseded" in problem.problem for problem in folder.verify()) == 3
    assert len(folder.clean("n1")) == 3
    assert folder.verify() == []
    assert positions(folder.read(1, 101)[0]) == list(range(1, 101))


def test_claims_that_overlap_double_nothing(folder: Folder) -> None:
    folder.write([readings(95, 20)], "n1")
    assert positions(folder.read(1, 200)[0]) == list(range(1, 115))


def test_other_files_are_left_alone(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "log" / "README").write_text("x")
    (tmp_path / "log" / "date=2023-11-14" / "part-0.parquet").write_text("x")
    assert len(folder.files()) == 10
    assert folder.clean("n1") == []


# Reading


@settings(max_examples=often(30))
@given(st.lists(parts(), min_size=1, max_size=3), st.integers(1, 2000))
def test_what_is_written_is_read_again_whatever_the_size(
    several: list[list[LivePart]], size_max: int
) -> None:
    folder = in_memory()
    wanted: list[tuple[int, Event]] = []
    for number, held in enumerate(several):
        moved = [_moved(part, number * 5000) for part in held]
        folder.write(moved, "n1")
        wanted += all_events(moved)
    for (left, event), (right, stored) in zip(held_in(folder, size_max=size_max), wanted, strict=True):
        assert left == right
        assert identical(event, stored)


def _moved(part: LivePart, by: int) -> LivePart:
    fields = [getattr(part, name) for name in part.__struct_fields__]
    return LivePart(part.first + by, *fields[1:])


@settings(max_examples=often(60))
@given(
    conditions.filters, st.lists(conditions.events, min_size=1, max_size=20), st.integers(1, 22), st.data()
)
def test_a_filter_and_a_range_choose_the_same_as_by_hand(
    filter: Filter, held: list[Event], first: int, data: st.DataObject
) -> None:
    end = data.draw(st.integers(first, 23))
    folder = in_memory()
    cut = data.draw(st.integers(0, len(held)))
    for begin, some in ((1, held[:cut]), (cut + 1, held[cut:])):
        if some:
            folder.write([part_of(some, begin)], "n1")
    stored = part_of(held).events()
    wanted = [n for n, event in enumerate(stored, 1) if first <= n < end and filter.matches(event)]
    tables, following = folder.read(first, end, filter)
    assert following == end
    assert positions(tables) == wanted
    narrow, _ = folder.read(first, end, filter, columns=["position", "a"])
    assert positions(narrow) == wanted
    assert all(set(table.schema.names) <= {"position", "a"} for table in narrow)


@pytest.mark.parametrize(
    "text",
    [
        "sensor = 's3' AND value > 5",
        "sensor IN ('s1', 's2', 3)",
        "sensor NOT IN ('s1', 's2')",
        "NOT (sensor = 's1')",
        "sensor LIKE '%5' OR value = 1.5",
        "sensor IS NULL",
        "sensor > type",
        "sensor = 3",
        "sensor >= 's5' AND id > 'abc.11.18'",
        "MATCHES(sensor, '[135]') AND type = 'air.pm10'",
        "value * 2 > 40 AND sensor BETWEEN 's2' AND 's4'",
        "value / (value - 5) > 1.5 AND -value < -7",
        "value * 1e308 > value",
        "JMSDeliveryMode = 'NON_PERSISTENT' AND value < 3",
    ],
)
def test_strings_that_are_read_as_dictionaries_match_the_same(folder: Folder, text: str) -> None:
    filter = Filter(text)
    wanted = [position for position, event in held_in(folder) if filter.matches(event)]
    tables, _ = folder.read(1, 101, filter)
    assert positions(tables) == wanted
    for table in tables:
        assert all(filter.matches(event) for event in events_of(table))


def test_ids_are_made_for_the_rows_that_match_and_given_ones_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    held = [
        Event.unchecked(n, "a", 0, {"n": n}, Header(id=f"given-{n}") if n in (3, 20) else None)
        for n in range(1, 31)
    ]
    folder.write([part_of(held[:10], 1, Origin("abc", 1))], "n1")
    folder.write([part_of(held[10:15], 11, Origin("abc", 1)), part_of(held[15:], 16)], "n1")
    folder.write([readings(31, 20)], "n1")
    found = {event["n"]: event.id for _, event in held_in(folder, Filter("n IN (2, 3, 12, 20, 21)"))}
    assert found == {2: "abc.11.12", 3: "given-3", 12: "abc.11.1c", 20: "given-20", 21: "node.11.215"}
    assert [event.id for _, event in held_in(folder, Filter("value = 8"))] == ["abc.11.220"]


def test_row_groups_are_read_one_by_one_within_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_file, "GROUP_ROWS", 10)
    folder = Folder(tmp_path)
    info = folder.write([readings(first, 5) for first in range(1, 101, 5)], "n1")
    assert pq.read_metadata(tmp_path / info.path).num_row_groups == 10
    tables, following = folder.read(1, 101, size_max=1)
    assert (positions(tables), following) == (list(range(1, 11)), 11)
    tables, following = folder.read(8, 15, size_max=1)
    assert (positions(tables), following) == ([8, 9, 10], 11)
    assert positions([next(folder.read_back(info, 25))]) == [21, 22, 23, 24, 25]
    assert positions(folder.read(1, 101, Filter("value = 5.5"))[0]) == [22]


def test_a_file_that_was_merged_meanwhile_is_looked_for_again(folder: Folder) -> None:
    class Stale(Folder):
        """Lists the folder, then sees it change."""

        changed = False

        def open(self, file: FileInfo) -> Any:
            if not self.changed:
                self.changed = True
                merge(self)
            return super().open(file)

    assert positions(Stale(str(folder)).read(1, 101)[0]) == list(range(1, 101))


def test_events_are_found_by_id(folder: Folder) -> None:
    ids = ["abc.11.15", "abc.11.264", "abc.11.3fff", "other"]
    tables, _ = folder.read(1, 101, Filter("id IN :ids", ids=ids))
    assert sorted(positions(tables)) == [5, 100]
    assert {event.id for table in tables for event in events_of(table)} == {"abc.11.15", "abc.11.264"}


def test_positions_are_found_by_when_events_were_stored(folder: Folder) -> None:
    file = folder.files()[1]
    assert file.claim.first == 11
    assert folder.latest_us(file) == STORED_US + 11
    assert folder.position_at(file, STORED_US + 11) == 11
    assert folder.position_at(file, STORED_US + 12) is None


def test_a_received_of_the_header_does_not_say_when_an_event_was_stored(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    held = [Event("a", received=datetime(2030, 1, 1, tzinfo=UTC)), Event("a")]
    info = folder.write([part_of(held)], "n1")
    assert folder.latest_us(info) == STORED_US + 1
    assert folder.position_at(info, STORED_US + 2) is None


def test_pandas_and_duckdb_read_the_folder_past_what_is_unfinished(folder: Folder, tmp_path: Path) -> None:
    date_folder = tmp_path / "log" / "date=2023-11-14"
    name = FileClaim("n1", 101, 102).file_name
    (date_folder / f".{name}.part").write_bytes(b"unfinished")
    assert len(pd.read_parquet(tmp_path / "log")) == 100
    query = f"SELECT count(*), max(position) FROM '{tmp_path}/log/**/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(100, 100)]
    assert folder.leftovers() == [f"date=2023-11-14/.{name}.part"]
    assert folder.clean("n2") == []
    assert folder.clean("n1") == [f"date=2023-11-14/.{name}.part"]
    assert folder.leftovers() == []


# Merging


def test_small_files_become_one(folder: Folder) -> None:
    before = held_in(folder)
    ((merged, replaced),) = merge(folder)
    assert (merged.claim, len(replaced)) == (FileClaim("n1", 1, 100), 10)
    assert folder.files() == [merged]
    assert folder.verify() == []
    assert all(map(identical, [event for _, event in held_in(folder)], [event for _, event in before]))


@settings(max_examples=often(25))
@given(st.lists(parts(), min_size=2, max_size=3))
def test_merged_files_hold_the_same_events(several: list[list[LivePart]]) -> None:
    folder = in_memory()
    for number, held in enumerate(several):
        moved = [_moved(part, number * 5000) for part in held]
        folder.write(moved, "n1", first=number * 5000 + 1, last=number * 5000 + 5000)
    before = held_in(folder)
    assert len(merge(folder)) == 1
    after = held_in(folder)
    assert [position for position, _ in after] == [position for position, _ in before]
    assert all(map(identical, [event for _, event in after], [event for _, event in before]))


# Damage


def test_what_is_wrong_is_told_by_file(folder: Folder, tmp_path: Path) -> None:
    seen: list[str] = []
    one, two, three, four, five = (tmp_path / "log" / file.path for file in folder.files()[:5])
    one.write_bytes(one.read_bytes()[:-10])
    two.unlink()
    renamed = three.with_name(FileClaim("n1", 21, 29).file_name)
    three.rename(renamed)
    pq.write_table(pa.table({"position": [1]}), four)
    raw = bytearray(five.read_bytes())
    raw[60] ^= 0xFF
    five.write_bytes(raw)
    problems = folder.verify(lambda file: seen.append(file.path))
    assert seen == [file.path for file in folder.files()]
    told = {problem.path.rpartition("/")[2]: "" for problem in problems}
    for problem in problems:
        told[problem.path.rpartition("/")[2]] += str(problem)
    assert told.keys() == {one.name, renamed.name, four.name, five.name}
    assert "is no Parquet file" in told[one.name]
    assert "positions 11 to 20, before its own, are in no file" in told[renamed.name]
    assert f"claims to be {three.name}" in told[renamed.name]
    assert "has positions 21 to 30, which it does not claim" in told[renamed.name]
    assert "no footer of a file of the log" in told[four.name]
    assert "can't be read" in told[five.name]


@pytest.mark.parametrize("place", range(0, 2000, 97))
def test_no_changed_byte_goes_unseen(tmp_path: Path, place: int) -> None:
    folder = Folder(tmp_path)
    path = tmp_path / folder.write([readings(1, 50)], "n1").path
    raw = bytearray(path.read_bytes())
    raw[4 + place] ^= 0x01
    path.write_bytes(raw)
    assert folder.verify() != []


def test_a_damaged_file_is_an_error_for_who_reads_it(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "log" / folder.files()[3].path
    path.write_bytes(b"PAR1")
    with pytest.raises(StoreDamaged, match="00031"):
        folder.read(1, 101)
    assert positions(folder.read(1, 31)[0]) == list(range(1, 31))


# Being stopped


class Stops(Exception):
    """The machine stops."""


class Stopping(fs.FileSystemHandler):
    """A file system that works for so many operations that change something, and then stops for good."""

    def __init__(self, inner: fs.FileSystem, operations: int) -> None:
        self.inner = inner
        self.left = operations

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stops

    def get_type_name(self) -> str:
        return "stopping"

    def normalize_path(self, path: str) -> str:
        return self.inner.normalize_path(path)

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return self.inner.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return self.inner.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._change()
        self.inner.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self._change()
        self.inner.delete_file(path)

    def move(self, source: str, target: str) -> None:
        self._change()
        self.inner.move(source, target)

    def open_input_file(self, path: str) -> Any:
        return self.inner.open_input_file(path)

    def open_input_stream(self, path: str) -> Any:
        return self.inner.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._change()
        if self.left == 0:  # stopped in the middle of the file
            with self.inner.open_output_stream(path) as sink:
                sink.write(b"PAR1 and no more")
            raise Stops
        return self.inner.open_output_stream(path)

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


def test_who_is_stopped_while_writing_leaves_the_file_whole_or_not_at_all() -> None:
    outcomes = set()
    for operations in range(5):
        memory = fs._MockFileSystem(datetime.now(UTC))
        whole = Folder("log", memory)
        whole.write([readings(1, 5)], "n1")
        stopping = Folder("log", fs.PyFileSystem(Stopping(memory, operations)))
        with suppress(Stops):
            stopping.write([readings(6, 5)], "n1")
        found = positions(whole.read(1, 100)[0])
        outcomes.add(len(found))
        assert found in (list(range(1, 6)), list(range(1, 11)))
        whole.clean("n1")
        whole.write([readings(6, 5)], "n1")
        assert whole.verify() == []
        assert positions(whole.read(1, 100)[0]) == list(range(1, 11))
    assert outcomes == {5, 10}


def test_who_is_stopped_while_merging_loses_and_doubles_nothing() -> None:
    finished = 0
    for operations in range(12):
        memory = fs._MockFileSystem(datetime.now(UTC))
        whole = Folder("log", memory)
        for first in range(1, 31, 5):
            whole.write([readings(first, 5)], "n1")
        stopping = Folder("log", fs.PyFileSystem(Stopping(memory, operations)))
        try:
            merge(stopping)
            finished += 1
        except Stops:
            pass
        assert positions(whole.read(1, 100)[0]) == list(range(1, 31))
        whole.clean("n1")
        assert positions(whole.read(1, 100)[0]) == list(range(1, 31))
        assert whole.verify() == []
        merge(whole)
        assert len(whole.files()) == 1
    assert finished


def test_a_file_is_synced_before_it_is_seen_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(path.name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    info = Folder(tmp_path / "log").write([readings(1, 5)], "n1")
    name = info.path.rpartition("/")[2]
    assert synced[0] == f".{name}.part"
    assert synced[1:] == ["date=2023-11-14", "log"]


def test_a_folder_named_by_a_file_uri_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    Folder((tmp_path / "log").as_uri()).write([readings(1, 5)], "n1")
    assert len(synced) == 3


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    folder = Folder(tmp_path / "log")
    with pytest.raises(OSError, match="No space left"):
        folder.write([readings(1, 5)], "n1")
    assert folder.leftovers() == []
    assert folder.files() == []


def test_row_groups_of_joined_files_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "GROUP_SIZE_MAX", 1)
    folder = in_memory()
    for first in range(1, 31, 10):
        folder.write([readings(first, 10)], "n1")
    merge(folder)
    (joined,) = folder.files()
    with folder.open(joined) as opened:
        assert opened.metadata.num_row_groups == 3


def test_removing_twice_is_no_trouble(folder: Folder) -> None:
    gone = folder.files()[:2]
    folder.remove(gone)
    folder.remove(gone)
    assert folder.files()[0].claim.first == 21


def test_sealed_files_and_their_folders_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Folder(tmp_path / "log")
        file = folder.write([readings(1, 10)], "node")
        leftover = f".{FileClaim('node', 11, 20).file_name}.part"
        (tmp_path / "log" / file.path).with_name(leftover).write_bytes(b"left by one who was killed")
        other = folder.write([readings(11, 10)], "node")
        assert (tmp_path / "log" / other.path).stat().st_mode & 0o777 == 0o600
        joined = folder.join([file, other])
    finally:
        os.umask(before)
    root = tmp_path / "log"
    assert {path.name: path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))} == {
        "log": 0o700,
        Path(joined.path).parent.name: 0o700,
        Path(joined.path).name: 0o600,
    }
