"""FORWARD as a node takes it: what is checked, whose events they are, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from peers.crossing import Site, site
from protocol.rig import Peer
from queues.rig import DONE, Client, job, numbers

from tidings.event import Batch, Event
from tidings.event.wire import encode_events
from tidings.filters import Filter
from tidings.ids import ForwardedOrigin
from tidings.peers import forwarded
from tidings.protocol.access import Check, LoginCredentials, PeerInfo, Principal, Rule
from tidings.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Forward,
    Hello,
    Refusal,
    Reply,
    Request,
    Welcome,
)

ELSEWHERE = PeerInfo("1.2.3.4", "1.2.3.4")


def packed(*given: int) -> bytes:
    return struct.pack(f">{len(given)}Q", *given)


class Guard:
    """Lets everyone in, as what it is told."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    def admit(self, _claim: LoginCredentials, _now: float, _wall: float) -> Principal | Check:
        return self.principal

    def conclude(self, _check: Check, _passed: bool, _now: float) -> Principal:
        return self.principal

    def renew(self, principal: Principal) -> Principal | None:
        return principal


class Hander:
    """A node that hands on, frame by frame."""

    def __init__(self, far: Site, system: str = "n1", epoch: int = 7) -> None:
        self.far = far
        self.peer: Peer = far.connect()
        self.peer.send(Hello([1], system, epoch))
        far.run()

    @property
    def welcome(self) -> Welcome:
        (welcome,) = self.peer.got(Welcome)
        return welcome

    def hand_on(self, given: dict[int, Event], queue: str = "jobs", **fields: Any) -> None:
        """Hand on events by their numbers."""
        message = Forward(queue, packed(*given), **{"system": "ann", "epoch": 1, "source": "ann", **fields})
        self.peer.send(message, encode_events(list(given.values())))
        self.far.run()

    def parts(self, *bodies: bytes) -> None:
        """Send parts of the body of the next event."""
        self.peer.send(Forward("jobs", b""), encode_events([Event("part", body=body) for body in bodies]))

    @property
    def accepted(self) -> int:
        return max((one.counter for one in self.peer.got(Accepted)), default=0)

    @property
    def refusals(self) -> list[tuple[int, int, str]]:
        return [(one.first, one.last, one.failure.code) for one in self.peer.got(Refusal)]

    @property
    def farewell(self) -> str:
        return "".join(bye.code for bye in self.peer.got(Bye))


def numbered(*given: int) -> dict[int, Event]:
    """Jobs by the numbers under which they are handed on; counters of their own too."""
    return {n: job(n) for n in given}


@pytest.fixture
def far() -> Site:
    made = site(b"f")
    Client(made, "bob").create("jobs")
    return made


def jobs(far: Site) -> list[Any]:
    return numbers(Client(far, "reader").read("jobs"))


def test_it_is_the_numbers_that_are_counted_and_not_the_events(far: Site) -> None:
    node = Hander(far)
    node.hand_on(numbered(100, 200))
    assert node.accepted == 200
    again = Hander(far)
    assert again.welcome.counter == 200
    again.hand_on(numbered(200, 300))
    assert jobs(far) == [100, 200, 300]


def test_streams_of_other_epochs_are_counted_apart(far: Site) -> None:
    Hander(far, epoch=7).hand_on(numbered(5))
    other = Hander(far, epoch=8)
    assert other.welcome.counter == 0
    other.hand_on(numbered(5))
    assert jobs(far) == [5, 5]


def test_the_count_is_stored_with_the_messages(far: Site) -> None:
    Hander(far).hand_on(numbered(100, 200))
    after = far.restart()
    assert Hander(after).welcome.counter == 200
    assert jobs(after) == [100, 200]


def test_messages_that_were_handed_on_are_so_after_a_restart_too(far: Site) -> None:
    Hander(far).hand_on({1: job(1)}, system="ann", epoch=5, source="ann")
    after = far.restart()
    (hand,) = Client(after, "reader").read("jobs")
    assert (hand.system, hand.epoch, hand.source) == ("ann", 5, "ann")


def test_nothing_is_counted_for_the_sender_of_an_event_that_was_handed_on(far: Site) -> None:
    Hander(far).hand_on(numbered(1))
    bob = Client(far, "bob")
    bob.settle(DONE, *bob.get("jobs"))
    far.run()
    systems = {one.system for one in far.state.counters}
    assert "ann" not in systems


