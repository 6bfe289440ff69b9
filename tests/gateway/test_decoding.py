"""Messages out of JSON: strict, by whichever way they are read, with every mistake at its place."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.whole import decode_object, decode_run
from tidings.gateway import decoding
from tidings.gateway.decoding import OPEN_SIZE
from tidings.gateway.message_reader import (
    ERRORS_MAX,
    NESTING_MAX,
    OddReading,
    PlainReading,
    PlainSensing,
    Said,
)
from tidings.gateway.messages import Deregister, Error, Point, Register, Sensing, Sensor

DATA = Path(os.environ.get("TIDINGS_DATA") or Path(__file__).parents[3] / "shared" / "data")
READING = '{"name": "a", "type": "air.pm10", "value": 5}'
DEEP = {
    "n_structure_100000_opening_arrays.json": b"[" * 100_000,
    "n_structure_open_array_object.json": b'[{"":' * 50_000,
}


def cases() -> list[tuple[str, str, bytes]]:
    """Name, what is expected, and the text of each case of the JSON test suite."""
    path = DATA / "json_cases.json"
    if not path.exists():
        pytest.skip(f"{path} is not there; set TIDINGS_DATA to the folder that has it")
    found = json.loads(path.read_text())
    assert len(found) > 300
    return [
        (case["name"], case["expected"], b64decode(case["b64"]) if "b64" in case else DEEP[case["name"]])
        for case in found
    ]


def sensing(*readings: str, more: str = "") -> bytes:
    members = f'"sensing-id": "net", "sensors": [{", ".join(readings)}]{more}'
    return f'{{"sensing": {{{members}}}}}'.encode()


def register(*sensors: str, more: str = "") -> bytes:
    return sensing(*sensors, more=more).replace(b"sensing", b"register", 1)


def reading(**members: object) -> str:
    return json.dumps({"name": "a", "type": "t", "value": 5} | members)


def contents(said: list[Said]) -> list[object]:
    """What was said, however it was read."""
    return [_content(one) for one in said]


def _content(one: Said) -> object:
    if not isinstance(one, Sensing):
        return one
    readings = [
        (
            entry.name,
            entry.type,
            repr(entry.value),
            entry.timestamp,
            [(point.x, point.y) for point in entry.area or ()],
            {
                name: other
                for name, other in (entry.others if isinstance(entry, OddReading) else {}).items()
                if other is not None
            },
        )
        for entry in one.sensors
    ]
    return one.sensing_id, one.seq, readings


def errors(said: list[Said]) -> list[tuple[str, str]]:
    return [(one.place, one.problem) for one in said if isinstance(one, Error)]


def names(said: list[Said]) -> list[str]:
    return [entry.name for one in said if isinstance(one, Sensing) for entry in one.sensors]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | TEXTS
POINTS = st.lists(st.fixed_dictionaries({"x": st.integers(-9, 9), "y": st.floats(-9, 9)}), max_size=4)
READINGS = st.fixed_dictionaries(
    {"name": TEXTS.filter(bool), "type": TEXTS.filter(bool), "value": SCALARS},
    optional={"timestamp": NUMBERS | TEXTS | st.none(), "area": POINTS | st.none()},
)
SENSINGS = st.fixed_dictionaries(
    {"sensing-id": TEXTS.filter(bool), "sensors": st.lists(READINGS, min_size=1, max_size=4)},
    optional={"seq": st.integers(0, 2**63 - 1)},
)


@given(SENSINGS, st.booleans())
def test_a_plain_message_is_read_the_same_in_all_three_ways(members: Any, is_ascii: bool) -> None:
    """At once, by hand because of an unknown member, and member by member because that one is bad."""
    written = json.dumps({"sensing": members}, ensure_ascii=is_ascii).encode()
    plain = decode_object(written)
    assert isinstance(plain[0], PlainSensing) or b"sensing-id" in written[20:] or b"\\u" in written
    by_hand = decode_object(written[:-2] + b', "more": 1}}')
    one_by_one = decode_object(written[:-2] + b', "more": 1e999}}')
    assert contents(plain) == contents(by_hand) == contents(one_by_one[:1])
    assert errors(one_by_one) == [("$.sensing.more", "Number out of range")]
    assert len(plain) == len(by_hand) == 1


@given(st.lists(SENSINGS, min_size=1, max_size=5), st.sampled_from(["\n", "", " ", "\r\n"]))
def test_a_run_says_what_its_objects_say(messages: list[Any], between: str) -> None:
    written = [json.dumps({"sensing": members}).encode() for members in messages]
    run = decode_run(between.encode().join(written))
    assert run is None or contents(run) == contents([one for raw in written for one in decode_object(raw)])


def test_the_usual_run_is_read_at_once() -> None:
    said = decode_run(3 * (sensing(READING, READING) + b"\n"))
    assert said is not None
    assert [type(one) for one in said] == 3 * [PlainSensing]
    assert said[0].sensors[0] == PlainReading("a", "air.pm10", 5)  # type: ignore[union-attr, index]


@given(SENSINGS, st.integers(0), st.binary(max_size=3))
def test_damaged_messages_are_refused_or_read(members: Any, place: int, damage: bytes) -> None:
    raw = json.dumps({"sensing": members}, ensure_ascii=False).encode()
    at = place % len(raw)
    for damaged in (raw[:at], raw[:at] + damage + raw[at:], raw[:at] + damage + raw[at + 1 :], damage):
        said = decode_object(damaged)
        try:
            json.loads(damaged, parse_constant=lambda text: pytest.fail(text))
        except ValueError:
            assert errors(said)


def test_members_that_nobody_knows_are_kept_of_readings_and_else_ignored() -> None:
    raw = b'{"version": 2, "sensing": {"sensing-id": "net", "by": {"a": [1]}, "seq": 7, "sensors": [%s]}}'
    (message,) = decode_object(raw % reading(unit="C", ok=True, at={"floor": 2}).encode())
    assert isinstance(message, Sensing)
    assert message.seq == 7
    assert message.sensors == [
        OddReading("a", "t", 5, None, [], {"unit": "C", "ok": True, "at": {"floor": 2}})
    ]


def test_good_readings_of_a_message_with_bad_ones_are_kept() -> None:
    said = decode_object(
        sensing(
            reading(name="good", unit="C"),
            reading(name=7),
            reading(type=""),
            '{"name": "a", "type": "t"}',
            "5",
            '{"name": "a", "type": "t", "value": null}',
            reading(name="fine"),
        )
    )
    assert names(said) == ["good", "fine"]
    assert isinstance(said[0], Sensing)
    assert [entry.index for entry in said[0].sensors if isinstance(entry, OddReading)] == [0, 6]
    assert errors(said) == [
        ("$.sensing.sensors[1].name", "int is not text"),
        ("$.sensing.sensors[2].type", "has 1 to 255 characters"),
        ("$.sensing.sensors[3].value", "is missing"),
        ("$.sensing.sensors[4]", "int is not an object"),
        ("$.sensing.sensors[5].value", "is missing"),
    ]
    assert all(one.sensing_id == "net" for one in said if isinstance(one, Error))


@pytest.mark.parametrize(
    ("member", "place", "problem"),
    [
        (b'"value": 1e999', "value", "Number out of range"),
        (b'"value": -1e999', "value", "Number out of range"),
        (b'"value": 1, "x": "\xff"', "x", "is not UTF-8"),
        (b'"value": "\xed\xa0\x80"', "value", "is not UTF-8"),
        (b'"value": {"deep": [1e999]}', "value", "Number out of range"),
        (b'"value": ' + b"1" * 5000, "value", "Integer value out of range"),
    ],
)
def test_what_json_allows_and_nobody_can_hold_is_told_at_its_place(
    member: bytes, place: str, problem: str
) -> None:
    bad = b'{"name": "bad", "type": "t", ' + member + b"}"
    said = decode_object(sensing("%s", reading(name="good")).replace(b"%s", bad))
    assert names(said) == ["good"]
    assert errors(said) == [(f"$.sensing.sensors[0].{place}", problem)]


@pytest.mark.parametrize(
    "value",
    [b"NaN", b"Infinity", b'"\\ud800"', b'"\\udc00\\ud800"', b"01", b"1.", b"+1", b"'a'", b'"\t"', b"tru"],
)
def test_what_is_no_json_is_refused(value: bytes) -> None:
    said = decode_object(b'{"sensing": {"sensing-id": "net", "sensors": [{"value": ' + value + b"}]}}")
    assert [(type(one), one.place) for one in said if isinstance(one, Error)] == [(Error, "$")]


NO_MESSAGE = "is no message: its type is one of register, deregister, unregister, sensing"


@pytest.mark.parametrize(
    ("raw", "place", "problem"),
    [
        (b"[]", "$", "list is not an object"),
        (b"{}", "$", NO_MESSAGE),
        (b'{"hello": {}}', "$.hello", NO_MESSAGE),
        (b'{"sensing": 5}', "$.sensing", "int is not an object"),
        (b'{"sensing": {}, "register": {}}', "$", "is sensing and register: an object is one message"),
        (b'{"sensing": {"sensors": []}}', "$.sensing.sensing-id", "is missing"),
        (b'{"sensing": {"sensing-id": 5}}', "$.sensing.sensing-id", "int is not text"),
        (b'{"sensing": {"sensing-id": ""}}', "$.sensing.sensing-id", "has 1 to 255 characters"),
        (b'{"sensing": {"sensing-id": "n"}}', "$.sensing.sensors", "is missing"),
        (b'{"sensing": {"sensing-id": "n", "sensors": {}}}', "$.sensing.sensors", "dict is not an array"),
        (sensing(more=', "seq": "1"'), "$.sensing.seq", "Expected `int | null`, got `str`"),
        (b'{"sensing": {"sensing-id": "n", "sensors": 1e999}}', "$.sensing.sensors", "Number out of range"),
        (b'{"sensing": {"sensing-id": "\xff", "sensors": []}}', "$.sensing.sensing-id", "is not UTF-8"),
        (b'{"register": {"sensing-id": "n"}}', "$.register.sensors", "is missing"),
        (register('{"name": "s"}'), "$.register.sensors[0].type", "a type has 1 to 255 characters"),
        (register(more=', "area": [{"x": 1}]'), "$.register.area[0]", "Object missing required field `y`"),
        (
            register('{"name": "s", "type": "t", "min-value": 2, "max-value": 1}'),
            "$.register.sensors[0].min-value",
            "is above max-value",
        ),
        (
            register('{"name": "s", "type": "t", "min-value": 9223372036854775808}'),
            "$.register.sensors[0].min-value",
            "Expected `int` <= 9223372036854775807",
        ),
        (
            b'{"deregister": {"sensing-id": "n", "sensors": [{}]}}',
            "$.deregister.sensors[0]",
            "Object missing required field `name`",
        ),
    ],
)
def test_a_message_that_is_none_is_told_at_its_place(raw: bytes, place: str, problem: str) -> None:
    said = decode_object(raw)
    assert errors(said) == [(place, problem)]
    assert len(said) == 1


def test_a_network_registers_and_deregisters() -> None:
    first = '{"name": "a", "type": "t", "min-value": -5, "max-value": 40.5, "unit": "C"}'
    more = ', "area": [{"x": 1, "y": 2}], "lease-s": 60, "new": 1'
    (message,) = decode_object(register(first, '{"name": "b", "type": "u"}', more=more))
    assert isinstance(message, Register)
    assert (message.sensing_id, message.area, message.lease_s) == ("net", [Point(1, 2)], 60)
    assert [(one.name, one.type, one.min_value, one.max_value) for one in message.sensors] == [
        ("a", "t", -5, 40.5),
        ("b", "u", None, None),
    ]
    for title in ("deregister", "unregister"):
        (message,) = decode_object(b'{"%s": {"sensing-id": "net"}}' % title.encode())
        assert isinstance(message, Deregister)
        assert message.sensors is None


def test_good_sensors_of_a_registration_are_kept() -> None:
    said = decode_object(register('{"name": "a", "type": "t"}', '{"name": "b", "type": "a b"}'))
    assert isinstance(said[0], Register)
    assert [one.name for one in said[0].sensors] == ["a"]
    assert errors(said) == [("$.register.sensors[1].type", "'a b' contains a space or a control character")]


def test_a_deregistration_of_bad_sensors_does_not_become_one_of_all() -> None:
    assert not [
        one
        for one in decode_object(b'{"deregister": {"sensing-id": "n", "sensors": [5]}}')
        if isinstance(one, Deregister)
    ]


@pytest.mark.parametrize("title", ["register", "sensing"])
def test_a_message_with_very_many_sensors_is_refused(title: str) -> None:
    members = {"sensing-id": "n", "sensors": 10_001 * [{"name": "s", "type": "t", "value": 1}]}
    said = decode_object(json.dumps({title: members}).encode())
    assert errors(said) == [(f"$.{title}.sensors", "has at most 10000 elements")]


def test_of_members_of_one_name_the_last_counts() -> None:
    said = decode_object(sensing('{"name": "x", "name": "a", "type": "t", "value": 1, "value": 2}'))
    assert isinstance(said[0], Sensing)
    assert (said[0].sensors[0].name, said[0].sensors[0].value) == ("a", 2)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (sensing(more=', "sensing-id": "b"'), "$.sensing.sensing-id"),
        (sensing(more=', "sensing\\u002did": "b"'), "$.sensing.sensing-id"),
        (sensing(more=', "\\u0073ensing-id": "b"'), "$.sensing.sensing-id"),
        (sensing(more=', "sensi\\u006Eg-id": "b"'), "$.sensing.sensing-id"),
        (sensing('{"value": 1e999}', more=', "sensing-id": "b"'), "$.sensing.sensing-id"),
        (sensing()[:-1] + b"," + sensing()[1:], "$.sensing"),
        (b'{"sensing": {},' + sensing()[1:], "$.sensing"),
        (b'{"sens\\u0069ng": {},' + sensing()[1:], "$.sensing"),
        (b'{"register": {},' + register()[1:], "$.register"),
        (register(more=', "sensing-id": "b"'), "$.register.sensing-id"),
    ],
)
def test_a_message_that_says_twice_who_it_is_from_is_refused(raw: bytes, place: str) -> None:
    assert errors(decode_object(raw)) == [(place, "is given twice")]
    good = sensing(READING)
    assert decode_run(good + b"\n" + raw + b"\n") is None
    for other in (good.replace(b"sensing-id", b"sensing_id"), b'{"hello": {"sensing-id": "c"}}', b"{}"):
        assert decode_run(raw + b"\n" + other + b"\n") is None  # no second one there makes up for it


def test_the_name_of_the_id_may_stand_elsewhere() -> None:
    for raw in (sensing(reading(value="sensing-id")), sensing(reading(**{"sensing-id": "other"}))):
        (message,) = decode_object(raw)
        assert isinstance(message, Sensing)
        assert message.sensing_id == "net"


@pytest.mark.parametrize("is_array", [True, False])
def test_an_object_is_nested_so_deep_and_no_deeper(is_array: bool) -> None:
    opening, closing = (b"[", b"]") if is_array else (b'{"a":', b"}")
    for depth in (NESTING_MAX - 2, NESTING_MAX - 1, 900, 5000, 100_000):
        more = b', "more": ' + depth * opening + b"1" + depth * closing
        said = decode_object(sensing(READING, more="%s").replace(b"%s", more))
        if depth <= NESTING_MAX - 2:
            assert names(said) == ["a"]
            assert not errors(said)
        else:
            assert [problem for _, problem in errors(said)] == ["is nested deeper than 32 levels"]
            assert not names(said)


def test_of_very_many_mistakes_in_one_object_so_many_are_told() -> None:
    said = decode_object(sensing(*(5000 * ["1"])))
    assert len(said) == ERRORS_MAX
    assert said[-1] == Error("4991 more mistakes are in this object", "$", "net")


def test_what_the_json_test_suite_rejects_is_refused() -> None:
    for name, expected, raw in cases():
        assert expected == "either" or _is_refused_as_json(decode_object(raw)) == (expected == "reject"), name


def _is_refused_as_json(said: list[Said]) -> bool:
    ((place, problem),) = errors(said)
    return place == "$" and "is not an object" not in problem and "is no message" not in problem


def test_members_of_the_json_test_suite_are_kept_or_refused() -> None:
    for name, expected, raw in cases():
        bad = b'{"name": "a", "type": "t", "value": 1, "member": ' + raw + b"}"
        said = decode_object(sensing("%s", reading(name="b")).replace(b"%s", bad))
        if expected == "accept":
            assert names(said) == ["a", "b"], name
            assert isinstance(said[0], Sensing)
            kept = said[0].sensors[0]
            assert isinstance(kept, OddReading)
            assert kept.others == {"member": json.loads(raw)}, name
        elif expected == "reject":
            assert errors(said), name


def test_a_sensor_is_what_its_message_says() -> None:
    said = decode_object(b'{"unregister": {"sensing-id": "n", "sensors": [{"name": "s"}]}}')
    assert isinstance(said[0], Deregister)
    assert said[0].sensors is not None
    assert [one.name for one in said[0].sensors] == [Sensor("s").name]


def test_a_long_object_is_looked_at_in_steps_and_says_the_same() -> None:
    readings = [reading(name=f"s{number}", unit="C") for number in range(3_000)]
    raw = sensing(*readings, reading(value=None))
    assert len(raw) > OPEN_SIZE
    steps = 0
    for _ in decoding.decode_object(raw):
        steps += 1
    message, error = decode_object(raw)
    assert steps > len(readings)
    assert isinstance(message, Sensing)
    assert [one.name for one in message.sensors] == [f"s{number}" for number in range(3_000)]
    assert isinstance(error, Error)
    assert error.place == "$.sensing.sensors[3000].value"


def test_an_id_given_twice_is_found_in_a_long_object_too() -> None:
    raw = sensing(*(reading(name=f"s{number}", **{"sensing-id": "x"}) for number in range(3_000)))
    assert len(raw) > OPEN_SIZE
    (message,) = decode_object(raw)
    assert isinstance(message, Sensing)
    double = raw.replace(b'"sensing-id"', b'"sensing-id": "a", "sensing-id"', 1)
    assert errors(decode_object(double)) == [("$.sensing.sensing-id", "is given twice")]


def test_a_long_object_with_little_but_its_sensors_is_what_a_doubtful_one_must_be() -> None:
    raw = sensing(reading(), more=f', "sensing-id": "b", "note": "{"x" * OPEN_SIZE}"')
    assert errors(decode_object(raw)) == [("$", f"has at most {OPEN_SIZE} bytes beside its sensors")]
