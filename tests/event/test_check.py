"""Checking raw events: the same verdict as decoding them, whatever the bytes are and whoever checks."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import damaged, numbered_events

from tidings.errors import CodecError
from tidings.event import Batch, Event, Header
from tidings.event import check_compiled as compiled
from tidings.event import wire as seam
from tidings.event.check_compiled import check_certain
from tidings.event.header import DELIVERIES, NOTED_FIELDS
from tidings.event.values import ATTRIBUTES_MAX, RESERVED, TIME_US_MAX, TIME_US_MIN
from tidings.event.wire import (
    HEAD_SIZE,
    Checked,
    array_head,
    check,
    check_decoding,
    decode_events,
    encode_events,
    offsets_of,
)

SOURCE = Path(__file__).parents[2] / "src"
GOOD = [5, "air.pm10", 0, {"value": 41.2}, None, None]
whole = st.lists(numbered_events(), max_size=4).map(encode_events)


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Any:
    """`check` is the compiled one in this module."""
    seam.use_compiled()
    yield
    seam._certain = None


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def wire(*events: object) -> bytes:
    return array_head(len(events)) + b"".join(map(packed, events))


def changed(element: int, value: object) -> list[Any]:
    return [value if at == element else held for at, held in enumerate(GOOD)]


def verdict(judge: Callable[[bytes], Checked], raw: bytes) -> Checked | str:
    try:
        return without_offsets(judge(raw))
    except CodecError as error:
        return str(error)


def without_offsets(checked: Checked) -> Checked:
    """What both ways of checking tell: decoding leaves it to others to find where events begin."""
    return replace(checked, offsets=None)


def assert_same_verdict(raw: bytes) -> None:
    """Both say the same, and the walk is certain of nothing that decoding refuses."""
    decoded = verdict(check_decoding, raw)
    assert verdict(check, raw) == decoded
    if not isinstance(decoded, Checked):
        assert verdict(certain_or_refused, raw) == "$: doubtful" or "head" in decoded


def certain_or_refused(raw: bytes) -> Checked:
    checked = check_certain(raw)
    if checked is None:
        raise CodecError("$", "doubtful")
    return checked


# What is known of good events


@given(st.lists(numbered_events(), max_size=20))
def test_what_is_known_of_events_is_what_they_say(events: list[Event]) -> None:
    raw = encode_events(events)
    checked = check(raw)
    assert checked.offsets in (None, offsets_of(raw))
    assert list(checked.counters) == [event.counter for event in events]
    assert [DELIVERIES[code] for code in checked.deliveries] == [event.delivery for event in events]
    assert checked.is_plain == all(event.delivery == "transient" for event in events)
    present = {name for name in NOTED_FIELDS for event in events if getattr(event, name) is not None}
    assert {name for bit, name in enumerate(NOTED_FIELDS) if checked.noted >> bit & 1} == present
    assert check_decoding(raw) == without_offsets(checked)


@given(st.lists(numbered_events(), max_size=4))
def test_the_walk_is_certain_of_everything_that_we_write(events: list[Event]) -> None:
    assert check_certain(encode_events(events)) is not None


@pytest.mark.parametrize("values", [(None,), ("a",), ("a", None), (None, "a")])
def test_of_two_header_fields_with_one_name_the_last_one_is_noted(values: tuple[str | None, ...]) -> None:
    fields = b"".join(msgspec.msgpack.encode("subject") + msgspec.msgpack.encode(one) for one in values)
    header = msgspec.Raw(bytes([0x80 | len(values)]) + fields)
    raw = array_head(1) + packed(changed(4, header))
    checked = check_certain(raw)
    assert checked is not None
    assert checked.noted == check_decoding(raw).noted == (0 if values[-1] is None else 2)


def test_many_events_are_checked_in_one_walk() -> None:
    events = [
        Event.unchecked(
            n, "air.pm10", n, {"value": n / 2, "at": "Bern"}, Header(delivery="reliable"), b"x" * n
        )
        for n in range(3_000)
    ]
    checked = check_certain(encode_events(events))
    assert without_offsets(checked) == check_decoding(encode_events(events))
    assert checked is not None
    assert (checked.is_plain, set(checked.deliveries)) == (False, {1})


def test_no_events_are_good_and_plain() -> None:
    assert without_offsets(check(array_head(0))) == check_decoding(array_head(0))
    assert check(array_head(0)).is_plain


def test_a_batch_takes_the_offsets() -> None:
    raw = wire(GOOD, changed(0, 6), changed(0, 7))
    checked = check(raw)
    assert Batch(raw, None, checked.offsets).offsets is checked.offsets
    assert Batch(raw, None, checked.offsets).take([0, 2]) == Batch(raw).take([0, 2])


# Wrong and odd things, one by one

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
INFINITY, NAN = float("inf"), float("nan")
FIELDS = Header.__struct_fields__
ODD_NUMBERS = [
    0, 1, 2, 9, 10, -1, TIME_US_MIN, TIME_US_MIN - 1, TIME_US_MAX, TIME_US_MAX + 1, 2**63, 2**64 - 1,
    0.0, -0.0, 0.5, 1.0, 1.0000001, 7.0, -1.0, 1.7e308, INFINITY, -INFINITY, NAN,
]  # fmt: skip
ODD_NAMES = [
    "", "a\0", "é\0", "é", "a\0bcdefg", "abcdefgh\0", "abcdefghi", "abcdefg\0abcdefgh", "\0abcdefghé",
    "typ", "types", "Type", "received_us", "JMS", "tipe", "body ", "prioritx", *sorted(RESERVED),
    *("x" * size for size in (31, 32, 255, 256, 70_000)), *("é" * size for size in (127, 128, 255, 256)),
]  # fmt: skip
ODD_VALUES = [
    None, [], [1], {}, {"x": 1}, True, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, NAN, INFINITY, NOW,
    "", "é", "a\0b", "\U0010ffff", "x" * 70_000, b"", b"\xff" * 300,
    *(msgspec.msgpack.Ext(code, b"1234") for code in (0, 5, -2)),
]  # fmt: skip
ODD_ELEMENTS: dict[int, list[object]] = {
    0: [-1, 0, 127, 128, 255, 256, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 1.0, None, "5", True],
    1: [
        "", ".", "a.", ".a", "a..b", "a.b", "a b", "a\tb", "a\0b", "a\x7fb", "x" * 255, "x" * 256,
        "é", "é" * 128, "é" * 255, "é" * 256, "漢.字", "a\u00a0b", "a\u200bb", "a\u2028b", "\u3000",
        "\U0001f600", "\U000e0100", "\U000e0001", "\U0003fffe", "\ue000", "\u0378", 5, None, b"t",
    ],
    2: [TIME_US_MIN - 1, TIME_US_MIN, -1, TIME_US_MAX, TIME_US_MAX + 1, 2**64 - 1, 1.5, "noon", None, NOW],
    3: [
        None, [], {}, "text", {5: 1}, {None: 1}, {b"n": 1},
        *({name: 1} for name in ODD_NAMES), *({"n": value} for value in ODD_VALUES),
        *({f"a{n}": n for n in range(count)} for count in (15, 16, ATTRIBUTES_MAX, ATTRIBUTES_MAX + 1)),
    ],
    4: [
        {}, [], [1], "x", 0, False, {5: 1}, {"mood": "good"}, {"mood": None}, {"mood": [1, {"x": 2}]},
        *({name: value} for name in FIELDS for value in ("", "é", None, [0], b"x", True, NOW, *ODD_NUMBERS)),
        *({"delivery": word} for word in (*DELIVERIES, "auto", "Reliable", "reliable ")),
        *({"route": word} for word in ("auto", "direct", "epidemic", "reliable")),
    ],
    5: [b"", b"x" * 300, b"x" * 70_000, "text", 5, [], NOW],
}  # fmt: skip
ODD_EVENTS: list[object] = [
    *(changed(element, value) for element, values in ODD_ELEMENTS.items() for value in values),
    GOOD[:5], [*GOOD, None], [*GOOD, {"source": "root"}], [*GOOD, None, None], [], {}, None, 5, {"type": "t"},
]  # fmt: skip


def told(event: object) -> str:
    """The event as a test's name: the same in every process, so without the addresses of objects."""
    return re.sub(r" object at 0x\w+", "", repr(event))[:60]


