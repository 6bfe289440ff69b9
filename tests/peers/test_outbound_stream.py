"""The sending end of FORWARD: what it says on the connection that it shares, and what it makes of answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from tidings.event import Batch, Event
from tidings.event.wire import encode_events
from tidings.ids import Origin, StoredIds
from tidings.peers.outbound_stream import EARLIER, OutboundStream, SharedConnection
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import (
    Accepted,
    Bye,
    Failure,
    Forward,
    Ping,
    Pong,
    ProtocolMessage,
    Refusal,
    Reply,
    Request,
    Welcome,
)
from tidings.protocol.outgoing_streams import BULK_SIZE

RAW = Batch(encode_events([Event("t", {"n": 1})])).raws[0]
LONG = Batch(encode_events([Event("t", {"n": 1}, body=bytes(BULK_SIZE // 3))])).raws[0]
STATE = {
    "counter": 7,
    "window": 1_000,
    "refused": [to_builtins(Refusal(3, 4, Failure("queue-full", "full")))],
}


class Noted:
    """A forwarder that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        broker = SimpleNamespace(node="near", mark=1)
        self.outgoing = SimpleNamespace(broker=broker, settle_held=self.settled)

    def welcomed(self, _lane: OutboundStream, counter: int) -> None:
        self.heard.append(("welcomed", counter))

    def settled(self, item: str, failure: Failure | None) -> None:
        self.heard.append((item, failure and failure.code))

    def pump(self) -> None:
        self.heard.append("accepted")

    def lost(self, _lane: OutboundStream) -> None:
        self.heard.append("lost")

    def trouble(self, problem: str) -> None:
        self.heard.append(problem)


class Line:
    """A connection to a node that is played by the test, and the streams on it."""

    def __init__(self) -> None:
        self.connection = Connection(StoredIds("client", 1), "near")
        self.shared = SharedConnection(self.connection, lambda: None)
        self.greet()

    def greet(self) -> None:
        self.connection.connect(0.0)
        self.said()
        self.hear(Welcome(1, "far", 1, "s-1", 0, 1_000_000))

    def stream(self, epoch: int = 5) -> tuple[OutboundStream, Noted]:
        noted: Any = Noted()
        made = OutboundStream(noted, epoch, 0)
        self.shared.attach(made)
        return made, noted

    def opened(self, epoch: int = 5) -> tuple[OutboundStream, Noted]:
        made, noted = self.stream(epoch)
        self.answer(STATE)
        noted.heard.clear()
        return made, noted

    def answer(self, result: Any = None, error: Failure | None = None) -> None:
        """Answer the request that was sent last."""
        *_, (request, _) = self.said()
        assert isinstance(request, Request)
        self.hear(Reply(request.number, result, error))

    def hear(self, *messages: ProtocolMessage) -> None:
        self.connection.receive(b"".join(map(encode, messages)), 0.0)

    def said(self) -> list[tuple[ProtocolMessage, bytes]]:
        return list(FrameReader(FRAME_MAX).feed(b"".join(self.connection.output())))


def test_a_stream_is_opened_under_the_identity_of_its_queue() -> None:
    line = Line()
    made, _ = line.stream()
    ((request, _),) = line.said()
    assert isinstance(request, Request)
    assert request.operation == "forward.open"
    assert request.arguments == {"stream": 1, "system": "near", "epoch": 5, "seen": 0}
    assert not made.is_up


def test_the_reply_tells_what_was_had_and_refused() -> None:
    line = Line()
    made, noted = line.stream()
    line.answer(STATE)
    assert noted.heard == [("welcomed", 7)]
    refusals = [made.stream.refusal(number) for number in (2, 3, 5)]
    assert [one and one.first for one in refusals] == [None, 3, None]
    assert (made.is_up, made.node) == (True, "far")


def test_a_stream_is_opened_again_on_each_connection_with_what_it_has_seen() -> None:
    line = Line()
    made, noted = line.opened()
    made.seen = 6
    line.connection.lost(0.0)
    assert noted.heard == ["lost"]
    line.greet()
    ((request, _),) = line.said()
    assert isinstance(request, Request)
    assert request.arguments == {"stream": 1, "system": "near", "epoch": 5, "seen": 6}


def test_streams_go_on_over_another_connection_when_the_node_has_refused_the_first() -> None:
    line = Line()
    made, noted = line.opened()
    line.hear(Bye("not-allowed", "go away"))
    assert (noted.heard, made.is_up) == (["lost"], False)
    line.connection = Connection(StoredIds("client", 2), "near")
    line.shared.move(line.connection)
    line.greet()
    line.answer(STATE)
    assert made.is_up


