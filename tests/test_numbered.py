"""Both ends of a numbered stream: each item is done once and in order, whatever is cut."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidings import numbered
from tidings.numbered import Inbound, Outbound

WINDOW = 100


class No(NamedTuple):
    """These were refused."""

    first: int
    last: int


class Ends(RuleBasedStateMachine):
    """Two ends and a connection that is cut: the queue of the one, and a plain list of what the other did."""

    @initialize(steps=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def begin(self, steps: list[int]) -> None:
        self.numbers = count(1, sum(steps))
        self.waiting: list[int] = []  # the sender's queue, which is stored
        self.out: Outbound[int, No] = Outbound()
        self.into: Inbound[No] = Inbound()
        self.wire: list[list[int]] = []  # frames on their way
        self.answers: list[No | int] = []
        self.put: list[int] = []
        self.done: list[int] = []
        self.refused: set[int] = set()
        self.told: list[tuple[int, bool]] = []  # what the sender knows by now
        self.meet()

    def meet(self) -> None:
        """Both ends are connected anew."""
        self.wire, self.answers = [], []
        self.waiting = self.out.cut() + self.waiting
        self.into.hear(self.told[-1][0] if self.told else 0)
        self.out.resume(WINDOW, reversed(self.into.refusals))
        had = [one for one in self.waiting if one <= self.into.last]
        self.told += [(one, self.out.refusal(one) is not None) for one in had]
        del self.waiting[: len(had)]

    @rule(items=st.integers(1, 4))
    def put_some(self, items: int) -> None:
        new = [next(self.numbers) for _ in range(items)]
        self.put += new
        self.waiting += new

    @precondition(lambda self: self.waiting)
    @rule(items=st.integers(1, 4), size=st.integers(1, 2 * WINDOW))
    def send(self, items: int, size: int) -> None:
        frame = self.waiting[:items]
        if self.out.fits(size):
            self.out.send(frame, frame, size)
            del self.waiting[:items]
            self.wire.append(frame)

    @precondition(lambda self: self.wire)
    @rule(refuses=st.sets(st.integers(0, 3)))
    def receive(self, refuses: set[int]) -> None:
        frame = self.wire.pop(0)
        assert all(one not in self.into for one in frame)
        assert self.into.count_up(frame[-1]) < frame[0]
        for place, one in enumerate(frame):
            if place in refuses:
                refusal = No(one, one)
                self.into.refuse(refusal)
                self.answers.append(refusal)
                self.refused.add(one)
            else:
                self.done.append(one)
        self.answers.append(frame[-1])

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        answer = self.answers.pop(0)
        if isinstance(answer, No):
            self.out.refuse(answer)
        else:
            acknowledged = self.out.acknowledge(answer)
            self.told += [(item, refusal is not None) for item, refusal in acknowledged]

    @rule()
    def store(self) -> None:
        self.into.stored = self.into.last

    @rule()
    def cut(self) -> None:
        self.meet()

    @rule()
    def crash(self) -> None:
        """The receiver has forgotten what it had not stored; nobody was told of that in vain."""
        if not self.told or self.told[-1][0] <= self.into.stored:
            self.done = [one for one in self.done if one <= self.into.stored]
            self.refused = {one for one in self.refused if one <= self.into.stored}
            self.into.set_back()
            self.meet()

    @invariant()
    def everything_is_done_once_and_in_order(self) -> None:
        assert sorted([*self.done, *self.refused]) == [one for one in self.put if one <= self.into.last]
        assert self.done == sorted(self.done)
        assert self.told == [(one, one in self.refused) for one, _ in self.told]
        assert [one for one, _ in self.told] + list(self.out) + self.waiting == self.put
        assert self.out.size <= WINDOW or len({tuple(frame) for frame in self.wire}) <= 1


TestEnds = Ends.TestCase


def test_what_is_larger_than_the_window_goes_alone() -> None:
    out: Outbound[str, No] = Outbound()
    out.resume(10)
    assert out.fits(50)
    out.send([1, 2], ["a", "b"], 50)
    assert not out.fits(0)
    assert list(out.acknowledge(1)) == [("a", None)]
    assert (out.size, len(out)) == (50, 1)
    assert list(out.acknowledge(2)) == [("b", None)]
    assert (out.size, len(out)) == (0, 0)
    out.send([3], ["c"], 4)
    assert (out.fits(6), out.fits(7)) == (True, False)


@given(st.lists(st.integers(0, 9)), st.integers(0, 12))
def test_nothing_is_safe_from_the_first_on_that_is_pending(numbers: list[int], upto: int) -> None:
    into: Inbound[No] = Inbound()
    pending = dict.fromkeys(sorted(numbers))
    into.pending = dict(pending)
    for number in [None, *numbers]:
        pending.pop(number, None)  # type: ignore[call-overload]
        into.pending.pop(number, None)  # type: ignore[call-overload]
        assert into.safe(upto) == max(one for one in range(-1, upto + 1) if all(one < p for p in pending))


def test_the_oldest_refusals_are_forgotten_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered, "REFUSALS_MAX", 2)
    into: Inbound[No] = Inbound()
    out: Outbound[int, No] = Outbound()
    refusals = [No(number, number) for number in (1, 2, 3)]
    for one in refusals:
        into.refuse(one)
        out.refuse(one)
    assert into.refusals == refusals[1:]
    assert [out.refusal(number) for number in (1, 2, 3)] == [None, *refusals[1:]]
    into.hear(2)
    assert into.refusals == refusals[2:]