@pytest.mark.parametrize("event", ODD_EVENTS, ids=told)
def test_an_odd_event_is_judged_as_decoding_does(event: object) -> None:
    assert_same_verdict(wire(event))
    assert_same_verdict(wire(GOOD, event, GOOD))


def parts(count: bytes = b"\x05", kind: bytes = b"\xa1t", time: bytes = b"\x00", held: bytes = b"\x80",
          header: bytes = b"\xc0", body: bytes = b"\xc0") -> bytes:  # fmt: skip
    """One event of elements that are msgpack already."""
    return array_head(1) + b"\x96" + count + kind + time + held + header + body


def text(data: bytes) -> bytes:
    return bytes([0xA0 + len(data)]) + data


def moment(seconds: int, nanoseconds: int) -> bytes:
    return b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)


BAD_TEXTS = [
    b"\x80", b"a\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2a", b"\xe0\x80\x80", b"\xe0\x9f\xbf",
    b"\xe1\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf1\x80\x80",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff", b"12345678\xff",
    b"1234567\xc3\xa9\xc3", b"\xe2\x82a\xac",
]  # fmt: skip
GOOD_TEXTS = [
    b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf", b"12345678\xc3\xa9", b"\xef\xbf\xbf",
]  # fmt: skip


@pytest.mark.parametrize("data", BAD_TEXTS + GOOD_TEXTS, ids=repr)
def test_texts_are_strict_utf_8_wherever_they_stand(data: bytes) -> None:
    places = [
        parts(kind=text(data)),
        parts(held=b"\x81" + text(data) + b"\x01"),
        parts(held=b"\x81\xa1n" + text(data)),
        parts(held=b"\x82\xa1n" + text(data) + b"\xa1m\x01"),
        parts(held=b"\x81" + text(data) + b"\xa1x"),
        parts(header=b"\x81\xa7channel" + text(data)),
        parts(header=b"\x81\xa4mood" + text(data)),
        parts(header=b"\x81" + text(data) + b"\xa0"),
    ]
    for raw in places:
        assert_same_verdict(raw)
    assert all((check_certain(raw) is None) == (data in BAD_TEXTS) for raw in places[1:])