@pytest.mark.parametrize(
    "message",
    [
        Forward("jobs", packed(1), "ann"),
        Forward("jobs", packed(1, 2)[:-1], "ann"),
        Forward("jobs", packed(2, 1), "ann"),
        Forward("jobs", packed(1, 1), "ann"),
        Forward("jobs", packed(1, 2**63), "ann"),
        Forward("jobs", packed(1, 2), "no system"),
        Forward("jobs", packed(1, 2), "ann", -1),
        Forward("jobs", packed(1, 2), "ann", 1, "x" * 300),
    ],
)
def test_what_can_not_be_ends_the_connection(far: Site, message: Forward) -> None:
    node = Hander(far)
    node.peer.send(message, encode_events(list(numbered(1, 2).values())))
    far.run()
    assert node.farewell in ("protocol", "event")
    assert jobs(far) == []


def test_events_that_are_none_end_the_connection(far: Site) -> None:
    node = Hander(far)
    node.peer.send(Forward("jobs", packed(1), "ann"), b"\xdd\x00\x00\x00\x01\x93\x01\x02\x03")
    far.run()
    assert node.farewell == "event"


def test_an_event_without_a_system_has_no_id(far: Site) -> None:
    Hander(far).hand_on({1: job(1)}, system=None, epoch=0, source=None)
    (hand,) = Client(far, "reader").read("jobs")
    assert (hand.system, hand.source) == (None, None)


def test_of_a_full_queue_those_are_refused_for_which_there_is_no_room(far: Site) -> None:
    Client(far, "bob").create("small", max_messages=2)
    node = Hander(far)
    node.hand_on(numbered(10, 20, 30, 40), "small")
    assert node.refusals == [(30, 40, "queue-full")]
    assert node.accepted == 40


def test_a_queue_that_is_not_there_refuses_all(far: Site) -> None:
    node = Hander(far)
    node.hand_on(numbered(10, 20), "none")
    node.hand_on(numbered(30))
    assert node.refusals == [(10, 20, "queue-not-found")]
    assert jobs(far) == [30]


def test_a_refusal_is_told_again_until_it_was_seen(far: Site) -> None:
    node = Hander(far)
    node.hand_on(numbered(10), "none")
    node.hand_on(numbered(20))
    after = far.restart()
    node = Hander(after)
    assert [(one.first, one.failure.code) for one in node.welcome.refused] == [(10, "queue-not-found")]
    node.hand_on(numbered(30), seen=20)
    assert Hander(after).welcome.refused == []


def test_whoever_comes_again_ends_what_was_under_way_before(far: Site) -> None:
    before, after = Hander(far), Hander(far)
    before.hand_on(numbered(1))
    assert before.farewell == "exists"
    after.hand_on(numbered(2))
    assert jobs(far) == [2]


# Streams that share a connection


class Lane(Hander):
    """A node that hands on over a stream of its own, on the connection of another."""

    def __init__(
        self, beside: Hander, stream: int, system: str = "n1", epoch: int = 7, seen: int = 0
    ) -> None:
        self.far, self.peer, self.stream = beside.far, beside.peer, stream
        opening = {"stream": stream, "system": system, "epoch": epoch, "seen": seen}
        self.peer.send(Request(900 + stream, "forward.open", opening))
        self.far.run()
        (self.reply,) = (one for one in self.peer.got(Reply) if one.number == 900 + stream)

    def hand_on(self, given: dict[int, Event], queue: str = "jobs", **fields: Any) -> None:
        super().hand_on(given, queue, **{"stream": self.stream, **fields})

    def close(self) -> None:
        self.peer.send(Request(0, "forward.close", {"stream": self.stream}))
        self.far.run()

    @property
    def accepted(self) -> int:
        told = (one.counter for one in self.peer.got(Accepted) if one.stream == self.stream)
        return max(told, default=0)

    @property
    def refusals(self) -> list[tuple[int, int, str]]:
        told = (one for one in self.peer.got(Refusal) if one.stream == self.stream)
        return [(one.first, one.last, one.failure.code) for one in told]


def test_streams_on_one_connection_count_and_refuse_each_for_itself(far: Site) -> None:
    node = Hander(far, "client", 1)
    first, second = Lane(node, 1), Lane(node, 2, epoch=8)
    first.hand_on(numbered(100, 200))
    second.hand_on(numbered(50), "none")
    second.hand_on(numbered(60))
    assert (first.accepted, second.accepted) == (200, 60)
    assert (first.refusals, second.refusals) == ([], [(50, 50, "queue-not-found")])
    assert jobs(far) == [100, 200, 60]


