"""Events as JSON: there and back, as devices send it, and JSON that is none."""

from __future__ import annotations

import json
import math
import os
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged, events, identical, numbered_events

from tidings.errors import CodecError
from tidings.event import Event
from tidings.event.json import from_json, to_json

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
NOON = datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=UTC)


def cases(name: str) -> Any:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there; set TIDINGS_DATA to the folder that has it")
    return json.loads(path.read_text())


@given(events())
def test_an_event_comes_back_the_same(event: Event) -> None:
    assert identical(from_json(to_json(event)), event)


@given(numbered_events())
def test_a_numbered_event_comes_back_by_its_id(event: Event) -> None:
    back = from_json(to_json(event))
    assert (back.id, back.source) == (event.id, event.source)
    assert to_json(back) == to_json(event)


def test_the_json_reads_as_people_would_write_it() -> None:
    held = {"value": 41.5, "seen": NOON, "raw": b"\1\2", "bad": math.nan}
    event = Event("air.pm10", held, priority=7, body=b"hi", content_type="text/plain", time=NOON)
    assert msgspec.json.decode(to_json(event)) == {
        "type": "air.pm10",
        "time": "2026-11-15T12:00:00.000001Z",
        "priority": 7,
        "content_type": "text/plain",
        "attributes": {
            "value": 41.5,
            "seen": {"$time": "2026-11-15T12:00:00.000001Z"},
            "raw": {"$bytes": "AQI="},
            "bad": {"$float": "nan"},
        },
        "body": "hi",
    }


@pytest.mark.parametrize(
    ("body", "content_type", "member"),
    [
        (b'{"a": 1}', "application/json", "body"),
        (b"x", "text/plain; charset=utf-8", "body"),
        (b"x", "application/geo+json", "body"),
        (b"\xff", "text/plain", "body_base64"),
        (b"x", "image/png", "body_base64"),
        (b"x", None, "body_base64"),
    ],
)
def test_the_body_is_text_where_its_type_and_bytes_allow(
    body: bytes, content_type: str | None, member: str
) -> None:
    event = Event("t", body=body, content_type=content_type)
    assert member in msgspec.json.decode(to_json(event))
    assert from_json(to_json(event)).body == body


def test_a_device_may_put_attributes_beside_the_header_nested_or_flat() -> None:
    time = '{"$time": "2026-11-15T12:00:00.000001Z"}'
    event = from_json('{"type": "t", "priority": 2, "pos": {"x": 1, "at": ' + time + '}, "n": null}')
    assert event.priority == 2
    assert event.attributes == {"pos.x": 1, "pos.at": NOON}
    assert from_json('{"type": "t", "a": 1, "attributes": {"b": 2}}').attributes == {"a": 1, "b": 2}


def test_renaming_and_lists_work_as_for_dicts() -> None:
    sent = b'{"type": "t", "id": 5, "path": [1, 2]}'
    event = from_json(sent, rename={"id": "device"}, lists="body")
    assert (event["device"], event.body) == (5, b'{"path":[1,2]}')


