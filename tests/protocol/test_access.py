"""What a client may do: who is let in, under which name, and what of it is granted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.guarded import ALL, Book, Slow, come, ending, guarded, is_in, knock, may
from protocol.rig import Rig, event, persistent
from tidings.errors import NotAllowed
from tidings.event import Header
from tidings.event.wire import encode_events
from tidings.filters import Filter
from tidings.protocol.access import OWNER, Denied, LoginCredentials, Principal, matches
from tidings.protocol.frames import FIRST_FRAME_MAX, encode
from tidings.protocol.messages import Bye, Deliver, Hello, Notice, Ping, Publish, Refusal, Welcome

RELIABLE = Header(delivery="reliable")


# -- who is let in


def test_a_client_with_the_right_secret_is_let_in_and_one_with_another_is_not() -> None:
    rig = guarded(ann=ALL)
    assert is_in(come(rig, "ann"))
    assert ending(come(rig, "ann", secret="wrong")) == ("not-allowed", "user or secret is wrong")
    assert ending(come(rig, "zoe")) == ("not-allowed", "user or secret is wrong")
    assert rig.broker.tallies["logins_denied", "secret"] == 2


def test_a_check_that_takes_long_is_run_elsewhere_and_nothing_is_heard_before_it_is_done() -> None:
    rig = guarded(ann=ALL)
    peers = [knock(rig, "ann", f"s{n}", secret=secret) for n, secret in enumerate(("?nna", "?wrong"))]
    assert not any(map(is_in, peers))
    assert [call.pool for call in rig.broker.offloaded] == ["password", "password"]
    rig.run()
    assert is_in(peers[0])
    assert ending(peers[1])[0] == "not-allowed"


def test_who_says_more_before_it_is_let_in_is_parted_from_and_who_leaves_may_leave() -> None:
    rig = guarded(ann=ALL)
    hasty, leaving = (knock(rig, "ann", f"s{n}", secret="?nna") for n in range(2))
    hasty.send(Ping())
    leaving.send(Bye())
    rig.tick()
    assert leaving.session.is_closed
    assert rig.broker.offloaded
    assert ending(hasty) == ("protocol", "Ping before Welcome")
    assert not is_in(leaving)


def test_a_check_that_breaks_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_check: Slow) -> bool:
        raise MemoryError

    rig = guarded(ann=ALL)
    monkeypatch.setattr(Slow, "run", broken)
    assert ending(come(rig, "ann", secret="?nna")) == ("not-allowed", "user or secret is wrong")


def test_who_comes_when_too_much_is_being_checked_may_come_again() -> None:
    assert Denied("busy", "too many come at once").code == "limit"
    assert Denied("password", "user or secret is wrong").code == "not-allowed"


def test_a_second_hello_is_refused_while_the_first_is_looked_at_and_after_it() -> None:
    rig = guarded(ann=ALL)
    for secret in ("?nna", "nna"):
        peer = come(rig, "ann", secret=secret)
        peer.send(Hello([1], "sys-ann", 1, "", None, 0, "ann", "nna"))
        assert ending(peer)[0] == "protocol"


def test_nothing_large_is_taken_from_who_was_not_let_in() -> None:
    rig = guarded(ann=ALL)
    peer = knock(rig, "ann", secret="?nna")
    peer.send_raw((FIRST_FRAME_MAX + 1).to_bytes(4, "big") + b"\x03" + b"x" * 100)
    assert ending(peer)[0] == "too-large"


def test_a_hello_does_not_show_its_secret() -> None:
    hello = Hello([1], "s", 1, "n", None, 0, "ann", "hunter2")
    assert "hunter2" not in repr(hello)
    assert "hunter2" not in repr(LoginCredentials(come(guarded(), "x").session.caller, "ann", "hunter2"))
    assert msg_secret(knock(guarded(ann=ALL), "ann", secret="?nna")) == ""


def msg_secret(peer: object) -> str:
    """What a session keeps of the secret while it is checked."""
    return peer.session.login._hello.secret  # type: ignore[attr-defined, no-any-return]


# -- under which name


def test_the_source_of_events_is_who_was_let_in() -> None:
    rig = guarded(ann=ALL, bob=ALL)
    reader = come(rig, "bob")
    reader.subscribe()
    come(rig, "ann").publish(event(1))
    come(rig, "ann", "other", "ann/desk").publish(event(1))
    rig.run()
    assert [message.source for message, _ in reader.frames if hasattr(message, "source")] == [
        "ann",
        "ann/desk",
    ]


@pytest.mark.parametrize("name", ["bob", "annx", "ann ", "/ann", "Ann", "*"])
def test_a_name_that_is_not_ones_own_is_refused(name: str) -> None:
    rig = guarded(ann=ALL, bob=ALL)
    code, text = ending(come(rig, "ann", name=name))
    assert code == "not-allowed"
    assert "'ann/'" in text
    assert rig.broker.tallies["logins_denied", "source"] == 1


def test_nobody_counts_in_anothers_name_nor_keeps_another_from_counting() -> None:
    rig = guarded(ann=ALL, eve=ALL)
    reader = come(rig, "ann", "reader")
    reader.subscribe()
    thief, mine = come(rig, "eve", "machine"), come(rig, "ann", "machine")
    thief.publish(event(5_000))
    rig.run()
    mine.publish(event(1), event(2))
    rig.run()
    assert reader.counters() == [5_000, 1, 2]
    assert come(rig, "ann", "machine").got(Welcome)[0].counter == 2


def test_a_session_is_resumed_by_its_owner_only() -> None:
    rig = guarded(ann=ALL, bob=ALL)
    mine = come(rig, "ann", "machine")
    (welcome,) = mine.got(Welcome)
    thief = rig.connect()
    thief.send(Hello([1], "other", 1, "", welcome.session, 0, "bob", "bob"))
    rig.run()
    assert is_in(thief)
    assert not mine.session.is_closed
    again = rig.connect()
    again.send(Hello([1], "machine", 1, "", welcome.session, 0, "ann", "nna"))
    rig.run()
    assert is_in(again)
    assert mine.session.is_closed


# -- what is granted


def test_who_has_no_rules_may_do_nothing() -> None:
    rig = guarded(ann=[])
    peer = come(rig, "ann")
    peer.publish(event(1))
    rig.run()
    (refusal,) = peer.got(Refusal)
    assert (refusal.first, refusal.last, refusal.failure.code) == (1, 1, "not-allowed")
    for operation, arguments in [
        ("subscribe", {"number": 1}),
        ("advertise", {"number": 1}),
        ("status", {}),
        ("queue.create", {"name": "jobs"}),
    ]:
        reply = peer.ask(operation, **arguments)
        assert reply.error is not None, operation
        assert reply.error.code == "not-allowed", operation


def test_what_may_not_be_published_is_refused_and_the_rest_goes_on() -> None:
    rig = guarded(ann=[may("publish", "type = 'air'"), may("publish", "n > 8")], bob=ALL)
    reader, peer = come(rig, "bob"), come(rig, "ann")
    reader.subscribe()
    kinds = ["air", "soil", "soil", "air", "soil"]
    peer.publish(*(event(n, kind, n=n) for n, kind in enumerate(kinds, 1)), event(9, "soil", n=9))
    rig.run()
    assert reader.counters() == [1, 4, 9]
    assert [(one.first, one.last) for one in peer.got(Refusal)] == [(2, 3), (5, 5)]
    assert peer.accepted == [9]


def test_a_reliable_event_that_is_refused_is_not_stored() -> None:
    rig = guarded(ann=[may("publish", "type = 'air'")], bob=ALL)
    come(rig, "bob").subscribe(durable="d")
    come(rig, "ann").publish(
        replace(event(1, "air"), header=RELIABLE), replace(event(2, "soil"), header=RELIABLE)
    )
    rig.run()
    assert [batch.count for batch in rig.stored] == [1]


@pytest.mark.parametrize(
    "how", [{}, {"durable": "d"}, {"since": 0}, {"last": True}, {"on_slow": "spill"}, {"passive": True}]
)
def test_a_subscription_of_any_sort_reaches_no_further_than_the_grant(how: dict[str, object]) -> None:
    rig = guarded(ann=[may("subscribe", "type = 'air'")], bob=ALL)
    maker = come(rig, "bob")
    maker.publish(*(replace(event(n, kind), header=RELIABLE) for n, kind in ((1, "air"), (2, "soil"))))
    rig.run()
    peer = come(rig, "ann")
    peer.subscribe(1, "n IS NULL", **how)
    maker.publish(*(replace(event(n, kind), header=RELIABLE) for n, kind in ((3, "air"), (4, "soil"))))
    rig.run()
    assert {one.type for one in peer.events()} == {"air"}
    refused = peer.ask("subscribe", number=2, filter="type = 'soil'", **how)
    assert refused.error is not None
    assert "type = 'air'" in refused.error.text


def test_a_durable_subscription_follows_the_rules_also_for_what_was_stored_before() -> None:
    rig = guarded(ann=[may("subscribe")], bob=ALL)
    peer = come(rig, "ann")
    peer.subscribe(durable="d")
    peer.lose()
    come(rig, "bob").publish(
        *(replace(event(n, kind), header=RELIABLE) for n, kind in ((1, "air"), (2, "soil")))
    )
    rig.run()
    assert isinstance(rig.broker.authenticator, Book)
    rig.broker.authenticator.users["ann"] = (may("subscribe", "type = 'air'"),)
    again = come(rig, "ann")
    again.subscribe(durable="d")
    rig.run()
    assert [one.type for one in again.events()] == ["air"]


def test_who_may_ask_hears_the_answer_and_nobody_elses() -> None:
    rig = guarded(ann=[may("publish")], bob=ALL)
    peer, other = come(rig, "ann", "mine"), come(rig, "bob", "his")
    assert peer.got(Welcome)[0].user == "ann"
    peer.subscribe(1, "subject = 'inbox.ann/mine'")
    other.subscribe(1, "type = 'ask'")
    peer.publish(replace(event(1, "ask"), header=Header(reply_to="inbox.ann/mine", correlation_id="1")))
    for name in ("inbox.bob/his", "inbox.bob/mine", "inbox.mine", "inbox.annie/mine"):
        assert peer.ask("subscribe", number=2, filter=f"subject = '{name}'").error is not None
    other.publish(replace(event(1), header=Header(subject="inbox.ann/mine", correlation_id="1")))
    rig.run()
    assert peer.counters() == [1]


def test_an_advertisement_is_told_only_of_what_its_maker_may_publish() -> None:
    rig = guarded(ann=[may("publish", "type = 'air'")], bob=ALL)
    peer, reader = come(rig, "ann"), come(rig, "bob")
    assert peer.ask("advertise", number=1, filter="").error is None
    reader.subscribe(1, "type = 'soil'")
    reader.subscribe(2, "type = 'air'")
    rig.run()
    assert [notice.details["filters"] for notice in peer.got(Notice)] == [["type = 'air'"]]


@pytest.mark.parametrize("how", [{}, {"durable": "d"}, {"since": 0}, {"on_slow": "spill"}, {"last": True}])
def test_an_advertiser_is_told_what_was_asked_for_and_not_the_rules_behind_it(how: dict[str, object]) -> None:
    rig = guarded(ann=[may("publish")], bob=[may("subscribe", "room = 'vault'"), may("subscribe", "n < 3")])
    maker, reader = come(rig, "ann"), come(rig, "bob")
    assert maker.ask("advertise", number=1, filter="type = 'air'").error is None
    assert maker.ask("advertise", number=2, filter="room = 'hall' AND n > 7").error is None
    reader.subscribe(1, "value > 40", **how)
    rig.run()
    assert [(one.number, one.details["filters"]) for one in maker.got(Notice)] == [(1, ["value > 40"])]
    late = come(rig, "ann", "late").ask("advertise", number=1, filter="type = 'air'")
    assert late.result == {"filters": ["value > 40"]}
    maker.publish(event(1, "air", value=50, n=1), event(2, "air", value=50, n=4))
    rig.run()
    assert 2 not in reader.counters()


def test_only_a_manager_sees_how_the_node_stands() -> None:
    rig = guarded(ann=[may("publish")], boss=[may("manage", queue="jobs")])
    assert come(rig, "ann").ask("status").error is not None
    assert come(rig, "boss").ask("status").error is None


def test_the_owner_may_do_everything_and_is_called_what_it_says() -> None:
    peer = Rig().peer(name="whoever")
    assert peer.session.principal == OWNER
    assert peer.session.owner == "whoever"


# -- when the rules change


def test_new_rules_hold_at_once() -> None:
    rig = guarded(ann=ALL, bob=ALL, eve=ALL)
    ann, bob, eve = (come(rig, user) for user in ("ann", "bob", "eve"))
    assert isinstance(rig.broker.authenticator, Book)
    rig.broker.authenticator.users |= {"ann": (may("publish"),)}
    del rig.broker.authenticator.users["eve"]
    rig.broker.review()
    assert ending(ann)[0] == "changed"
    assert not bob.session.is_closed
    assert ending(eve) == ("not-allowed", "user or secret is wrong")


def test_what_nobody_is_granted_any_more_is_not_looked_for() -> None:
    rig = guarded(ann=[may("publish", "type = 'air'")])
    peers = [come(rig, "ann", f"s{n}") for n in range(2)]
    assert rig.broker.exchange.subscriptions == 0
    for peer in peers:
        peer.lose()
    assert not rig.broker.exchange._grants
    assert not len(rig.broker.exchange._index)


# -- rules


def test_rules_for_one_action_are_joined_by_or() -> None:
    principal = Principal(
        "ann", rules=(may("publish", "a = 1"), may("publish", "b = 2"), may("get", queue="x"))
    )
    granted = principal.grant("publish")
    assert granted == Filter("a = 1 OR b = 2")
    with pytest.raises(NotAllowed, match="'ann' may not subscribe"):
        principal.grant("subscribe")
    assert principal.queue_grant("get", "x") is None
    with pytest.raises(NotAllowed, match="'ann' may not get from queue 'y'"):
        principal.queue_grant("get", "y")


def test_a_rule_without_a_condition_is_not_narrowed_by_others() -> None:
    principal = Principal(
        "ann", rules=(may("publish"), may("publish", "n > 1"), may("get", "n > 1"), may("get"))
    )
    assert principal.grant("publish") is None
    assert principal.queue_grant("get", "x") is None


texts = st.text("ab*.?[", max_size=6)


@given(texts, texts)
def test_in_a_pattern_a_star_is_any_text_and_all_else_is_itself(pattern: str, text: str) -> None:
    def agrees(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(agrees(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return text[:1] == pattern[0] and agrees(pattern[1:], text[1:])

    assert matches(pattern, text) is agrees(pattern, text)


def test_events_that_are_no_events_do_not_reach_the_grant() -> None:
    rig = guarded(ann=[may("publish", "type = 'air'")])
    peer = come(rig, "ann")
    peer.send_raw(encode(Publish(), b"\xdd\x00\x00\x00\x01\x93\x01\x02\x03"))
    assert ending(peer)[0] == "event"


def test_who_hands_events_on_names_their_sender_and_no_other_user() -> None:
    rig = guarded(gate=[may("publish")], ann=[may("subscribe")])
    ann, gate = come(rig, "ann"), come(rig, "gate")
    ann.subscribe(1, "")
    gate.send(Publish("bob"), encode_events([event(1)]))
    rig.run()
    gate.send(Publish("gate/north"), encode_events([event(2)]))
    rig.run()
    assert [one.source for one in ann.got(Deliver)] == ["gate/bob", "gate/north"]
    gate.send(Publish("\x07"), encode_events([event(3)]))
    rig.run()
    assert gate.session.is_closed


def test_a_sender_whose_name_gets_too_long_for_other_nodes_is_the_user_who_hands_on() -> None:
    rig = guarded(gate=[may("publish")], ann=[may("subscribe")])
    ann, gate = come(rig, "ann"), come(rig, "gate")
    ann.subscribe(1, "")
    for number, length in ((1, 250), (2, 251), (3, 255)):
        gate.send(Publish("n" * length), encode_events([event(number)]))
        rig.run()
    assert [one.source for one in ann.got(Deliver)] == [
        "gate/" + "n" * 250,
        "gate",
        "gate",
    ]


def test_what_is_handed_on_is_counted_for_who_hands_it_on_also_after_a_crash() -> None:
    rig = Rig()
    ann = rig.peer("s", name="gateway")
    stored = persistent(1)
    ann.send(Publish("north"), encode_events([stored]))
    rig.run()
    assert ann.accepted[-1:] == [1]
    again = rig.restart()
    again.peer("s", name="gateway").send(Publish("north"), encode_events([stored]))
    again.run()
    assert [one.source for one in again.stored] == ["north"]