def test_a_stream_goes_on_after_a_restart_on_another_connection_where_it_was(far: Site) -> None:
    lane = Lane(Hander(far, "client", 1), 1)
    lane.hand_on(numbered(10), "none")
    lane.hand_on(numbered(20))
    assert (lane.reply.result["counter"], lane.reply.result["refused"]) == (0, [])
    after = far.restart()
    lane = Lane(Hander(after, "client", 2), 5)
    assert lane.reply.result["counter"] == 20
    assert [(one[0], one[2][0]) for one in lane.reply.result["refused"]] == [(10, "queue-not-found")]
    lane.hand_on(numbered(20, 30), seen=20)
    assert jobs(after) == [20, 30]
    assert Lane(Hander(after, "client", 3), 1).reply.result["refused"] == []


def test_a_stream_goes_on_that_a_node_of_an_earlier_release_had_on_a_connection_of_its_own(far: Site) -> None:
    Hander(far, "n1", 7).hand_on(numbered(100))
    lane = Lane(Hander(far, "client", 1), 1, "n1", 7)
    assert lane.reply.result["counter"] == 100
    lane.hand_on(numbered(100, 200))
    assert Hander(far, "n1", 7).welcome.counter == 200
    assert jobs(far) == [100, 200]


def test_a_stream_that_is_open_elsewhere_since_takes_no_more(far: Site) -> None:
    before, after = Hander(far, "client", 1), Hander(far, "client", 2)
    late, now = Lane(before, 1), Lane(after, 1)
    late.hand_on(numbered(1))
    assert before.farewell == "exists"
    now.hand_on(numbered(2))
    assert jobs(far) == [2]


def test_parts_belong_to_the_next_event_of_their_own_stream(far: Site) -> None:
    node = Hander(far, "client", 1)
    first, second = Lane(node, 1), Lane(node, 2, epoch=8)
    part = Forward("jobs", b"", stream=1)
    node.peer.send(part, encode_events([Event("part", body=b"two")]))
    second.hand_on(numbered(2))
    first.hand_on(numbered(1))
    assert [(hand.n, hand.parts) for hand in Client(far, "reader").read("jobs")] == [(2, 0), (1, 1)]


def test_a_stream_that_is_closed_leaves_nothing_behind(far: Site) -> None:
    node = Hander(far, "client", 1)
    lane = Lane(node, 1)
    node.peer.send(Forward("jobs", b"", stream=1), encode_events([Event("part", body=b"two")]))
    lane.close()
    (session,) = (one for one in far.broker.sessions if one.origin.system == "client")
    assert (session.streams, far.forwarded._parts, far.queues.size) == ({}, {}, 0)
    lane.hand_on(numbered(1))
    assert node.farewell == "protocol"


@pytest.mark.parametrize(
    "opening",
    [
        {"stream": 0, "system": "n1", "epoch": 1},
        {"stream": -1, "system": "n1", "epoch": 1},
        {"stream": 1, "system": "n1", "epoch": 1},
        {"stream": 2, "system": "no system", "epoch": 1},
        {"stream": 2, "system": "@n1", "epoch": 1},
        {"stream": 2, "system": "n1", "epoch": -1},
        {"stream": 2, "epoch": 1},
    ],
)
def test_a_stream_that_can_not_be_is_not_opened_and_the_others_go_on(
    far: Site, opening: dict[str, Any]
) -> None:
    node = Hander(far, "client", 1)
    lane = Lane(node, 1)
    node.peer.send(Request(1_000, "forward.open", opening))
    far.run()
    assert next(one for one in node.peer.got(Reply) if one.number == 1_000).error is not None
    lane.hand_on(numbered(1))
    assert jobs(far) == [1]


def test_there_are_not_more_streams_on_a_connection_than_there_may_be(
    far: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded, "STREAMS_MAX", 1)
    node = Hander(far, "client", 1)
    Lane(node, 1)
    failure = Lane(node, 2).reply.error
    assert failure is not None
    assert failure.code == "limit"