def test_of_members_of_one_name_the_last_counts() -> None:
    assert from_json('{"type": "t", "n": 1, "n": 2}')["n"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "$: list is not an object"),
        ("{}", "$.type: is missing"),
        ('{"type": 5}', "$.type: int is not text"),
        ('{"type": "t", "attributes": 5}', "$.attributes: int is not an object"),
        ('{"type": "t", "attributes": {"id": 1}}', "$.id: is a header field, not an attribute"),
        ('{"type": "t", "a": 1, "attributes": {"a": 2}}', "$.a: is given twice"),
        ('{"type": "t", "a": {"b": 1}, "a.b": 2}', "$.a.b: is given twice"),
        ('{"type": "t", "a": [1]}', "$.a: a list is not a value; put it into the body"),
        ('{"type": "t", "n": 9223372036854775808}', "$.n: 9223372036854775808 does not fit 64 bits"),
        ('{"type": "t", "a": {"$time": "noon"}}', "$.a: 'noon' is not a time as in 2026-11-15T08:00:00Z"),
        ('{"type": "t", "a": {"$time": 5}}', "$.a: $time takes text, not int"),
        ('{"type": "t", "a": {"$bytes": "?"}}', "$.a: is not base64"),
        ('{"type": "t", "a": {"$float": "1"}}', "$.a: $float is one of nan, inf, -inf, not '1'"),
        ('{"type": "t", "body": {"a": 1}}', "$.body: dict is not text"),
        ('{"type": "t", "body_base64": 5}', "$.body_base64: int is not base64 text"),
        ('{"type": "t", "body_base64": "é"}', "$.body_base64: is not base64"),
        ('{"type": "t", "body": "a", "body_base64": ""}', "$.body_base64: there is a body already"),
        ('{"type": "t", "time": 5}', "$.time: int is not a time; give a datetime or ISO 8601 text"),
        ('{"type": "t"', "$: Input data was truncated"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_place(text: str, message: str) -> None:
    with pytest.raises(CodecError) as caught:
        from_json(text)
    assert str(caught.value) == message


def test_half_a_character_is_refused() -> None:
    for text in (
        '{"type": "t", "a": "\ud800"}',
        '{"type": "t", "a": "\\ud800"}',
        b'{"type": "t", "a": "\xed\xa0\x80"}',
    ):
        with pytest.raises(CodecError):
            from_json(text)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_nested_very_deep_is_refused(opening: str) -> None:
    for depth in (40, 900, 100_000):
        closing = ("]" if opening == "[" else "}") * depth
        with pytest.raises(CodecError):
            from_json('{"type": "t", "a": ' + opening * depth + "1" + closing + "}")


def test_lists_of_any_depth_become_a_body_or_are_refused() -> None:
    outcomes = set()
    for depth in [*range(1, 1200, 7), 200_000]:  # past the limit of every version of Python
        try:
            event = from_json('{"type": "t", "a": ' + "[" * depth + "]" * depth + "}", lists="body")
        except CodecError:
            outcomes.add("refused")
        else:
            assert event.body == b'{"a":' + b"[" * depth + b"]" * depth + b"}"
            outcomes.add("taken")
    assert outcomes == {"taken", "refused"}


@given(events().map(to_json))
def test_json_cut_at_any_length_is_refused(raw: bytes) -> None:
    for length in range(len(raw)):
        with pytest.raises(CodecError):
            from_json(raw[:length])


@given(events().map(to_json), st.binary(min_size=1).filter(lambda junk: junk.strip(b" \t\r\n") != b""))
def test_junk_behind_the_json_is_refused(raw: bytes, junk: bytes) -> None:
    with pytest.raises(CodecError):
        from_json(raw + junk)


@given(damaged(events().map(to_json)) | st.binary())
def test_damaged_json_is_refused_or_an_event(raw: bytes) -> None:
    try:
        event = from_json(raw)
    except CodecError:
        return
    assert identical(from_json(to_json(event)), event)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(
    st.dictionaries(
        st.text() | st.sampled_from(["type", "attributes", "time", "body", "priority", "id"]), anything
    )
)
def test_any_object_is_refused_or_an_event(members: dict[str, Any]) -> None:
    try:
        event = from_json(json.dumps({"type": "t", **members}))
    except CodecError:
        return
    assert identical(from_json(to_json(event)), event)


# Two cases of the suite are named without their text, which is long and simple.
DEEP = {
    "n_structure_100000_opening_arrays.json": b"[" * 100_000,
    "n_structure_open_array_object.json": b'[{"":' * 50_000,
}


def suite() -> list[tuple[str, str, bytes]]:
    """Name, what is expected, and the text of each case."""
    found = cases("json_cases.json")
    assert len(found) > 300
    return [
        (case["name"], case["expected"], b64decode(case["b64"]) if "b64" in case else DEEP[case["name"]])
        for case in found
    ]


def test_what_the_json_test_suite_rejects_is_refused_as_json() -> None:
    for name, expected, raw in suite():
        with pytest.raises(CodecError) as caught:
            from_json(raw)
        refused_as_json = caught.value.place == "$" and "is not an object" not in caught.value.problem
        assert expected == "either" or refused_as_json == (expected == "reject"), name


def test_scalars_of_the_json_test_suite_come_through_as_attributes() -> None:
    taken = 0
    for name, expected, raw in suite():
        value = json.loads(raw) if expected == "accept" else None
        # Most cases hold their scalar in a list of one.
        if isinstance(value, list) and len(value) == 1:
            raw, value = raw.strip()[1:-1], value[0]
        if isinstance(value, (bool, int, float, str)):
            event = from_json(b'{"type": "t", "attributes": {"v": ' + raw + b"}}")
            assert (type(event["v"]), event["v"]) == (type(value), value), name
            taken += 1
    assert taken > 50
