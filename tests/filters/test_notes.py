"""Notes on filters: what they say, and that those which say 'never' are right."""

from __future__ import annotations

import pytest
from hypothesis import given

from filters.conditions import events, texts
from tidings import Event, Filter
from tidings.event.header import FIELD_CHECKS
from tidings.event.values import HEADER_NAMES, RESERVED
from tidings.filters.notes import HEADER_VALUES, NOTES_MAX
from tidings.filters.tokens import NAMES

NOTED = {
    # double quotes
    'name = "x"': """name = "x": "x" is the name of an attribute; a text is written 'x'""",
    'name <> "blue sky"': 'name <> "blue sky": "blue sky" is the name of an attribute; '
    "a text is written 'blue sky'",
    '"x" = name': """"x" = name: "x" is the name of an attribute; a text is written 'x'""",
    'n between "a" and 3': """n between "a": "a" is the name of an attribute; a text is written 'a'""",
    # header fields
    "prority > 3": "prority: is an attribute, no header field; did you mean priority?",
    "replyTo = 'x'": "replyTo: is an attribute, no header field; did you mean reply_to?",
    "\"content-type\" = 'x'": '"content-type": is an attribute, no header field; did you mean content_type?',
    "ttl < 3": "ttl: is an attribute, no header field; did you mean ttl_s?",
    "TOPIC(type, 'city/+/air/#')": "TOPIC(type, 'city/+/air/#'): the levels of a type are separated by dots; "
    "write 'city.*.air.>'",
    # kinds
    "priority = '3'": "priority = '3': priority is a number from 0 to 9; write 3",
    "JMSPriority = 'high'": "priority = 'high': priority is a number from 0 to 9",
    "time > '2026-01-01'": "time > '2026-01-01': time is a time; write TIMESTAMP '2026-01-01T00:00:00+00:00'",
    "received < 'now'": "received < 'now': received is a time; write TIMESTAMP '2026-11-15 08:00:00'",
    "type = 5": "type = 5: type is a string; write '5'",
    "CONTAINS(priority, '3')": "CONTAINS(priority, '3'): priority is a number from 0 to 9",
    "time - 5 > 3": "time - 5 > 3: time is a time",
    "n + 1 = 'x'": "n + 1 = 'x': a number is compared with a string",
    "n NOT IN (1, 'a')": "n NOT IN (1, 'a'): a list of several kinds is never false; "
    "write one list for each kind",
    # values
    "n BETWEEN 5 AND 1": "n BETWEEN 5 AND 1: 5 is greater than 1; write BETWEEN 1 AND 5",
    "priority > 9": "priority > 9: priority is a number from 0 to 9",
    "delivery = 'durable'": "delivery = 'durable': delivery is one of 'transient', 'reliable', 'persistent'",
    "type IS NULL": "type IS NULL: type is never absent",
    "s < ''": "s < '': is never true",
    "FALSE": "FALSE: is never true",
    # several conditions
    "n > 5 AND m = 1 AND n < 3": "n > 5 AND n < 3: no value of n meets all of these conditions",
    "NOT (n > 5 OR NOT n > 7)": "n <= 5 AND n > 7: no value of n meets all of these conditions",
    "n = 1 AND m = 1 AND (n = 2 OR m = 2)": "n = 1 AND m = 1 AND (n = 2 OR m = 2): "
    "these conditions exclude each other",
    "m = 1 OR n > 5 AND n < 3": "n > 5 AND n < 3: no value of n meets all of these conditions",
    "m = 1 AND (n = 2 OR priority = 'x')": "priority = 'x': priority is a number from 0 to 9",
    "NOT priority = 'x'": "priority <> 'x': priority is a number from 0 to 9",
}

# fmt: off
UNSUSPECTED = [
    "item", "ID", "Type", "receiver", "receive", "sources", "resource", "timer", "times", "typed", "kind",
    "router", "routes", "channels", "channel2", "subjects", "body_size", "deliver", "delivered", "priority2",
    "di", "value", "keep", "expires", "timeout", "timestamp",
]
# fmt: on


@pytest.mark.parametrize(("text", "said"), NOTED.items())
def test_a_probable_mistake_has_one_note(text: str, said: str) -> None:
    NAMES.clear()
    assert list(map(str, Filter(text).notes)) == [said]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\"sensing-id\" = 'net-1' AND value > 40",
        '"sensing-id" = other',
        "a < b AND name = 'x'",
        "n NOT BETWEEN 5 AND 1",
        "TOPIC(subject, 'city/+/air/#') AND TOPIC(type, 'city.*')",
        "priority = 3 OR time > TIMESTAMP '2026-01-01' OR body IS NULL OR ttl_s IS NULL",
        " AND ".join(f"{name} = 1" for name in UNSUSPECTED),
    ],
)
def test_a_filter_that_is_meant_as_it_is_written_has_no_notes(text: str) -> None:
    assert Filter(text).notes == ()


def test_every_known_value_is_that_of_a_header_field() -> None:
    assert HEADER_VALUES.keys() >= HEADER_NAMES == {"type", *FIELD_CHECKS}
    assert HEADER_VALUES.keys() <= RESERVED


@given(texts, events)
def test_a_condition_that_is_never_true_takes_no_event(text: str, event: Event) -> None:
    for note in Filter(text).notes:
        assert not note.never or Filter(note.condition).test(event) is not True


@given(texts, events)
def test_a_filter_that_takes_an_event_is_not_noted_as_a_whole(text: str, event: Event) -> None:
    filter = Filter(text)
    if filter.matches(event):
        assert str(filter) not in {note.condition for note in filter.notes if note.never}


@given(texts)
def test_a_filter_without_an_alternative_has_a_note(text: str) -> None:
    filter = Filter(text)
    if not filter.normal:
        assert any(note.never for note in filter.notes)


def test_header_fields_as_they_are_meet_what_is_known_of_them() -> None:
    event = Event("t", ttl_s=1, keep_s=0.5, reliability=1, subject="s", body=b"x", time="2026-01-01T00:00Z")
    for name, known in HEADER_VALUES.items():
        for each in (event, Event("t"), event.evolve(priority=9, delivery="persistent", route="direct")):
            assert known.values.admits(each.get(name)), name


def test_a_filter_has_few_notes_however_long_it_is() -> None:
    many = " OR ".join(f"n BETWEEN {n + 1} AND {n}" for n in range(900))
    assert len(Filter(many).notes) == NOTES_MAX


def test_joined_filters_have_notes_too() -> None:
    (note,) = (Filter("n > 5") & Filter("n < 3")).notes
    assert note.never
    assert (note.condition, note.hint) == ("n > 5 AND n < 3", None)
