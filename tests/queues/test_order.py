"""In which order messages are handed out, and which of them a filter finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.rig import GIVE_BACK, UNOPENED, Client, Rig, job, numbers
from tidings.event import Event


def test_messages_are_handed_out_in_the_order_in_which_they_came() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2)
    ann.put("jobs", 3)
    assert numbers(ann.get("jobs", 2)) == [1, 2]
    assert numbers(ann.get("jobs", 2)) == [3]


def test_a_queue_without_priorities_ignores_them() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", job(1, priority=0), job(2, priority=9))
    assert numbers(ann.get("jobs", 2)) == [1, 2]


@given(st.lists(st.integers(0, 9), max_size=20))
def test_the_highest_priority_comes_first_and_within_one_who_came_first(priorities: list[int]) -> None:
    ann = Client(Rig())
    ann.create("jobs", priorities=True)
    for n, priority in enumerate(priorities):
        ann.put("jobs", job(n, priority=priority))
    expected = sorted(range(len(priorities)), key=lambda n: (-priorities[n], n))
    assert numbers(ann.get("jobs", 100)) == expected


def test_messages_that_name_no_priority_have_that_of_the_queue() -> None:
    ann = Client(Rig())
    ann.create("jobs", priorities=True, priority=8)
    ann.put("jobs", job(1, priority=7), job(2), job(3, priority=9))
    hands = ann.get("jobs", 3)
    assert numbers(hands) == [3, 2, 1]
    assert [hand.event.priority for hand in hands] == [9, 8, 7]


def test_with_ageing_a_level_of_priority_is_worth_so_much_waiting() -> None:
    rig = Rig()
    ann = Client(rig)
    ann.create("jobs", priorities=True, ageing_s=10.0)
    ann.put("jobs", job(1, priority=4))
    rig.now += 9.0
    ann.put("jobs", job(2, priority=5))
    rig.now += 2.0
    ann.put("jobs", job(3, priority=5))
    assert numbers(ann.get("jobs", 3)) == [2, 1, 3]


@pytest.mark.parametrize("outcome", [GIVE_BACK, UNOPENED])
def test_what_is_given_back_is_in_its_old_place(outcome: int) -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2, 3)
    first, second, _ = ann.get("jobs", 3)
    ann.settle(outcome, second)
    ann.settle(outcome, first)
    ann.put("jobs", 4)
    assert numbers(ann.get("jobs", 10)) == [1, 2, 4]


def test_the_order_is_the_same_after_a_crash() -> None:
    ann = Client(Rig())
    ann.create("jobs", priorities=True)
    ann.put("jobs", job(1), job(2, priority=9), job(3))
    ann.rig.run()
    assert numbers(Client(ann.rig.restart(), "b").get("jobs", 3)) == [2, 1, 3]


def test_messages_that_come_after_a_crash_stand_behind_those_before() -> None:
    ann = Client(Rig())
    ann.rig.now += 1_000.0
    ann.create("jobs")
    ann.put("jobs", 1)
    ann.rig.run()
    again = ann.rig.restart()  # its clock stands before the moment at which the message came
    bob = Client(again, "b")
    bob.put("jobs", 2)
    assert numbers(bob.get("jobs", 2)) == [1, 2]


# Searching


def test_the_first_message_that_matches_is_handed_out() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", *range(10))
    assert numbers(ann.get("jobs", where="n >= 5")) == [5]
    assert numbers(ann.get("jobs", 2, where="n >= 5 AND n <> 6")) == [7, 8]
    assert numbers(ann.get("jobs", 100)) == [0, 1, 2, 3, 4, 6, 9]


def test_a_search_goes_by_priority_too() -> None:
    ann = Client(Rig())
    ann.create("jobs", priorities=True)
    ann.put("jobs", job(1), job(2, priority=9), job(3, priority=8))
    assert numbers(ann.get("jobs", 2, where="n <> 2")) == [3, 1]


def test_an_attribute_that_is_not_there_agrees_with_nothing() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1)
    assert ann.get("jobs", where="colour = 'blue'") == []
    assert ann.get("jobs", where="NOT colour = 'blue'") == []


def test_a_filter_that_can_not_be_understood_is_refused_with_its_place() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    failure = ann.fails("get", queue="jobs", where="n = ")
    assert failure.code == "filter"
    assert (failure.details["line"], failure.details["column"]) == (1, 4)


FIELDS: list[tuple[str, Any]] = [
    ("id", "mine-1"),
    ("channel", "news"),
    ("subject", "rain"),
    ("priority", 7),
    ("ttl_s", 50.0),
    ("keep_s", 60.0),
    ("delivery", "reliable"),
    ("route", "direct"),
    ("reliability", 0.5),
    ("reply_to", "answers"),
    ("correlation_id", "17"),
    ("object_class", "Order"),
    ("content_type", "text/plain"),
]


@pytest.mark.parametrize("crowd", [0, 50])
@pytest.mark.parametrize(("name", "value"), FIELDS)
def test_every_header_field_can_be_searched_by(name: str, value: Any, crowd: int) -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", *range(crowd + 1), job(-1, **{name: value}), crowd + 1)
    written = repr(value)
    assert numbers(ann.get("jobs", where=f"{name} = {written}")) == [-1]
    assert ann.get("jobs", where=f"{name} = {written}") == []


def test_messages_are_found_by_type_source_time_and_body() -> None:
    ann = Client(Rig(), name="ann")
    bob = Client(ann.rig, "b", name="bob")
    ann.create("jobs")
    ann.put("jobs", 1, Event("other.job", {"n": 2}, time="2001-01-01T00:00:00Z"), job(3, body=b"x"))
    bob.put("jobs", 4)
    assert numbers(ann.get("jobs", where="type = 'other.job'")) == [2]
    assert numbers(ann.get("jobs", where="source = 'bob'")) == [4]
    assert numbers(ann.get("jobs", where="body IS NOT NULL")) == [3]


@pytest.mark.parametrize("crowd", [0, 50])
def test_messages_are_found_by_when_the_queue_took_them_in(crowd: int) -> None:
    rig = Rig()
    ann = Client(rig)
    ann.create("jobs")
    ann.put("jobs", *range(crowd + 1))
    rig.now += 100.0
    ann.put("jobs", -1)
    rig.run()
    (hand,) = ann.get("jobs", where="received > TIMESTAMP '1970-01-01 00:17:00'")
    assert hand.n == -1
    assert hand.number == 1_100_000_000


def test_what_a_sender_says_of_the_time_of_receipt_does_not_count() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", job(1, received="2001-01-01T00:00:00Z"))
    assert ann.get("jobs", where="received >= TIMESTAMP '2001-01-01 00:00:00'") == []
    assert numbers(ann.get("jobs", where="received < TIMESTAMP '1971-01-01 00:00:00'")) == [1]


def test_a_message_says_who_sent_it() -> None:
    rig = Rig()
    ann = Client(rig, "a", name="ann")
    ann.create("jobs")
    ann.put("jobs", 1)
    (hand,) = Client(rig, "b", name="bob").get("jobs")
    assert (hand.system, hand.epoch, hand.source) == ("a", 1, "ann")


def test_an_unknown_field_of_a_request_is_passed_over_and_a_wrong_one_refused() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    assert ann.get("jobs", later_field=1) == []
    for wrong in ({"count": 0}, {"count": 10_001}, {"wait_s": -1}, {"action": "steal"}, {"where": 1}):
        assert ann.fails("get", **{"queue": "jobs", **wrong}).code == "protocol"
