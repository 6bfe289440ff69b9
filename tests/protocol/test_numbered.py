"""The numbered stream: puts, settlings and commits, through cuts and restarts at every point.

The node is a model: a few dicts that do each counter once. The bytes between the two are carried frame by
frame, and lost where a test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import Disconnected, EventError, TidingsError
from tidings.event import Batch, Event
from tidings.ids import StoredIds
from tidings.protocol import publications
from tidings.protocol.calls import Call
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import (
    DONE,
    GIVE_BACK,
    HANDLE,
    REJECT,
    Accepted,
    Commit,
    Failure,
    Hello,
    ProtocolMessage,
    Publish,
    Put,
    Refusal,
    Reply,
    Request,
    Settle,
    Welcome,
)

Item = tuple[int, Callable[[], str]]
"""A counter, and what does what it stands for; the code of a refusal, or nothing."""
ROOM = 8
"""Messages that the model's queue takes."""


class ModelNode:
    """Does each counter once; what it holds for a client and its transactions end with a restart."""

    def __init__(self) -> None:
        self.boot = 1
        self.counter = 0
        self.queue: list[int] = []
        self.settled: list[tuple[int, int]] = []
        self.committed: list[int] = []
        self.held = dict.fromkeys(range(1, 21), 1)  # number of a message: its delivery
        self.transactions: dict[int, list[int]] = {}
        self.refused: list[Refusal] = []
        self.requests: list[Request] = []
        self.seen = 0

    def restart(self) -> None:
        self.boot += 1
        self.transactions.clear()
        self.held = {number: delivery + 1 for number, delivery in self.held.items()}

    def hear(self, message: ProtocolMessage, events: bytes) -> list[bytes]:
        """Do what a frame says; what is answered."""
        match message:
            case Hello():
                self.see(message.seen)
                welcome = Welcome(1, "model", self.boot, "s", self.counter, 1 << 20, list(self.refused))
                return [encode(welcome)]
            case Request():
                self.requests.append(message)
                return []
            case Put():
                self.see(message.seen)
                items: list[Item] = [
                    (event.counter, partial(self.put, message, event)) for event in Batch(events).events
                ]
            case Settle():
                self.see(message.seen)
                handles = HANDLE.iter_unpack(message.handles)
                items = [
                    (message.first + row, partial(self.settle, *handle)) for row, handle in enumerate(handles)
                ]
            case Commit():
                self.see(message.seen)
                items = [(message.counter, partial(self.commit, message.transaction))]
            case _:
                raise AssertionError(message)
        return self.do(items)

    def see(self, counter: int) -> None:
        assert counter <= self.counter, "the client has seen what was never said"
        self.seen = max(self.seen, counter)
        self.refused = [one for one in self.refused if one.last > counter]

    def do(self, items: list[Item]) -> list[bytes]:
        answers = []
        for counter, act in items:
            if counter <= self.counter:
                continue
            assert counter == self.counter + 1, "something was left out"
            self.counter = counter
            code = act()
            if code:
                self.refused.append(Refusal(counter, counter, Failure(code, "no")))
                answers.append(encode(self.refused[-1]))
        return [*answers, encode(Accepted(self.counter))]

    def put(self, message: Put, event: Event) -> str:
        if message.transaction:
            self.transactions.setdefault(message.transaction, []).append(event["n"])
            return ""
        if len(self.queue) >= ROOM:
            return "queue-full"
        self.queue.append(event["n"])
        return ""

    def settle(self, number: int, delivery: int) -> str:
        if self.held.get(number) != delivery:
            return "not-yours"
        del self.held[number]
        self.settled.append((number, delivery))
        return ""

    def commit(self, transaction: int) -> str:
        puts = self.transactions.pop(transaction, None)
        if puts is None:
            return "rolled-back"
        self.committed += puts
        return ""


