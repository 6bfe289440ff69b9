from __future__ import annotations

import math
import struct
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import events

from tidings.errors import CodecError
from tidings.event import Batch, Event, Value
from tidings.event import scan as scanner
from tidings.event.scan import offsets, scan_rows
from tidings.event.values import us_from_time
from tidings.event.wire import HEAD_SIZE, offsets_of, skip, walk
from tidings.matching.clues import SCANNED_HEADER
from tidings.matching.lanes import Lanes

KINDS = [kind for kind in range(scanner.KINDS) if kind != scanner.TEXT_PLACE]  # read in test_lanes.py


def scanned(batch: Batch, names: list[str], texts: list[bytes] = [], seed: int = 7) -> list[dict[Any, float]]:  # noqa: B006
    """What the scan writes for each event, by (name, kind), with these texts known and as cuts."""
    lanes = Lanes(seed)
    for name in names:
        for kind in KINDS:
            lane = lanes.number((name, kind))
            if kind in (scanner.STRING_ORDER, scanner.BLOB_ORDER):
                for text in texts:
                    lanes.cuts.use(lanes.cuts.number((lane, text)), 1)
    for text in texts:
        lanes.texts.use(lanes.texts.number(text), 1)
    plan = lanes.refresh()
    lanes.set_source(None if batch.origin is None else batch.origin.source)
    values = np.full((len(batch), lanes.size), 12345.0)
    data = np.frombuffer(batch.raw, np.uint8)
    read, end = scan_rows(data, HEAD_SIZE, len(batch), plan.words(), values)
    if read < len(batch) or end != len(batch.raw):
        raise CodecError(f"$[{read}]", "is no event")
    found = [{key: row[lane] for key, lane in lanes.numbers.items()} for row in values]
    base = lanes.cuts.ranks
    for row in found:  # cuts of all lanes are ranked in one order: count from the first of the lane
        for (_name, kind), lane in ((key, lanes.numbers[key]) for key in row):
            if kind in (scanner.STRING_ORDER, scanner.BLOB_ORDER) and texts:
                row[_name, kind] -= 2 * min(base[lanes.cuts.numbers[lane, text]] for text in texts)
    return found


def expected(value: Value | None, texts: list[bytes]) -> dict[int, float]:
    """What should be written for one value, computed from the decoded event."""
    row = dict.fromkeys(KINDS, math.nan)
    row[scanner.PRESENCE] = float(value is not None)
    match value:
        case bool():
            row[scanner.BOOLEAN] = float(value)
        case int() | float():
            row[scanner.NUMBER] = float(value)
        case datetime():
            row[scanner.TIME] = float(us_from_time(value))
        case str() | bytes():
            text = value.encode() if isinstance(value, str) else value
            first = scanner.STRING if isinstance(value, str) else scanner.BLOB
            row[first] = float(texts.index(text)) if text in texts else -1.0
            row[first + 1] = 2.0 * sum(cut < text for cut in texts) + (text in texts)
    return row


@given(st.lists(events(), max_size=4), st.data())
def test_lanes_hold_what_the_decoded_event_holds(made: list[Event], data: st.DataObject) -> None:
    names = sorted(SCANNED_HEADER | {name for event in made for name in event.values} | {"nowhere"})
    seen = [event.get(name) for event in made for name in names]
    held = [
        value.encode() if isinstance(value, str) else value
        for value in seen
        if isinstance(value, str | bytes)
    ]
    texts = data.draw(st.lists(st.sampled_from([*held, b"", b"a", b"known"]), unique=True, max_size=5))
    for event in made:
        (row,) = scanned(Batch.of([event]), names, texts)
        for name in names:
            wanted = expected(event.get(name), texts)
            got = [row[name, kind] for kind in KINDS]
            np.testing.assert_array_equal(got, [wanted[kind] for kind in KINDS], err_msg=name)


@given(st.lists(events(), max_size=5))
def test_offsets_are_those_of_the_walk_in_python(made: list[Event]) -> None:
    raw = b"".join(
        [b"\xdd", len(made).to_bytes(4, "big"), *(Batch.of([event]).raw[HEAD_SIZE:] for event in made)]
    )
    assert offsets(raw) == offsets_of(raw)


# Events of one shape


