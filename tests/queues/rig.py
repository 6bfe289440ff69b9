"""Clients of queues, moved by hand, on top of the rig of the protocol: no sockets, no clock, no sleeping.

What changes a queue is numbered by the client and goes out at once; `rig.run` lets the node do it, commit it
and answer. So a test reads as what clients say, and may stop between a tick and its commit where it wants to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace
from protocol.rig import Peer, Rig

from tidings.event import Event
from tidings.event.wire import decode_event, encode_events
from tidings.ids import Origin
from tidings.protocol.messages import (
    DONE,
    GIVE_BACK,
    HANDLE,
    REJECT,
    UNOPENED,
    Accepted,
    Bye,
    Commit,
    Failure,
    Hello,
    Put,
    Refusal,
    Reply,
    Request,
    Settle,
    Welcome,
)

__all__ = ["DONE", "GIVE_BACK", "REJECT", "UNOPENED", "Client", "Hand", "Rig", "job", "numbers", "pass_time"]


MADE = "2026-11-15T08:00:00Z"
"""When the events of tests were made."""


class Hand(NamedTuple):
    """A message as it is handed out."""

    number: int
    delivery: int
    redelivered: bool
    system: str | None
    epoch: int
    source: str | None
    parts: int
    raw: bytes
    received: int | None = None  # its number in a queue elsewhere

    @property
    def event(self) -> Event:
        return decode_event(self.raw, Origin(self.system, self.epoch, self.source))

    @property
    def n(self) -> Any:
        """The attribute by which tests tell messages apart."""
        return self.event.values["n"]

    @property
    def handle(self) -> bytes:
        return HANDLE.pack(self.number, self.delivery)


def numbers(hands: Iterable[Hand]) -> list[Any]:
    """The attributes n of these."""
    return [hand.n for hand in hands]


def job(n: int, /, **fields: Any) -> Event:
    """An event that a test tells by its attribute n; it is numbered when it is put."""
    return Event("job", {"n": n}, **{"time": MADE, **fields})


def pass_time(rig: Rig, seconds: float) -> None:
    """Let time pass, and what comes of it happen."""
    rig.pass_time(seconds)


class Client:
    """One client in one of its lives, on one connection after another."""

    def __init__(self, rig: Rig, system: str = "sys", name: str = "ann", user: str = "") -> None:
        self.rig = rig
        self.system = system
        self.name = name
        self.user = user  # whose secret is its name backwards
        self.counter = 0
        self.seen = 0
        self._asked = 0
        self.session: str | None = None
        self.come()

    # The connection

    def come(self, rig: Rig | None = None, run: bool = True) -> None:
        """Connect, or come again; to another node that stands for the same one after a crash."""
        self.rig = rig or self.rig
        self.peer: Peer = self.rig.connect()
        secret = self.user[::-1]
        self.peer.send(Hello([1], self.system, 1, self.name, self.session, self.seen, self.user, secret))
        if run:
            self.rig.run()
            self.session = self.welcome.session

    @property
    def welcome(self) -> Welcome:
        (welcome,) = self.peer.got(Welcome)
        return welcome

    def lose(self) -> None:
        """The connection breaks, and the node finds that out."""
        self.peer.lose()
        self.rig.run()

    def leave(self) -> None:
        """Say goodbye."""
        self.peer.send(Bye())
        self.lose()

    # The numbered stream

    def put(self, queue: str, *events: Event | int, transaction: int = 0, is_part: bool = False) -> int:
        """Put events, or jobs of these numbers; the counter of the last one."""
        numbered = []
        for event in events:
            self.counter += 1
            given = event if isinstance(event, Event) else job(event)
            numbered.append(replace(given, counter=self.counter))
        self.peer.send(Put(queue, self.seen, transaction, is_part), encode_events(numbered))
        return self.counter

    def put_again(self, queue: str, counter: int, event: Event, transaction: int = 0) -> None:
        """Send once more what was put under this counter."""
        self.peer.send(Put(queue, self.seen, transaction), encode_events([replace(event, counter=counter)]))

    def settle(self, outcome: int, *hands: Hand, text: str = "", delay_s: float | None = None) -> int:
        """Say what becomes of messages; the counter of the last one."""
        first = self.counter + 1
        self.counter += len(hands)
        self.settle_again(first, outcome, *hands, text=text, delay_s=delay_s)
        return self.counter

    def settle_again(
        self, first: int, outcome: int, *hands: Hand, text: str = "", delay_s: float | None = None
    ) -> None:
        """Send once more what was said under these counters."""
        handles = b"".join(hand.handle for hand in hands)
        self.peer.send(Settle(first, self.seen, handles, outcome, text, delay_s))

    def commit(self, transaction: int) -> int:
        """Commit a transaction; the counter of that."""
        self.counter += 1
        self.peer.send(Commit(self.counter, self.seen, transaction))
        return self.counter

    @property
    def accepted(self) -> int:
        """The counter up to which everything was accepted on this connection."""
        return max((one.counter for one in self.peer.got(Accepted)), default=self.welcome.counter)

    @property
    def refusals(self) -> list[tuple[int, int, str]]:
        """What was refused on this connection: first, last and code."""
        return [(one.first, one.last, one.failure.code) for one in self.peer.got(Refusal)]

    @property
    def refused_at(self) -> list[tuple[int, str]]:
        """What was refused, by the first counter of each, and the queue that was named."""
        return [(one.first, one.failure.details["queue"]) for one in self.peer.got(Refusal)]

    # Requests

    def request(self, operation: str, /, **arguments: Any) -> int:
        """Ask, and don't wait; the number of the request."""
        self._asked += 1
        self.request_again(self._asked, operation, **arguments)
        return self._asked

    def request_again(self, number: int, operation: str, /, **arguments: Any) -> None:
        """Ask under a number that was used before."""
        self.peer.send(Request(number, operation, arguments))

    def reply(self, number: int) -> Reply | None:
        """The reply to a request, if it has come."""
        return next((one for one in self.peer.got(Reply) if one.number == number), None)

    def ask(self, operation: str, /, **arguments: Any) -> Any:
        """The result of a request that must not fail."""
        reply = self._answer(operation, arguments)
        assert reply.error is None, reply.error
        return reply.result

    def fails(self, operation: str, /, **arguments: Any) -> Failure:
        """Why a request is refused."""
        reply = self._answer(operation, arguments)
        assert reply.error is not None, reply.result
        return reply.error

    def _answer(self, operation: str, arguments: dict[str, Any]) -> Reply:
        number = self.request(operation, **arguments)
        self.rig.run()
        reply = self.reply(number)
        assert reply is not None, f"{operation} is not answered yet"
        return reply

    def create(self, name: str, **fields: Any) -> dict[str, Any]:
        """Make a queue; its description."""
        described: dict[str, Any] = self.ask("queue.create", name=name, **fields)
        return described

    def describe(self, queue: str) -> dict[str, Any]:
        described: dict[str, Any] = self.ask("queue.describe", queue=queue)
        return described

    def get(self, queue: str, count: int = 1, **wanted: Any) -> list[Hand]:
        """Messages that are there."""
        return hands_of(self.ask("get", queue=queue, count=count, **wanted))

    def read(self, queue: str, count: int = 1_000, **wanted: Any) -> list[Hand]:
        """Messages that are there and stay."""
        return self.get(queue, count, action="read", **wanted)

    def wait(self, queue: str, wait_s: float | None = None, **wanted: Any) -> int:
        """Begin to wait for messages; the number of the request."""
        return self.request("get", queue=queue, wait_s=wait_s, **wanted)

    def got(self, number: int) -> list[Hand] | None:
        """What came for a get; None if it is not answered."""
        reply = self.reply(number)
        if reply is None:
            return None
        assert reply.error is None, reply.error
        return hands_of(reply.result)

    def subscribe(self, filter: str = "", **wanted: Any) -> None:
        """Subscribe, under the number 1."""
        self.ask("subscribe", **{"number": 1, "filter": filter, "credit": 1_000, **wanted})

    @property
    def told(self) -> list[Any]:
        """The attributes n of the events that came for the subscription."""
        return [event.values.get("n") for event in self.peer.events()]

    def begin(self, transaction: int, timeout_s: float | None = None) -> None:
        self.ask("begin", transaction=transaction, timeout_s=timeout_s)

    def roll_back(self, transaction: int) -> None:
        self.ask("rollback", transaction=transaction)


def hands_of(result: dict[str, Any]) -> list[Hand]:
    """The messages of an answer."""
    return [Hand(*one) for one in result["messages"]]