@pytest.mark.parametrize(
    "value",
    [
        *(b"\xd6\xff" + struct.pack(">I", seconds) for seconds in (0, 2**32 - 1)),
        *(b"\xd7\xff" + struct.pack(">Q", ns << 34 | 2**34 - 1) for ns in (0, 999_999_999, 10**9, 2**30 - 1)),
        *(moment(-62_135_596_800 + step, ns) for step in (-1, 0, 1) for ns in (0, 499, 999_999_999)),
        *(moment(253_402_300_799 + step, ns) for step in (-1, 0, 1) for ns in (0, 999_999_499, 999_999_500)),
        *(moment(seconds, 2**32 - 1) for seconds in (-(2**63), 0, 2**63 - 1)),
        moment(-(2**63), 0), moment(2**63 - 1, 0),
        b"\xc7\x00\xff", b"\xc7\x04\xff1234", b"\xc7\x08\xff\0\0\0\0\0\0\0\x01", b"\xc7\x05\xff12345",
        b"\xc8\x00\x0c\xff" + bytes(12), b"\xc9\0\0\0\x0c\xff" + bytes(12), b"\xd4\xff1", b"\xd5\xff12",
        b"\xd8\xff" + bytes(16), b"\xd6\x011234", b"\xc1", b"\xca\x7f\xc0\0\0", b"\xcb\x7f\xf0\0\0\0\0\0\0",
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_timestamps_and_other_extensions_are_judged_as_decoding_does(value: bytes) -> None:
    assert_same_verdict(parts(held=b"\x81\xa1n" + value))
    assert_same_verdict(parts(header=b"\x81\xa4mood" + value))
    assert_same_verdict(parts(header=b"\x81\xa5ttl_s" + value))
    assert_same_verdict(parts(header=b"\x81\xabreliability" + value))


@pytest.mark.parametrize(
    "raw",
    [
        parts(held=b"\x82\xa1n\x91\x01\xa1n\x01"),
        parts(held=b"\x82\xa1n\x01\xa1n\x91\x01"),
        parts(held=b"\xde" + struct.pack(">H", ATTRIBUTES_MAX + 1) + b"\xa1n\x01" * (ATTRIBUTES_MAX + 1)),
        parts(held=b"\xdf\0\0\0\x01\xa1n\x01"),
        parts(held=b"\xdf\xff\xff\xff\xff\xa1n\x01"),
        parts(held=b"\x81\xdb\0\0\0\x01n\xcf" + bytes(8)),
        parts(held=b"\x81\xdb\xff\xff\xff\xffn\x01"),
        parts(held=b"\x81\xa1n\xc6\xff\xff\xff\xff"),
        parts(header=b"\x82\xa8delivery\xa8reliable\xa8delivery\xaapersistent"),
        parts(header=b"\x82\xa8delivery\xa4fast\xa8delivery\xaapersistent"),
        parts(header=b"\xde\x00\x01\xa8delivery\xaapersistent"),
        parts(header=b"\xde\x00"),
        parts(header=b"\x81\xa5ttl_s\xca\x3f\x00\x00\x00"),
        parts(header=b"\x81\xabreliability\xca\x3f\x80\x00\x01"),
        parts(header=b"\x81\xa8priority\xd3\0\0\0\0\0\0\0\x09"),
        parts(header=b"\x81\xa4mood" + b"\x91" * 100_000 + b"\x01"),
        parts(count=b"\xd3" + b"\xff" * 8),
        parts(count=b"\xd0\x05", time=b"\xd1\xff\xff"),
        parts().replace(b"\x96", b"\xdc\x00\x06"),
        parts().replace(b"\x96", b"\xdd\x00\x00\x00\x06"),
        parts().replace(b"\x96", b"\x86"),
        array_head(2**32 - 1),
        array_head(2**32 - 1) + parts()[HEAD_SIZE:],
        array_head(2) + parts()[HEAD_SIZE:],
        array_head(0) + parts()[HEAD_SIZE:],
        b"",
        b"\xdd\0\0\0",
        b"\x91" + parts()[HEAD_SIZE:],
        b"\0" * 9,
    ],
    ids=lambda raw: raw[:40].hex(),
)
def test_msgpack_that_nobody_writes_is_judged_as_decoding_does(raw: bytes) -> None:
    assert_same_verdict(raw)


def test_odd_but_good_events_are_taken_though_the_walk_is_not_certain() -> None:
    nested = wire(changed(4, {"delivery": "reliable", "mood": {"now": ["good"]}}))
    replaced = parts(held=b"\x82\xa1n\x91\x01\xa1n\x01")
    far = wire(changed(1, "a\U000e0100"))
    for raw in (nested, replaced, far):
        assert check_certain(raw) is None
        assert without_offsets(check(raw)) == check_decoding(raw)


def test_the_place_of_a_mistake_is_named() -> None:
    with pytest.raises(CodecError, match=r"^\$\[17\]\.pos\.x: list is not a value$"):
        check(wire(*[GOOD] * 17, changed(3, {"pos.x": [1]})))


def test_every_header_field_has_a_check_of_its_own() -> None:
    assert list(compiled._FIELDS) == list(Header.__struct_fields__)


# Any bytes at all


@given(
    damaged(whole) | st.binary(max_size=60).map(lambda junk: array_head(1) + junk) | st.binary(max_size=60)
)
def test_damaged_bytes_are_judged_as_decoding_does(raw: bytes) -> None:
    assert_same_verdict(raw)


@given(st.text(max_size=12) | st.text(st.sampled_from("a.é\u00a0\u200b漢"), max_size=6))
@example("\U0003ffff")
@example("\U00040000")
def test_any_text_is_a_type_or_a_name_as_decoding_has_it(name: str) -> None:
    assert_same_verdict(wire(changed(1, name)))
    assert_same_verdict(wire(changed(3, {name: name})))


def test_of_every_code_point_python_is_believed() -> None:
    known = np.flatnonzero(compiled._letters())
    assert [chr(point) for point in known[:3]] == ["!", '"', "#"]
    for point in (*range(0x300), *range(0x2000, 0x2100), *range(0x3FF00, 0x40000)):
        character = chr(point)
        assert (point in known) == (character.isprintable() and not character.isspace())


items = st.sampled_from([
    b"\x00", b"\x05", b"\xff", b"\xcc\x05", b"\xcd\x00\x05", b"\xce\0\0\0\x05", b"\xcf" + bytes(8),
    b"\xcf" + b"\xff" * 8, b"\xd0\xff", b"\xd1\x80\x00", b"\xd2\0\0\0\x01", b"\xd3" + b"\xff" * 8,
    b"\xca\0\0\0\0", b"\xcb" + bytes(8), b"\xc0", b"\xc1", b"\xc2", b"\xc3",
    b"\xa0", b"\xa1t", b"\xd9\x01n", b"\xda\x00\x02\xc3\xa9", b"\xdb\0\0\0\x01\xff", b"\xa4type",
    b"\xa8delivery", b"\xa8reliable", b"\xa8priority", b"\xabreliability", b"\xa5ttl_s", b"\xa2id",
    b"\xabreceived_us", b"\xc4\x01\xff", b"\xc5\x00\x00", b"\xc6\0\0\0\x01x", b"\xd6\xff\0\0\0\0",
    b"\xd7\xff" + bytes(8), b"\xd4\x01\x01", b"\x90", b"\x91\x01", b"\x80", b"\x81\xa1n\x01",
    moment(0, 0), moment(2**40, 0),
])  # fmt: skip


def maps() -> st.SearchStrategy[bytes]:
    """Maps of whatever items, their number told in any of the three ways."""
    heads: list[Callable[[int], bytes]] = [
        lambda size: bytes([0x80 + size]),
        lambda size: b"\xde" + size.to_bytes(2, "big"),
        lambda size: b"\xdf" + size.to_bytes(4, "big"),
    ]
    return st.builds(
        lambda head, pairs: head(len(pairs)) + b"".join(key + value for key, value in pairs),
        st.sampled_from(heads),
        st.lists(st.tuples(items, items), max_size=4),
    )


@given(
    st.lists(items | maps(), min_size=5, max_size=7),
    st.sampled_from([b"\x96", b"\xdc\0\6", b"\x97", b"\x95"]),
)
def test_whatever_items_stand_in_an_event_it_is_judged_as_decoding_does(
    elements: list[bytes], head: bytes
) -> None:
    assert_same_verdict(array_head(1) + head + b"".join(elements))


@given(held=maps(), header=maps(), body=items)
def test_whatever_members_its_maps_have_an_event_is_judged_as_decoding_does(
    held: bytes, header: bytes, body: bytes
) -> None:
    assert_same_verdict(parts(held=held))
    assert_same_verdict(parts(header=header))
    assert_same_verdict(parts(body=body))


# Memory


class Brink:
    """A piece of memory behind which nothing may be read: to touch it ends the process."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self.bytes = np.frombuffer(self._map, np.uint8)
        library = ctypes.CDLL(None, use_errno=True)
        beyond = ctypes.c_void_p(self.bytes.ctypes.data + mmap.PAGESIZE)
        assert library.mprotect(beyond, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0, os.strerror(
            ctypes.get_errno()
        )

    def holding(self, raw: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
        held = self.bytes[mmap.PAGESIZE - len(raw) : mmap.PAGESIZE]
        held[:] = np.frombuffer(raw, np.uint8)
        return held


def walk(data: np.ndarray[Any, np.dtype[np.uint8]], count: int) -> int:
    numbers, deliveries = np.empty(2 * count + 1, np.int64), np.empty(count, np.uint8)
    return int(compiled._walk(data, numbers, deliveries, compiled._facts))


brink = Brink()


@given(whole.filter(lambda raw: len(raw) < 600))
def test_nothing_behind_bytes_that_are_cut_short_is_read(raw: bytes) -> None:
    count = len(decode_events(raw))
    assert walk(brink.holding(raw), count) >= 0
    for length in range(HEAD_SIZE, len(raw)):
        assert walk(brink.holding(raw[:length]), count) == -1


@given(damaged(whole).filter(lambda raw: HEAD_SIZE <= len(raw) < mmap.PAGESIZE), st.integers(0, 9))
def test_nothing_behind_damaged_bytes_is_read(raw: bytes, count: int) -> None:
    walk(brink.holding(raw), count)


# The seam


def run_python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_numba_is_loaded_only_when_it_is_asked_for() -> None:
    code = """
import sys
from tidings.event.wire import check
from tidings.event.wire import array_head
check(array_head(0))
print(*[name for name in ("numpy", "numba") if name in sys.modules])"""
    assert run_python(code) == ""


def test_without_numba_the_missing_extra_is_named() -> None:
    code = """
import sys
from tidings.event.wire import use_compiled
from tidings.errors import MissingExtra
sys.modules["numba"] = None
try:
    use_compiled()
except MissingExtra as error:
    print(error.extra)"""
    assert run_python(code) == "node"
