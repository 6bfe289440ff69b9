"""Watch: sees the frames that leave a node and the commits on its disk, and finds promises made too early.

It reads frames as a client would and keeps its own account of synced commits; it shares nothing with the
broker but the formats. A broken promise raises an AssertionError that names it.

Messages in flight are seen from outside the node: by the frames that leave it, and by its sessions. A *hand*
is one message in flight at one client. It ends when the client settles the message, has held it too long or
is gone for RESUME_S, or when the transaction that took it ends. If only the node knows that moment, the
earliest possible one counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct

from tidings.event import Batch
from tidings.protocol.broker import Broker
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.protocol.messages import Accepted, Deliver, ProtocolMessage, Welcome
from tidings.protocol.session import Session
from tidings.queues.inflight import RESUME_S
from tidings.simulator.account import EventIdentity
from tidings.store.interface import Append, Counter, CountProducer, Operation, StoredMessage, StoreState

Client = tuple[str, int]
"""System and epoch."""


class DiskWatch:
    """Account of what is safe on one node's disk, whatever becomes of the node."""

    def __init__(self) -> None:
        self.position = 0
        self._counters: dict[tuple[str, int], int] = {}
        self._reliable: dict[tuple[str, int], list[int]] = {}  # counters of events that are not transient
        self._leaving: dict[Session, FrameReader] = {}  # frames may leave in pieces

    def publishing(self, system: str, epoch: int, counter: int) -> None:
        """Note that a publisher has numbered an event that is not transient."""
        self._reliable.setdefault((system, epoch), []).append(counter)

    def started(self, state: StoreState) -> None:
        """Begin a life of the node: its store must have everything that was safe before."""
        assert state.position >= self.position, "stored events were lost"
        self.position = state.position
        self._leaving.clear()
        for one in state.counters:
            assert one.counter >= self._counters.get(_client(one), 0), "a counter was lost"
            self._counters[_client(one)] = one.counter

    def join(self, broker: Broker) -> None:
        """Do nothing; a subclass may become a service of the node's broker."""

    def found(self, messages: Iterable[StoredMessage]) -> None:
        """Do nothing; a subclass may note the messages in the queues of the store."""

    def arriving(self, session: Session, data: bytes, now: float) -> None:
        """Do nothing; a subclass may read the bytes that a session is about to receive."""

    def synced(self, commits: Iterable[Sequence[Operation]]) -> None:
        """Note that the disk has these."""
        for operation in (one for operations in commits for one in operations):
            match operation:
                case Append(batch):
                    self.position = batch.first + batch.count - 1
                case CountProducer(counter):
                    self._counters[_client(counter)] = counter.counter

    def leaving(self, session: Session, frames: Sequence[bytes]) -> None:
        """Check that everything promised in frames that leave the node is safe."""
        reader = self._leaving.setdefault(session, FrameReader(FRAME_MAX))
        for message, events in reader.feed(b"".join(frames)):
            self._left(session, message, events)

    def _left(self, session: Session, message: ProtocolMessage, events: bytes) -> None:
        match message:
            case Accepted(counter, 0) | Welcome(counter=counter):
                assert session.origin is not None
                self._check_counter(session.origin.system or "", session.origin.epoch, counter)
            case Deliver():
                self._check_delivery(message, Batch(events))

    def _check_counter(self, system: str, epoch: int, counter: int) -> None:
        safe, sent = self._counters.get((system, epoch), 0), self._reliable.get((system, epoch), [])
        promised = sent[: bisect_right(sent, counter)][-1:]
        assert not promised or promised[0] <= safe, f"{system}: {promised[0]} is promised, {safe} is safe"

    def _check_delivery(self, message: Deliver, batch: Batch) -> None:
        places = message.positions or b""
        last = int.from_bytes(places[-8:], "big")
        assert last <= self.position, f"position {last} was delivered while {self.position} is safe"
        counters = [event.counter for event in batch if event.delivery != "transient"]
        if counters:
            self._check_counter(message.system or "", message.epoch, counters[-1])


def _client(counter: Counter) -> tuple[str, int]:
    """Return the key of a counter's client: here a system names one client, so its user does not matter."""
    return counter.system.partition("/")[0], counter.epoch


# Messages in flight


class HeldMessage(Struct, eq=False):
    """Message that has left the node, until it is settled or given up."""

    number: int
    delivery: int
    client: Client
    request: int
    unit: OpenUnit | None
    due: float
    was_shown: bool  # to any client, before this delivery
    is_doubtful: bool = False  # its client was gone for so long that the node may have given it up

    def is_with(self, client: Client, delivery: int) -> bool:
        """Whether this client holds it outside a transaction."""
        return self.unit is None and (self.client, self.delivery) == (client, delivery)


class OpenUnit(Struct, eq=False):
    """Open transaction."""

    ends_at: float
    puts: list[EventIdentity] = []
    hands: list[HeldMessage] = []


class HeldMessages:
    """Messages in flight in one life of a node."""

    def __init__(self) -> None:
        self._held: dict[int, HeldMessage] = {}
        self._present: dict[Client, set[Session]] = {}
        self._gone: dict[Client, float] = {}

    def get(self, number: int) -> HeldMessage | None:
        """Return the hand that a message is in."""
        return self._held.get(number)

    def add(self, hand: HeldMessage) -> None:
        """Note that a message is in flight."""
        self._held[hand.number] = hand
        if hand.unit is not None:
            hand.unit.hands.append(hand)

    def remove(self, hand: HeldMessage) -> bool:
        """Note that it is in flight no more; return whether it was."""
        if self._held.get(hand.number) is not hand:
            return False
        del self._held[hand.number]
        return True

    def of(self, client: Client) -> list[HeldMessage]:
        """Return the messages that a client holds outside transactions."""
        return [hand for hand in self._held.values() if hand.client == client and hand.unit is None]

    def end(self, unit: OpenUnit) -> list[HeldMessage]:
        """End a transaction, and return the messages that it held until now."""
        return [hand for hand in unit.hands if self.remove(hand)]

    def is_over(self, hand: HeldMessage, now: float) -> bool:
        """Whether the node may have given the message to another client by now."""
        if hand.unit is not None:
            return now >= hand.unit.ends_at
        return hand.is_doubtful or now >= min(hand.due, self._gone.get(hand.client, inf) + RESUME_S)

    def come(self, client: Client, session: Session, now: float) -> None:
        """Note that a session of a client has begun, maybe after an absence."""
        self._present.setdefault(client, set()).add(session)
        if now >= self._gone.pop(client, inf) + RESUME_S:
            for hand in self.of(client):
                hand.is_doubtful = True

    def go(self, client: Client, session: Session, is_clean: bool, now: float) -> None:
        """Note that a session of a client has ended, with a farewell if `is_clean`."""
        self._present[client].discard(session)
        if is_clean:
            for hand in self.of(client):
                self.remove(hand)
        elif not self._present[client]:
            self._gone[client] = now