class Pair:
    """A client and the model, with what is under way between them."""

    def __init__(self) -> None:
        self.node = ModelNode()
        self.core = Connection(StoredIds("one", 1), "ann")
        self.up: list[tuple[ProtocolMessage, bytes]] = []
        self.down: list[bytes] = []
        self.core.connect(0.0)

    def send(self) -> None:
        """Let what the client says be under way."""
        self.up += FrameReader(FRAME_MAX).feed(b"".join(self.core.output()))

    def carry(self, count: int) -> None:
        """So many frames reach the node."""
        for _ in range(min(count, len(self.up))):
            self.down += self.node.hear(*self.up.pop(0))

    def hear(self, count: int) -> None:
        """So many answers reach the client."""
        for _ in range(min(count, len(self.down))):
            self.core.receive(self.down.pop(0), 0.0)
        assert not self.core.is_given_up

    def cut(self) -> None:
        """What is under way is lost, both ways."""
        self.up, self.down = [], []
        self.core.lost(0.0)
        self.core.connect(0.0)

    def restart(self) -> None:
        self.node.restart()
        self.cut()

    def run(self) -> None:
        """Carry everything until nothing moves."""
        self.send()
        while self.up or self.down:
            self.carry(100)
            self.hear(100)
            self.send()


def numbered(n: int) -> Event:
    return Event("t", n=n)


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.run()
    return made


STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 3)),
    st.tuples(st.just("settle"), st.integers(1, 3)),
    st.tuples(st.just("in transaction"), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.just(1)),
    st.tuples(st.just("send"), st.just(1)),
    st.tuples(st.just("carry"), st.integers(1, 3)),
    st.tuples(st.just("hear"), st.integers(1, 3)),
    st.tuples(st.just("cut"), st.just(1)),
    st.tuples(st.just("restart"), st.just(1)),
)


