"""One kind for each column over all files of a folder, whatever values an attribute takes on in time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs
from strategies import identical

from tests.log import parting
from tests.log.merging import merge
from tests.log.parting import STORED_US, part_of
from tests.log.test_segment_folder import held_in
from tidings import Event
from tidings.event.values import Value
from tidings.log import schema
from tidings.log.chunks import FileClaim, date_of
from tidings.log.schema import own_columns
from tidings.log.segment_file import tables_of, write_file
from tidings.log.segment_folder import Folder

TEXTS = {"value": "broken"}


def in_memory() -> Folder:
    return Folder("log", fs._MockFileSystem(datetime.now(UTC)))


def events(*values: dict[str, Value]) -> list[Event]:
    return [Event.unchecked(n + 1, "a", STORED_US, dict(one)) for n, one in enumerate(values)]


def write(folder: Folder, first: int, *values: dict[str, Value], node: str = "n1") -> None:
    folder.write([part_of(events(*values), first)], node)


def write_as_before(
    folder: Folder, first: int, *values: dict[str, Value], said: schema.Kinds | None = None
) -> None:
    """A file of an earlier version, which knows nothing of the others, or one that says this of them."""
    claim = FileClaim("n1", first, first + len(values) - 1)
    parent = f"date={date_of(STORED_US)}"
    folder.filesystem.create_dir(parent, recursive=True)
    with folder.filesystem.open_output_stream(f"{parent}/{claim.file_name}") as sink:
        write_file(sink, tables_of([part_of(events(*values), first)]), claim, said)


def columns(folder: Folder) -> list[dict[str, str]]:
    """The attributes' own columns of each file, and what they are."""
    found = []
    for file in folder.files():
        with folder.open(file) as opened:
            found.append({name: str(opened.schema.field(name).type) for name in own_columns(opened.schema)})
    return found


def values(folder: Folder) -> list[dict[str, Value]]:
    return [event.values for _, event in held_in(folder)]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (1.5, "broken"),
        ("broken", 1.5),
        (7, 2**53 + 1),
        (2**53 + 1, 1.5),
        (2**53 + 1, 7),
        (True, 1),
        (b"x", "x"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01"),
    ],
)
def test_the_first_file_with_a_column_decides_its_kind_and_joining_keeps_it(
    first: Value, later: Value
) -> None:
    folder = in_memory()
    write(folder, 1, {"value": first})
    (kind,) = columns(folder)[0].values()
    for at in range(2, 8):
        write(folder, at, {"value": later})
    held = [{"value": first}, *[{"value": later}] * 6]
    assert {kind for own in columns(folder) for kind in own.values()} == {kind}
    assert values(folder) == held
    merge(folder)
    assert [own["value"] for own in columns(folder)] == [kind]
    assert values(folder) == held


def test_whole_numbers_fit_a_column_that_large_ones_have_made() -> None:
    folder = in_memory()
    write(folder, 1, {"value": 2**60 + 1})
    write(folder, 2, {"value": 7}, {"value": 2**60 + 3}, {"value": 0.5})
    assert columns(folder) == [{"value": "int64"}] * 2
    assert [type(one["value"]) for one in values(folder)] == [int, int, int, float]


def test_a_column_is_spelled_in_one_way_in_all_files() -> None:
    folder = in_memory()
    write(folder, 1, {"Value": 1})
    write(folder, 2, {"value": 2}, {"value": 3}, {"Value": 4})
    assert columns(folder) == [{"Value": "double"}] * 2
    assert values(folder) == [{"Value": 1}, {"value": 2}, {"value": 3}, {"Value": 4}]


def test_nodes_that_share_a_folder_share_its_kinds(tmp_path: Path) -> None:
    write(Folder(tmp_path), 1, {"value": 1.5}, node="n1")
    write(Folder(tmp_path), 1, TEXTS, {"name": "x"}, node="n2")
    write(Folder(tmp_path), 2, {"name": 4, "value": 4}, node="n1")
    assert columns(Folder(tmp_path)) == [{"value": "double"}, {"value": "double"}, {"name": "string"}]


def test_nodes_that_have_decided_at_the_same_moment_agree_from_then_on(tmp_path: Path) -> None:
    for node, value in (("n1", 1.5), ("n2", "x")):
        alone = Folder(tmp_path / node)
        write(alone, 1, {"value": value}, node=node)
        (file,) = alone.files()
        target = tmp_path / "both" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / node / file.path).rename(target)
    both = Folder(tmp_path / "both")
    for at in (2, 3):
        write(both, at, {"value": 2.5}, node="n1")
        write(both, at, {"value": "y"}, node="n2")
    assert [own.get("value") for own in columns(both)] == ["double"] * 3 + ["string", None, None]


