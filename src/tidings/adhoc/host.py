"""Host: what it carries, for itself and for others, and what it delivers.

Two hosts that meet exchange in three steps (`meeting_steps.py`), then copies (`copying.py`); what they hear
of deliveries purges replicas (`delivered.py`).

A message is delivered to the application at most once, whatever comes again (`seen_ids.py`). Its sender
gets one report for each recipient that has it, or one that it was not delivered (`awaiting.py`). Invalid
input of other hosts is refused and counted in `tallies`; nothing is dropped without being counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from tidings.adhoc.areas import Place, is_within
from tidings.adhoc.awaiting import AwaitedMessages
from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.copying import Copies
from tidings.adhoc.delivered import HeardDeliveries
from tidings.adhoc.effects import (
    AdhocEffect,
    DeliverMessage,
    DropReplica,
    SendFrame,
    StorePlace,
    StoreReplica,
    TakePlace,
)
from tidings.adhoc.frames import IDS_MAX, AdhocFrame, Announcement, CopyFrame, NewsFrame
from tidings.adhoc.meeting import Meeting
from tidings.adhoc.meeting_steps import MeetingSteps
from tidings.adhoc.messages import (
    TTL_S_DEFAULT,
    CarriedMessage,
    MessageId,
    Replica,
    check_sent,
    refusal,
)
from tidings.adhoc.partial import PartialMessages
from tidings.adhoc.proofs import Proofs, Unsigned, acknowledged
from tidings.adhoc.recent_counts import RecentCounts
from tidings.adhoc.registry import HeldPlace, PlaceRegistry
from tidings.adhoc.ring import Acknowledgement, AcknowledgementRing
from tidings.adhoc.seen_ids import SeenIds
from tidings.adhoc.strategies.base import ReplicationStrategy
from tidings.ids import Ids
from tidings.timers import Timers

OFTEN_MIN = 2.5
"""Meetings, of which earlier ones weigh less, from which on a host counts as one that is often met."""
HAD_MAX = 10_000
"""Delivered messages that a host lists as those of which it needs no copy."""
REJOIN_S = 30.0
"""Hosts that were apart for less are still in the same meeting, as strategies count these."""


class AdhocHost:
    """Core of one host."""

    def __init__(
        self,
        ids: Ids,
        strategy: ReplicationStrategy,
        buffer: ReplicaBuffer,
        *,
        ring: AcknowledgementRing | None = None,
        seen: SeenIds | None = None,
        proofs: Proofs | None = None,
        registry: PlaceRegistry | None = None,
        rejoin_s: float = REJOIN_S,
        origin_bytes: float = inf,
        meeting_bytes: float = inf,
        heard_max: int = IDS_MAX,
        salts: Callable[[], bytes] | None = None,
        check: Callable[[CarriedMessage], str] = lambda _message: "",
    ) -> None:
        """`ids` numbers the messages of this host, and its system is the host's name.

        `origin_bytes` are carried for one other sender at most, `meeting_bytes` are taken from another host,
        and given to it, in one meeting; `heard_max` acknowledgements of one frame are looked at.
        With `salts`, which returns random bytes for each meeting, many ids are not listed but sketched.
        `check` returns why nobody could make use of a message of another host, '' if somebody can.
        """
        assert ids.origin.system is not None
        self.name = ids.origin.system
        self.strategy = strategy
        self.buffer = buffer
        strategy.free_share, strategy.room = lambda: buffer.free, lambda: buffer.room
        self.proofs = Unsigned() if proofs is None else proofs
        self.ring = AcknowledgementRing() if ring is None else ring
        self.seen = SeenIds() if seen is None else seen
        self._had: Timers[MessageId] = Timers()  # delivered messages that live, and may come again
        self.registry = (
            PlaceRegistry(self.name, self.proofs, ids.origin.epoch) if registry is None else registry
        )
        self.registry.choose = self._deputies
        self.often = RecentCounts()
        """How often each host was met."""
        self.may_deputise: Callable[[HeldPlace, str], bool] = lambda _place, _host: True
        """Whether a host may hold a place of this one when this one is gone."""
        self.awaited = AwaitedMessages()
        self.place: Place | None = None
        self.meetings: dict[str, Meeting] = {}
        self.tallies: Counter[tuple[str, str]] = Counter()
        self.met_at: dict[str, float] = {}
        self._ids = ids
        self.partial = PartialMessages()
        self.delivered = HeardDeliveries(self, heard_max)
        self.copies = Copies(self, origin_bytes, meeting_bytes, check)
        self._steps = MeetingSteps(self, rejoin_s, salts)

    @property
    def needless(self) -> tuple[MessageId, ...]:
        """The ids of the messages of which this host needs no copy: carried, or delivered here."""
        return (*self.buffer.ids, *self._had)

    def need_no_copy(self, id: MessageId, expires_at: float, giver: str, effects: list[AdhocEffect]) -> None:
        """List a delivered message as needless, unless too many are: those may be copied again."""
        if len(self._had) < HAD_MAX:
            self._had.at(expires_at, id)
        self.spread_news((id,), (), giver, effects)

    @property
    def wake_at(self) -> float:
        """When something expires, a failure must be reported, or an announcement renewed."""
        return min(self.buffer.wake_at, self.awaited.wake_at, self.registry.wake_at)

    def wake(self, now: float) -> list[AdhocEffect]:
        """Let go of what has expired, and report the messages that were not delivered in time."""
        effects: list[AdhocEffect] = []
        for replica in self.buffer.expired(now):
            self.tallies["dropped", "expired"] += 1
            effects.append(DropReplica(replica, "expired"))
        self.ring.expire(now)
        self.partial.expire(now)
        for _ in self._had.due(now):
            pass
        effects += self.awaited.overdue(now)
        effects += [TakePlace(place.name, place.kind) for place in self.registry.take_over(now)]
        announced = self.registry.due(now)
        if announced:
            self.spread_news((), (), "", effects, announced)
        effects += [StorePlace(name) for name in self.registry.take_changed()]
        return effects

    def _deputies(self, place: HeldPlace, now: float) -> tuple[str, ...]:
        """The hosts that are met most often, of those that may hold a place; deputies stay for longer."""
        known = {host: weight for host, weight in self.often.weights(now).items() if weight >= OFTEN_MIN}
        weights = dict.fromkeys(place.deputies, 0.0) | known
        for host in place.deputies:
            weights[host] *= 2
        fit = [host for host in weights if self.may_deputise(place, host)]
        return tuple(sorted(fit, key=lambda host: (-weights[host], host))[: place.replicas])

    def next_stamp(self) -> tuple[int, int]:
        """Return a stamp that is newer than all that this host has sent."""
        return self._ids.origin.epoch, self._ids.next_counter()

    # Sending

    def compose(
        self,
        recipients: Iterable[str],
        raw: bytes = b"",
        *,
        ttl_s: float | None = None,
        persistent: bool = False,
        priority: int = 4,
        destination: str = "",
        reliability: float | None = None,
        size: int | None = None,
        area: str = "",
    ) -> CarriedMessage:
        """Make a message of this host, signed and with an id; UserError if it can't be.

        `size` is for simulations, which leave out the bytes. Without `ttl_s` it lives for a day. One to
        EVERYBODY is for the hosts that are within the `area` during its life.
        """
        origin = self._ids.origin
        assert origin.system is not None
        message = CarriedMessage(
            id=MessageId(origin.system, origin.epoch, self._ids.next_counter()),
            recipients=tuple(dict.fromkeys(recipients)),
            ttl_s=TTL_S_DEFAULT if ttl_s is None else float(ttl_s),
            persistent=persistent,
            priority=priority,
            destination=destination,
            reliability=reliability,
            size=len(raw) if size is None else size,
            raw=raw,
            area=area,
        )
        check_sent(message)
        return replace(message, proof=self.proofs.sign(message.signed))

    def send(self, message: CarriedMessage, now: float, report_s: float | None = None) -> list[AdhocEffect]:
        """Send a message of this host; `report_s` is when its failure is reported, by default its life."""
        effects: list[AdhocEffect] = []
        replica = Replica(message, set(message.recipients), now + message.ttl_s, now)
        if message.persistent and not message.area:
            self.awaited.watch(message, now + (message.ttl_s if report_s is None else report_s))
        self.tallies["sent", ""] += 1
        if self.is_in(message.area):
            effects += self.deliver_here(message, 0, message.ttl_s, now)
        elif self.name in replica.pending:
            effects += self.take_delivery(message, 0, replica.expires_at, now)
            replica.pending.discard(self.name)
        self.strategy.begin(replica, now)
        if replica.pending and not self.carry(replica, effects):
            self.tallies["refused", "buffer"] += 1
            effects += self.awaited.refuse(message.id)
        return effects

    def accept(self, message: CarriedMessage, now: float) -> list[AdhocEffect]:
        """Take a message that has come over a path; it is delivered once, however it comes."""
        problem = refusal(message)
        if not problem and not self.proofs.verify(message.id.system, message.signed, message.proof):
            problem = "forged"
        if problem or self.name not in message.recipients or message.id in self.seen:
            self.tallies["refused", problem or "seen"] += 1
            return []
        return self.take_delivery(message, 1, now + message.ttl_s, now)

    def accept_copy(self, frame: CopyFrame, now: float) -> tuple[list[AdhocEffect], Acknowledgement | None]:
        """Take a whole copy that has come outside of a meeting, if it is for this host; what acknowledges it.

        One that comes again is acknowledged again.
        """
        message, effects = frame.message, list[AdhocEffect]()
        problem = self.copies.problem(message, frame)
        is_whole = not frame.offset and len(message.raw) == message.size
        if not problem and not (is_whole and self.name in message.recipients):
            problem = "datagram"
        if problem:
            self.tallies["refused", problem] += 1
            return [], None
        expires_at = now + min(frame.left_s, message.ttl_s)
        if message.id not in self.seen:
            self.tallies["received", ""] += 1
            effects += self.take_delivery(message, frame.hops, expires_at, now)
        if message.id not in self.seen:
            self.tallies["refused", "senders"] += 1
            return effects, None
        proof = self.proofs.sign(acknowledged(message.id, self.name))
        return effects, Acknowledgement(message.id, self.name, expires_at - now, proof)

    def hear(self, acknowledgements: Sequence[Acknowledgement], now: float) -> list[AdhocEffect]:
        """Take acknowledgements that have come outside of a meeting."""
        effects: list[AdhocEffect] = []
        self.delivered.hear("", acknowledgements, now, effects)
        return effects

    def acknowledge(self, id: MessageId, recipient: str) -> list[AdhocEffect]:
        """Note that a recipient has a message that went to it over a path."""
        return list(self.awaited.acknowledge(id, recipient))

    def carry(self, replica: Replica, effects: list[AdhocEffect], giver: str = "") -> bool:
        """Take a replica into the buffer, and offer it to all hosts that are here; False if it is refused."""
        displaced = self.buffer.put(replica)
        if displaced is None:
            return False
        for gone in displaced:
            self.tallies["dropped", "displaced"] += 1
            effects.append(DropReplica(gone, "displaced"))
        self.tallies["carried", ""] += 1
        effects.append(StoreReplica(replica))
        self.spread_news((replica.id,), (), giver, effects)
        for meeting in self.meetings.values():
            if meeting.is_open:
                meeting.offer((replica,))
        return True

    def spread_news(
        self,
        ids: tuple[MessageId, ...],
        acknowledgements: tuple[Acknowledgement, ...],
        giver: str,
        effects: list[AdhocEffect],
        announced: tuple[Announcement, ...] = (),
    ) -> None:
        """Notify the hosts that are here, except the one from which it comes."""
        news = NewsFrame(acknowledgements, ids, announced)
        others = [one.peer for one in self.meetings.values() if one.is_open and one.peer != giver]
        effects += [SendFrame(peer, news) for peer in others]

    def take_delivery(
        self, message: CarriedMessage, hops: int, expires_at: float, now: float
    ) -> list[AdhocEffect]:
        """Deliver a message here, for the first time; nothing if its sender can't be remembered."""
        if not self.seen.add(message.id, now):
            return []
        self.tallies["delivered", ""] += 1
        effects: list[AdhocEffect] = [DeliverMessage(message, hops, expires_at - now)]
        proof = self.proofs.sign(acknowledged(message.id, self.name))
        self.delivered.note(message.id, self.name, expires_at, proof, "", effects, now)
        return effects

    def drop(self, replica: Replica, reason: str, effects: list[AdhocEffect]) -> None:
        """Carry a replica no more, counted by the reason."""
        self.buffer.remove(replica.id)
        self.tallies["dropped", reason] += 1
        effects.append(DropReplica(replica, reason))

    # Areas

    def move(self, place: Place | None, now: float) -> list[AdhocEffect]:
        """Be at a place from now on, and deliver what is carried for it; None if it is not known."""
        self.place = place
        effects = self.wake(now)
        for replica in self.buffer if place is not None else ():
            message = replica.message
            if message.area and message.id not in self.seen and self.is_in(message.area):
                whole = replace(message, raw=self.buffer.raw_of(replica)) if message.size else message
                effects += self.deliver_here(whole, replica.hops, replica.left_s(now), now)
        return effects

    def is_in(self, area: str) -> bool:
        """Whether this host is a recipient of what is sent to an area, '' being none."""
        return bool(area) and is_within(area, self.place)

    def deliver_here(
        self, message: CarriedMessage, hops: int, left_s: float, now: float
    ) -> list[AdhocEffect]:
        """Deliver a message to this area, for the first time; nobody waits for its acknowledgement."""
        if not self.seen.add(message.id, now):
            return []
        self.tallies["delivered", ""] += 1
        return [DeliverMessage(message, hops, left_s)]

    # Meeting

    def meet(self, peer: str, now: float) -> list[AdhocEffect]:
        """Begin a meeting; the host with the smaller name sends the first frame."""
        return self._steps.meet(peer, now)

    def receive(self, peer: str, frame: AdhocFrame, now: float) -> list[AdhocEffect]:
        """Take a frame of a host that is here; one that is not is counted."""
        return self._steps.receive(peer, frame, now)

    def next_copy(self, peer: str, now: float) -> CopyFrame | None:
        """The next copy, or part of one, for a host that is here; None if there is nothing for it now."""
        return self.copies.next(peer, now)

    def part(self, peer: str, now: float) -> None:
        """End a meeting, however far it has come."""
        self._steps.part(peer, now)

    # Looking into it

    def why(self, id: MessageId, now: float) -> Mapping[str, object]:
        """Where a message is as far as this host knows, and why it waits."""
        replica = self.buffer.get(id)
        delivered = sorted(self.ring.recipients(id))
        if replica is None:
            state = "delivered here" if id in self.seen else "delivered" if delivered else "not here"
            return {"id": str(id), "state": state, "delivered_to": delivered}
        return {
            "id": str(id),
            "state": "carried",
            "waits_for": sorted(replica.pending),
            "delivered_to": delivered,
            "left_s": round(replica.left_s(now), 1),
            "copies": replica.copies,
            "hops": replica.hops,
            "near": sorted(replica.pending & self.meetings.keys()),
        }
