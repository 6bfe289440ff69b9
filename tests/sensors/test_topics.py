from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import CodecError, ConfigError
from tidings.gateway.messages import Sensor
from tidings.sensors.topics import FoundReading, TopicMap, load_map

AIR = {"topic": "city/+station/air/+what", "network": "{station}", "name": "{what}", "type": "air.{what}"}


def topic_map(**more: Any) -> TopicMap:
    return TopicMap([{**AIR, **more}], "map.toml")


def reading(topics: TopicMap, payload: str, topic: str = "city/north/air/pm10") -> dict[str, Any]:
    (found,) = topics.read(topic, payload.encode())
    return found.reading


def test_levels_and_places_make_a_reading() -> None:
    topics = topic_map(
        value="$.v",
        timestamp="$.t",
        area=["$.at.lon", "$.at.lat"],
        members={"unit": "$.unit", "from": "{station} {$.device[0]}"},
        **{"min-value": 0, "max-value": 500.0},
    )
    payload = b'{"v":4.5,"t":1556668805,"at":{"lon":-2.1,"lat":57},"unit":"ug","device":["d7"],"x":{}}'
    assert topics.filters == ["city/+/air/+"]
    assert topics.read("city/north/air/pm10", payload) == [
        FoundReading(
            "north",
            Sensor("pm10", "air.pm10", min_value=0, max_value=500.0),
            {
                "name": "pm10",
                "type": "air.pm10",
                "value": 4.5,
                "timestamp": 1556668805,
                "area": [{"x": -2.1, "y": 57}],
                "unit": "ug",
                "from": "north d7",
            },
        )
    ]


@pytest.mark.parametrize(
    ("payload", "value"), [("21.5", 21.5), (" 7\n", 7), ("true", True), ('"open"', "open"), ("OPEN", "OPEN")]
)
def test_a_message_may_be_a_plain_value(payload: str, value: object) -> None:
    assert reading(topic_map(), payload)["value"] == value


def test_what_is_not_there_is_left_out() -> None:
    topics = topic_map(value="$.v", timestamp="$.t", area=[1, "$.y"], members={"unit": "$.unit"})
    assert reading(topics, '{"v":1,"t":[],"y":true}') == {"name": "pm10", "type": "air.pm10", "value": 1}


def test_several_tables_give_several_readings_of_a_message() -> None:
    tables = [
        {**AIR, "topic": "+station", "name": what, "type": what, "value": f"$.{what}"}
        for what in ("pm10", "pm25", "co")
    ]
    topics = TopicMap(tables, "map.toml")
    assert topics.filters == ["+"]
    found = topics.read("north", b'{"pm25":2,"pm10":1,"co":null}')
    assert [(one.sensor.name, one.reading["value"]) for one in found] == [("pm10", 1), ("pm25", 2)]


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a/+x/c", "a/b/c", True),
        ("a/+x/c", "a/b/b/c", False),
        ("a/+x/c", "a//c", True),
        ("a/+/c", "a/b/c", True),
        ("a/#x", "a/b/c", True),
        ("a/#", "a", True),
        ("#", "a/b", True),
        ("a.c", "abc", False),
        ("+x", "a/b", False),
    ],
)
def test_topics_fit_as_the_broker_has_it(pattern: str, topic: str, fits: bool) -> None:
    topics = TopicMap([{"topic": pattern, "network": "n", "name": "n", "type": "t"}], "map.toml")
    if fits:
        assert topics.read(topic, b"1")
    else:
        with pytest.raises(CodecError, match=r"no \[\[reading\]\] is for this topic"):
            topics.read(topic, b"1")


