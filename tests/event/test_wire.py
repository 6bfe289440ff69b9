"""Events as msgpack: there and back, and bytes that no peer of ours would send."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged, identical, numbered_events, origins

from tidings.errors import CodecError
from tidings.event import Event, Header, Origin
from tidings.event.json import from_json, to_json
from tidings.event.values import ATTRIBUTES_MAX
from tidings.event.wire import HEAD_SIZE, array_head, decode_event, decode_events, encode_events, offsets_of

GOOD = [5, "air.pm10", 0, {"value": 41.2}, None, None]
whole = st.lists(numbered_events(), max_size=3).map(encode_events)


def wire(*events: object) -> bytes:
    return array_head(len(events)) + b"".join(msgspec.msgpack.encode(event) for event in events)


def changed(element: int, value: object) -> list[Any]:
    return [value if at == element else held for at, held in enumerate(GOOD)]


@given(st.lists(numbered_events(), max_size=20), origins())
def test_events_come_back_the_same_with_the_origin_of_their_section(
    events: list[Event], origin: Origin | None
) -> None:
    back = decode_events(encode_events(events), origin)
    placed = [msgspec.structs.replace(event, origin=origin) for event in events]
    assert len(back) == len(events)
    assert all(map(identical, placed, back))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_the_head_has_five_bytes_whatever_the_count(count: int) -> None:
    raw = encode_events([Event("t", n=1)] * count)
    assert raw[:HEAD_SIZE] == b"\xdd" + count.to_bytes(4, "big")
    assert len(decode_events(raw)) == count


def test_an_event_is_the_array_that_the_design_says() -> None:
    event = Event.unchecked(5, "t", 7, {"a": True}, Header(priority=9), b"x", Origin("never", 1, "sent"))
    assert msgspec.msgpack.decode(encode_events([event])) == [[5, "t", 7, {"a": True}, {"priority": 9}, b"x"]]


def test_a_header_of_defaults_is_written_as_nil_and_read_as_none() -> None:
    event = Event.unchecked(5, "t", 7, {}, Header())
    assert msgspec.msgpack.decode(encode_events([event])) == [[5, "t", 7, {}, None, None]]
    assert decode_events(wire([5, "t", 7, {}, {}, None]))[0].header is None


def test_a_header_field_of_a_newer_peer_is_passed_over() -> None:
    (event,) = decode_events(wire(changed(4, {"priority": 9, "mood": "good"})))
    assert event.header == Header(priority=9)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (changed(0, -1), "$[1].counter: Expected `int` >= 0"),
        (changed(0, 2**63), "$[1].counter: Expected `int` <= 9223372036854775807"),
        (changed(1, ""), "$[1].type: a type has 1 to 255 characters"),
        (changed(1, "a..b"), "$[1].type: 'a..b' has an empty segment"),
        (changed(1, "a b"), "$[1].type: 'a b' contains a space or a control character"),
        (changed(1, 5), "$[1].type: Expected `str`, got `int`"),
        (changed(2, "noon"), "$[1].time: Expected `int`, got `str`"),
        (changed(2, 2**62), "$[1].time: Expected `int` <= 253402300799999999"),
        (changed(3, None), "$[1]: Expected `object`, got `None`"),
        (changed(3, {5: 1}), "$[1]: Expected `str`, got `int`"),
        (changed(3, {"pos.x": [1]}), "$[1].pos.x: list is not a value"),
        (changed(3, {"pos": {"x": 1}}), "$[1].pos: dict is not a value"),
        (changed(3, {"n": None}), "$[1].n: NoneType is not a value"),
        (changed(3, {"n": 2**63}), "$[1].n: 9223372036854775808 does not fit 64 bits"),
        (changed(3, {"n": msgspec.msgpack.Ext(5, b"")}), "$[1].n: Ext is not a value"),
        (changed(3, {"": 1}), "$[1]['']: a name may not be empty"),
        (changed(3, {"a\0": 1}), "$[1]['a\\x00']: a name may not hold NUL or half a character"),
        (changed(3, {"x" * 256: 1}), f"$[1].{'x' * 80}…: a name has at most 255 characters"),
        (changed(4, {"priority": 10}), "$[1].priority: Expected `int` <= 9"),
        (changed(4, {"delivery": "fast"}), "$[1].delivery: Invalid enum value 'fast'"),
        (changed(4, {"ttl_s": float("nan")}), "$[1].ttl_s: Expected `float` >= 0.0"),
        (changed(4, {"id": ""}), "$[1].id: Expected `str` of length >= 1"),
        (changed(4, [1]), "$[1]: Expected `object | null`, got `array`"),
        (changed(5, "text"), "$[1].body: Expected `bytes | null`, got `str`"),
        (GOOD[:5], "$[1]: Expected `array` of at least length 6, got 5"),
        ([*GOOD, None], "$[1][6]: an event has six elements"),
        ([*GOOD, {"source": "root"}], "$[1][6]: an event has six elements"),
        ({"type": "t"}, "$[1]: Expected `array`, got `object`"),
    ],
)
def test_what_a_peer_gets_wrong_is_named_by_place(event: object, message: str) -> None:
    with pytest.raises(CodecError) as caught:
        decode_events(wire(GOOD, event))
    assert str(caught.value) == message
    with pytest.raises(CodecError) as caught:
        decode_event(wire(event)[HEAD_SIZE:], None, "$[1]")
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["priority", "type", "body", "JMSPriority"])
def test_reserved_names_among_the_attributes_are_refused(name: str) -> None:
    with pytest.raises(CodecError, match=rf"^\$\[0\]\.{name}: is a header field"):
        decode_events(wire(changed(3, {name: 1})))


def test_eight_elements_are_refused() -> None:
    with pytest.raises(CodecError):
        decode_events(wire([*GOOD, None, None]))


def test_too_many_attributes_are_refused() -> None:
    held = {f"a{n}": n for n in range(ATTRIBUTES_MAX + 1)}
    with pytest.raises(CodecError, match="at most 1000 attributes"):
        decode_events(wire(changed(3, held)))


def test_a_count_that_the_bytes_do_not_hold_is_refused() -> None:
    for raw in (array_head(2) + wire(GOOD)[HEAD_SIZE:], array_head(2**32 - 1), wire(GOOD) + b"\xc0"):
        with pytest.raises(CodecError):
            decode_events(raw)
        with pytest.raises(CodecError):
            offsets_of(raw)


@pytest.mark.parametrize("raw", [b"", b"\xdd\0\0\0", b"\x90", b"\xdc\0\0", b"\xde\0\0\0\0", b"[]", b"\0" * 9])
def test_another_head_is_refused(raw: bytes) -> None:
    with pytest.raises(CodecError, match="does not begin with the head"):
        decode_events(raw)


def test_bytes_nested_very_deep_are_refused() -> None:
    raw = wire(changed(3, {"a": 0}))
    deep = raw.replace(b"\xa1a\x00", b"\xa1a" + b"\x91" * 100_000 + b"\x00")
    assert deep != raw
    with pytest.raises(CodecError, match="nested too deep"):
        decode_events(deep)
    assert offsets_of(deep)[-1] == len(deep)


@given(whole.filter(lambda raw: len(raw) < 600))
def test_bytes_cut_at_any_length_are_refused(raw: bytes) -> None:
    for length in range(len(raw)):
        with pytest.raises(CodecError):
            decode_events(raw[:length])
        with pytest.raises(CodecError):
            offsets_of(raw[:length])


@given(whole, st.binary(min_size=1, max_size=9))
def test_junk_behind_the_events_is_refused(raw: bytes, junk: bytes) -> None:
    with pytest.raises(CodecError):
        decode_events(raw + junk)
    with pytest.raises(CodecError):
        offsets_of(raw + junk)


@given(damaged(whole) | st.binary(max_size=60).map(lambda junk: array_head(1) + junk))
def test_damaged_bytes_are_refused_or_are_events_that_every_codec_takes(raw: bytes) -> None:
    try:
        events = decode_events(raw)
    except CodecError:
        return
    assert len(offsets_of(raw)) == len(events) + 1
    assert all(map(identical, events, decode_events(encode_events(events))))
    for event in events:
        assert repr(event)
        assert from_json(to_json(event)).values.keys() == event.values.keys()


@given(damaged(whole))
def test_walking_over_damaged_bytes_gives_offsets_or_a_codec_error(raw: bytes) -> None:
    try:
        offsets = offsets_of(raw)
    except CodecError:
        return
    assert list(offsets) == sorted(offsets)
    assert offsets[-1] == len(raw)


messagepack = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
    | st.datetimes(timezones=st.timezones())
    | st.builds(msgspec.msgpack.Ext, st.integers(0, 127), st.binary()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 99), inner),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(messagepack, max_size=4))
def test_the_walk_finds_where_each_item_of_any_msgpack_begins(items: list[object]) -> None:
    ends = [HEAD_SIZE]
    for item in items:
        ends.append(ends[-1] + len(msgspec.msgpack.encode(item)))
    assert list(offsets_of(wire(*items))) == ends


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_the_walk_knows_every_size_of_length_field(size: int) -> None:
    extension = msgspec.msgpack.Ext(1, b"x" * size)
    items: list[object] = ["x" * size, b"x" * size, [0] * size, dict.fromkeys(range(size), 0), extension]
    assert offsets_of(wire(*items))[-1] == len(wire(*items))
