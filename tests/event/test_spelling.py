"""Keywords that are nearly header fields or options, and names that are not suspected."""

from __future__ import annotations

import pytest

from tidings import Event
from tidings.errors import EventError
from tidings.event.header import field_meant, keyword_meant
from tidings.event.values import HEADER_NAMES

MEANT = {
    "prority": "priority",
    "prioritty": "priority",
    "prioroty": "priority",
    "Priority": "priority",
    "recieved": "received",
    "tyep": "type",
    "itme": "time",
    "boyd": "body",
    "sorce": "source",
    "corelation_id": "correlation_id",
    "correlationId": "correlation_id",
    "content_typ": None,
    "contenttype": "content_type",
    "replyto": "reply_to",
    "ttl": "ttl_s",
    "expires": "ttl_s",
    "timeout": "timeout_s",
    "timout_s": "timeout_s",
    "transction": "transaction",
    "timeout_s": None,
    "timeouts": None,
    "transactions": None,
    "keeps": None,
}


@pytest.mark.parametrize(("name", "meant"), MEANT.items())
def test_a_near_miss_is_known_by_the_field_or_option_it_misses(name: str, meant: str | None) -> None:
    assert keyword_meant(name) == meant


def test_no_header_field_is_a_near_miss_of_another() -> None:
    assert [name for name in HEADER_NAMES if keyword_meant(name) or field_meant(name)] == []


def test_every_field_of_six_letters_is_known_with_a_letter_missing_too_many_or_swapped() -> None:
    for field in sorted(name for name in HEADER_NAMES if len(name) >= 6):
        for at in range(1, len(field) - 1):
            start, letter, end = field[:at], field[at], field[at + 1 :]
            if letter == "_":
                continue
            slips = {
                start + end,
                f"{start}x{letter}{end}",
                f"{start}x{end}",
                start + end[0] + letter + end[1:],
            }
            assert {field_meant(name) for name in slips - {field}} == {field}


@pytest.mark.parametrize("name", [name for name, meant in MEANT.items() if meant is not None])
def test_a_keyword_that_is_a_near_miss_is_refused_with_the_right_name(name: str) -> None:
    said = f"$.{name}: did you mean {MEANT[name]}? An attribute of this name goes into the mapping"
    for _ in range(2):
        with pytest.raises(EventError) as caught:
            Event("t", value=1, **{name: 3})
        assert str(caught.value).startswith(said)
        assert Event("t", {name: 3})[name] == 3  # which is no reason to take it as a keyword from now on


def test_a_near_miss_beside_header_fields_is_refused_too() -> None:
    with pytest.raises(EventError, match=r"^\$\.ttl: did you mean ttl_s\?"):
        Event("t", priority=3, ttl=5)


def test_a_changed_copy_refuses_a_near_miss_unless_the_event_has_that_attribute() -> None:
    with pytest.raises(EventError, match=r"^\$\.prority: did you mean priority\?"):
        Event("t").evolve(prority=3)
    assert Event("t", {"prority": 3}).evolve(prority=4)["prority"] == 4
    assert Event("t", {"prority": 3}).evolve(prority=None).attributes == {}


def test_members_of_a_dict_are_free() -> None:
    assert Event.from_dict({"type": "t", "ttl": 5})["ttl"] == 5
