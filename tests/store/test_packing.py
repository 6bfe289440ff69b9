"""Messages that are compressed on disk."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.store.samples import message
from tidings.errors import MissingExtra
from tidings.store import packing
from tidings.store.interface import Enqueue, Revise
from tidings.store.packing import (
    PACKED_BYTES_MIN,
    PLAIN,
    ZSTD,
    PackingError,
    check_compression,
    pack,
    unpack,
)
from tidings.store.records import RUN, sealed
from tidings.store.salvage import rebuild
from tidings.store.sqlite import SqliteStore

LONG = b"a reading like many others; " * 40


@given(raw=st.binary(max_size=2000) | st.binary(max_size=20).map(lambda part: part * 100))
def test_what_is_packed_is_unpacked_and_is_never_longer(raw: bytes) -> None:
    kind, data = pack(raw)
    assert unpack(kind, data) == raw
    assert len(data) < len(raw) if kind == ZSTD else data == raw


def test_short_and_random_bytes_are_left_as_they_are() -> None:
    assert pack(b"x" * (PACKED_BYTES_MIN - 1))[0] == PLAIN
    assert pack(Random(1).randbytes(1000))[0] == PLAIN
    assert pack(b"x" * PACKED_BYTES_MIN)[0] == ZSTD


def test_what_is_too_long_is_not_packed_and_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, data = pack(LONG)
    monkeypatch.setattr(packing, "UNPACKED_BYTES_MAX", len(LONG) - 1)
    assert pack(LONG) == (PLAIN, LONG)
    with pytest.raises(PackingError, match=f"would be {len(LONG)} bytes"):
        unpack(kind, data)


@pytest.mark.parametrize(
    "data", [b"", b"junk", pack(LONG)[1][:-1], zstandard.ZstdCompressor().compress(b"")[:5]]
)
def test_what_no_packing_made_is_refused(data: bytes) -> None:
    with pytest.raises(PackingError):
        unpack(ZSTD, data)
    with pytest.raises(PackingError, match="packing 9"):
        unpack(9, data)
    assert unpack(PLAIN, data) == data


def test_compressed_messages_are_small_on_disk_and_come_back_whole(tmp_path: Path) -> None:
    messages = [message(number, raw=b"%d " % number + LONG, compress=True) for number in range(1, 9)]
    messages += [message(9, raw=LONG), message(10, raw=b"short", compress=True)]
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(one) for one in messages[1:]])
    store.commit([Enqueue(message(1)), Revise(messages[0])])
    store.close()
    assert (tmp_path / "tidings.db").read_bytes().count(LONG) == 1
    assert rebuild(tmp_path / "tidings.db", None) == []
    store = SqliteStore(tmp_path)
    assert list(store.messages()) == messages
    assert store.damage == []
    store.close()


@pytest.mark.parametrize(
    ("packing", "content", "says"),
    [
        (ZSTD, b"junk", "can't be decompressed"),
        (9, b"", "has packing 9"),
        (PLAIN, b"junk", "can't be decoded"),
        (PLAIN, msgspec.msgpack.encode([message(7)]), "holds other messages than it says"),
    ],
)
def test_a_sound_row_that_can_not_be_unpacked_is_reported_and_left_out(
    tmp_path: Path, packing: int, content: bytes, says: str
) -> None:
    store = SqliteStore(tmp_path)
    for number in (1, 2, 3):
        store.commit([Enqueue(message(number))])
    assert store._database is not None
    row = sealed(RUN, 2, (2, packing, (2).to_bytes(8, "big"), content))
    store._database._writer.execute(RUN.put, row)
    assert list(store.messages()) == [message(1), message(3)]
    assert f"message 2: run 2 {says}" in store.damage[0].problem
    store.commit([Enqueue(message(2))])
    assert list(store.messages()) == [message(1), message(2), message(3)]
    store.close()


def test_without_the_package_only_what_is_to_be_compressed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path)
    store.commit([Enqueue(message(1, raw=LONG, compress=True))])
    check_compression()
    monkeypatch.setitem(sys.modules, "zstandard", None)
    packing._codec.cache_clear()
    store.commit([Enqueue(message(2, raw=LONG))])
    for raw in (LONG, b"short"):
        with pytest.raises(MissingExtra, match=r"compressed queues needs the 'zstd' extra"):
            store.commit([Enqueue(message(3)), Enqueue(message(4, raw=raw, compress=True))])
    with pytest.raises(MissingExtra):
        list(store.messages())
    with pytest.raises(MissingExtra):
        check_compression()
    monkeypatch.undo()
    assert [one.number for one in store.messages()] == [1, 2]
    store.close()
