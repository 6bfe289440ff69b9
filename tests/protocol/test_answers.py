"""Who may answer a request, and who hears the answer: nobody speaks for another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.guarded import ALL, come, guarded, may
from protocol.rig import Peer, Rig, event, with_header
from tidings.event import Batch, Event
from tidings.ids import make_id
from tidings.protocol import answers
from tidings.protocol.answers import ANSWER_S_MAX, Answers, hears, without_others
from tidings.protocol.messages import Refusal

INBOX = "inbox.ann/sys-ann.5eed"


def asking(counter: int, kind: str = "ask", **header: Any) -> Event:
    return with_header(event(counter, kind), **{"reply_to": INBOX, "correlation_id": "c1", **header})


def answering(counter: int, kind: str = "sum", **header: Any) -> Event:
    return with_header(event(counter, kind), **{"subject": INBOX, "correlation_id": "c1", **header})


def office() -> Rig:
    """Ann asks, bob may hear and answer, eve may publish whatever she likes and hear nothing."""
    return guarded(
        ann=[may("publish")],
        bob=[may("publish", "type = 'sum'"), may("subscribe", "type = 'ask'")],
        eve=[may("publish"), may("subscribe", "type = 'noise'")],
    )


def refusals(peer: Peer) -> list[tuple[int, int]]:
    peer.rig.run()
    assert {one.failure.code for one in peer.got(Refusal)} <= {"not-allowed"}
    return [(one.first, one.last) for one in peer.got(Refusal)]


def listening(rig: Rig) -> Peer:
    ann = come(rig, "ann")
    ann.subscribe(1, f"subject = '{INBOX}'", passive=True)
    return ann


# -- answering


def test_only_who_has_got_a_request_may_answer_it() -> None:
    rig = office()
    ann, bob, eve = listening(rig), come(rig, "bob"), come(rig, "eve")
    bob.subscribe(1, "type = 'ask'")
    eve.subscribe(1, "")
    ann.publish(asking(1))
    rig.run()
    eve.publish(event(1, "noise"), answering(2), event(3, "noise"))
    assert refusals(eve) == [(2, 2)]
    assert "'eve' may answer only what was delivered to it" in eve.got(Refusal)[0].failure.text
    assert ann.events() == []
    bob.publish(answering(1))
    assert refusals(bob) == []
    assert [one.type for one in ann.events()] == ["sum"]
    assert bob.counters() == [1]


@pytest.mark.parametrize(
    "wrong", [{"correlation_id": "c2"}, {"correlation_id": None}, {"subject": INBOX + "0"}]
)
def test_who_got_one_request_may_not_answer_others(wrong: dict[str, Any]) -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'")
    ann.publish(asking(1))
    rig.run()
    bob.publish(answering(1, **wrong))
    assert refusals(bob) == [(1, 1)]


def test_an_answer_must_be_something_that_may_be_published() -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'")
    ann.publish(asking(1))
    rig.run()
    bob.publish(answering(1, "alarm"))
    assert refusals(bob) == [(1, 1)]
    assert ann.events() == []


def test_a_request_without_a_correlation_id_is_answered_by_its_id() -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'")
    ann.publish(asking(7, correlation_id=None))
    rig.run()
    identity = make_id("sys-ann", 1, 7)
    bob.publish(answering(1, correlation_id=identity), answering(2, correlation_id="7"))
    assert refusals(bob) == [(2, 2)]
    assert len(ann.events()) == 1


@pytest.mark.parametrize(
    "how", [{"last": True}, {"since": 0}, {"durable": "d"}, {"durable": "d", "order": "newest"}]
)
def test_a_request_of_the_past_may_be_answered_by_who_gets_it(how: dict[str, Any]) -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    if "durable" in how:
        bob.subscribe(1, "type = 'ask'", **how)
        bob.lose()
    ann.publish(asking(1, delivery="persistent"))
    rig.run()
    bob = come(rig, "bob")
    bob.publish(answering(1))
    assert refusals(bob) == [(1, 1)]
    bob.subscribe(1, "type = 'ask'", **how)
    rig.run()
    bob.publish(answering(2))
    assert refusals(bob) == [(1, 1)]
    assert len(ann.events()) == 1


def test_who_comes_again_may_still_answer() -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'")
    ann.publish(asking(1))
    rig.run()
    bob.lose()
    again = come(rig, "bob", "sys-other", "bob/desk")
    again.publish(answering(1))
    assert refusals(again) == []
    assert len(ann.events()) == 1


def test_what_waits_for_credit_is_not_delivered_yet() -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'", credit=0)
    ann.publish(asking(1))
    rig.run()
    bob.publish(answering(1))
    assert refusals(bob) == [(1, 1)]
    bob.grant(1, 10)
    bob.publish(answering(2))
    assert refusals(bob) == [(1, 1)]


def test_a_request_may_be_answered_for_so_long_and_no_longer() -> None:
    rig = office()
    ann, bob = listening(rig), come(rig, "bob")
    bob.subscribe(1, "type = 'ask'")
    ann.publish(asking(1))
    rig.run()
    rig.now += ANSWER_S_MAX - 1
    bob.publish(answering(1))
    rig.now += 1
    bob.publish(answering(2))
    assert refusals(bob) == [(2, 2)]


def test_the_owner_and_other_nodes_say_what_they_have_to_say() -> None:
    rig = guarded(ann=ALL, attic=ALL)
    rig.broker.authenticator.nodes.add("attic")  # type: ignore[attr-defined]
    ann, attic = listening(rig), come(rig, "attic")
    attic.publish(answering(1))
    rig.run()
    assert len(ann.events()) == 1
    plain = Rig()
    reader, owner = plain.peer("r"), plain.peer("o")
    reader.subscribe(1, f"subject = '{INBOX}'")
    owner.publish(answering(1))
    plain.run()
    assert len(reader.events()) == 1


# -- asking


def test_nobody_asks_in_anothers_name_to_be_allowed_to_answer() -> None:
    rig = guarded(ann=ALL, eve=ALL)
    ann, eve = listening(rig), come(rig, "eve")
    eve.subscribe(1, "type = 'ask'")
    eve.publish(asking(1), asking(2, reply_to="inbox.sys-owner.1"), asking(3, reply_to="inbox.eve/own"))
    assert refusals(eve) == [(1, 2)]
    assert "inbox.eve/" in eve.got(Refusal)[0].failure.text
    assert eve.counters() == [3]
    eve.publish(answering(4))
    assert refusals(eve) == [(1, 2), (4, 4)]
    assert ann.events() == []


def test_who_may_answer_a_request_may_hand_it_on() -> None:
    rig = guarded(ann=ALL, bob=ALL, eve=[may("subscribe", "type = 'task'"), may("publish", "type = 'sum'")])
    ann, bob, eve = listening(rig), come(rig, "bob"), come(rig, "eve")
    bob.subscribe(1, "type = 'ask'")
    eve.subscribe(1, "type = 'task'")
    ann.publish(asking(1))
    rig.run()
    bob.publish(asking(1, "task"))
    rig.run()
    eve.publish(answering(1))
    assert refusals(bob) + refusals(eve) == []
    assert len(ann.events()) == 1


# -- hearing


@pytest.mark.parametrize(
    "how", [{}, {"durable": "d"}, {"since": 0}, {"last": True}, {"on_slow": "spill"}, {"passive": True}]
)
def test_an_inbox_is_heard_by_nobody_else_whatever_was_granted(how: dict[str, Any]) -> None:
    rig = guarded(ann=ALL, bob=ALL, eve=ALL)
    ann, bob, eve = listening(rig), come(rig, "bob"), come(rig, "eve")
    bob.subscribe(1, "type = 'ask'")
    is_late = "last" in how or "since" in how
    if not is_late:
        eve.subscribe(1, **how)
    ann.publish(asking(1))
    rig.run()
    bob.publish(answering(1, delivery="persistent"), event(2, "noise"))
    rig.run()
    if is_late:
        eve.subscribe(1, **how)
        bob.publish(answering(3))
        rig.run()
    assert "sum" not in {one.type for one in eve.events()}
    assert len(ann.events()) == 1 + is_late
    refused = eve.ask("subscribe", number=2, filter=f"subject = '{INBOX}'", **how).error
    assert refused is not None
    assert "the inbox of another" in refused.text


def test_an_answer_that_is_not_heard_does_not_keep_a_durable_subscription_back() -> None:
    rig = guarded(ann=ALL, bob=ALL, eve=ALL)
    ann, bob, eve = listening(rig), come(rig, "bob"), come(rig, "eve")
    bob.subscribe(1, "type = 'ask'")
    eve.subscribe(1, "type = 'sum'", durable="d")
    ann.publish(asking(1))
    rig.run()
    bob.publish(answering(1, delivery="reliable"))
    rig.run()
    (cursor,) = rig.broker.cursors.named
    assert cursor.passed == rig.broker.position
    eve.lose()
    bob.publish(answering(2, delivery="reliable"))
    rig.run()
    eve = come(rig, "eve")
    eve.subscribe(1, "type = 'sum'", durable="d")
    assert eve.events() == []
    assert cursor.passed == rig.broker.position


SUBJECTS = [None, "inbox.", "inbox.ann/1", "inbox.annie/1", "inbox.ann", "other", "Inbox.x"]
AT_NODES = ["inbox.@node.ann/1", "inbox.@node.annie/1", "inbox.@other.ann/1", "inbox.@node./1"]


@given(st.sampled_from(SUBJECTS + AT_NODES))
def test_what_is_read_of_the_past_is_what_is_heard(subject: str | None) -> None:
    told = event(1) if subject is None else with_header(event(1), subject=subject)
    assert without_others("node", "ann").matches(told) is hears("node", "ann", told)
    assert hears("node", None, told)


# -- limits


def test_a_user_is_known_to_have_got_so_many_requests_and_what_it_has_answered_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "REQUESTS_USER_MAX", 3)
    known = Answers("node")

    def ask(user: str, *names: str) -> None:
        batch = Batch.of([asking(n, correlation_id=name) for n, name in enumerate(names, 1)])
        known.deliver(user, batch, range(len(batch)), 0.0)

    def may_answer(user: str, name: str) -> bool:
        return bool(known.allowed(user, Batch.of([answering(1, correlation_id=name)]), (0,), 1.0))

    ask("bob", "a", "b", "c")
    ask("eve", "z")
    assert may_answer("bob", "b")
    ask("bob", "d")
    assert [may_answer("bob", name) for name in "bd"] == [False, True]
    ask("bob", "e")
    assert [may_answer("bob", name) for name in "acde"] == [True, True, False, True]
    assert may_answer("eve", "z")
    assert len(known) == 4


def test_all_users_together_have_a_limit_and_what_is_over_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "REQUESTS_NODE_MAX", 2)
    known = Answers("node")
    for n, user in enumerate(("ann", "bob", "eve")):
        known.deliver(user, Batch.of([asking(1)]), (0,), float(n))
    batch = Batch.of([answering(1)])
    assert [len(known.allowed(user, batch, (0,), 3.0)) for user in ("ann", "bob", "eve")] == [0, 1, 1]
    known.deliver("ann", Batch.of([asking(2)]), (0,), 2.0 + ANSWER_S_MAX)
    assert len(known) == 1
    assert list(known._known) == ["ann"]


def test_what_has_only_the_letters_of_an_inbox_in_it_goes_on() -> None:
    rig = office()
    eve = come(rig, "eve")
    eve.publish(event(1, "inbox.ann/x", note="inbox.ann/x"), with_header(event(2), subject="my inbox.ann/x"))
    assert refusals(eve) == []
