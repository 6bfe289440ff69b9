"""Patterns at a node: matches of sessions and of standing patterns, restarts, rights and limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from protocol.guarded import come, guarded, may
from protocol.rig import Peer, Rig, with_header

from patterns.reference import Given, Said
from patterns.samples import S, events, expected, patterns
from tidings import Batch, Event, Pattern
from tidings.event.values import EPOCH, MICROSECOND
from tidings.patterns import key_records, matcher, runs
from tidings.patterns.watching import PatternWatch
from tidings.protocol.messages import Bye

AB = "a[type = 'A'] THEN b[type = 'B'] WITHIN 300 s BY k RETURN a.n, b.n LATE 0 s"
NO_B = "a[type = 'A'] THEN NO b[type = 'B'] WITHIN 300 s BY k LATE 0 s"


def at(counter: int, kind: str, time_s: float, delivery: str = "transient", **attributes: Any) -> Event:
    """An event of that time, in seconds."""
    made = Event.unchecked(counter, kind, int(time_s * S), {"k": "x", **attributes})
    return made if delivery == "transient" else with_header(made, delivery=delivery)


def seconds(moment: datetime) -> float:
    return (moment - EPOCH) / MICROSECOND / S


def found(peer: Peer, number: int = 1) -> list[tuple[str, float, float]]:
    """The type, start and end of each match that came."""
    return [(one.type, seconds(one["start"]), one.time_us / S) for one in peer.events(number)]


def test_a_session_gets_the_matches_of_its_pattern() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=AB)
    ann.publish(at(1, "A", 0, n=3), at(2, "X", 1), at(3, "A", 60, k="y"), at(4, "B", 240, n=7))
    rig.run()
    rig.pass_time(1)
    (match,) = bob.events()
    assert (match.type, match.subject, match["k"], match.time_us) == ("match", "x", "x", 240 * S)
    assert dict(match.attributes) == {
        "k": "x",
        "start": EPOCH,
        "events": 2,
        "a.time": EPOCH,
        "a.count": 1,
        "b.time": EPOCH + timedelta(seconds=240),
        "b.count": 1,
        "a.n": 3,
        "b.n": 7,
    }


def test_absence_fires_by_the_clock_of_the_node_when_nothing_else_comes() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=NO_B)
    ann.publish(at(1, "A", 50_000))
    rig.run()
    rig.pass_time(299)
    assert found(bob) == []
    rig.pass_time(2)
    assert found(bob) == [("match", 50_000, 50_300)]


def test_the_node_prevents_the_absence_by_an_event_at_its_very_end() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=NO_B)
    ann.publish(at(1, "A", 0), at(2, "B", 300))
    rig.run()
    rig.pass_time(1_000)
    assert found(bob) == []


def test_a_standing_pattern_goes_on_after_a_restart_and_publishes_each_match_once() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=f"{AB} AS 'pair'", durable="d")
    ann.publish(at(1, "A", 0, "reliable"), at(2, "A", 10, "reliable", k="y"))
    rig.run()
    rig = rig.restart()
    ann = rig.peer("a", 2)
    ann.publish(at(1, "B", 100, "reliable"))
    rig.run()
    rig.pass_time(1)
    rig = rig.restart()
    bob = rig.peer("b", 2, name="bob")
    bob.subscribe(pattern=f"{AB} AS 'pair'", durable="d")
    assert found(bob) == [("pair", 0, 100)]
    ann = rig.peer("a", 3)
    ann.publish(at(1, "B", 200, "reliable", k="y"))
    rig.run()
    rig.pass_time(1)
    assert found(bob) == [("pair", 0, 100), ("pair", 10, 200)]
    bob.acknowledge(1, max(filter(None, bob.positions())))
    rig.run()
    assert rig.state.records("pattern-key") == {}


def test_a_standing_pattern_notices_absence_though_the_node_was_down_at_its_end() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=NO_B, durable="d")
    ann.publish(at(1, "A", 0, "reliable"))
    rig.run()
    rig.pass_time(100)
    rig = rig.restart(90_000.0)
    rig.pass_time(150)
    bob = rig.peer("b", 2, name="bob")
    bob.subscribe(pattern=NO_B, durable="d")
    assert found(bob) == []  # the time that it was down does not count
    rig.pass_time(60)
    assert found(bob) == [("match", 0, 300)]


def test_a_failed_commit_takes_partial_matches_back() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=AB, durable="d")
    ann.publish(at(1, "A", 0, "reliable"))
    rig.run()
    ann.publish(at(2, "B", 100, "reliable"), at(3, "A", 101, "reliable", k="y"))
    rig.tick()
    rig.fail()
    assert ann.got(Bye)
    rig.peers.remove(ann)
    ann = rig.peer("a")
    ann.publish(at(2, "B", 100, "reliable"), at(3, "A", 101, "reliable", k="y"))
    rig.run()
    rig.pass_time(1)
    bob = rig.restart().peer("b", 2, name="bob")
    bob.subscribe(pattern=AB, durable="d")
    assert found(bob) == [("match", 0, 100)]


def test_partial_matches_that_are_too_large_for_one_record_outlive_restarts_and_failed_commits() -> None:
    text, count = f"a[type = 'A']{{900,}} THEN {AB[AB.index('b[') :]}", 900
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=text, durable="d")
    for first in range(0, count, 300):
        numbers = range(first, first + 300)
        ann.publish(*(at(n + 1, "A", n / 10, "reliable", n="x" * 80) for n in numbers))
        rig.run()
    assert len(rig.state.records("pattern-key")) > 1
    ann.publish(at(count + 1, "B", 99, "reliable"))
    rig.tick()
    rig.fail()
    rig = rig.restart()
    ann, bob = rig.peer("a", 2), rig.peer("b", 2, name="bob")
    bob.subscribe(pattern=text, durable="d")
    assert found(bob) == []
    ann.publish(at(1, "B", 100, "reliable"))
    rig.run()
    rig.pass_time(1)
    assert found(bob) == [("match", 0, 100)]
    bob.acknowledge(1, max(filter(None, bob.positions())))
    rig.run()
    assert rig.state.records("pattern-key") == {}


@pytest.mark.parametrize("part", [0, 1])
def test_partial_matches_of_which_a_part_is_damaged_are_forgotten(part: int) -> None:
    key, state = b"k", bytes(3 * key_records.PART_SIZE)
    rig = Rig()
    for change in key_records.key_changes(("owner", "name"), key, None, state):
        rig.broker.store(change)
    for change in list(key_records.key_changes(("owner", "name"), key, state, None))[part : part + 1]:
        rig.broker.store(change)
    rig.run()
    assert len(rig.state.records("pattern-key")) == 2
    rig = rig.restart()
    rig.run()
    assert rig.state.records("pattern-key") == {}


def test_an_event_that_is_no_step_costs_a_pattern_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 21):
        both = [
            f"{step}[type = 'T{number}' AND x {holds} {number}]" for step, holds in (("a", "<"), ("b", ">"))
        ]
        bob.subscribe(number=number, pattern=f"{' THEN '.join(both)} WITHIN 300 s LATE 0 s")
    rig.run()
    taken: list[PatternWatch] = []
    deliver = PatternWatch.deliver

    def noted(watch: PatternWatch, *given: Any) -> None:
        taken.append(watch)
        deliver(watch, *given)

    monkeypatch.setattr(PatternWatch, "deliver", noted)
    assert rig.broker.exchange.unindexed.conditions == 0  # all steps stand in the index
    ann.publish(*[at(n, f"T{n}", n, x=n) for n in range(1, 21)], at(21, "T3", 21, x=2), at(22, "T0", 22, x=2))
    rig.run()
    assert [str(watch.pattern).partition("'")[2][:2] for watch in taken] == ["T3"]


def test_a_standing_pattern_ends_with_its_subscription() -> None:
    rig = Rig()
    bob = rig.peer("b", name="bob")
    bob.subscribe(pattern=AB, durable="d")
    rig.peer("a").publish(at(1, "A", 0, "reliable"))
    rig.run()
    assert len(rig.state.records("pattern-key")) == 1
    assert bob.ask("unsubscribe", durable="d").error is None
    assert (rig.state.records("pattern"), rig.state.records("pattern-key")) == ({}, {})
    assert rig.broker.exchange.subscriptions == 0


def test_a_pattern_that_ends_with_its_session_leaves_nothing() -> None:
    rig = Rig()
    bob = rig.peer("b")
    bob.subscribe(pattern=NO_B)
    rig.peer("a").publish(at(1, "A", 0))
    rig.run()
    bob.lose()
    rig.run()
    rig.pass_time(1_000)
    assert rig.broker.exchange.subscriptions == 0


def test_late_events_and_those_without_a_key_are_counted_and_reported() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=AB.replace("LATE 0 s", "LATE 10 s"))
    ann.publish(at(1, "A", 100), at(2, "A", 91, k="y"), at(3, "B", 89), at(4, "A", 95, k=1.5))
    rig.run()
    counted = {reason: n for (what, reason), n in rig.broker.tallies.items() if what == "patterns_unused"}
    assert counted == {"late": 1, "no key": 1}
    assert [details for kind, _, details in bob.notices if kind == "gap"] == [
        {"dropped": 1, "reason": "late"},
        {"dropped": 1, "reason": "no key"},
    ]


def test_a_standing_pattern_publishes_late_events_as_a_history_of_their_own() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=f"{AB} AS 'pair'", durable="d")
    bob.subscribe(2, "type = 'pair.late'")
    ann.publish(at(1, "A", 100), at(2, "B", 50))
    rig.run()
    (late,) = bob.events(2)
    assert (late["reason"], late["pattern"], late.time_us) == ("late", "bob/d", 50 * S)


def test_keys_past_the_limit_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "KEYS_MAX", 3)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=AB)
    ann.publish(*(at(n + 1, "A", n, k=n) for n in range(5)))
    rig.run()
    assert rig.broker.tallies["patterns_unused", "too many keys"] == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pattern": "a[type = 'A'"}, "line 1, column 2: this bracket of a condition has no end ]"),
        ({"pattern": NO_B, "last": True}, "a pattern can't be combined with filter, queue, last or spill"),
        ({"pattern": NO_B, "since": 3}, "a pattern begins now; leave out since"),
    ],
)
def test_a_subscription_that_no_pattern_can_have_is_refused(options: dict[str, Any], problem: str) -> None:
    reply = Rig().peer("b").ask("subscribe", number=1, credit=10, **options)
    assert reply.error is not None
    assert reply.error.text == problem


def test_a_user_needs_the_right_to_every_step() -> None:
    rig = guarded(ann=[may("publish")], bob=[may("subscribe", "type IN ('A', 'B') AND n < 5")])
    ann, bob = come(rig, "ann"), come(rig, "bob")
    secret = "a[type = 'A'] THEN b[type = 'B'] THEN NO c[type = 'secret'] WITHIN 9 s BY k"
    reply = bob.ask("subscribe", number=1, credit=10, pattern=secret)
    assert reply.error is not None
    assert reply.error.code == "not-allowed"
    bob.subscribe(pattern=AB)
    ann.publish(at(1, "A", 0, n=9), at(2, "A", 1, n=1), at(3, "B", 2, n=9), at(4, "B", 3, n=2))
    rig.run()
    rig.pass_time(1)
    assert found(bob) == [("match", 1, 3)]  # the others are not granted, and so are no steps


def test_a_standing_pattern_needs_the_right_to_publish_its_matches_and_goes_by_the_current_rules() -> None:
    rules = [may("subscribe"), may("publish", "IS_A(type, 'pair')")]
    rig = guarded(ann=[may("publish")], bob=rules)
    ann, bob = come(rig, "ann"), come(rig, "bob", name="bob")
    reply = bob.ask("subscribe", number=1, credit=10, pattern=AB, durable="d")
    assert reply.error is not None
    assert (reply.error.code, reply.error.text) == (
        "not-allowed",
        "'bob' may not publish 'match', as this pattern does",
    )
    bob.subscribe(pattern=f"{AB} AS 'pair'", durable="d")
    ann.publish(at(1, "A", 0, "reliable"), at(2, "B", 3, "reliable"))
    rig.run()
    rig.pass_time(1)
    assert found(bob) == [("pair", 0, 3)]
    rig.broker.authenticator.users["bob"] = (may("subscribe"),)  # type: ignore[attr-defined]
    rig.broker.review()
    ann.publish(at(3, "A", 10, "reliable"), at(4, "B", 13, "reliable"))
    rig.run()
    rig.pass_time(1)
    assert not any(event.type == "pair" and event.time_us == 13 * S for event in _published(rig))


def _published(rig: Rig) -> list[Event]:
    return [event for stored in rig.stored for event in Batch(stored.raw).events]


@settings(max_examples=often(120), deadline=None)
@given(patterns(), events())
def test_a_node_says_what_the_reference_says(pattern: Pattern, given: list[Given]) -> None:
    """Events of one node come in any order; those that are late are none."""
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=str(pattern))
    newest, used = -1, list[Given]()
    for number, one in enumerate(given):
        time_us = one.time
        if not pattern.mask(one.event):
            continue
        if time_us >= newest:
            newest = time_us
            used.append(one._replace(node="", number=number))
        ann.publish(Event.unchecked(number + 1, one.event.type, time_us, dict(one.event.attributes)))
        rig.run()
    rig.pass_time(1_000)
    wanted = expected(pattern, used, 1 << 60)
    assert sorted(map(_short, wanted)) == sorted(map(_told, bob.events()))


def _short(one: Said) -> tuple[Any, ...]:
    counts = {f"{step}.count": sum(step == other[0] for other in one.events) for step, *_ in one.events}
    return one.is_timeout, one.key[0], one.events[0][1], one.end, sorted(counts.items())


def _told(event: Event) -> tuple[Any, ...]:
    counts = {name: value for name, value in event.attributes.items() if name.endswith(".count")}
    start_us = (event["start"] - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND
    return event.type == "match.timeout", event["k"], start_us, event.time_us, sorted(counts.items())


def test_events_that_are_not_stored_count_one_by_one_though_they_have_one_time() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe(pattern=NO_B)
    ann.publish(at(1, "A", 0), at(2, "A", 0))
    rig.run()
    rig.pass_time(301)
    assert found(bob) == [("match", 0, 300), ("match", 0, 300)]


TOO_MANY = [
    ("late", [at(1, "A", 100), at(2, "A", 50)]),
    ("no key", [at(1, "A", 0, k=1.5)]),
    ("key too long", [at(1, "A", 0, k="x" * 1_001)]),
    ("too many keys", [at(n + 1, "A", n, k=n) for n in range(4)]),
    ("too many partial matches", [at(n + 1, "A", n) for n in range(4)]),
    ("too many events wait", [at(n + 1, "A", 10) for n in range(4)]),
]


@pytest.mark.parametrize(("reason", "given"), TOO_MANY)
def test_what_can_not_be_used_is_counted_and_is_in_the_history_late_with_its_reason(
    reason: str, given: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {
        "too many keys": (matcher, "KEYS_MAX"),
        "too many partial matches": (runs, "RUNS_MAX"),
        "too many events wait": (matcher, "WAITING_MAX"),
    }
    if reason in limits:
        monkeypatch.setattr(*limits[reason], 3)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b", name="bob")
    bob.subscribe(pattern=f"{AB} AS 'pair'", durable="d")
    bob.subscribe(2, "type = 'pair.late'")
    ann.publish(*given)
    rig.run()
    rig.pass_time(5)
    assert [(one["reason"], one["pattern"]) for one in bob.events(2)] == [(reason, "bob/d")]
    assert rig.broker.tallies["patterns_unused", reason] == 1
