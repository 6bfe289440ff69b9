"""Records of services: typed, by kinds and keys, and of limited size."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.store.openers import Opener, reopened
from tests.store.samples import batch, everything
from tidings.errors import InternalError
from tidings.store.interface import (
    RECORD_KEY_SIZE_MAX,
    RECORD_VALUE_SIZE_MAX,
    Append,
    DropRecord,
    Operation,
    RecordKind,
    SetRecord,
)
from tidings.store.records import STREAM, StreamLink, is_sound, stream_row


class Link(Struct, frozen=True, omit_defaults=True):
    """What a service might keep of a link."""

    position: int
    node: str = ""


LINKS: RecordKind[tuple[str, str], Link] = RecordKind("link", Link)
OTHERS: RecordKind[tuple[str], Link] = RecordKind("other", Link)


def test_records_are_kept_by_kind_and_key(lasting: Opener) -> None:
    store = lasting()
    store.commit([LINKS.set(("a", "b"), Link(1)), OTHERS.set(("a",), Link(3))])
    store.commit(
        [
            LINKS.set(('a","', "b"), Link(2)),
            LINKS.set(("a", "b"), Link(4, "far")),
            LINKS.drop(("not", "there")),
        ]
    )
    state = reopened(store, lasting).state
    assert LINKS.known(state) == {("a", "b"): Link(4, "far"), ('a","', "b"): Link(2)}
    assert OTHERS.known(state) == {("a",): Link(3)}


def test_a_record_that_is_dropped_is_gone(lasting: Opener) -> None:
    store = lasting()
    store.commit([OTHERS.set(("a",), Link(1)), OTHERS.set(("b",), Link(2)), OTHERS.drop(("a",))])
    store.commit([OTHERS.set(("a",), Link(3)), DropRecord("link", '["b"]')])
    store.commit([OTHERS.drop(("a",))])
    assert OTHERS.known(reopened(store, lasting).state) == {("b",): Link(2)}


@pytest.mark.parametrize(
    "record",
    [
        SetRecord("link", "ü" * (RECORD_KEY_SIZE_MAX // 2) + "k", b""),
        SetRecord("link", "k", bytes(RECORD_VALUE_SIZE_MAX + 1)),
    ],
    ids=["key", "value"],
)
def test_a_record_above_the_limits_is_refused_with_its_commit(opener: Opener, record: SetRecord) -> None:
    store = opener()
    operations: list[Operation] = [Append(batch(1)), record]
    with pytest.raises(InternalError, match=r"RECORD_KEY_SIZE_MAX = 4096 and RECORD_VALUE_SIZE_MAX = 65536"):
        store.commit(operations)
    assert list(everything(store)) == []
    whole = SetRecord("link", "k" * RECORD_KEY_SIZE_MAX, bytes(RECORD_VALUE_SIZE_MAX))
    store.commit([whole])


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1023, 1024, 5000, 2**16 - 1, 2**16, 2**20])
def test_the_checksum_of_a_row_is_that_of_all_its_fields_however_long_they_are(size: int) -> None:
    link = StreamLink(replace(batch(7), raw=bytes(range(256)) * (size // 256) + bytes(size % 256)), 5, 6, 8)
    row = stream_row(link)
    assert row[1] == zlib.crc32(msgspec.msgpack.encode(("stream", row[0], *row[2:])))
    assert is_sound(STREAM, row)
    for place, field in enumerate(row[2:-1], 2):
        changed = b"?" if isinstance(field, bytes) else 99 if field is None else field + 1
        assert not is_sound(STREAM, (*row[:place], changed, *row[place + 1 :]))
    assert not is_sound(STREAM, (row[0] + 1, *row[1:]))  # type: ignore[operator]  # a key is an integer
    raw = bytearray(row[-1])  # type: ignore[arg-type]
    for place in {0, size // 2, size - 1} if size else ():
        raw[place] ^= 1
        assert not is_sound(STREAM, (*row[:-1], bytes(raw)))
        raw[place] ^= 1
    assert not is_sound(STREAM, (*row[:-1], bytes(raw) + b"\0"))
