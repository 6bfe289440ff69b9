"""The node's end of a connection: greeting, requests, and everything a client may do wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged

from protocol.rig import Peer, Rig, event, persistent, reliable
from tidings.event.wire import encode_events
from tidings.interest.interests import NOTICES_AT_A_TIME
from tidings.protocol import login, session, subscriptions
from tidings.protocol.frames import FIRST_FRAME_MAX, FRAME_MAX, encode
from tidings.protocol.messages import (
    Accepted,
    Acknowledge,
    Bye,
    Credit,
    Deliver,
    Hello,
    Notice,
    Ping,
    Pong,
    ProtocolMessage,
    Publish,
    Reply,
    Request,
    Welcome,
)
from tidings.protocol.session import Session
from tidings.store.interface import Durable, PutCursor
from tidings.timers import Leases

HELLO = Hello([1], "sys", 1, "ann")


def ending(peer: Peer) -> str:
    """The code with which the node ended the connection."""
    peer.rig.run()
    assert peer.session.is_closed
    (bye,) = peer.got(Bye)
    assert isinstance(peer.frames[-1][0], Bye)
    return bye.code


def refusal(peer: Peer, operation: str, **arguments: Any) -> str:
    """The code with which a request is refused, the connection going on."""
    reply = peer.ask(operation, **arguments)
    assert reply.result is None
    assert reply.error is not None
    assert not peer.session.is_closed
    return reply.error.code


# Greeting


def test_a_hello_is_answered_with_a_welcome() -> None:
    rig = Rig()
    peer = rig.connect()
    peer.send(HELLO)
    rig.run()
    (welcome,) = peer.got(Welcome)
    assert welcome.version == 1
    assert welcome.node == rig.broker.node
    assert (welcome.boot, welcome.counter, welcome.window) == (rig.broker.life, 0, login.WINDOW)


UNREADABLE = ["a\x1b[2Jb", "a\nb", "\x00", "a\u2028b", "a\x9bb", "a\u202eb"]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_client_whose_name_has_control_characters_is_not_welcomed(name: str) -> None:
    peer = Rig().connect()
    peer.send(Hello([1], "sys", 1, name))
    assert ending(peer) == "protocol"


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_durable_name_has_no_control_characters_and_one_that_was_stored_goes_on(name: str) -> None:
    rig = Rig()
    assert refusal(rig.peer(), "subscribe", number=1, durable=name) == "protocol"
    rig.store.commit([PutCursor(Durable(name, "ann", "", 0, 0, b""))])
    rig.store.sync()
    peer = rig.restart().peer()
    peer.subscribe(1, durable=name)
    assert peer.ask("unsubscribe", durable=name).error is None
    assert refusal(peer, "subscribe", number=2, durable=name) == "protocol"


def test_a_version_we_share_is_found_among_others() -> None:
    rig = Rig()
    peer = rig.connect()
    peer.send(Hello([7, 1, 3], "sys", 1))
    rig.run()
    assert peer.got(Welcome)[0].version == 1


def test_a_client_that_comes_again_is_not_heard_on_the_connection_it_had() -> None:
    rig = Rig()
    before = rig.connect()
    before.send(HELLO)
    rig.run()
    name = before.got(Welcome)[0].session
    again = rig.connect()
    again.send(Hello([1], "sys", 1, "ann", name))
    again.subscribe(1, durable="d")
    before.request("subscribe", number=1, durable="d", credit=9)
    before.publish(event(1))
    rig.run()
    assert ending(before) == "exists"
    assert again.notices == []
    assert again.events() == []


def test_a_late_request_of_a_client_that_was_killed_takes_nothing_from_its_next_start() -> None:
    rig = Rig()
    killed, again = rig.peer("sys", 1, "ann"), rig.peer("sys", 2, "ann")
    again.subscribe(1, durable="d")
    rig.run()
    refused = killed.ask("subscribe", number=1, durable="d", credit=9)
    assert refused.error is not None
    assert refused.error.code == "exists"
    assert "later start" in refused.error.text
    assert again.notices == []
    other = rig.peer("third", 1, "ann")
    other.subscribe(1, durable="d")  # which may be: it is another program of the same name
    rig.run()
    assert [kind for kind, *_ in again.notices] == ["ended"]


@pytest.mark.parametrize(
    "hello", [Hello([1], "sys", 2, "ann"), Hello([1], "other", 1, "ann"), Hello([1], "sys", 1, "eve")]
)
def test_nobody_else_ends_a_connection_by_its_name(hello: Hello) -> None:
    rig = Rig()
    peer = rig.connect()
    peer.send(HELLO)
    rig.run()
    eve = rig.connect()
    eve.send(Hello(hello.versions, hello.system, hello.epoch, hello.name, peer.got(Welcome)[0].session))
    rig.run()
    assert eve.got(Welcome)
    assert not peer.session.is_closed


@pytest.mark.parametrize("versions", [[], [2], [0, -1, 2**60]])
def test_no_common_version_ends_the_connection(versions: list[int]) -> None:
    peer = Rig().connect()
    peer.send(Hello(versions, "sys", 1))
    assert ending(peer) == "version"


@pytest.mark.parametrize(
    "hello",
    [
        Hello([1], "", 1),
        Hello([1], "a b", 1),
        Hello([1], "x" * 65, 1),
        Hello([1], "sys", -1),
        Hello([1], "sys", 2**63),
        Hello([1], "sys", 1, "n" * 256),
    ],
)
def test_a_hello_with_what_can_not_be_ends_the_connection(hello: Hello) -> None:
    peer = Rig().connect()
    peer.send(hello)
    assert ending(peer) == "protocol"


@pytest.mark.parametrize(
    "message", [Publish(), Request(1, "status"), Acknowledge(1, 1), Credit(1, 1), Ping(), Pong(), Bye()]
)
def test_anything_before_hello_ends_the_connection(message: ProtocolMessage) -> None:
    peer = Rig().connect()
    peer.send(message, encode_events([event(1)]) if message.HAS_EVENTS else b"")
    assert ending(peer) == "protocol"


@pytest.mark.parametrize(
    "message", [HELLO, Welcome(1, "n", 1, "s", 0, 0), Accepted(1), Reply(1), Deliver(1), Notice("gap", 1)]
)
def test_what_is_not_for_a_node_or_comes_twice_ends_the_connection(message: ProtocolMessage) -> None:
    peer = Rig().peer()
    peer.send(message, encode_events([event(1)]) if message.HAS_EVENTS else b"")
    assert ending(peer) == "protocol"


def test_frames_are_short_before_the_two_know_each_other_and_long_after() -> None:
    rig = Rig()
    peer = rig.connect()
    peer.send_raw((FIRST_FRAME_MAX + 1).to_bytes(4, "big") + b"\x01")
    assert peer.session.is_closed
    peer = rig.peer()
    peer.send_raw(FRAME_MAX.to_bytes(4, "big") + b"\x03")
    assert not peer.session.is_closed
    peer = rig.peer()
    peer.send_raw((FRAME_MAX + 1).to_bytes(4, "big") + b"\x03")
    assert peer.session.is_closed


# Requests


def test_an_unknown_operation_is_refused_and_nothing_else_happens() -> None:
    assert refusal(Rig().peer(), "explode") == "not-found"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"number": -1},
        {"number": 2**32},
        {"number": "1"},
        {"number": None},
        {"number": 1, "filter": 3},
        {"number": 1, "durable": ""},
        {"number": 1, "durable": "x" * 256},
        {"number": 1, "credit": -1},
        {"number": 1, "credit": 2**63},
        {"number": 1, "on_slow": "panic"},
        {"number": 1, "since": "yesterday"},
        {"number": 1, "passive": 1},
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: dict[str, Any]) -> None:
    rig = Rig()
    peer = rig.peer()
    assert refusal(peer, "subscribe", **arguments) == "protocol"
    assert rig.broker.exchange.subscriptions == 0
    peer.subscribe(1)


def test_a_bad_filter_is_refused_with_its_place() -> None:
    rig = Rig()
    peer = rig.peer()
    reply = peer.ask("subscribe", number=1, filter="n >")
    assert reply.error is not None
    assert reply.error.code == "filter"
    assert (reply.error.details["line"], reply.error.details["column"]) == (1, 4)
    assert refusal(peer, "advertise", number=1, filter="((") == "filter"
    assert rig.broker.tallies["refused", "filter"] == 2


def test_a_number_in_use_is_refused_and_free_again_when_it_is_not() -> None:
    peer = Rig().peer()
    peer.subscribe(5)
    assert refusal(peer, "subscribe", number=5) == "exists"
    assert peer.ask("unsubscribe", number=5).error is None
    peer.subscribe(5)


def test_subscriptions_and_advertisements_have_numbers_of_their_own() -> None:
    peer = Rig().peer()
    peer.subscribe(5)
    assert peer.ask("advertise", number=5).error is None
    assert refusal(peer, "advertise", number=5) == "exists"


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("unsubscribe", {"number": 9}),
        ("unsubscribe", {}),
        ("unsubscribe", {"durable": "d"}),
        ("unadvertise", {"number": 9}),
    ],
)
def test_what_is_not_there_can_not_be_ended(operation: str, arguments: dict[str, Any]) -> None:
    assert refusal(Rig().peer(), operation, **arguments) == "not-found"


def test_a_session_has_a_limited_number_of_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS_MAX", 2)
    peer = Rig().peer()
    peer.subscribe(1)
    peer.subscribe(2)
    assert refusal(peer, "subscribe", number=3) == "limit"
    assert refusal(peer, "subscribe", number=3, durable="d") == "limit"


def test_a_reply_waits_for_the_commit_of_what_it_says_was_done() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.request("subscribe", number=1, durable="d")
    rig.tick()
    assert peer.frames == []
    rig.sync()
    assert peer.got(Reply)[0].result == {"position": 0}


def test_a_reply_to_what_is_not_stored_waits_for_nothing() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.request("subscribe", number=1)
    rig.tick()
    assert peer.got(Reply)[0].error is None


def test_the_number_of_a_request_is_the_clients_own() -> None:
    rig = Rig()
    peer = rig.peer()
    for number in (0, -7, 2**63 - 1):
        peer.send(Request(number, "status"))
    rig.run()
    assert [reply.number for reply in peer.got(Reply)] == [0, -7, 2**63 - 1]


# Advertisements


def test_a_source_is_told_of_interest_as_it_comes_and_goes() -> None:
    rig = Rig()
    source, bob = rig.peer("a"), rig.peer("b")
    assert source.ask("advertise", number=1, filter="type = 'x'").result == {"filters": []}
    bob.subscribe(1, "v > 3")
    bob.subscribe(2, "type = 'y'")
    bob.subscribe(3, "v > 5", passive=True)
    assert source.notices == [("interest", 1, {"filters": ["v > 3"]})]
    bob.lose()
    rig.run()
    assert source.notices[1:] == [("interest", 1, {"filters": []})]


def test_a_session_with_many_subscriptions_that_ends_is_one_change_for_a_source() -> None:
    rig = Rig()
    source, bob = rig.peer("a"), rig.peer("b")
    source.ask("advertise", number=1, filter="type = 'x'")
    for number in range(150):
        bob.request("subscribe", number=number, filter=f"v = {number}", credit=1)
    rig.run()
    (notice,) = source.notices
    assert len(notice[2]["filters"]) == 1
    bob.lose()
    rig.run()
    assert source.notices[1:] == [("interest", 1, {"filters": []})]


def test_all_sources_are_told_though_not_in_one_tick() -> None:
    rig = Rig()
    source, bob = rig.peer("a"), rig.peer("b")
    for number in range(3 * NOTICES_AT_A_TIME):
        source.request("advertise", number=number, filter=f"type = 't{number}'")
    rig.run()
    bob.request("subscribe", number=1, filter="v > 3", credit=1)
    rig.tick()
    assert len(source.notices) <= NOTICES_AT_A_TIME
    rig.run()
    told = {number: details["filters"] for _, number, details in source.notices}
    assert told == {number: ["v > 3"] for number in range(3 * NOTICES_AT_A_TIME)}


def test_a_source_that_has_withdrawn_is_told_no_more() -> None:
    rig = Rig()
    source, bob = rig.peer("a"), rig.peer("b")
    source.ask("advertise", number=1)
    source.ask("unadvertise", number=1)
    bob.subscribe(1)
    assert source.notices == []


def test_a_session_takes_its_subscriptions_and_advertisements_with_it() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.subscribe(1)
    peer.subscribe(2, since=1)
    peer.ask("advertise", number=1)
    peer.lose()
    assert (rig.broker.exchange.subscriptions, rig.broker.exchange.advertisements) == (0, 0)
    assert not rig.broker.sessions


# Silence and ends


def wake(rig: Rig) -> list[Session]:
    """Wake the sessions whose time has come."""
    late = []
    for one in rig.broker.sessions.late(rig.now):
        late.append(one)
        one.wake(rig.now)
    return late


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["say", "read", "ask", "hello"])), max_size=60))
def test_all_whose_time_has_come_are_woken_and_no_others(acts: list[tuple[int, str]]) -> None:
    rig = Rig()
    peers = [rig.connect() for _ in range(4)]
    for number, act in acts:
        peer = peers[number]
        match act:
            case "hello" if not peer.session.is_let_in and not peer.session.is_closed:
                peer.send(Hello([1], f"sys{number}", 1, "ann"))
            case "say":
                peer.send(Pong() if peer.session.is_let_in else Ping())
            case "ask":  # the answer waits until it is read
                peer.send(Ping(1))
            case "read":
                rig.run()
        for _ in range(7):
            rig.now += 1.0
            due = {one for one in rig.broker.sessions if one.wake_at <= rig.now}
            assert set(wake(rig)) == due


def test_a_look_costs_nothing_while_nobody_is_late() -> None:
    rig = Rig()
    peer = rig.peer()
    rig.broker.sessions._silent = Leases(lambda one: looked.append(one) or one.wake_at)  # type: ignore[func-returns-value]
    looked: list[Session] = []
    rig.broker.sessions._silent.watch(peer.session)
    for _ in range(10 * int(session.SILENT_S_MAX)):
        rig.now += 1.0
        peer.send(Pong())
        assert wake(rig) == []
    assert len(looked) <= 1 + 10 + 1


def test_who_says_no_hello_is_given_up() -> None:
    rig = Rig()
    peer = rig.connect()
    assert peer.session.wake_at == rig.now + session.HELLO_S_MAX
    rig.now = peer.session.wake_at - 0.1
    peer.send_raw(b"\x00")
    wake(rig)
    assert not peer.session.is_closed
    rig.now += 0.1
    wake(rig)
    assert ending(peer) == "timeout"


def test_a_silent_client_is_asked_and_then_given_up() -> None:
    rig = Rig()
    peer = rig.peer()
    rig.now = peer.session.wake_at
    wake(rig)
    rig.run()
    assert len(peer.got(Ping)) == 1
    rig.now = peer.session.wake_at
    wake(rig)
    assert ending(peer) == "timeout"


def test_a_client_that_takes_nothing_of_what_waits_for_it_is_given_up() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(Ping(1))
    for _ in range(20):  # it says something again and again, and reads nothing
        rig.now += session.SILENT_S_MAX / 4
        peer.send(Pong())
        wake(rig)
    assert peer.session.is_closed
    assert rig.broker.tallies["closed", "limit"] == 1


def test_a_client_that_answers_is_kept() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(5):
        rig.now = peer.session.wake_at
        wake(rig)
        rig.tick()
        peer.send(Pong())
    rig.run()
    assert len(peer.got(Ping)) == 5
    assert not peer.session.is_closed


def test_bytes_that_make_no_frame_are_no_sign_of_life() -> None:
    rig = Rig()
    peer = rig.peer()
    for _ in range(2):
        rig.now = peer.session.wake_at
        peer.send_raw(b"\x00")
        wake(rig)
    assert peer.session.is_closed


def test_a_ping_is_answered_with_its_number() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(Ping(42))
    rig.run()
    assert [pong.number for pong in peer.got(Pong)] == [42]


def test_nothing_follows_a_bye_and_nothing_is_heard_after_it() -> None:
    rig = Rig()
    peer, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    peer.subscribe()
    peer.frames.clear()
    peer.send_raw(encode(Bye()) + encode(Publish(), encode_events([event(1)])))
    peer.publish(event(2))
    bob.publish(event(1))
    rig.run()
    assert peer.frames == []
    assert bob.counters() == [1]
    assert peer.session.wake_at == float("inf")


def test_what_a_client_sent_before_it_parted_is_done() -> None:
    rig = Rig()
    peer, bob = rig.peer("a"), rig.peer("b")
    bob.subscribe()
    peer.send_raw(encode(Publish(), encode_events([event(1)])) + encode(Bye()))
    rig.run()
    assert bob.counters() == [1]


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x01\x0e",
        b"\x00\x00\x00\x01\xff",
        b"\x00\x00\x00\x02\x05\xc1",
        b"\x00\x00\x00\x02\x05\x90",
        b"\x00\x00\x00\x02\x03\x90",
        b"\xff" * 16,
        encode(Request(1, "status")) + b"\x00\x00\x00\x03\x0b\x91\xa1",
        b"\x00\x00\x00\x08\x03\x90\xdd\xff\xff\xff\xff\x00",
    ],
)
def test_junk_ends_its_connection_with_a_code_and_harms_nobody_else(junk: bytes) -> None:
    rig = Rig()
    ann, bob, eve = rig.peer("a"), rig.peer("b"), rig.peer("e")
    bob.subscribe()
    eve.subscribe()
    eve.send_raw(junk)
    assert ending(eve) in {"protocol", "event", "too-large"}
    ann.publish(event(1))
    rig.run()
    assert bob.counters() == [1]
    assert rig.broker.exchange.subscriptions == 1


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_requests = st.builds(
    Request,
    st.integers(0, 9),
    st.sampled_from(["subscribe", "unsubscribe", "advertise", "unadvertise", "status", ""]),
    st.dictionaries(
        st.sampled_from(["number", "filter", "durable", "since", "since_us", "last", "on_slow", "credit"]),
        _plain | st.integers(0, 3) | st.sampled_from(["n = 1", "latest", "spill", "block"]),
        max_size=6,
    ),
)


def _numbered(said: list[bytes]) -> bytes:
    """The frames as one stream, an event published wherever there is none."""
    return b"".join(
        frame or encode(Publish(), encode_events([persistent(counter, n=1)]))
        for counter, frame in enumerate(said, 1)
    )


def _framed(kind: int, content: bytes) -> bytes:
    return (1 + len(content)).to_bytes(4, "big") + bytes([kind]) + content


_said = st.lists(
    st.one_of(
        _requests.map(encode),
        st.builds(Credit, st.integers(0, 3), st.integers(-1, 2**63)).map(encode),
        st.builds(Acknowledge, st.integers(0, 3), st.integers(-1, 2**63)).map(encode),
        st.just(b""),
        st.tuples(st.integers(1, 14), _plain).map(
            lambda made: _framed(made[0], msgspec.msgpack.encode(made[1]))
        ),
        st.just(encode(Ping(1))),
    ),
    max_size=8,
).map(_numbered)


@given(damaged(_said), st.booleans())
def test_whatever_a_client_sends_the_worst_is_the_end_of_its_connection(
    data: bytes, is_welcome: bool
) -> None:
    rig = Rig()
    peer = rig.peer() if is_welcome else rig.connect()
    bob = rig.peer("bob", name="bob")
    bob.subscribe()
    bob.frames.clear()
    peer.send_raw(data)
    rig.run()
    assert peer.session.is_closed or not peer.got(Bye)
    bob.publish(event(1))
    rig.run()
    assert bob.accepted == [1]
    assert bob.counters()[-1:] == [1]
    if not peer.session.is_closed:
        peer.lose()
    rig.run()


@given(_said, st.data())
def test_in_whatever_pieces_bytes_come_the_answers_are_the_same(said: bytes, data: st.DataObject) -> None:
    whole, cut = Rig().peer(), Rig().peer()
    whole.send_raw(said)
    at = 0
    while at < len(said):
        size = data.draw(st.integers(1, 40))
        cut.send_raw(said[at : at + size])
        at += size
    for peer in (whole, cut):
        peer.rig.run()
    assert [one for one in whole.frames if not isinstance(one[0], Deliver)] == [
        one for one in cut.frames if not isinstance(one[0], Deliver)
    ]
    assert [whole.counters(number) for number in range(4)] == [cut.counters(number) for number in range(4)]


def test_an_answer_says_that_what_came_before_it_is_on_disk() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.subscribe(durable="d")
    peer.publish(reliable(1))
    rig.run()
    peer.frames.clear()
    peer.acknowledge(1, 1)
    peer.request("status")
    rig.tick()
    assert peer.got(Reply) == []
    rig.sync()
    assert len(peer.got(Reply)) == 1


# Long filters


def test_a_long_filter_is_read_in_a_thread_and_what_comes_behind_it_waits() -> None:
    rig = Rig()
    peer, other = rig.peer("a"), rig.peer("b")
    text = " OR ".join(f"name = '{'x' * 100}{number}'" for number in range(200))
    peer.request("subscribe", number=1, filter=text, credit=10)
    peer.request("advertise", number=1, filter=text)
    peer.send(Ping(7))
    rig.tick()
    assert peer.got(Reply) == []
    assert peer.got(Pong) == []
    assert rig.broker.offloaded
    assert other.ask("status").error is None  # others go on, and the threads are done
    rig.run()
    assert [reply.error for reply in peer.got(Reply)] == [None, None]
    assert len(peer.got(Pong)) == 1
    other.publish(event(1, name="x" * 100 + "7"), event(2, name="y"))
    rig.run()
    assert peer.counters() == [1]


def test_a_mistake_in_a_long_filter_is_told_as_in_a_short_one() -> None:
    rig = Rig()
    peer = rig.peer()
    assert refusal(peer, "subscribe", number=1, filter="a = 1 AND " * 2_000) == "filter"
    assert refusal(peer, "advertise", number=1, filter="a = 1 AND " * 2_000) == "filter"


def test_a_session_that_ends_while_a_filter_is_read_leaves_nothing_behind() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.request("subscribe", number=1, filter=" OR ".join(f"a = {number}" for number in range(2_000)))
    rig.tick()
    peer.lose()
    rig.run()
    assert rig.broker.exchange.subscriptions == 0
