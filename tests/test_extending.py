"""What a new system brings to a node: a kind of queues, a sink with a cursor, a service with its records.

All of it is written against what `queues/backend.py`, `protocol/cursors.py`, `protocol/service.py` and
`store/interface.py` say, and is attached to a node as `node/assembly.py` builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from protocol.rig import reliable
from queues.rig import Client, Rig, numbers

from tidings.event import Batch
from tidings.exchange import Need, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.broker import Broker
from tidings.protocol.cursor import Cursor, CursorConsumer
from tidings.protocol.messages import DONE
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.backend import Delivered, GetReply, QueueBackend, QueueRef
from tidings.queues.description import Description
from tidings.replies import Deferred, resolved
from tidings.store.interface import Durable, RecordKind


class Stack(QueueRef):
    """A queue whose last message comes first; who gets one never gives it back."""

    address = ""

    def __init__(self, wanted: Description) -> None:
        self.address = wanted.name
        self.description = wanted
        self.rows: list[Delivered] = []
        self._last = 0

    def describe(self) -> Deferred[Description]:
        return resolved(replace(self.description, messages=len(self.rows)))

    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        sent = batch.origin or Origin()
        for raw in batch.raws:
            self._last += 1
            self.rows.append(Delivered(self._last, 1, False, sent.system, sent.epoch, sent.source, 0, raw))
        return [resolved(None) for _ in batch]

    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        return resolved(GetReply([self.rows.pop() for _ in range(min(wanted.count, len(self.rows)))]))

    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        return resolved(None)

    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        return resolved(lease_s)

    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        return lambda: None

    def purge(self, filter: Filter | None) -> Deferred[int]:
        count = len(self.rows)
        self.rows.clear()
        return resolved(count)


class Stacks(QueueBackend):
    """All stacks of a node."""

    types = ("stack",)

    def __init__(self) -> None:
        self._stacks: dict[str, Stack] = {}

    def resolve(self, address: str) -> Stack | None:
        return self._stacks.get(address)

    def create(self, wanted: Description) -> Deferred[Description]:
        self._stacks[wanted.name] = Stack(wanted)
        return self._stacks[wanted.name].describe()

    def delete(self, queue: QueueRef) -> Deferred[None]:
        del self._stacks[queue.address]
        return resolved(None)

    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        return resolved(
            [one.description for one in self._stacks.values() if one.description.agrees(sought.terms)]
        )


class Counted(CursorConsumer):
    """A sink that only wants to know up to which position it has counted."""

    def __init__(self, broker: Broker) -> None:
        found = broker.cursors.find("counting", "all")
        if found is None:
            found = Cursor(broker, Durable("all", "counting", "n >= 0", 0, 0))
            broker.cursors.open(found)
        self.cursor = found
        found.attach(self)

    def need(self, count: int) -> Need:
        return Need.EVERYTHING

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        self.cursor.acknowledge(max(position for row in rows if (position := (positions or ())[row])))

    @property
    def passed(self) -> int:
        return self.cursor.acknowledged

    def part(self, reason: str) -> None:
        self.cursor.detach()


class Note(Struct, frozen=True):
    text: str


NOTES: RecordKind[tuple[str], Note] = RecordKind("note", Note)


class Noted(Struct, forbid_unknown_fields=True):
    name: str
    text: str = ""


class Notes(Service):
    """A service that keeps notes under names."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._notes = NOTES.known(broker.state)
        self.operations = {"note.keep": (Noted, self._keep), "note.read": (Noted, self._read)}

    def _keep(self, _asked: IncomingRequest, noted: Noted) -> dict[str, Any]:
        self._notes[noted.name,] = Note(noted.text)
        self._broker.store(NOTES.set((noted.name,), Note(noted.text)))
        return {}

    def _read(self, _asked: IncomingRequest, noted: Noted) -> str:
        return self._notes[noted.name,].text


def extended(rig: Rig) -> Counted:
    """A node with all three."""
    rig.queues.backends.append(Stacks())
    rig.broker.add(Notes(rig.broker))
    return Counted(rig.broker)


def test_a_new_system_uses_what_the_core_has() -> None:
    rig = Rig()
    extended(rig)
    ann = Client(rig, "ann")
    ann.create("pile", type="stack")
    ann.put("pile", 1, 2, 3)
    hands = ann.get("pile", 2)
    ann.settle(DONE, *hands)
    ann.ask("note.keep", name="of ann", text="two are done")
    rig.peer("bob").publish(reliable(1, n=1), reliable(2, n=2))
    rig.run()
    assert (numbers(hands), ann.accepted, ann.describe("pile")["messages"]) == ([3, 2], 5, 1)
    rig = rig.restart()
    assert (extended(rig).passed, Client(rig, "cid").ask("note.read", name="of ann")) == (2, "two are done")
