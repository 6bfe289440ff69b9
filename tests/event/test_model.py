"""The event: making, reading, changing and copying it."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from strategies import attributes, events, header_fields, identical, numbered_events, types

from tidings.errors import EventError
from tidings.event import HEADER_READERS, JMS_ALIASES, RESERVED, Batch, Event, Header, Origin, Value
from tidings.event.values import HEADER_NAMES
from tidings.event.wire import encode_events

NOON = datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=UTC)


def test_a_keyword_is_a_header_field_if_it_is_named_like_one_else_an_attribute() -> None:
    event = Event("job", {"number": 1}, color="blue", priority=7)
    assert event.attributes == {"number": 1, "color": "blue"}
    assert (event.type, event.priority, event["number"], event["priority"]) == ("job", 7, 1, 7)


def test_the_time_of_an_event_is_now_unless_given() -> None:
    before = datetime.now(UTC)
    assert before <= Event("t").time <= datetime.now(UTC)
    assert Event("t", time=NOON).time == NOON
    assert Event("t", time="2026-11-15T12:00:00.000001Z").time == NOON
    assert Event("t", time=NOON.astimezone(timezone(timedelta(hours=5)))).time == NOON


def test_an_event_without_header_has_the_defaults() -> None:
    event = Event("t")
    assert event.header is None
    assert (event.priority, event.delivery, event.route) == (4, "transient", "auto")
    assert event.id is event.source is event.received is event.ttl_s is event.body is None
    assert Event("t", priority=4, delivery="transient", subject=None).header is None


@given(types, attributes(), header_fields())
def test_every_field_reads_as_it_was_given(
    kind: str, held: dict[str, Value], fields: dict[str, object]
) -> None:
    event = Event(kind, held, **fields)
    assert event.type == kind
    assert all(event[name] is value or event[name] == value for name, value in held.items())
    for name, value in fields.items():
        assert value is None or event[name] == value == getattr(event, name)


KINDS_OF_BODIES = {
    "bytes": Event("t", body=b"\0\xff"),
    "text": Event("t", body="Grüße".encode(), content_type="text/plain;charset=utf-8"),
    "object": Event("t", body=b"O", object_class="shop.Order", content_type="application/java"),
    "map": Event("t", {"name": "x", "count": 3, "price": 2.5, "is_new": True, "raw": b"\0"}),
    "stream": Event("t", body=b"1\ntrue\n", content_type="application/json-seq"),
}


@pytest.mark.parametrize("kind", KINDS_OF_BODIES)
def test_each_kind_of_body_arrives_as_that_kind(kind: str) -> None:
    sent = KINDS_OF_BODIES[kind]
    (came,) = Batch(encode_events([sent]))
    for name in ("body", "content_type", "object_class"):
        assert getattr(came, name) == getattr(sent, name)
    assert [(key, type(value), value) for key, value in came.attributes.items()] == [
        (key, type(value), value) for key, value in sent.attributes.items()
    ]
    told = [other for other, event in KINDS_OF_BODIES.items() if what_tells(event) == what_tells(came)]
    assert told == [kind]


def what_tells(event: Event) -> tuple[bool, str | None, str | None]:
    """By what a reader knows which kind of body it has."""
    return event.body is None, event.content_type, event.object_class


def test_the_dict_that_was_given_is_not_kept() -> None:
    given_dict = {"n": 1}
    event = Event("t", given_dict)
    given_dict["n"] = 2
    assert event["n"] == 1
    with pytest.raises(TypeError):
        event.attributes["n"] = 3  # type: ignore[index]
    with pytest.raises(AttributeError):
        event.type = "u"


def test_what_is_not_there_is_a_key_error_or_the_default() -> None:
    event = Event("t", n=1)
    assert event.get("m") is None
    assert event.get("subject", "none") == "none"
    assert "n" in event
    assert "m" not in event
    assert 5 not in event
    for name in ("m", "subject"):
        with pytest.raises(KeyError, match=name):
            event[name]


@pytest.mark.parametrize("name", sorted(HEADER_NAMES))
def test_an_attribute_named_like_a_header_field_is_refused_by_place(name: str) -> None:
    with pytest.raises(EventError, match=rf"^\$\.{name}: is a header field; give it as a keyword"):
        Event("t", {name: 1})


def test_every_reserved_name_has_a_reader() -> None:
    assert HEADER_READERS.keys() == RESERVED == HEADER_NAMES | JMS_ALIASES.keys()


def test_a_name_given_twice_is_refused() -> None:
    for make in (
        lambda: Event("t", {"n": 1}, n=2),
        lambda: Event("t", {"n": {"m": 1}, "n.m": 2}),
        lambda: Event("t", {"n": {"m": 1}}, **{"n.m": 2}),
        lambda: Event("t", {"JMSPriority": 1}, priority=2),
        lambda: Event("t", JMSPriority=1, priority=2),
        lambda: Event("t", type="u"),
        lambda: Event.from_dict({"type": "t", "a": 1, "b": 2}, rename={"a": "b"}),
    ):
        with pytest.raises(EventError, match="is given twice"):
            make()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"priority": 12}, "$.priority: 12 is not within 0..9"),
        ({"priority": True}, "$.priority: True is not within 0..9"),
        ({"priority": 4.0}, "$.priority: 4.0 is not within 0..9"),
        ({"delivery": "fast"}, "$.delivery: 'fast' is not one of transient, reliable, persistent"),
        ({"route": 1}, "$.route: int is not text"),
        ({"ttl_s": -1}, "$.ttl_s: -1 is not a number of seconds from 0 on"),
        ({"ttl_s": float("nan")}, "$.ttl_s: nan is not a number of seconds from 0 on"),
        ({"keep_s": float("inf")}, "$.keep_s: inf is not a number of seconds from 0 on"),
        ({"reliability": 1.5}, "$.reliability: 1.5 is not within 0..1"),
        ({"id": ""}, "$.id: may not be empty"),
        ({"source": ""}, "$.source: may not be empty"),
        ({"subject": 5}, "$.subject: int is not text"),
        ({"body": "text"}, "$.body: str is not bytes"),
        ({"time": 5}, "$.time: int is not a time; give a datetime or ISO 8601 text"),
        ({"time": "noon"}, "$.time: 'noon' is not a time as in 2026-11-15T08:00:00Z"),
        ({"JMSDeliveryMode": "FAST"}, "$.JMSDeliveryMode: 'FAST' is neither PERSISTENT nor NON_PERSISTENT"),
        ({"JMSTimestamp": 2**62}, f"$.JMSTimestamp: {2**62} is not a time in milliseconds"),
    ],
)
def test_a_bad_header_field_is_refused_by_place(fields: dict[str, object], message: str) -> None:
    with pytest.raises(EventError) as caught:
        Event("t", **fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "kind", ["", ".", "a..b", ".a", "a.", "a b", "a\tb", "a\0", "x" * 256, "\ud800", 5, None]
)
def test_what_is_no_type_is_refused(kind: object) -> None:
    with pytest.raises(EventError) as caught:
        Event(kind)  # type: ignore[arg-type]
    assert caught.value.place == "$.type"


def test_the_properties_of_a_jms_message_can_be_passed_as_they_are() -> None:
    message = {
        "JMSType": "order",
        "JMSPriority": 9,
        "JMSMessageID": "ID:1",
        "JMSCorrelationID": "c",
        "JMSReplyTo": "answers",
        "JMSTimestamp": 1_700_000_000_123,
        "JMSDeliveryMode": "PERSISTENT",
        "color": "blue",
    }
    for event in (Event("jms", message), Event("jms", **message), Event.from_dict(message)):
        assert {name: event[name] for name in message} == message
        assert (event.type, event.priority, event.id) == ("order", 9, "ID:1")
        assert (event.delivery, event.time_us) == ("persistent", 1_700_000_000_123_000)
        assert event.attributes == {"color": "blue"}


def test_jms_numbers_its_delivery_modes() -> None:
    assert Event("t", JMSDeliveryMode=2).delivery == "persistent"
    assert Event("t", JMSDeliveryMode=1).delivery == "transient"
    assert Event("t", delivery="reliable")["JMSDeliveryMode"] == "PERSISTENT"
    assert Event("t")["JMSDeliveryMode"] == "NON_PERSISTENT"


def test_a_device_puts_everything_side_by_side() -> None:
    sent = {"type": "air", "id": 17, "priority": 2, "pos": {"x": 1.5}, "gone": None}
    event = Event.from_dict(sent, rename={"id": "device_id"})
    assert event.attributes == {"device_id": 17, "pos.x": 1.5}
    assert (event.priority, event.id) == (2, None)
    with pytest.raises(EventError, match=r"^\$\.id: int is not text$"):
        Event.from_dict(sent)
    with pytest.raises(EventError, match=r"^\$\.type: is missing$"):
        Event.from_dict({"n": 1})


def test_lists_are_refused_or_become_the_body() -> None:
    sent = {"type": "t", "pos": {"path": [1, 2]}, "n": 1}
    with pytest.raises(EventError, match=r"^\$\.pos\.path: a list is not a value; put it into the body$"):
        Event.from_dict(sent)
    event = Event.from_dict(sent, lists="body")
    assert (event.body, event.content_type) == (b'{"pos.path":[1,2]}', "application/json")
    assert event.attributes == {"n": 1}
    with pytest.raises(EventError, match="a list is not a value"):
        Event.from_dict({**sent, "body": b"other"}, lists="body")


@pytest.mark.parametrize("member", [{1}, float("nan"), b"x"])
def test_a_list_that_json_cannot_say_is_refused(member: object) -> None:
    with pytest.raises(EventError, match=r"^\$\.n: can't be written as JSON"):
        Event.from_dict({"type": "t", "n": [member]}, lists="body")


def test_the_id_is_the_given_one_else_made_of_the_number() -> None:
    origin = Origin("sys", 3, "alice")
    numbered = Event.unchecked(10, "t", 0, {}, None, None, origin)
    assert numbered.id == "sys.13.1a"
    assert numbered.source == "alice"
    assert Event.unchecked(10, "t", 0, {}, Header(id="given"), None, origin).id == "given"
    assert Event.unchecked(0, "t", 0, {}, None, None, origin).id is None


def test_a_changed_copy_is_checked_and_keeps_number_and_origin() -> None:
    event = Event.unchecked(
        10, "t", 5, {"a": 1, "p.x": 2}, Header(priority=7), b"b", Origin("sys", 3, "alice")
    )
    changed = event.evolve(type="u", a=None, p={"x": 3}, priority=None, subject="s", body=None)
    assert changed == Event.unchecked(10, "u", 5, {"p.x": 3}, Header(subject="s"), None, event.origin)
    assert event.evolve(source="bob").origin == Origin("sys", 3, "bob")
    assert event.evolve(JMSPriority=1).priority == 1
    assert Event("t").evolve(source="bob").source == "bob"
    with pytest.raises(EventError, match="not within"):
        event.evolve(priority=10)


@given(numbered_events())
def test_copies_are_equal_and_pickles_are_identical(event: Event) -> None:
    assert identical(event, copy.copy(event))
    assert identical(event, copy.deepcopy(event))
    assert identical(event, pickle.loads(pickle.dumps(event)))
    assert identical(event, event.evolve())
    assert hash(event) == hash(copy.copy(event))


@given(events())
def test_events_differ_when_any_field_does(event: Event) -> None:
    assert event != event.evolve(type=event.type + "x")
    assert event != event.evolve(priority=(event.priority + 1) % 10)
    assert event != event.evolve(body=(event.body or b"") + b"x")
    assert event != event.evolve(extra_attribute=1)


def test_the_repr_is_short_and_says_what_is_set() -> None:
    event = Event("job", {"n": 1}, priority=7, body=b"abc", time=NOON)
    shown = "Event('job', {'n': 1}, time='2026-11-15T12:00:00.000001+00:00', priority=7, body=<3 bytes>)"
    assert repr(event) == shown
    assert "…" in repr(Event("t", {f"a{n}": n for n in range(100)}))
    assert len(repr(Event("t", {f"a{n}": n for n in range(100)}))) < 200
