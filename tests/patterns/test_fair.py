"""What patterns owe to others: short steps, turns of their own, and a limit of what they remember."""

from __future__ import annotations

from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from protocol.rig import Peer, Rig
from protocol.test_turns import settle, sliced, ticks_until_pong

from patterns.reference import Given
from patterns.samples import S, events, patterns, row_of
from patterns.test_service import AB, NO_B, at, found
from tidings import Pattern
from tidings.patterns import session_watch, watching
from tidings.patterns.matcher import Matcher, encode_key
from tidings.turns import SLICE_S, Turns

MANY = 200


class Ticking:
    """A clock that stands still while the events come, and then moves on a slice with each look."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def gaps(peer: Peer) -> list[dict[str, Any]]:
    return [details for kind, _, details in peer.notices if kind == "gap"]


@settings(max_examples=often(100), deadline=None)
@given(patterns(), events(30))
def test_small_steps_find_what_one_large_step_finds(pattern: Pattern, given: list[Given]) -> None:
    whole, stepped = Matcher(pattern, 0.0), Matcher(pattern, 0.0)
    in_one, in_many = [], []
    for number, one in enumerate(given):
        for matcher in (whole, stepped):
            if pattern.mask(one.event):
                matcher.offer(encode_key(one.key), row_of(pattern, one), float(number))
        if number % 5 == 4:
            in_one += _found(whole, number, 1e9)
            in_many += _found(stepped, number, 1)
    assert sorted(map(repr, in_one)) == sorted(map(repr, in_many))
    assert whole.size == stepped.size
    restored = Matcher(pattern, 0.0)
    for key in stepped.all_keys():
        restored.restore(key, stepped.state(key))
    assert restored.size == stepped.size
    while stepped.partial:
        stepped.forget_oldest()
    assert stepped.size == 0


def _found(matcher: Matcher, now: float, most: float) -> list[tuple[bytes, object]]:
    found = []
    while matcher.is_due(now):
        found += [(key, one) for key, outcomes in matcher.advance(now, most) for one in outcomes]
    return found


def test_a_step_is_short_however_many_events_wait_for_one_key() -> None:
    pattern = Pattern("a[type = 'A'] THEN b[type = 'B'] WITHIN 1 h LATE 0 s OVERLAPPING")
    matcher = Matcher(pattern, 0.0)
    for number in range(MANY):
        matcher.offer(b"", row_of(pattern, Given(number * S, "n", number, (), at(1, "A", number))), 0.0)
    before = matcher.size
    _, steps = list(matcher.advance(1.0, 10)), 1
    assert matcher.size < before + 10 * 1_000
    while matcher.is_due(1.0):
        _, steps = list(matcher.advance(1.0, 10)), steps + 1
    assert steps > MANY / 2  # as each open match is one more comparison for each event


def test_others_do_not_wait_for_the_matches_of_a_pattern() -> None:
    rig = sliced()
    ann, bob, carl = rig.peer("a"), rig.peer("b"), rig.peer("c")
    bob.subscribe(pattern=AB)
    for number in range(0, 2 * MANY, 2):
        ann.publish(at(number + 1, "A", number, k=number), at(number + 2, "B", number + 1, k=number))
    rig.tick()
    assert ticks_until_pong(rig, carl) <= 3
    assert len(bob.events()) < MANY / 2
    settle(rig)
    rig.pass_time(1)
    assert len(bob.events()) == MANY


def test_what_waits_for_its_turn_is_neither_late_nor_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROWS_AT_FIRST", 1)
    monkeypatch.setattr(watching, "ROWS_AT_ONCE", 1)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=NO_B)
    clock = Ticking()
    rig.broker.turns = Turns(clock, lambda worker, until: worker.work(until))
    between = [at(number, "A", number, k=1.5) for number in range(2, MANY)]
    ann.publish(at(1, "A", 1), *between, at(MANY, "B", MANY))
    clock.step = SLICE_S
    for _ in range(2 * MANY):
        rig.now += 100  # before each slice, so that each has come much later than the one before
        rig.broker.wake(rig.now)
        rig.tick()
    assert not len(rig.broker.turns)
    assert gaps(bob) == [{"dropped": 1, "reason": "no key"}] * len(between)
    assert found(bob) == []


def test_what_is_too_much_to_wait_for_a_turn_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_watch, "WAITING_MAX", 3)
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=AB)
    for number in range(1, 9, 2):
        ann.publish(at(number, "A", number, k=number), at(number + 1, "B", number + 1, k=number))
    settle(rig)
    rig.pass_time(1)
    settle(rig)
    missed = sum(one["dropped"] for one in gaps(bob))
    assert {one["reason"] for one in gaps(bob)} <= {"too many events wait"}
    assert missed + 2 * len(found(bob)) == 8


def test_a_session_forgets_its_oldest_partial_matches_when_they_are_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_watch, "STATE_SIZE_MAX", 3_000)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=AB)
    ann.publish(*(at(number, "A", number, k=number) for number in range(1, 10)))
    rig.run()
    ann.publish(*(at(10 + number, "B", 10 + number, k=number) for number in range(1, 10)))
    rig.run()
    rig.pass_time(100)
    assert {one["reason"] for one in gaps(bob)} == {"memory"}
    kept = [one["k"] for one in bob.events()]
    assert kept == list(range(10 - len(kept), 10))
    assert 0 < len(kept) < 9
    bob.lose()
    rig.run()
    assert rig.broker.memory.node.used < 1_000  # the newest events, which anybody may ask for


def test_what_a_pattern_remembers_is_within_the_memory_of_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = sliced()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=NO_B)
    monkeypatch.setattr(bob.session.account, "limit", 10_000)
    ann.publish(*(at(number, "A", number, k=number) for number in range(1, MANY)))
    settle(rig)
    rig.pass_time(1_000)
    settle(rig)
    assert {one["reason"] for one in gaps(bob)} == {"memory"}
    assert 0 < len(bob.events()) < 20
