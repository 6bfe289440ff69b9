"""Nodes without a node: the queues of a database, and a loop that a test moves by hand.

What the queues have to say is called in the thread of the test, while it waits for something. Waiting ends
with what is waited for, or after PATIENCE_S with a failure.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from effort import ANSWER_S
from msgspec import structs
from msgspec.structs import replace

from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.event.wire import decode_event
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.postgres import open_postgres
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.description import Description
from tidings.replies import Deferred

__all__ = ["DONE", "GIVE_BACK", "REJECT", "UNOPENED", "Answered", "Client", "Hand", "Node", "job", "numbers"]

PATIENCE_S = ANSWER_S
NOBODY = cast(Session, None)  # whose session it is makes no difference


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

    @property
    def event(self) -> Event:
        return decode_event(self.raw, Origin(self.system, self.epoch, self.source))


class Client:
    """One who puts events, and numbers them."""

    def __init__(self, system: str = "sender", epoch: int = 1) -> None:
        self.origin = Origin(system, epoch, "alice")
        self.counter = 0

    def batch(self, events: list[Event]) -> Batch:
        numbered = []
        for event in events:
            self.counter += 1
            numbered.append(replace(event, counter=self.counter, origin=self.origin))
        return Batch.of(numbered)


class Answered:
    """A reply that is there or not."""

    def __init__(self, reply: Deferred[Any]) -> None:
        self.is_there = False
        self.result: Any = None
        self.error: TidingsError | None = None
        self.cancel = reply.cancel
        reply.then(partial(self._take, error=None), partial(self._take, None))

    def _take(self, result: Any, error: TidingsError | None) -> None:
        assert not self.is_there, "answered twice"
        self.is_there, self.result, self.error = True, result, error

    @property
    def hands(self) -> list[Hand]:
        assert self.is_there
        if self.error is not None:
            raise self.error
        return [Hand(*structs.astuple(one)[:-1]) for one in self.result.messages]


class Node:
    """The queues of one node in the database."""

    def __init__(self, conninfo: str, name: str = "a") -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.states: list[str | None] = []
        self.shared = open_postgres(conninfo, name, self._calls.put, self.states.append)

    def close(self) -> None:
        self.shared.close()

    def until(self, condition: Callable[[], object]) -> None:
        """Do what there is to do until something is so."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            try:
                self._calls.get(timeout=0.05)()
            except queue.Empty:
                assert time.monotonic() < end, "it did not happen in time"

    def wait(self, answered: Answered) -> Any:
        self.until(lambda: answered.is_there)
        if answered.error is not None:
            raise answered.error
        return answered.result

    def way(self, name: str) -> Any:
        self.until(lambda: self.shared.resolve(name))
        return self.shared.resolve(name)

    def create(self, name: str = "jobs", **wanted: Any) -> Description:
        made = self.shared.create(Description(name=name, type="postgres", **wanted))
        return cast(Description, self.wait(Answered(made)))

    def describe(self, name: str = "jobs") -> Description:
        return cast(Description, self.wait(Answered(self.way(name).describe())))

    def delete(self, name: str = "jobs") -> None:
        self.wait(Answered(self.shared.delete(self.way(name))))

    def purge(self, name: str = "jobs", where: str = "") -> int:
        filter = Filter(where) if where else None
        return cast(int, self.wait(Answered(self.way(name).purge(filter))))

    def search(self, **sought: Any) -> list[Description]:
        return cast(list[Description], self.wait(Answered(self.shared.search(FindRequest(**sought)))))

    def send(self, batch: Batch, name: str = "jobs") -> dict[int, TidingsError | None]:
        """Put a batch; the rows that are done, with their errors, as they come."""
        done: dict[int, TidingsError | None] = {}
        for row, reply in enumerate(self.way(name).put(NOBODY, batch)):
            reply.then(partial(done.__setitem__, row), partial(done.__setitem__, row))
        return done

    def put(self, client: Client, *events: Event, name: str = "jobs") -> list[TidingsError | None]:
        batch = client.batch(list(events))
        done = self.send(batch, name)
        self.until(lambda: len(done) == len(batch))
        return [done[row] for row in range(len(batch))]

    def ask(self, name: str = "jobs", owner: str | None = None, **wanted: Any) -> Answered:
        """A get that may have to wait; with an owner, one that takes several messages of a group."""
        request = GetRequest(queue=name, together=owner is not None, **wanted)
        if owner is None:
            return Answered(self.way(name).get(request))
        return Answered(self.way(name).get_together(request, owner))

    def get(self, name: str = "jobs", **wanted: Any) -> list[Hand]:
        answered = self.ask(name, **wanted)
        self.wait(answered)
        return answered.hands

    def settle(self, hand: Hand, outcome: int = DONE, text: str = "", name: str = "jobs") -> None:
        self.wait(Answered(self.way(name).settle(hand.number, hand.delivery, outcome, text)))

    def release(self, hand: Hand, delay_s: float, name: str = "jobs") -> None:
        self.wait(Answered(self.way(name).release(hand.number, hand.delivery, delay_s)))

    def take(self, name: str = "jobs", **wanted: Any) -> list[Hand]:
        """Get messages and be done with them."""
        hands = self.get(name, **wanted)
        for hand in hands:
            self.settle(hand, name=name)
        return hands


def job(number: int, **attributes: Any) -> Event:
    return Event("job", {"number": number}, **attributes)


def numbers(hands: list[Hand]) -> list[object]:
    return [hand.event["number"] for hand in hands]
