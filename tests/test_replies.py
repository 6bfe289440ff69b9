"""Replies that come later: one outcome, for everybody who waits for it, in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import Refused, TidingsError
from tidings.replies import Deferred, failed, gathered, resolved

STEPS = st.sampled_from(["resolve", "fail", "cancel", "then"])


class Heard:
    """What callbacks were called with, in their order."""

    def __init__(self) -> None:
        self.all: list[tuple[int, Any]] = []

    def add(self, reply: Deferred[Any], who: int) -> None:
        reply.then(lambda value: self.all.append((who, value)), lambda error: self.all.append((who, error)))


@given(st.lists(STEPS, max_size=12))
def test_everybody_hears_the_first_outcome_once_and_in_order_unless_it_was_cancelled(
    steps: list[str],
) -> None:
    cancelled: list[bool] = []
    reply: Deferred[int] = Deferred(lambda: cancelled.append(True))
    heard, outcome, waiting = Heard(), None, 0
    for number, step in enumerate(steps):
        if step == "then":
            heard.add(reply, waiting)
            waiting += 1
            continue
        error = Refused("limit", str(number))
        if step == "cancel":
            reply.cancel()
        else:
            reply.take(number, error if step == "fail" else None)
        if outcome is None:
            outcome = {"cancel": "cancelled", "resolve": number, "fail": error}[step]
    assert reply.is_over is (outcome is not None)
    assert reply.is_cancelled is (outcome == "cancelled") is bool(cancelled)
    is_told = outcome is not None and outcome != "cancelled"
    assert heard.all == ([(who, outcome) for who in range(waiting)] if is_told else [])


def test_who_asks_while_others_are_told_is_told_behind_them() -> None:
    reply: Deferred[str] = Deferred()
    told: list[str] = []

    def ask_again(value: str) -> None:
        reply.then(told.append)
        told.append("first")

    reply.then(ask_again)
    reply.then(lambda _value: told.append("second"))
    reply.resolve("last")
    assert told.index("second") < told.index("last")


@given(st.integers(), st.booleans())
def test_a_mapped_reply_has_the_function_of_the_outcome(value: int, is_there: bool) -> None:
    reply: Deferred[int] = Deferred()
    heard = Heard()
    if is_there:
        reply.resolve(value)
    heard.add(reply.map(lambda one: one + 1), 0)
    reply.resolve(value)
    assert heard.all == [(0, value + 1)]


def test_a_mapped_reply_fails_with_what_its_function_raises_and_with_the_error_as_it_is_told() -> None:
    def refuse(_value: int) -> int:
        raise Refused("limit", "too large")

    heard = Heard()
    heard.add(resolved(1).map(refuse), 0)
    heard.add(failed(Refused("a", "b")).map(refuse, lambda error: Refused("named", str(error))), 1)
    heard.add(failed(Refused("a", "b")).map(refuse), 2)
    assert [error.code for _, error in heard.all] == ["limit", "named", "a"]


def test_cancelling_a_mapped_reply_cancels_what_it_is_made_of() -> None:
    reply: Deferred[int] = Deferred()
    reply.map(str).cancel()
    assert reply.is_cancelled


def test_an_error_of_a_function_that_is_not_ours_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        resolved(0).map(lambda value: 1 // value)


@given(
    st.lists(st.none() | st.integers(), max_size=6).flatmap(
        lambda outcomes: st.tuples(st.just(outcomes), st.permutations(range(len(outcomes))))
    )
)
def test_gathered_replies_are_the_values_in_the_order_of_the_replies(
    made: tuple[list[int | None], list[int]],
) -> None:
    outcomes, order = made
    replies: list[Deferred[int]] = [Deferred() for _ in outcomes]
    heard = Heard()
    heard.add(gathered(replies), 0)
    error: TidingsError = Refused("away", "")
    for place in order:
        assert heard.all == []
        outcome = outcomes[place]
        replies[place].take(outcome or 0, error if outcome is None else None)
    assert heard.all == [(0, [outcome for outcome in outcomes if outcome is not None])]