def test_what_came_on_a_stream_and_could_not_be_stored_comes_again(far: Site) -> None:
    node = Hander(far, "client", 1)
    lane = Lane(node, 1)
    node.peer.send(
        Forward("jobs", packed(5), "ann", 1, "ann", stream=1), encode_events(list(numbered(5).values()))
    )
    far.tick()
    far.fail()
    assert lane.accepted == 0
    assert node.farewell == "internal"
    again = Lane(Hander(far, "client", 2), 1)
    assert again.reply.result["counter"] == 0
    again.hand_on(numbered(5))
    assert jobs(far) == [5]


# Parts


def test_parts_belong_to_the_next_event_and_to_no_other(far: Site) -> None:
    node = Hander(far)
    node.parts(b"two", b"three")
    node.hand_on(numbered(1, 2))
    first, second = Client(far, "reader").read("jobs")
    assert (first.parts, second.parts) == (2, 0)


def test_parts_of_an_event_that_was_had_are_dropped(far: Site) -> None:
    Hander(far).hand_on(numbered(1))
    again = Hander(far)
    again.parts(b"two")
    again.hand_on(numbered(1, 2))
    assert [hand.parts for hand in Client(far, "reader").read("jobs")] == [0, 0]
    assert far.forwarded._parts == {}


def test_more_parts_than_a_body_may_have_end_the_connection(
    far: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded, "PARTS_SIZE_MAX", 100)
    node = Hander(far)
    node.parts(b"x" * 60)
    node.parts(b"x" * 60)
    far.run()
    assert node.farewell == "limit"
    assert far.queues.size == 0


def test_a_publication_has_no_parts(far: Site) -> None:
    node = Hander(far)
    node.parts(b"two")
    node.hand_on(numbered(1, 2), "")
    assert node.refusals == [(1, 1, "too-large")]


# Publications


def test_without_a_queue_events_are_published_as_they_were(far: Site) -> None:
    bob = Client(far, "bob")
    bob.subscribe()
    Hander(far).hand_on(numbered(1, 2), "")
    assert bob.told == [1, 2]
    assert {(one.system, one.source) for one in bob.peer.got(Deliver)} == {("ann", "ann")}


def test_a_reliable_publication_is_stored_for_who_is_away(far: Site) -> None:
    bob = Client(far, "bob")
    bob.subscribe(durable="mine")
    bob.lose()
    Hander(far).hand_on({1: Event("t", {"n": 1}, delivery="reliable")}, "")
    bob.come(far.restart())
    bob.subscribe(durable="mine")
    assert bob.told == [1]


def test_nobody_has_a_publication_before_it_is_known_that_it_was_had(far: Site) -> None:
    bob = Client(far, "bob")
    bob.subscribe()
    node = Hander(far)
    node.peer.send(Forward("", packed(1), "ann", 1, "ann"), encode_events(list(numbered(1).values())))
    far.tick()
    assert bob.told == []
    far.sync()
    assert bob.told == [1]


def test_what_comes_from_a_node_does_not_go_back_there(far: Site) -> None:
    outgoing = far.transmission.bind("")
    outgoing.meet("n1")
    far.run()
    Hander(far, "n1").hand_on(numbered(1), "")
    Hander(far, "n3").hand_on(numbered(1), "", passed=("n1", "n2"))
    assert outgoing.queue.size == 0
    Hander(far, "n2").hand_on(numbered(1), "")
    assert outgoing.queue.size == 1


def test_what_has_passed_this_node_is_accepted_and_nobody_has_it_again(far: Site) -> None:
    bob = Client(far, "bob")
    bob.subscribe()
    node = Hander(far)
    node.hand_on(numbered(1), "", passed=("n9", far.broker.node))
    node.hand_on(numbered(2), "", passed=("n9",))
    assert (node.accepted, node.refusals) == (2, [])
    assert bob.told == [2]
    assert Hander(far.restart()).welcome.counter == 2


def test_the_nodes_that_a_publication_has_passed_are_kept_until_it_goes_on(far: Site) -> None:
    far.transmission.bind("")
    far.run()
    Hander(far, "n1").hand_on(numbered(1), "", passed=("n9",))
    (outgoing,) = far.restart().transmission
    (number,) = outgoing.queue.shelf
    assert outgoing.queue.shelf[number].origin == ForwardedOrigin("ann", 1, "ann", ("n9", "n1"))


@pytest.mark.parametrize("passed", [("n",) * 101, ("n" * 65,)])
def test_a_publication_that_has_passed_more_than_can_be_ends_the_connection(
    far: Site, passed: tuple[str, ...]
) -> None:
    node = Hander(far)
    node.hand_on(numbered(1), "", passed=passed)
    assert node.farewell == "protocol"


