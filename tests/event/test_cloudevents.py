"""CloudEvents 1.0, in JSON and in HTTP headers: there and back, and what is none."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged, events, identical

from tidings.errors import CodecError, EventError
from tidings.event import Event
from tidings.event.cloudevents import (
    encode_cloudevent,
    from_cloudevent,
    from_headers,
    to_cloudevent,
    to_headers,
)

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
NOON = datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=UTC)
MINIMAL = {"specversion": "1.0", "id": "i", "source": "/s", "type": "t"}
whole = events().map(lambda event: event.evolve(id=event.id or "i", source=event.source or "/s"))


def conformance(expected: str) -> list[dict[str, Any]]:
    path = DATA / "cloudevents_cases.json"
    if not path.exists():
        pytest.skip(f"{path} is not there; set TIDINGS_DATA to the folder that has it")
    found = [case for case in json.loads(path.read_text()) if case["expected"] == expected]
    assert found
    return found


@given(whole)
def test_an_event_comes_back_the_same_from_json(event: Event) -> None:
    assert identical(from_cloudevent(encode_cloudevent(event)), event)
    assert identical(from_cloudevent(to_cloudevent(event)), event)


@given(whole)
def test_an_event_comes_back_the_same_from_headers(event: Event) -> None:
    headers, body = to_headers(event)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert identical(from_headers(headers, body), event)
    assert identical(from_headers({name.upper(): text for name, text in headers.items()}, body), event)


json_values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
extension_names = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True) | st.sampled_from(
    ["priority", "channel", "body"]
)
_TAKEN = ("data", "datacontenttype", "dataschema", "subject", "tidings")
printable = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1)
cloudevents = st.builds(
    lambda context, extensions, data: {**extensions, **MINIMAL, **context, **data},
    st.fixed_dictionaries(
        {"id": printable, "time": st.just("2026-11-15T12:00:00.000001Z")},
        optional={"subject": printable, "dataschema": st.just("urn:x"), "source": st.just("https://a.b/c#d")},
    ),
    st.dictionaries(
        extension_names.filter(lambda name: name not in _TAKEN),
        st.booleans() | st.integers(-(2**31), 2**31 - 1) | printable | st.just(""),
        max_size=4,
    ),
    st.just({}) | st.fixed_dictionaries({"datacontenttype": st.just("application/json"), "data": json_values})
    | st.fixed_dictionaries({"datacontenttype": st.just("text/plain"), "data": st.text()})
    | st.fixed_dictionaries({"data_base64": st.just("/w==")}),
)  # fmt: skip


@given(cloudevents)
def test_a_cloudevent_comes_back_the_same(theirs: dict[str, Any]) -> None:
    assert to_cloudevent(from_cloudevent(json.dumps(theirs))) == theirs


def test_a_cloudevent_is_what_another_program_expects() -> None:
    held = {
        "color": "blue",
        "n": 7,
        "ok": True,
        "value": 1.5,
        "pos.x": 2,
        "big": 2**40,
        "dataschema": "urn:x",
    }
    fields = {"id": "i", "source": "/s", "subject": "sub", "time": NOON, "priority": 7}
    event = Event("t", held, body=b'{"a":[1,2]}', content_type="application/json", **fields)
    theirs = to_cloudevent(event)
    ours = json.loads(theirs.pop("tidings"))
    assert theirs == {
        **MINIMAL,
        "subject": "sub",
        "time": "2026-11-15T12:00:00.000001Z",
        "datacontenttype": "application/json",
        "data": {"a": [1, 2]},
        "color": "blue",
        "n": 7,
        "ok": True,
        "dataschema": "urn:x",
    }
    assert ours == {"priority": 7, "attributes": {"value": 1.5, "pos.x": 2, "big": 2**40}}


def test_headers_are_what_another_program_expects() -> None:
    event = Event(
        "t", id="i", source="/s", time=NOON, city='Zürich "1" 5%', n=7, body=b"x", content_type="image/png"
    )
    headers, body = to_headers(event)
    ours = headers.pop("ce-tidings")
    assert headers == {
        "ce-specversion": "1.0",
        "ce-type": "t",
        "ce-id": "i",
        "ce-source": "/s",
        "ce-time": "2026-11-15T12:00:00.000001Z",
        "ce-city": "Z%C3%BCrich%20%221%22%205%25",
        "ce-n": "7",
        "content-type": "image/png",
    }
    assert ours == "{%22attributes%22:{%22n%22:7}}"
    assert body == b"x"


def test_headers_of_others_may_be_quoted_and_are_text() -> None:
    headers = {f"CE-{name}": text for name, text in MINIMAL.items()} | {
        "ce-x": r'"a \"b\""',
        "ce-n": "7",
        "Host": "h",
    }
    event = from_headers(headers, b"")
    assert event.attributes == {"x": 'a "b"', "n": "7"}
    assert event.body is None


def test_a_message_whose_body_is_the_cloudevent_is_read_from_it() -> None:
    kind = "application/cloudevents+json; charset=utf-8"
    assert from_headers({"Content-Type": kind}, json.dumps(MINIMAL).encode()).id == "i"


@pytest.mark.parametrize("name", ["id", "source"])
def test_an_event_without_id_or_source_is_no_cloudevent(name: str) -> None:
    fields = {"id": "i", "source": "s"}
    del fields[name]
    with pytest.raises(EventError, match=rf"^\$\.{name}: a CloudEvent has one; make the event with {name}="):
        to_cloudevent(Event("t", **fields))


def test_an_extension_named_like_a_header_field_is_kept_apart() -> None:
    event = from_cloudevent({**MINIMAL, "priority": "high", "channel": 5})
    assert event.attributes == {"ce.priority": "high", "ce.channel": 5}
    assert event.priority == 4
    assert to_cloudevent(event)["priority"] == "high"


def test_data_without_a_content_type_is_json() -> None:
    event = from_cloudevent({**MINIMAL, "data": {"a": 1}})
    assert (event.body, event.content_type) == (b'{"a":1}', "application/json")
    assert from_cloudevent({**MINIMAL, "data": 2**70}).body == b"1180591620717411303424"


def test_a_source_that_is_no_uri_is_quoted_for_others_and_kept_for_us() -> None:
    event = Event("t", id="a\nb", source="node one")
    assert to_cloudevent(event)["source"] == "node%20one"
    assert to_cloudevent(event)["id"] == "a%0Ab"
    assert from_cloudevent(to_cloudevent(event)).source == "node one"


def test_valid_events_of_the_conformance_project_are_taken_and_given_back() -> None:
    for case in conformance("valid"):
        theirs = {name: value for name, value in case["event"].items() if value is not None}
        given_back = to_cloudevent(from_cloudevent(case["event"]))
        for name in theirs.keys() - {"time"}:
            assert given_back[name] == theirs[name], case["id"]
        if "time" in theirs:
            assert datetime.fromisoformat(given_back["time"]) == datetime.fromisoformat(theirs["time"]), case[
                "id"
            ]


def test_invalid_events_of_the_conformance_project_are_refused() -> None:
    for case in conformance("invalid"):
        with pytest.raises(CodecError):
            from_cloudevent(case["event"])
        with pytest.raises(CodecError):
            from_cloudevent(json.dumps(case["event"]))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"id": None}, "$.id"),
        ({"id": "a\nb"}, "$.id"),
        ({"source": "a b"}, "$.source"),
        ({"type": "a b"}, "$.type"),
        ({"time": "2026-02-30T00:00:00Z"}, "$.time"),
        ({"ext": 1.5}, "$.ext"),
        ({"ext": 2**31}, "$.ext"),
        ({"ext": {"a": 1}}, "$.ext"),
        ({"ext": "a\0"}, "$.ext"),
        ({"my_ext": "x"}, "$.my_ext"),
        ({"dataschema": "not absolute"}, "$.dataschema"),
        ({"data_base64": "?"}, "$.body_base64"),
        ({"data_base64": 5}, "$.body_base64"),
        ({"datacontenttype": "text/plain", "data": {"a": 1}}, "$.data"),
        ({"datacontenttype": 5, "data": "x"}, "$.datacontenttype"),
        ({"tidings": "{"}, "$"),
        ({"tidings": "[]"}, "$"),
        ({"tidings": '{"attributes":5}'}, "$.tidings"),
        ({"tidings": '{"priority":12}'}, "$.priority"),
        ({"tidings": '{"attributes":{"v":[1]}}'}, "$.v"),
    ],
)
def test_what_is_wrong_is_named_by_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(CodecError) as caught:
        from_cloudevent({**MINIMAL, **changes})
    assert caught.value.place == place


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ce-data": "x"},
        {"ce-data_base64": "AA=="},
        {"ce-Bad Name": "x"},
        {"ce-x": "%ff"},
        {"ce-x": "%00"},
        {"content-type": "xyz"},
    ],
)
def test_headers_that_carry_no_cloudevent_are_refused(headers: dict[str, str]) -> None:
    base = {f"ce-{name}": text for name, text in MINIMAL.items()} if headers else {"host": "h"}
    with pytest.raises(CodecError):
        from_headers(base | headers, b"")


@pytest.mark.parametrize("value", [{1}, object(), float("nan"), NOON, b"x"])
def test_an_object_that_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(CodecError, match=r"^\$: is not JSON"):
        from_cloudevent({**MINIMAL, "data": [value]})


def test_data_of_any_depth_comes_back_or_is_refused() -> None:
    outcomes = set()
    for depth in (*range(1, 1200, 7), 100_000):
        data = "[" * depth + str(2**70) + "]" * depth
        try:
            event = from_cloudevent(json.dumps(MINIMAL)[:-1] + f', "data": {data}}}')
        except CodecError:
            outcomes.add("refused")
        else:
            assert event.body == data.encode()
            assert from_cloudevent(encode_cloudevent(event)).body == event.body
            outcomes.add("taken")
    assert outcomes == {"taken", "refused"}


@given(whole.map(encode_cloudevent))
def test_json_cut_at_any_length_is_refused(raw: bytes) -> None:
    for length in range(len(raw)):
        with pytest.raises(CodecError):
            from_cloudevent(raw[:length])


@given(damaged(whole.map(encode_cloudevent)))
def test_damaged_json_is_refused_or_an_event(raw: bytes) -> None:
    try:
        event = from_cloudevent(raw)
    except CodecError:
        return
    assert identical(from_cloudevent(encode_cloudevent(event)), event)


names = st.sampled_from(["ce-id", "ce-type", "ce-time", "ce-x", "ce-tidings", "content-type"]) | st.text()


@given(st.dictionaries(names, st.text()), st.binary())
def test_any_headers_are_refused_or_an_event(headers: dict[str, str], body: bytes) -> None:
    base = {f"ce-{name}": text for name, text in MINIMAL.items()}
    try:
        event = from_headers({**base, **headers}, body)
    except CodecError:
        return
    assert identical(from_headers(*to_headers(event)), event)
