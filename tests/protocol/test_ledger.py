"""How far clients have counted, what was refused, and what a commit that is made or fails does to both."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import numbered
from tidings.errors import CodecError
from tidings.ids import Origin
from tidings.protocol import ledger as ledger_module
from tidings.protocol.ledger import Ledger, check_growing, identity_of
from tidings.protocol.messages import Failure, Refusal
from tidings.store.interface import CountProducer, Operation

ANN, BOB = Origin("a", 1), Origin("b", 1)


def refusal(first: int, last: int) -> Refusal:
    return Refusal(first, last, Failure("queue-full", "no room", {"queue": "jobs"}))


def counted(operations: Iterable[Operation]) -> list[tuple[str, int]]:
    """The systems and counters that are to be stored."""
    return [(one.counter.system, one.counter.counter) for one in operations if isinstance(one, CountProducer)]


def test_who_was_never_heard_of_has_counted_nothing() -> None:
    assert Ledger([]).counter_of(ANN) == 0


def test_a_client_has_counted_as_far_as_it_was_heard() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 7)
    assert (ledger.counter_of(ANN), ledger.counter_of(BOB)) == (7, 0)


def test_another_life_of_a_client_counts_for_itself() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 7)
    assert ledger.counter_of(Origin("a", 2, "ann")) == 0


def test_only_counts_that_are_to_be_kept_are_stored_and_once() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 7)
    ledger.count_up(BOB, 3)
    ledger.keep(ANN)
    ledger.keep(ANN)
    assert ledger.is_due
    assert counted(ledger.take_due(1.0, 1)) == [("a", 7)]
    assert not ledger.is_due
    assert ledger.take_due(1.0, 1) == []


def test_what_was_stored_is_known_after_a_restart() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 7)
    ledger.refuse(ANN, refusal(3, 5))
    ledger.keep(ANN)
    (count,) = ledger.take_due(1.0, 1)
    assert isinstance(count, CountProducer)
    again = Ledger([count.counter])
    assert again.counter_of(ANN) == 7
    assert again.refused(ANN) == [refusal(3, 5)]


def test_refusals_are_remembered_until_they_were_seen() -> None:
    ledger = Ledger([])
    ledger.refuse(ANN, refusal(1, 2))
    ledger.refuse(ANN, refusal(5, 5))
    ledger.see(ANN, 1)
    assert ledger.refused(ANN) == [refusal(1, 2), refusal(5, 5)]
    ledger.see(ANN, 4)
    assert ledger.refused(ANN) == [refusal(5, 5)]
    ledger.see(ANN, 5)
    assert ledger.refused(ANN) == []


def test_a_refusal_of_which_only_the_beginning_was_seen_is_told_again() -> None:
    ledger = Ledger([])
    ledger.refuse(ANN, refusal(1, 2))
    ledger.refuse(ANN, refusal(3, 6))
    ledger.see(ANN, 4)
    assert ledger.refused(ANN) == [refusal(3, 6)]


def test_the_oldest_refusals_of_a_client_that_does_not_look_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numbered, "REFUSALS_MAX", 2)
    ledger = Ledger([])
    for counter in (1, 2, 3):
        ledger.refuse(ANN, refusal(counter, counter))
    assert [one.first for one in ledger.refused(ANN)] == [2, 3]


def test_those_not_heard_of_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "SYSTEMS_MAX", 2)
    ledger = Ledger([])
    ledger.count_up(ANN, 1)
    ledger.refuse(ANN, refusal(1, 1))
    ledger.count_up(BOB, 1)
    ledger.count_up(ANN, 2)
    ledger.count_up(Origin("c", 1, None), 1)
    assert (ledger.counter_of(ANN), ledger.counter_of(BOB)) == (2, 0)
    assert ledger.refused(ANN) == [refusal(1, 1)]


def test_what_could_not_be_stored_was_not_counted() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 3)
    ledger.keep(ANN)
    ledger.take_due(1.0, 1)
    ledger.durable(1)
    ledger.count_up(ANN, 7)
    ledger.refuse(ANN, refusal(2, 3))
    ledger.refuse(ANN, refusal(5, 6))
    ledger.keep(ANN)
    ledger.count_up(BOB, 4)
    ledger.take_due(1.0, 2)
    assert ledger.failed() == {("a", 1)}
    assert (ledger.counter_of(ANN), ledger.counter_of(BOB)) == (3, 4)
    assert ledger.refused(ANN) == [refusal(2, 3)]


def test_what_waits_for_the_next_commit_fails_with_those_before() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 3)
    ledger.keep(ANN)
    assert ledger.failed() == {("a", 1)}
    assert ledger.counter_of(ANN) == 0
    assert not ledger.is_due


def test_a_client_waits_from_when_it_did_something_until_that_is_on_disk() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 1)
    assert not ledger.is_waiting(ANN)
    ledger.keep(ANN)
    assert ledger.is_waiting(ANN)
    ledger.take_due(1.0, 1)
    ledger.count_up(ANN, 2)
    ledger.keep(ANN)
    ledger.take_due(1.0, 2)
    ledger.durable(1)
    assert ledger.is_waiting(ANN)
    ledger.durable(2)
    assert not ledger.is_waiting(ANN)


def test_a_client_whose_commit_failed_waits_for_nothing() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 1)
    ledger.keep(ANN)
    ledger.take_due(1.0, 1)
    ledger.failed()
    assert not ledger.is_waiting(ANN)


def test_what_needs_no_commit_is_not_done_again_when_a_later_one_fails() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 5)
    ledger.needs_no_more(ANN)
    ledger.count_up(ANN, 6)
    ledger.keep(ANN)
    ledger.take_due(1.0, 1)
    ledger.failed()
    assert ledger.counter_of(ANN) == 5


def test_what_tells_its_counter_by_itself_needs_no_count_unless_something_was_refused() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 1)
    ledger.wait(ANN)
    assert ledger.is_waiting(ANN)
    assert ledger.take_due(1.0, 1) == []
    ledger.count_up(ANN, 3)
    ledger.refuse(ANN, refusal(2, 2))
    ledger.wait(ANN)
    (count,) = ledger.take_due(1.0, 2)
    assert isinstance(count, CountProducer)
    assert count.counter.counter == 3
    assert ledger.failed() == {("a", 1)}
    assert ledger.counter_of(ANN) == 0


def test_what_goes_before_its_sender_has_seen_the_answer_leaves_its_count() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 5)
    ledger.see(ANN, 4)
    ledger.gone(ANN, 4)
    assert ledger.take_due(1.0, 1) == []
    ledger.gone(ANN, 5)
    (count,) = ledger.take_due(1.0, 1)
    assert isinstance(count, CountProducer)
    assert count.counter.counter == 5


def test_what_is_found_on_disk_was_counted() -> None:
    ledger = Ledger([])
    ledger.learn(ANN, 7)
    ledger.learn(ANN, 3)
    assert ledger.counter_of(ANN) == 7


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 10))
def test_counters_must_grow_from_the_last_one_on(counters: list[int], last: int) -> None:
    line = [last, *counters]
    if all(before < after for before, after in zip(line, counters, strict=False)):
        check_growing(counters, last)
    else:
        with pytest.raises(CodecError, match="is not above"):
            check_growing(counters, last)


# -- what is being done elsewhere


def test_nothing_is_safe_from_the_first_on_that_is_pending() -> None:
    ledger = Ledger([])
    for counter in (3, 4, 7):
        ledger.pend(ANN, counter)
    assert ledger.safe_of(ANN, 9) == 2
    assert ledger.safe_of(ANN, 1) == 1
    ledger.settle(ANN, 4)
    assert ledger.safe_of(ANN, 9) == 2
    ledger.settle(ANN, 3)
    assert ledger.safe_of(ANN, 9) == 6
    ledger.settle(ANN, 7)
    ledger.settle(ANN, 7)
    assert ledger.safe_of(ANN, 9) == 9
    assert list(ledger.take_settled()) == [identity_of(ANN)]
    assert list(ledger.take_settled()) == []


def test_what_was_not_counted_after_all_is_not_pending_either() -> None:
    ledger = Ledger([])
    ledger.count_up(ANN, 5)
    ledger.pend(ANN, 5)
    ledger.keep(ANN)
    ledger.failed()
    assert ledger.safe_of(ANN, 5) == 5


# -- whose numbers they are


def test_two_users_who_say_that_they_are_one_system_are_counted_apart() -> None:
    ledger = Ledger([])
    ann, thief = Origin("a", 1, "ann"), Origin("a", 1, "eve/ann")
    ledger.count_up(ann, 3)
    assert ledger.counter_of(thief) == 0
    ledger.count_up(thief, 5_000_000)
    assert ledger.counter_of(ann) == 3
    ledger.keep(ann)
    ledger.keep(thief)
    stored = [one.counter for one in ledger.take_due(1.0, 1) if isinstance(one, CountProducer)]
    again = Ledger(stored)
    assert (again.counter_of(ann), again.counter_of(thief)) == (3, 5_000_000)


def test_a_user_is_the_same_under_all_its_names() -> None:
    assert identity_of(Origin("a", 1, "ann/desk")) == identity_of(Origin("a", 1, "ann"))
    assert identity_of(Origin("a", 1)) != identity_of(Origin("a", 1, "ann"))