# Who hands on


def guarded(*rules: Rule, is_node: bool = False) -> Site:
    made = site(b"f")
    Client(made, "bob").create("jobs")
    made.broker.authenticator = Guard(Principal("dev", "token", is_node, rules))
    return made


def read(far: Site) -> list[Any]:
    (queue,) = (one for one in far.queues if one.name == "jobs")
    return [(queue.shelf[n].event["n"], queue.shelf[n].event.source) for n in queue.shelf]


def test_a_node_hands_on_under_the_names_of_others() -> None:
    far = guarded(Rule("put"), is_node=True)
    Hander(far).hand_on(numbered(1))
    assert read(far) == [(1, "ann")]


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("ann", "dev/ann"),
        ("dev", "dev"),
        ("dev/a", "dev/a"),
        ("device", "dev/device"),
        (None, "dev"),
        ("", "dev"),
    ],
)
def test_what_any_other_user_hands_on_comes_from_that_user(said: str | None, source: str) -> None:
    far = guarded(Rule("put"))
    Hander(far).hand_on(numbered(1), source=said)
    assert read(far) == [(1, source)]


def test_each_event_needs_a_grant() -> None:
    far = guarded(Rule("put", Filter("n > 1"), "jobs"))
    node = Hander(far)
    node.hand_on(numbered(1, 2, 3))
    node.hand_on(numbered(4), "others")
    assert [n for n, _ in read(far)] == [2, 3]
    assert node.refusals == [(1, 1, "not-allowed"), (4, 4, "not-allowed")]


def test_parts_of_what_may_not_be_put_are_not_kept() -> None:
    far = guarded(Rule("put", None, "others"))
    node = Hander(far)
    node.parts(b"x" * 1_000)
    far.run()
    assert (far.forwarded._parts, far.queues.size) == ({}, 0)
    node.hand_on(numbered(1, 2))
    assert node.refusals == [(1, 1, "not-allowed"), (2, 2, "not-allowed")]
    assert read(far) == []


def test_whoever_may_put_anywhere_still_puts_nothing_past_the_checks_of_another_queue() -> None:
    far = guarded(Rule("put", None, "*"), Rule("publish", Filter("n > 1")))
    outgoing = far.transmission.bind("")
    node = Hander(far)
    node.hand_on(numbered(1), "to:@upstream")
    node.hand_on(numbered(2))
    assert node.refusals == [(1, 1, "not-allowed")]
    dev = Client(far, "dev", "")
    dev.put("to:@upstream", 1)
    dev.put("jobs", 3)
    far.run()
    assert dev.refusals == [(1, 1, "not-allowed")]
    assert outgoing.queue.size == 0
    assert [n for n, _ in read(far)] == [2, 3]


def test_whoever_manages_a_transmission_queue_may_put_into_it() -> None:
    far = guarded(Rule("put", None, "*"), Rule("manage", None, "to:*"))
    outgoing = far.transmission.bind("")
    Hander(far).hand_on(numbered(1), "to:@upstream")
    dev = Client(far, "dev", "")
    dev.put("to:@upstream", 2)
    far.run()
    assert dev.refusals == []
    assert outgoing.queue.size == 2


def test_each_publication_needs_a_grant() -> None:
    far = guarded(Rule("publish", Filter("n > 1")))
    outgoing = far.transmission.bind("")
    node = Hander(far)
    node.hand_on(numbered(1, 2, 3), "")
    assert node.refusals == [(1, 1, "not-allowed")]
    assert [outgoing.queue.shelf[n].event["n"] for n in outgoing.queue.shelf] == [2, 3]


def test_whoever_may_publish_nothing_hands_on_nothing() -> None:
    far = guarded()
    outgoing = far.transmission.bind("")
    node = Hander(far)
    node.hand_on(numbered(1, 2), "")
    assert node.refusals == [(1, 2, "not-allowed")]
    assert outgoing.queue.size == 0


def test_bytes_that_were_checked_are_passed_on_unchanged(far: Site) -> None:
    events = encode_events(list(numbered(1).values()))
    node = Hander(far)
    node.peer.send(Forward("jobs", packed(1), "ann", 1, "ann"), events)
    far.run()
    (hand,) = Client(far, "reader").read("jobs")
    assert Batch(events).raws == [hand.raw]