class Application:
    """Says things one after the other, and learns what has become of them."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.puts: dict[int, int] = {}  # counter: n
        self.settles: dict[int, int] = {}  # counter: number
        self.commits: dict[int, list[int]] = {}  # counter: what was put in it
        self.open: list[int] = []
        self.transaction = 1

    def step(self, kind: str, count: int) -> None:
        core = self.pair.core
        match kind:
            case "put":
                for _ in range(count):
                    n = len(self.puts) + 1
                    self.puts[core.put("jobs", numbered(n))] = n
            case "settle":
                for number in range(len(self.settles) + 1, min(len(self.settles) + count, 20) + 1):
                    self.settles[core.settle(number, 1, DONE)] = number
            case "in transaction":
                for _ in range(count):
                    n = 1_000 * self.transaction + len(self.open)
                    core.put("jobs", numbered(n), self.transaction)
                    self.open.append(n)
            case "commit":
                self.commits[core.commit(self.transaction)] = self.open
                self.open, self.transaction = [], self.transaction + 1
            case "cut":
                self.pair.cut()
            case "restart":
                self.pair.restart()
            case "send":
                self.pair.send()
            case "carry":
                self.pair.carry(count)
            case "hear":
                self.pair.hear(count)


@given(st.lists(STEPS, max_size=40))
def test_nothing_is_lost_or_done_twice_wherever_the_connection_is_cut(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    application = Application(pair)
    for kind, count in steps:
        application.step(kind, count)
    pair.cut()
    pair.run()
    node, stream = pair.node, pair.core.publications
    assert stream.is_empty
    assert stream.size == 0
    done = [n for counter, n in application.puts.items() if stream.refusal(counter) is None]
    assert done == node.queue
    told = {number for counter, number in application.settles.items() if stream.refusal(counter) is None}
    settled = [number for number, _ in node.settled]
    assert len(settled) == len(set(settled))
    assert set(settled) <= told
    assert told - set(settled) <= node.held.keys()  # it has gone to another, as the node was restarted


@given(st.lists(STEPS.filter(lambda step: step[0] != "restart"), max_size=40))
def test_while_the_node_lives_what_is_told_is_what_was_done(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    application = Application(pair)
    for kind, count in steps:
        application.step(kind, count)
    pair.cut()
    pair.run()
    node, stream = pair.node, pair.core.publications
    told = [number for counter, number in application.settles.items() if stream.refusal(counter) is None]
    assert told == [number for number, _ in node.settled]
    committed = [
        n for counter, puts in application.commits.items() if stream.refusal(counter) is None for n in puts
    ]
    assert committed == node.committed


def test_items_that_fit_one_frame_share_one(pair: Pair) -> None:
    core = pair.core
    for n in range(3):
        core.put("jobs", numbered(n))
    core.put("other", numbered(3))
    core.put("other", numbered(4), transaction=1)
    core.put("other", numbered(5), transaction=1, is_part=True)
    for number in range(3):
        core.settle(number, 1, DONE)
    core.settle(9, 1, REJECT, "no good")
    core.settle(10, 2, GIVE_BACK)
    core.commit(1)
    core.publish(numbered(6))
    pair.send()
    frames = [message for message, _ in pair.up]
    assert [type(frame) for frame in frames] == [Put, Put, Put, Put, Settle, Settle, Settle, Commit, Publish]
    assert frames[0] == Put("jobs")
    assert frames[3] == Put("other", 0, 1, True)
    assert frames[4] == Settle(7, 0, b"".join(HANDLE.pack(number, 1) for number in range(3)), DONE)
    assert frames[5] == Settle(10, 0, HANDLE.pack(9, 1), REJECT, "no good")
    assert frames[7] == Commit(12, 0, 1)


def test_settlings_keep_their_counters_when_an_event_between_them_is_refused(pair: Pair) -> None:
    pair.core.settle(1, 1, DONE)
    with pytest.raises(EventError):
        pair.core.put("jobs", Event("t", body=bytes(publications.PUT_SIZE_MAX)))
    assert pair.core.settle(2, 1, DONE) == 3
    pair.send()
    assert [message.first for message, _ in pair.up if isinstance(message, Settle)] == [1, 3]


def test_frames_say_which_answers_were_seen_and_so_does_hello(pair: Pair) -> None:
    pair.core.put("jobs", numbered(1))
    pair.run()
    pair.core.put("jobs", numbered(2))
    pair.send()
    assert pair.up[0][0] == Put("jobs", 1)
    pair.cut()
    pair.send()
    hello = pair.up[0][0]
    assert isinstance(hello, Hello)
    assert hello.seen == 1


def test_a_frame_that_is_sent_again_says_what_was_seen_until_then(pair: Pair) -> None:
    pair.core.put("jobs", numbered(1))
    pair.send()
    pair.core.put("jobs", numbered(2))
    pair.send()
    pair.carry(1)
    pair.hear(1)
    pair.cut()
    pair.send()
    pair.carry(1)
    pair.hear(1)
    pair.send()
    assert pair.up[-1][0] == Put("jobs", 1)


def test_a_refusal_is_told_once_for_each_counter(pair: Pair) -> None:
    counters = [pair.core.put("jobs", numbered(n)) for n in range(ROOM + 2)]
    pair.run()
    stream = pair.core.publications
    assert [stream.refusal(counter) for counter in counters[:ROOM]] == [None] * ROOM
    failure = stream.refusal(counters[ROOM])
    assert failure is not None
    assert failure.code == "queue-full"
    assert stream.refusal(counters[ROOM]) is None
    assert list(stream.refusals(counters)) == [counters[ROOM + 1]]


def test_a_refusal_that_was_lost_with_the_connection_is_told_by_the_welcome(pair: Pair) -> None:
    counter = pair.core.commit(7)
    pair.send()
    pair.carry(1)
    pair.cut()
    pair.run()
    failure = pair.core.publications.refusal(counter)
    assert failure is not None
    assert failure.code == "rolled-back"


def test_refusals_that_nobody_asks_for_are_forgotten(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "REFUSALS_MAX", 3)
    counters = [pair.core.commit(n) for n in range(1, 6)]
    pair.run()
    assert list(pair.core.publications.refusals(counters)) == counters[2:]


def test_a_message_settled_before_a_restart_counts_as_settled(pair: Pair) -> None:
    counter = pair.core.settle(1, 1, DONE)
    pair.send()
    pair.restart()  # it has not arrived: the node will hand it out again
    late = pair.core.settle(2, 1, DONE)
    pair.run()
    assert pair.node.settled == []
    assert pair.core.publications.refusal(counter) is None
    assert pair.core.publications.refusal(late) is not None


def test_a_message_settled_too_late_is_refused_though_it_was_sent_twice(pair: Pair) -> None:
    counter = pair.core.settle(1, 1, DONE)
    pair.send()
    pair.cut()
    pair.node.held[1] = 2  # it was given back meanwhile
    pair.run()
    failure = pair.core.publications.refusal(counter)
    assert failure is not None
    assert failure.code == "not-yours"


def test_no_refusal_of_the_node_is_for_what_was_never_said(pair: Pair) -> None:
    pair.core.put("jobs", numbered(1))
    refusal = Refusal(1, 2**60, Failure("queue-full", "no"))
    pair.core.receive(encode(refusal), 0.0)
    assert not pair.core.publications.refusals(range(100))  # it may be done yet, by a node started anew
    pair.core.receive(encode(Accepted(1)), 0.0)
    assert list(pair.core.publications.refusals(range(100))) == [1]


def test_what_was_refused_and_sent_again_to_a_node_started_anew_may_be_done(pair: Pair) -> None:
    publications = pair.core.publications
    counter = pair.core.put("jobs", numbered(1))
    pair.send()
    pair.core.receive(encode(Refusal(counter, counter, Failure("queue-full", "no"))), 0.0)
    publications.resume(0, 1 << 20, is_same_boot=False)
    publications.take()
    publications.accept(counter)
    assert publications.refusal(counter) is None


# -- requests beside it


class Answers:
    """What a call was answered with."""

    def __init__(self, call: Call) -> None:
        self.told: list[tuple[Any, TidingsError | None]] = []
        call.then(
            lambda result: self.told.append((result, None)), lambda error: self.told.append((None, error))
        )


def test_after_a_cut_requests_follow_the_numbered_and_keep_their_numbers(pair: Pair) -> None:
    call = pair.core.request("get", {"queue": "jobs"}, "again")
    answers, number = Answers(call), call.number
    pair.core.put("jobs", numbered(1))
    pair.send()
    pair.cut()
    pair.send()
    pair.carry(1)
    pair.hear(1)
    pair.send()
    assert [type(message) for message, _ in pair.up] == [Put, Request]
    assert pair.up[1][0] == Request(number, "get", {"queue": "jobs"})
    pair.run()
    pair.core.receive(encode(Reply(number, "messages")), 0.0)
    assert answers.told == [("messages", None)]


def test_a_get_that_is_cancelled_is_cancelled_at_the_node_too(pair: Pair) -> None:
    call = pair.core.request("get", {}, "again")
    answers, number = Answers(call), call.number
    pair.run()
    pair.core.cancel_get(number)
    pair.run()
    assert pair.node.requests[-1].operation == "get.cancel"
    assert pair.node.requests[-1].arguments == {"number": number}
    pair.core.receive(encode(Reply(number, "late")), 0.0)
    assert answers.told == []


def test_a_get_that_is_cancelled_while_there_is_no_connection_is_told_with_the_next(pair: Pair) -> None:
    number = pair.core.request("get", {}, "again").number
    pair.send()
    pair.up.clear()
    pair.core.lost(0.0)
    pair.core.cancel_get(number)
    pair.core.connect(0.0)
    pair.run()
    assert [request.operation for request in pair.node.requests] == ["get.cancel"]
    pair.cut()
    pair.run()
    assert [request.operation for request in pair.node.requests] == ["get.cancel", "get.cancel"]


def test_a_get_that_was_never_sent_needs_no_cancelling() -> None:
    pair = Pair()
    pair.core.cancel_get(pair.core.request("get", {}, "again").number)
    pair.run()
    assert pair.node.requests == []


def test_a_get_whose_answer_was_not_taken_is_given_back(pair: Pair) -> None:
    number = pair.core.request("get", {}, "again").number
    pair.run()
    pair.core.receive(encode(Reply(number, "messages")), 0.0)
    pair.core.cancel_get(number)
    pair.run()
    assert pair.node.requests[-1].operation == "get.cancel"


def test_nothing_is_said_once_the_connection_was_closed(pair: Pair) -> None:
    number = pair.core.request("get", {}, "again").number
    pair.core.close()
    pair.core.cancel_get(number)
    for say in (
        partial(pair.core.put, "jobs", numbered(1)),
        partial(pair.core.settle, 1, 1, DONE),
        partial(pair.core.commit, 1),
    ):
        with pytest.raises(Disconnected):
            say()