def test_a_file_that_fills_a_hole_and_a_joined_one_give_no_name_its_first_column(tmp_path: Path) -> None:
    for at in (1, 2, 3):
        write(Folder(tmp_path), at, {"value": 1.5})
    folder = Folder(tmp_path)
    folder.remove(folder.files()[1:2])
    write(folder, 2, {"new": 1, "value": 2.5})  # the last file, which would have to name it, is written
    assert columns(folder) == [{"value": "double"}] * 3
    write(Folder(tmp_path), 4, {"new": "x"})
    merge(Folder(tmp_path))
    assert columns(folder) == [{"value": "double", "new": "string"}]
    assert values(folder) == [{"value": 1.5}, {"new": 1, "value": 2.5}, {"value": 1.5}, {"new": "x"}]


def test_files_of_an_earlier_version_are_read_and_decide_by_their_rows() -> None:
    folder = in_memory()
    write_as_before(folder, 1, TEXTS)
    write_as_before(folder, 2, {"value": 1.5}, {"value": 2}, {"VALUE": 3})
    write_as_before(folder, 5, {"value": 2**53 + 1})
    held = [TEXTS, {"value": 1.5}, {"value": 2}, {"VALUE": 3}, {"value": 2**53 + 1}]
    assert values(folder) == held
    write(folder, 6, TEXTS, {"value": 3}, {"VALUE": "x"})
    assert columns(folder)[3] == {"value": "double"}
    merge(folder)
    assert columns(folder) == [{"value": "double"}]
    assert values(folder) == [*held, TEXTS, {"value": 3}, {"VALUE": "x"}]


def test_a_folder_has_so_many_columns_and_names_that_are_gone_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "FOLDER_COLUMNS_MAX", 3)
    write(Folder(tmp_path), 1, {"a": 1, "b": 1})
    write(Folder(tmp_path), 2, {"c": 1, "d": 1})
    write(Folder(tmp_path), 3, {"e": 1})
    assert columns(Folder(tmp_path)) == [{"a": "double", "b": "double"}, {"c": "double"}, {}]
    Folder(tmp_path).remove(Folder(tmp_path).files()[:1])
    write(Folder(tmp_path), 4, {"e": 1})
    assert columns(Folder(tmp_path))[-1] == {"e": "double"}


def test_names_that_are_gone_make_room_for_who_writes_all_the_time_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema, "FOLDER_COLUMNS_MAX", 1)
    folder = in_memory()
    write(folder, 1, {"a": 1})
    write(folder, 2, {"b": 1})
    folder.remove(folder.files()[:1])
    write(folder, 3, {"b": 1})
    assert columns(folder) == [{}, {"b": "double"}]


def test_a_last_file_that_is_damaged_does_not_let_kinds_drift(tmp_path: Path) -> None:
    for at in (1, 2):
        write(Folder(tmp_path), at, {"value": 1.5})
    (tmp_path / Folder(tmp_path).files()[1].path).write_bytes(b"PAR1 and no more")
    folder = Folder(tmp_path)
    write(folder, 3, TEXTS)
    with folder.open(folder.files()[2]) as opened:
        assert own_columns(opened.schema) == {}


def test_a_file_that_names_a_kind_there_is_not_is_as_one_that_says_nothing() -> None:
    folder = in_memory()
    write_as_before(folder, 1, {"value": 1.5}, said=schema.Kinds({"value": "g"}))
    write(folder, 2, TEXTS, {"value": 2.5})
    assert columns(folder) == [{"value": "double"}] * 2


@settings(max_examples=often(25))
@given(st.lists(st.lists(parting.events(), min_size=1, max_size=4), min_size=2, max_size=5))
def test_whatever_drifts_columns_agree_and_events_come_back_the_same(several: list[list[Event]]) -> None:
    folder = in_memory()
    wanted: list[Event] = []
    for held in several:
        part = part_of(held, len(wanted) + 1)
        folder.write([part], "n1")
        wanted += part.events()
    for _ in range(2):
        own = {(name.casefold(), name, kind) for one in columns(folder) for name, kind in one.items()}
        assert len(own) == len({plain for plain, _, _ in own})
        found = [event for _, event in held_in(folder)]
        assert len(found) == len(wanted)
        assert all(map(identical, found, wanted))
        merge(folder)