def test_events_go_with_their_numbers_their_origin_and_their_stream() -> None:
    line = Line()
    line.opened(4)
    made, _ = line.opened()
    made.seen = 7
    items: Any = ["a", "b"]
    made.forward("jobs", Origin("ann", 1, "annie"), [8, 300], [RAW, RAW], items, [b"rest"])
    (part, bearer), (message, events) = line.said()
    assert part == Forward("jobs", b"", stream=2)
    assert Batch(bearer)[0].body == b"rest"
    numbers = (8).to_bytes(8, "big") + (300).to_bytes(8, "big")
    assert message == Forward("jobs", numbers, "ann", 1, "annie", 7, 2)
    assert Batch(events).raws == [RAW, RAW]


def test_what_is_under_way_takes_room_of_its_own_stream_until_it_is_accepted() -> None:
    line = Line()
    made, noted = line.opened()
    other, others = line.opened(6)
    assert made.is_clear
    assert made.room == 1_000
    items: Any = ["a", "b"]
    made.forward("jobs", Origin(), [8], [RAW], items[:1])
    made.forward("jobs", Origin(), [9], [RAW], items[1:])
    under_way = sum(len(encode(message, events)) for message, events in line.said())
    assert (made.room, other.room) == (1_000 - under_way, 1_000)
    line.hear(Accepted(9, 2), Accepted(9), Accepted(9, 77))
    assert noted.heard == []
    line.hear(Refusal(9, 9, Failure("queue-full", "full"), 1), Accepted(9, 1))
    assert noted.heard == [("a", None), ("b", "queue-full"), "accepted"]
    assert others.heard == ["accepted"]
    assert made.is_clear
    assert made.room == 1_000


def test_nothing_may_be_sent_while_the_node_is_away() -> None:
    line = Line()
    made, noted = line.opened()
    items: Any = ["a"]
    made.forward("jobs", Origin(), [8], [RAW], items)
    line.connection.lost(0.0)
    assert noted.heard == ["lost"]
    assert (made.room, made.is_clear, list(made.stream)) == (0, False, [])
    assert line.said() == []


def test_a_stream_that_is_closed_says_so_and_sends_no_more() -> None:
    line = Line()
    made, noted = line.opened()
    items: Any = ["a"]
    made.forward("jobs", Origin(), [8], [RAW], items)
    line.shared.detach(made)
    ((request, _),) = line.said()
    assert isinstance(request, Request)
    assert (request.operation, request.arguments) == ("forward.close", {"stream": 1})
    line.hear(Accepted(8, 1))
    assert noted.heard == []


def test_what_else_is_to_be_said_does_not_wait_for_forwarded_events_and_streams_take_turns() -> None:
    line = Line()
    first, _ = line.opened()
    second, _ = line.opened(6)
    items: Any = ["a"]
    for number in range(8, 20):
        first.forward("jobs", Origin(), [number], [LONG], items)
    second.forward("jobs", Origin(), [8], [RAW], items)
    line.connection.request("status", {})
    line.hear(Ping(3))
    said = [message for message, _ in line.said()]
    assert [type(message) for message in said[:2]] == [Request, Pong]
    streams = [message.stream for message in said[2:] if isinstance(message, Forward)]
    assert streams[:2] == [1, 2]
    assert len(streams) <= 5
    line.connection.request("status", {})
    assert isinstance(line.said()[0][0], Request)
    while line.connection.has_bulk:
        streams += [message.stream for message, _ in line.said() if isinstance(message, Forward)]
    assert streams.count(1) < 12  # some have left with the request
    assert not line.said()


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (Failure("not-found", "there is no operation 'forward.open'"), EARLIER),
        (Failure("limit", "4000 streams are open on this connection"), "4000 streams"),
    ],
)
def test_a_node_that_opens_no_stream_is_asked_again_later(failure: Failure, problem: str) -> None:
    line = Line()
    made, noted = line.stream()
    line.answer(None, failure)
    (told,) = noted.heard
    assert problem in str(told)
    assert (made.is_up, made.is_denied) == (False, True)
    line.shared.detach(made)
    line.shared.attach(made)
    line.answer(STATE)
    assert (made.is_up, made.is_denied) == (True, False)


@pytest.mark.parametrize("told", [None, [], {"counter": "x", "window": 1}, {"window": 1}])
def test_what_is_no_reply_of_a_node_opens_nothing(told: Any) -> None:
    line = Line()
    made, noted = line.stream()
    line.answer(told)
    assert not made.is_up
    assert "$.forward.open" in str(noted.heard[0])


def test_a_reply_that_comes_after_the_stream_was_closed_is_passed_over() -> None:
    line = Line()
    made, noted = line.stream()
    ((request, _),) = line.said()
    assert isinstance(request, Request)
    line.shared.detach(made)
    line.hear(Reply(request.number, STATE))
    assert noted.heard == []
