"""Connections that a node makes itself: when it dials, whom it talks to, and when it dials again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from peers.dialled import Net
from queues.rig import Client, numbers

from tidings.errors import NotAllowed, TidingsError
from tidings.peers import forwarded, forwarding
from tidings.peers.dialling import SILENT, Dial, Dialling, HangUp, OutboundConnection, PeerReach
from tidings.peers.peering import REFUSED_S
from tidings.protocol.connection import Connection
from tidings.protocol.keepalive import SILENT_S_MAX
from tidings.steps import finish
from tidings.timers import Alarms


def peer(net: Net, name: str = "far") -> dict[str, object]:
    (found,) = (one for one in net.home.broker.status()["peers"] if one["name"] == name)
    return found


# -- one connection, whatever happens to it


class Parrot:
    """Something that talks: it is up when it was said so, and given up when it was."""

    has_bulk = False

    def __init__(self) -> None:
        self.is_up = self.is_given_up = False
        self.wake_at: float | None = None
        self.frames: list[bytes] = []

    def connect(self, now: float) -> None:
        self.is_given_up, self.wake_at, self.frames = False, now + 10.0, [b"hello"]

    def receive(self, data: bytes, now: float) -> None:
        self.is_up, self.is_given_up, self.wake_at = data == b"up", data == b"bye", now + 10.0

    def wake(self, now: float) -> None:
        self.is_given_up = self.wake_at is not None and now >= self.wake_at

    def output(self) -> list[bytes]:
        frames, self.frames = self.frames, []
        return frames


class Plain(OutboundConnection):
    """An outbound connection that notes what it is told."""

    def __init__(self, dialling: Dialling, talk: Parrot) -> None:
        super().__init__(dialling, cast("Connection", talk))
        self.talk = talk
        self.is_last = False  # whether it is ended when it is lost

    @property
    def reach(self) -> PeerReach:
        return PeerReach("tidings://far:1")

    def _refusal(self, certificate: str | None) -> str:
        return "" if certificate is None else f"it is {certificate}"

    def _heard(self) -> None: ...

    def _lost(self, _problem: str, _verdict: TidingsError | None, _was_open: bool) -> None:
        self.talk.is_up, self.talk.wake_at, self.talk.frames = False, None, []
        if self.is_last:
            self.end()


class Lines(RuleBasedStateMachine):
    """A driver that does as it is told, and is told of nothing that has not happened."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.timers = Alarms()
        self.dialling = Dialling(self.timers, lambda: self.now, lambda: 1.0)
        self.outbound = Plain(self.dialling, Parrot())
        self.is_dialling = self.is_open = self.is_ended = False
        self.outbound.begin()

    def carry_out(self) -> Iterator[str]:
        for effect in self.dialling.take_effects():
            match effect:
                case Dial():
                    assert not self.is_ended
                    assert {self.is_dialling, self.is_open} == {False}
                    self.is_dialling = True
                    yield "dial"
                case HangUp():
                    assert self.is_dialling or self.is_open
                    self.is_dialling = self.is_open = False
                    yield "hang up"

    @rule(certificate=st.sampled_from([None, "mallory"]))
    def answer(self, certificate: str | None) -> None:
        if self.is_dialling:
            self.is_dialling, self.is_open = False, True
            self.outbound.answered(certificate)
            assert (self.outbound.output() == [b"hello"]) is (certificate is None)
            assert list(self.carry_out()) == ([] if certificate is None else ["hang up"])

    @rule(is_last=st.sampled_from([False, False, True]))
    def lose(self, is_last: bool) -> None:
        if self.is_dialling or self.is_open:
            self.is_dialling = self.is_open = False
            self.outbound.is_last = is_last
            self.is_ended = self.is_ended or is_last
            self.outbound.lost("gone")

    @rule(data=st.sampled_from([b"up", b"bye", b"?"]))
    def receive(self, data: bytes) -> None:
        if self.is_open:
            self.outbound.receive(data)
            assert list(self.carry_out()) == (["hang up"] if data == b"bye" else [])

    @rule(seconds=st.sampled_from([0.01, 1.0, 9.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        finish(self.timers.wake(self.now))
        list(self.carry_out())

    @rule()
    def end(self) -> None:
        was_there = self.is_dialling or self.is_open
        self.outbound.end()
        assert list(self.carry_out()) == (["hang up"] if was_there else [])
        self.is_ended = True

    @invariant()
    def what_is_not_there_is_dialled_again_in_time(self) -> None:
        list(self.carry_out())
        if not (self.is_dialling or self.is_ended):
            assert self.timers.wake_at <= self.now + 10.0
        if self.is_ended:
            assert self.timers.wake_at == float("inf")


Lines.TestCase.settings = settings(max_examples=often(100), deadline=None)
test_one_connection_is_made_at_a_time_and_made_again_until_it_is_ended = Lines.TestCase


def test_pauses_grow_while_there_is_nobody_and_are_short_again_after_a_welcome() -> None:
    net = Net("home", "far")
    net.is_down = True
    net.run()
    for pause_s in (0.025, 0.05, 0.1, 0.2):  # half of what they may be, as chance has it in a rig
        dialled = net.dialled
        net.pass_time(pause_s * 0.9)
        assert net.dialled == dialled
        net.pass_time(pause_s * 0.2)
        assert net.dialled == dialled + 1
    net.is_down = False
    net.pass_time(5.0)
    assert peer(net)["state"] == "there"
    dialled = net.dialled
    net.cut()
    net.pass_time(0.03)
    assert net.dialled == dialled + 1


# -- peers


def test_a_peer_is_found_lost_and_found_again() -> None:
    net = Net("home", "far")
    net.run()
    assert (peer(net)["state"], peer(net)["node"]) == ("there", net.rigs["far"].broker.node)
    net.cut()
    assert (peer(net)["state"], peer(net)["error"]) == ("away", "cut")
    net.pass_time(1.0)
    assert peer(net)["state"] == "there"
    of_peers = [line for line in net.logged if line[1].endswith("a peer")]
    assert of_peers == [("info", "found a peer"), ("warning", "lost a peer"), ("info", "found a peer")]


def test_nothing_is_said_to_a_peer_that_shows_the_certificate_of_another() -> None:
    net = Net("home", "far", scheme="tidings+tls")
    net.certificates["far"] = "mallory"
    net.run()
    assert net.heard == []
    assert (peer(net)["state"], peer(net)["error"]) == ("away", "its certificate is that of 'mallory'")
    assert net.logged == [("error", "a peer is not who it should be")]


def test_a_peer_that_is_this_node_itself_hears_no_more_than_hello() -> None:
    net = Net("home", knows=["other"])
    net.rigs["other"] = net.home
    net.run()
    assert len(net.heard) == 1
    assert peer(net, "other")["error"] == "it is this node itself"
    assert not net.calls


def test_who_is_not_who_it_should_be_is_left_alone_for_a_while_and_asked_anew() -> None:
    net = Net("home", "far", scheme="tidings+tls")
    net.certificates["far"] = "mallory"
    net.run()
    net.certificates["far"] = "far"
    net.pass_time(REFUSED_S - 1.0)
    assert net.dialled == 1
    net.pass_time(2.0)
    assert peer(net)["state"] == "there"


def test_what_waits_for_a_peer_that_is_refused_fails_and_what_is_asked_later_does_not() -> None:
    net = Net("home", "far", scheme="tidings+tls")
    net.certificates["far"] = "mallory"
    net.run()
    ann = Client(net.home)
    assert ann.fails("get", queue="jobs@far", wait_s=5.0).code == "away"
    net.certificates["far"] = "far"
    net.pass_time(REFUSED_S)
    bob = Client(net.rigs["far"], "bob")
    bob.create("jobs")
    number = ann.request("get", queue="jobs@far", wait_s=0.0)
    net.run()
    reply = ann.reply(number)
    assert reply is not None
    assert reply.error is None


def test_a_verdict_of_tls_is_final_for_a_peer_that_was_never_there_and_waited_out_for_one_that_was() -> None:
    net = Net("home", "far")
    net.verdict = NotAllowed("it is not let in")
    net.run()
    net.pass_time(REFUSED_S - 1.0)
    assert (net.dialled, peer(net)["error"]) == (1, "it is not let in")
    net.verdict = None
    net.pass_time(1.0)
    assert peer(net)["state"] == "there"
    net.verdict = NotAllowed("it is not let in")
    net.cut()
    net.pass_time(1.0)
    assert peer(net)["error"] == "no way there"
    net.verdict = None
    net.pass_time(1.0)
    assert peer(net)["state"] == "there"


def test_a_peer_that_falls_silent_is_given_up_and_dialled_again() -> None:
    net = Net("home", "far")
    net.run()
    (call,) = net.calls.values()
    call.carry = lambda: False  # type: ignore[method-assign]
    net.pass_time(SILENT_S_MAX)
    net.pass_time(SILENT_S_MAX)
    assert (peer(net)["state"], peer(net)["error"]) == ("away", SILENT)
    net.pass_time(1.0)
    assert peer(net)["state"] == "there"


def test_a_candidate_that_is_not_found_any_more_is_hung_up_on() -> None:
    net = Net("home", "far", knows=[])
    net.core.peering.found("far", "tidings://far:1")
    net.is_down = True
    net.run()
    net.core.peering.gone("far")
    net.is_down = False
    net.pass_time(60.0)
    assert net.dialled == 1
    assert net.home.broker.status()["peers"] == []


def test_a_node_that_stops_says_goodbye_and_dials_no_more() -> None:
    net = Net("home", "far")
    net.run()
    net.core.hang_up()
    net.run()
    assert not net.rigs["far"].broker.sessions
    net.pass_time(60.0)
    assert net.dialled == 1


# -- forwarders


@pytest.fixture
def net() -> Net:
    """Two nodes, of which `far` has a queue."""
    net = Net("home", "far")
    net.run()
    Client(net.rigs["far"], "owner").create("jobs")
    return net


def contents(net: Net) -> list[object]:
    return numbers(Client(net.rigs["far"], "bob").get("jobs", 100))


def test_a_put_for_a_peer_arrives_though_the_way_there_breaks(net: Net) -> None:
    ann = Client(net.home, "ann")
    ann.put("jobs@far", 1)
    net.run()
    net.cut()
    ann.put("jobs@far", 2)
    net.run()
    net.pass_time(10.0)
    assert ann.accepted == 2
    assert contents(net) == [1, 2]


def test_nothing_is_forwarded_to_a_node_that_shows_the_certificate_of_another() -> None:
    net = Net("home", "far", scheme="tidings+tls")
    net.certificates["far"] = "far"
    net.run()
    net.certificates["far"], before = "mallory", len(net.heard)
    net.cut()
    ann = Client(net.home, "ann")
    ann.put("jobs@far", 1)
    net.run()
    net.pass_time(5.0)
    assert len(net.heard) == before
    (told,) = net.home.broker.status()["forwarding"]
    assert (told["waiting"], told["error"]) == (1, "its certificate is that of 'mallory'")


def test_what_is_forwarded_shares_the_connection_to_the_peer(net: Net) -> None:
    Client(net.rigs["far"], "owner2").create("letters")
    ann = Client(net.home, "ann")
    ann.put("jobs@far", 1)
    ann.put("letters@far", 2)
    net.run()
    assert (len(net.calls), net.dialled) == (1, 1)
    (session,) = (one for one in net.rigs["far"].broker.sessions if one.streams)
    assert len(session.streams) == 2
    assert contents(net) == [1]


def test_a_forwarder_with_nothing_to_do_closes_its_stream_and_begins_again(net: Net) -> None:
    ann = Client(net.home, "ann")
    for n in range(3):
        ann.put("jobs@far", n)
        net.run()
        (session,) = (one for one in net.rigs["far"].broker.sessions if one.streams)
        net.pass_time(2 * forwarding.IDLE_S)
        assert not session.streams
    assert contents(net) == [0, 1, 2]


def test_a_stream_that_the_peer_has_denied_is_asked_for_again(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(forwarded, "STREAMS_MAX", 0)
        ann = Client(net.home, "ann")
        ann.put("jobs@far", 1)
        net.run()
        assert ann.accepted == 1  # it is safe here
        (told,) = net.home.broker.status()["forwarding"]
        assert (told["waiting"], told["error"]) == (1, "0 streams are open on this connection [limit]")
    net.pass_time(forwarding.IDLE_S)
    assert contents(net) == [1]
