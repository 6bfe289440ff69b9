"""The sending end of FORWARD: what it says, what it makes of the answers, and when it gives up."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.event import Batch, Event
from tidings.event.wire import encode_events
from tidings.ids import Origin
from tidings.peers.outbound_stream import OutboundStream
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.keepalive import SILENT_S_MAX, WELCOME_S_MAX
from tidings.protocol.messages import (
    Accepted,
    Bye,
    Deliver,
    Failure,
    Forward,
    Hello,
    Ping,
    Pong,
    ProtocolMessage,
    Publish,
    Refusal,
    Welcome,
)

RAW = Batch(encode_events([Event("t", {"n": 1})])).raws[0]
WELCOME = Welcome(1, "far", 1, "s-1", 7, 1_000, [Refusal(3, 4, Failure("queue-full", "full"))])


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


def sender() -> tuple[OutboundStream, Noted]:
    noted: Any = Noted()
    made = OutboundStream(noted, 5, 0, lambda: ("ann", "secret"))
    made.connect(0.0)
    return made, noted


def welcomed() -> tuple[OutboundStream, Noted]:
    made, noted = sender()
    made.output()
    made.receive(encode(WELCOME), 0.0)
    noted.heard.clear()
    return made, noted


def said(made: OutboundStream) -> list[tuple[ProtocolMessage, bytes]]:
    return list(FrameReader(FRAME_MAX).feed(b"".join(made.output())))


def test_its_hello_has_the_fixed_identity_and_who_it_is() -> None:
    made, _ = sender()
    made.seen = 6
    made.connect(0.0)
    ((hello, _),) = said(made)
    assert hello == Hello([1], "near", 5, "", None, 6, "ann", "secret")


def test_it_comes_again_with_the_session_it_had() -> None:
    made, _ = welcomed()
    made.lost()
    made.connect(1.0)
    ((hello, _),) = said(made)
    assert isinstance(hello, Hello)
    assert hello.resume == "s-1"


def test_a_welcome_tells_what_was_had_and_refused() -> None:
    made, noted = sender()
    made.receive(encode(WELCOME), 0.0)
    assert noted.heard == [("welcomed", 7)]
    assert [made.stream.refusal(number) for number in (2, 3, 5)] == [None, WELCOME.refused[0], None]
    assert (made.is_up, made.node) == (True, "far")


def test_events_go_with_their_numbers_and_their_origin() -> None:
    made, _ = welcomed()
    made.seen = 7
    made.forward("jobs", Origin("ann", 1, "annie"), [8, 300], [RAW, RAW], ["a", "b"], [b"rest"])
    (part, bearer), (message, events) = said(made)
    assert part == Forward("jobs", b"")
    assert Batch(bearer)[0].body == b"rest"
    numbers = (8).to_bytes(8, "big") + (300).to_bytes(8, "big")
    assert message == Forward("jobs", numbers, "ann", 1, "annie", 7)
    assert Batch(events).raws == [RAW, RAW]


def test_what_is_under_way_takes_room_until_it_is_accepted() -> None:
    made, noted = welcomed()
    assert made.is_clear
    assert made.room == 1_000
    made.forward("jobs", Origin(), [8], [RAW], ["a"])
    made.forward("jobs", Origin(), [9], [RAW], ["b"])
    under_way = sum(len(encode(message, events)) for message, events in said(made))
    assert made.room == 1_000 - under_way
    made.receive(encode(Refusal(9, 9, Failure("queue-full", "full"))) + encode(Accepted(9)), 0.0)
    assert noted.heard == [("a", None), ("b", "queue-full"), "accepted"]
    assert made.is_clear
    assert made.room == 1_000


def test_nothing_may_be_sent_while_the_node_is_away() -> None:
    made, noted = welcomed()
    made.forward("jobs", Origin(), [8], [RAW], ["a"])
    made.lost()
    assert (made.is_clear, made.room, made.output()) == (False, 0, [])
    assert noted.heard == ["lost"]
    made.lost()
    assert noted.heard == ["lost"]


def test_a_node_that_does_not_welcome_it_is_given_up() -> None:
    made, noted = sender()
    assert made.wake_at == WELCOME_S_MAX
    made.wake(WELCOME_S_MAX)
    assert made.is_given_up
    made.lost()
    assert noted.heard == []
    assert made.wake_at is None


def test_a_silent_node_is_asked_and_then_given_up() -> None:
    made, _ = welcomed()
    made.wake(SILENT_S_MAX - 1)
    assert said(made) == []
    made.wake(SILENT_S_MAX)
    assert [message for message, _ in said(made)] == [Ping()]
    made.receive(encode(Pong()), SILENT_S_MAX + 1)
    made.wake(2 * SILENT_S_MAX)
    assert not made.is_given_up
    made.wake(2 * SILENT_S_MAX + 1)
    made.wake(3 * SILENT_S_MAX + 1)
    assert made.is_given_up


def test_it_answers_when_it_is_asked() -> None:
    made, _ = welcomed()
    made.receive(encode(Ping(3)), 0.0)
    assert [message for message, _ in said(made)] == [Pong(3)]


@pytest.mark.parametrize("is_up", [False, True])
def test_a_node_that_says_goodbye_says_why(is_up: bool) -> None:
    made, _ = welcomed() if is_up else sender()
    made.receive(encode(Bye("not-allowed", "user or secret is wrong")), 0.0)
    assert made.is_given_up
    assert str(made.trouble) == "user or secret is wrong"


def test_it_says_goodbye_itself() -> None:
    made, _ = welcomed()
    made.close()
    assert [message for message, _ in said(made)] == [Bye()]


@pytest.mark.parametrize(
    "answer",
    [
        encode(WELCOME),
        encode(Hello([1], "x", 1)),
        encode(Publish(), encode_events([])),
        encode(Deliver(1), encode_events([])),
        b"\x00\x00\x00\x01\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_no_answer_of_a_node_ends_the_connection(answer: bytes) -> None:
    made, noted = welcomed()
    made.receive(answer, 0.0)
    assert made.is_given_up
    assert noted.heard == []


def test_answers_before_the_welcome_end_the_connection() -> None:
    made, noted = sender()
    made.receive(encode(Accepted(5)), 0.0)
    assert made.is_given_up
    assert noted.heard == []


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_answers_may_come_in_any_pieces(cuts: list[int]) -> None:
    made, noted = sender()
    data = encode(WELCOME) + encode(Refusal(8, 8, Failure("x", "y"))) + encode(Accepted(8)) + encode(Bye())
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        made.receive(data[begin:end], 0.0)
    assert noted.heard == [("welcomed", 7), "accepted"]
    assert made.is_given_up