def alike(event: Event, numbers: list[int]) -> list[Event]:
    """Events that differ from this one in their values only, some of them in the length of a value, too."""
    made = []
    for number in numbers:
        values = {
            name: value + number if type(value) in (int, float) and -(2**40) < value < 2**40 else value
            for name, value in event.values.items()
        }
        more = {"n": number, "s": "x" * (number % 3), "ok": number % 2 == 0}
        made.append(replace(event, values={**values, **more}, counter=number, time_us=number * 1000))
    return made


@given(st.lists(events(), min_size=1, max_size=3), st.data())
def test_events_of_some_shapes_are_read_as_each_is_alone(made: list[Event], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 300), min_size=2, max_size=8))
    mixed = [event for one in made for event in alike(one, numbers)] * 4
    mixed = data.draw(st.permutations(mixed))
    names = [*made[0].values, "n", "s", "ok", "type", "time", "priority", "correlation_id"][-12:]
    raw = b"".join([Batch.of([event]).raw[HEAD_SIZE:] for event in mixed])
    batch = Batch(b"\xdd" + len(mixed).to_bytes(4, "big") + raw)
    together = scanned(batch, names, [b"x"])
    alone = [scanned(Batch(b"\xdd\x00\x00\x00\x01" + one), names, [b"x"])[0] for one in batch.raws]
    for row, wanted in zip(together, alone, strict=True):
        np.testing.assert_array_equal(list(row.values()), list(wanted.values()))
    assert offsets(batch.raw) == walk(batch.raw)


