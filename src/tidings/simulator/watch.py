"""Watch: sees the frames that leave a node and the commits on its disk, and finds promises made too early.

It reads frames as a client would and keeps its own account of synced commits; it shares nothing with the
broker but the formats. A broken promise raises an AssertionError that names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tidings.event import Batch
from tidings.protocol.broker import Broker
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.protocol.messages import Accepted, Deliver, Welcome
from tidings.protocol.session import Session
from tidings.store.interface import Append, Counter, CountProducer, Operation, StoredMessage, StoreState


class DiskWatch:
    """Account of what is safe on one node's disk, whatever becomes of the node."""

    def __init__(self) -> None:
        self.position = 0
        self._counters: dict[tuple[str, int], int] = {}
        self._reliable: dict[tuple[str, int], list[int]] = {}  # counters of events that are not transient

    def publishing(self, system: str, epoch: int, counter: int) -> None:
        """Note that a publisher has numbered an event that is not transient."""
        self._reliable.setdefault((system, epoch), []).append(counter)

    def started(self, state: StoreState) -> None:
        """Begin a life of the node: its store must have everything that was safe before."""
        assert state.position >= self.position, "stored events were lost"
        self.position = state.position
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
        for message, events in FrameReader(FRAME_MAX).feed(b"".join(frames)):
            match message:
                case Accepted(counter) | Welcome(counter=counter):
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