def test_the_rest_of_a_topic_may_have_a_name() -> None:
    topics = TopicMap([{"topic": "a/#rest", "network": "{rest}", "name": "n", "type": "t"}], "map.toml")
    assert topics.read("a/b/c", b"1")[0].sensing_id == "b/c"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"w":1}', r"city/north/air/pm10: the message has no \$\.v"),
        (b"7", r"the message has no \$\.v"),
        (b'{"v":null}', "the message has no"),
        (b'{"v":{}}', r"\$\.v: is no number, text, true or false"),
        (b'{"v":99999999999999999999}', r"\$\.v: is no number"),
        (b"\xff\xfe", "neither JSON nor text"),
        (b"[" * 100_000, "the message has no"),
        (b'{"v":1}' + b" " * 300_000, "more than 262,144 bytes"),
    ],
)
def test_a_message_without_a_reading_is_told(payload: bytes, problem: str) -> None:
    with pytest.raises(CodecError, match=problem):
        topic_map(value="$.v").read("city/north/air/pm10", payload)


def test_names_and_types_that_no_reading_may_have_are_told() -> None:
    with pytest.raises(CodecError, match="network: a message gives no text"):
        topic_map(network="{$.id}", value="$.v").read("city/north/air/pm10", b'{"v":1,"id":""}')
    with pytest.raises(CodecError, match=r"type: .* contains a space"):
        topic_map().read("city/north/air/fine dust", b"1")


@given(st.binary(max_size=50))
def test_any_message_gives_readings_or_an_error_of_ours(payload: bytes) -> None:
    topics = topic_map(value="$[0].v", name="{what}{$[1]}", members={"m": "$"})
    try:
        topics.read("city/north/air/pm10", payload)
    except CodecError:
        return


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"topik": "x"}, "reading[1].topik: is not known"),
        ({"topic": None}, "reading[1].topic: must be a text"),
        ({"topic": "a/b+/c"}, "reading[1].topic: level 2, 'b+': + or # stands first"),
        ({"topic": "a/#/c"}, "reading[1].topic: level 2, '#': # stands at the end"),
        ({"topic": "+a/+a"}, "reading[1].topic: level 2, '+a': there is another level"),
        ({"network": "{town}"}, "reading[1].network: {town}: the topic has no level of that name"),
        ({"name": "a{b"}, "reading[1].name: column 2: a brace without its other"),
        ({"value": "$.a..b"}, "reading[1].value: '$.a..b', column 4: a place is $"),
        ({"value": 7}, "reading[1].value: must be a text"),
        ({"area": "$.a"}, "reading[1].area: must be [x, y]"),
        ({"area": ["$.a", "b"]}, "reading[1].area: 'b' is neither a number nor a place"),
        ({"min-value": "low"}, "reading[1].min-value: is no number"),
        ({"members": 3}, "reading[1].members: must be a table"),
        ({"members": {"value": "$"}}, "reading[1].members.value: has a key of its own"),
    ],
)
def test_a_mistake_in_the_map_is_named_with_its_place(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topic_map(**table)
    assert f"map.toml: {problem}" in str(caught.value)


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"reading\[1\]\.topic: is missing"):
        TopicMap([{"name": "x"}], "map.toml")


def test_a_brace_itself_is_written_twice() -> None:
    assert reading(topic_map(name="{{{what}}}"), "1")["name"] == "{pm10}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[reading]", "is not TOML: .*line 1"),
        ("", r"reading: must be tables, each headed \[\[reading\]\]"),
        ("reading = 3", "reading: must be tables"),
        ("[[readings]]", "readings: is not known"),
    ],
)
def test_a_file_that_is_no_map_is_told(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "map.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_map(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_map(tmp_path / "none.toml")


def test_the_map_in_the_documents_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "sensors.md").read_text()
    file = tmp_path / "city.toml"
    file.write_text("[[reading]]" + text.partition("```toml\n[[reading]]")[2].partition("```")[0])
    topics = load_map(file)
    assert topics.filters == ["city/+/air/+", "home/#"]
    payload = b'{"v":1,"t":2,"at":{"lon":3,"lat":4},"unit":"u","id":7}'
    assert reading(topics, payload.decode()) == {
        "name": "pm10",
        "type": "air.pm10",
        "value": 1,
        "timestamp": 2,
        "area": [{"x": 3, "y": 4}],
        "unit": "u",
        "device": "7",
    }
    assert topics.read("home/kitchen", b"21.5")[0].sensor == Sensor("kitchen", "temperature")