@given(events(), st.integers(0), st.integers(0, 255), st.integers(16, 40))
def test_an_event_is_taken_for_alike_only_if_its_own_bytes_say_the_same(
    event: Event, place: int, byte: int, count: int
) -> None:
    one = Batch.of([event]).raw[HEAD_SIZE:]
    changed = bytearray(one)
    changed[place % len(one)] = byte
    head = b"\xdd" + (count + 1).to_bytes(4, "big")
    raw = head + one * (count // 2) + bytes(changed) + one * (count - count // 2)
    names = [*event.values, "type", "time", "priority"][-12:]
    told: list[Any] = []
    for read in (lambda: scanned(Batch(raw), names), lambda: one_by_one(raw, names)):
        try:
            told.append([list(row.values()) for row in read()])
        except CodecError as error:
            told.append(str(error).partition(":")[0])
    assert isinstance(told[0], str) == isinstance(told[1], str)
    if isinstance(told[0], str):
        assert told[0] == told[1]
    else:
        np.testing.assert_array_equal(told[0], told[1])


def one_by_one(raw: bytes, names: list[str]) -> list[dict[Any, float]]:
    """What the scan writes if it can learn nothing from one event for the next."""
    found, at = [], HEAD_SIZE
    for number in range(int.from_bytes(raw[1:HEAD_SIZE], "big")):
        try:
            found += scanned(Batch(b"\xdd\x00\x00\x00\x01" + raw[at : (end := walked(raw, at))]), names)
        except (CodecError, IndexError):
            raise CodecError(f"$[{number}]", "is no event") from None
        at = end
    if at != len(raw):
        raise CodecError(f"$[{number + 1}]", "is no event")
    return found


def walked(raw: bytes, at: int) -> int:
    end = skip(raw, at)
    if end > len(raw):
        raise IndexError
    return end


def wire(*attributes: bytes, header: bytes = b"\xc0", body: bytes = b"\xc0") -> Batch:
    """A batch of one event with a map of these raw items."""
    items = bytes([0x80 + len(attributes) // 2]) + b"".join(attributes)
    return Batch(b"\xdd\x00\x00\x00\x01" + b"\x96\x01\xa1t\x00" + items + header + body)


def test_the_last_of_two_values_under_one_name_counts() -> None:
    (row,) = scanned(wire(b"\xa1x", b"\x05", b"\xa1x", b"\xa1a"), ["x"], [b"a"])
    assert math.isnan(row["x", scanner.NUMBER])
    assert row["x", scanner.STRING] == 0


def test_small_floats_are_widened() -> None:
    (row,) = scanned(wire(b"\xa1x", b"\xca" + struct.pack(">f", 1.5)), ["x"])
    assert row["x", scanner.NUMBER] == 1.5


@pytest.mark.parametrize("nanoseconds", [0, 499, 500, 1500, 999_999_999])
@pytest.mark.parametrize("seconds", [-1, 0, 5, 2**33])
def test_timestamps_of_every_size_are_read_as_the_decoder_reads_them(seconds: int, nanoseconds: int) -> None:
    forms = [b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)]
    if seconds >= 0:
        forms.append(b"\xd7\xff" + struct.pack(">Q", nanoseconds << 34 | seconds))
    if 0 <= seconds < 2**32 and not nanoseconds:
        forms.append(b"\xd6\xff" + struct.pack(">I", seconds))
    for form in forms:
        (row,) = scanned(wire(b"\xa1x", form), ["x"])
        assert row["x", scanner.TIME] == us_from_time(msgspec.msgpack.decode(form))


def test_what_a_newer_peer_adds_to_the_header_is_passed_over() -> None:
    header = b"\x82\xa3new\x81\xa1a\x92\x01\x02\xa8priority\x07"
    (row,) = scanned(wire(header=header), ["priority"])
    assert row["priority", scanner.NUMBER] == 7


def test_an_attribute_is_not_taken_for_a_header_field_nor_a_field_for_an_attribute() -> None:
    (row,) = scanned(wire(b"\xa8priority", b"\x09"), ["priority"])
    assert row["priority", scanner.NUMBER] == 4
    (row,) = scanned(wire(header=b"\x81\xabreceived_us\x09"), ["received_us"])
    assert math.isnan(row["received_us", scanner.NUMBER])


@pytest.mark.parametrize(
    "item",
    [b"\xc0", b"\x90", b"\x80", b"\xd4\x01\x00", b"\xc1"],
    ids=["nil", "array", "map", "extension", "unused"],
)
def test_what_is_no_value_is_refused(item: bytes) -> None:
    with pytest.raises(CodecError):
        scanned(wire(b"\xa1x", item), ["x"])


@given(events(), st.data())
def test_cut_bytes_are_refused(event: Event, data: st.DataObject) -> None:
    raw = Batch.of([event]).raw
    cut = data.draw(st.integers(HEAD_SIZE, len(raw) - 1))
    with pytest.raises(CodecError):
        scanned(Batch(raw[:cut]), [*event.values, "type", "priority"])
    with pytest.raises(CodecError):
        offsets(raw[:cut])


@given(events(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_mutated_bytes_are_read_or_refused(event: Event, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(Batch.of([event, event]).raw)
    for place, byte in changes:
        raw[HEAD_SIZE + place % (len(raw) - HEAD_SIZE)] = byte
    for read in (
        lambda: scanned(Batch(bytes(raw)), [*event.values, "type"], [b"a"]),
        lambda: offsets(bytes(raw)),
    ):
        with suppress(CodecError):
            read()


@given(st.binary(max_size=60))
@example(b"\xdf\xff\xff\xff\xff" * 3)
@example(b"\x96\x01\xdb\xff\xff\xff\xff")
@example(b"\x96\x01\xa1t\x00\xdf\xff\xff\xff\xff\xa1x\x00")
@example(b"\x96\x01\xa1t\x00\x80\xc0\xc6\xff\xff\xff\xff")
def test_junk_is_read_or_refused(junk: bytes) -> None:
    raw = b"\xdd\x00\x00\x00\x02" + junk
    for read in (lambda: scanned(Batch(raw), ["x", "type", "time"]), lambda: offsets(raw)):
        with suppress(CodecError):
            read()


def test_a_count_that_can_not_be_true_is_refused_before_room_is_made_for_it() -> None:
    with pytest.raises(CodecError):
        offsets(b"\xdd\xff\xff\xff\xff\x90")


def test_bytes_behind_the_last_event_are_refused() -> None:
    raw = Batch.of([Event("t")]).raw + b"\x00"
    with pytest.raises(CodecError, match="1 bytes follow"):
        offsets(raw)


def test_what_the_scan_takes_has_the_rows_that_the_decoder_gives() -> None:
    made = [Event("a.b", {"x": n, "s": "t" * n}, priority=n % 10) for n in range(300)]
    rows = scanned(Batch.of(made), ["x", "s", "priority", "type"], [b"a.b"])
    assert [row["x", scanner.NUMBER] for row in rows] == list(range(300))
    assert {row["type", scanner.STRING] for row in rows} == {0.0}
