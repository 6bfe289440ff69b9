"""Host: what it carries, whom it meets, and what the two exchange.

Two hosts that meet exchange in three steps (`frames.py`). Acknowledgements come before any copy, so no copy
is made of a message that one of them knows to be delivered. Copies are asked for one by one, with
`next_copy`, whenever the link has room: so the best go first, and a meeting may end at any moment. What is
known of the other host grows while the two are together, and no message goes to it twice.

A message is delivered to the application at most once, whatever comes again (`seen_ids.py`). Its sender
gets one report for each recipient that has it, or one that it was not delivered (`awaiting.py`). Invalid
input of other hosts is refused and counted in `tallies`; nothing is dropped without being counted.

It is longer than most modules: each step of a meeting reads and changes the same few things, which a reader
wants to see in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from tidings.adhoc.awaiting import AwaitedMessages
from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.effects import (
    AdhocEffect,
    DeliverMessage,
    DropReplica,
    SendFrame,
    StoreReplica,
)
from tidings.adhoc.frames import (
    CHUNK,
    IDS_MAX,
    AdhocFrame,
    Announcement,
    AskFrame,
    CopyFrame,
    EstimateFrame,
    HashesFrame,
    LackingFrame,
    NewsFrame,
    ReceiptFrame,
    SummaryFrame,
    SymbolsFrame,
)
from tidings.adhoc.meeting import Meeting
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
from tidings.adhoc.registry import PlaceRegistry
from tidings.adhoc.ring import Acknowledgement, AcknowledgementRing
from tidings.adhoc.seen_ids import SeenIds
from tidings.adhoc.sketching import SketchSteps
from tidings.adhoc.strategies.base import ReplicationStrategy
from tidings.ids import Ids

REJOIN_S = 30.0
"""Hosts that were apart for less are still in the same meeting, as strategies count these."""
MET_MAX = 10_000
"""Hosts of which it is remembered when they were met last, and what they were sent."""


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
        self._proofs = Unsigned() if proofs is None else proofs
        self.ring = AcknowledgementRing() if ring is None else ring
        self.seen = SeenIds() if seen is None else seen
        self.registry = (
            PlaceRegistry(self.name, self._proofs, ids.origin.epoch) if registry is None else registry
        )
        self.awaited = AwaitedMessages()
        self.meetings: dict[str, Meeting] = {}
        self.tallies: Counter[tuple[str, str]] = Counter()
        self.met_at: dict[str, float] = {}
        self._ids = ids
        self._rejoin_s = rejoin_s
        self._origin_bytes = origin_bytes
        self._meeting_bytes = meeting_bytes
        self._heard_max = heard_max
        self._check = check
        self._sketches = None if salts is None else SketchSteps(self, salts)
        self.partial = PartialMessages()
        self._acknowledged_to: dict[str, int] = {}

    @property
    def wake_at(self) -> float:
        """When something expires, or a failure must be reported."""
        return min(self.buffer.wake_at, self.awaited.wake_at)

    def wake(self, now: float) -> list[AdhocEffect]:
        """Let go of what has expired, and report the messages that were not delivered in time."""
        effects: list[AdhocEffect] = []
        for replica in self.buffer.expired(now):
            self.tallies["dropped", "expired"] += 1
            effects.append(DropReplica(replica, "expired"))
        self.ring.expire(now)
        self.partial.expire(now)
        effects += self.awaited.overdue(now)
        return effects

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
    ) -> CarriedMessage:
        """Make a message of this host, signed and with an id; UserError if it can't be.

        `size` is for simulations, which leave out the bytes. Without `ttl_s` it lives for a day.
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
        )
        check_sent(message)
        return replace(message, proof=self._proofs.sign(message.signed))

    def send(self, message: CarriedMessage, now: float, report_s: float | None = None) -> list[AdhocEffect]:
        """Send a message of this host; `report_s` is when its failure is reported, by default its life."""
        effects: list[AdhocEffect] = []
        replica = Replica(message, set(message.recipients), now + message.ttl_s, now)
        if message.persistent:
            self.awaited.watch(message, now + (message.ttl_s if report_s is None else report_s))
        self.tallies["sent", ""] += 1
        if self.name in replica.pending:
            effects += self._take_delivery(message, 0, replica.expires_at, now)
            replica.pending.discard(self.name)
        self.strategy.begin(replica, now)
        if replica.pending and not self._carry(replica, effects):
            self.tallies["refused", "buffer"] += 1
            effects += self.awaited.refuse(message.id)
        return effects

    def accept(self, message: CarriedMessage, now: float) -> list[AdhocEffect]:
        """Take a message that has come over a path; it is delivered once, however it comes."""
        problem = refusal(message)
        if not problem and not self._proofs.verify(message.id.system, message.signed, message.proof):
            problem = "forged"
        if problem or self.name not in message.recipients or message.id in self.seen:
            self.tallies["refused", problem or "seen"] += 1
            return []
        return self._take_delivery(message, 1, now + message.ttl_s, now)

    def accept_copy(self, frame: CopyFrame, now: float) -> tuple[list[AdhocEffect], Acknowledgement | None]:
        """Take a whole copy that has come outside of a meeting, if it is for this host; what acknowledges it.

        One that comes again is acknowledged again.
        """
        message, effects = frame.message, list[AdhocEffect]()
        problem = self._problem(message, frame)
        is_whole = not frame.offset and len(message.raw) == message.size
        if not problem and not (is_whole and self.name in message.recipients):
            problem = "datagram"
        if problem:
            self.tallies["refused", problem] += 1
            return [], None
        expires_at = now + min(frame.left_s, message.ttl_s)
        if message.id not in self.seen:
            self.tallies["received", ""] += 1
            effects += self._take_delivery(message, frame.hops, expires_at, now)
        if message.id not in self.seen:
            self.tallies["refused", "senders"] += 1
            return effects, None
        proof = self._proofs.sign(acknowledged(message.id, self.name))
        return effects, Acknowledgement(message.id, self.name, expires_at - now, proof)

    def hear(self, acknowledgements: Sequence[Acknowledgement], now: float) -> list[AdhocEffect]:
        """Take acknowledgements that have come outside of a meeting."""
        effects: list[AdhocEffect] = []
        self._hear("", acknowledgements, now, effects)
        return effects

    def acknowledge(self, id: MessageId, recipient: str) -> list[AdhocEffect]:
        """Note that a recipient has a message that went to it over a path."""
        return list(self.awaited.acknowledge(id, recipient))

    def _carry(self, replica: Replica, effects: list[AdhocEffect], giver: str = "") -> bool:
        """Take a replica into the buffer, and offer it to all hosts that are here; False if it is refused."""
        displaced = self.buffer.put(replica)
        if displaced is None:
            return False
        for gone in displaced:
            self.tallies["dropped", "displaced"] += 1
            effects.append(DropReplica(gone, "displaced"))
        self.tallies["carried", ""] += 1
        effects.append(StoreReplica(replica))
        self._spread_news((replica.id,), (), giver, effects)
        for meeting in self.meetings.values():
            if meeting.is_open:
                meeting.offer((replica,))
        return True

    def _spread_news(
        self,
        ids: tuple[MessageId, ...],
        acknowledgements: tuple[Acknowledgement, ...],
        giver: str,
        effects: list[AdhocEffect],
    ) -> None:
        """Notify the hosts that are here, except the one from which it comes."""
        news = NewsFrame(acknowledgements, ids)
        others = [one.peer for one in self.meetings.values() if one.is_open and one.peer != giver]
        effects += [SendFrame(peer, news) for peer in others]

    # Meeting

    def meet(self, peer: str, now: float) -> list[AdhocEffect]:
        """Begin a meeting; the host with the smaller name sends the first frame."""
        effects = self.wake(now)
        is_first, is_new = self.name < peer, now - self.met_at.get(peer, -inf) > self._rejoin_s
        if is_new:
            self.strategy.meet(peer, now)
            self.tallies["meetings", ""] += 1
        self._note_met(peer, now)
        meeting = self.meetings[peer] = Meeting(peer, is_first, is_new, self.strategy.context(now))
        if is_first:
            effects.append(SendFrame(peer, self._first_frame(meeting, now)))
        return effects

    def _first_frame(self, meeting: Meeting, now: float) -> AdhocFrame:
        sketched = None if self._sketches is None else self._sketches.begin(meeting, now)
        return self.summary(meeting, *self.greeting(meeting, now)) if sketched is None else sketched

    def summary(
        self,
        meeting: Meeting,
        acknowledged: tuple[Acknowledgement, ...] = (),
        announced: tuple[Announcement, ...] = (),
    ) -> SummaryFrame:
        """Return the list of what is here, for another host."""
        meeting.offered = self.buffer.ids
        return SummaryFrame(acknowledged, meeting.offered, meeting.context, self.partial.begun, announced)

    def greeting(
        self, meeting: Meeting, now: float
    ) -> tuple[tuple[Acknowledgement, ...], tuple[Announcement, ...]]:
        """Return the acknowledgements and announcements with which a meeting begins."""
        return self._acknowledgements(meeting, now), self.registry.announced(now)

    def be_greeted(
        self,
        meeting: Meeting,
        frame: SummaryFrame | LackingFrame | EstimateFrame | AskFrame,
        now: float,
        effects: list[AdhocEffect],
    ) -> None:
        """Take what another host begins a meeting with, before any id is compared."""
        self._hear(meeting.peer, frame.acknowledged, now, effects)
        self.strategy.learn(meeting.peer, frame.context, meeting.is_new, now)
        self.tallies["refused", "announcement"] += self.registry.hear(frame.announced, now)

    def open(self, meeting: Meeting) -> None:
        """Offer copies from now on."""
        meeting.is_open = True
        meeting.offer(self.buffer)

    def _note_met(self, peer: str, now: float) -> None:
        self.met_at.pop(peer, None)
        self.met_at[peer] = now
        if len(self.met_at) > MET_MAX:
            oldest = next(iter(self.met_at))
            del self.met_at[oldest]
            self._acknowledged_to.pop(oldest, None)

    def _acknowledgements(self, meeting: Meeting, now: float) -> tuple[Acknowledgement, ...]:
        """The acknowledgements that the other host was not sent before."""
        if not self.strategy.acknowledges:
            return ()
        meeting.acknowledged_to = self.ring.last
        return self.ring.since(self._acknowledged_to.get(meeting.peer, 0), now)

    def part(self, peer: str, now: float) -> None:
        """End a meeting, however far it has come."""
        meeting = self.meetings.pop(peer, None)
        if meeting is not None:
            self._note_met(peer, now)
            if meeting.is_confirmed:
                self._acknowledged_to[peer] = meeting.acknowledged_to

    def receive(self, peer: str, frame: AdhocFrame, now: float) -> list[AdhocEffect]:
        """Take a frame of a host that is here; one that is not is counted."""
        meeting = self.meetings.get(peer)
        if meeting is None:
            self.tallies["refused", "stranger"] += 1
            return []
        effects = self.wake(now) if self.wake_at <= now else []
        meeting.is_confirmed = meeting.is_confirmed or meeting.is_open  # it has the last step from here
        match frame:
            case SummaryFrame():
                self._on_summary(meeting, frame, now, effects)
            case LackingFrame():
                self._on_lacking(meeting, frame, now, effects)
            case EstimateFrame() | AskFrame() | SymbolsFrame() | HashesFrame():
                if self._sketches is None:
                    self.tallies["refused", "step"] += 1
                else:
                    self._sketches.receive(meeting, frame, now, effects)
            case CopyFrame():
                self._on_copy(meeting, frame, now, effects)
            case ReceiptFrame():
                self._on_receipt(meeting, frame, now, effects)
            case NewsFrame():
                self._hear(meeting.peer, frame.acknowledged, now, effects)
                if not meeting.learn(frame.ids):
                    self.tallies["refused", "ids"] += 1
        return effects

    def _on_summary(
        self, meeting: Meeting, frame: SummaryFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        """Second step: answer with what is lacking here, and open the meeting."""
        if meeting.is_first or meeting.is_open:
            self.tallies["refused", "step"] += 1
            return
        self.be_greeted(meeting, frame, now, effects)
        meeting.has.update(frame.ids)
        meeting.begun.update(frame.begun)
        wants = tuple(id for id in frame.ids if self._wants(id))
        acknowledgements, announced = self.greeting(meeting, now)
        reply = LackingFrame(acknowledgements, wants, meeting.context, self.partial.begun, announced)
        effects.append(SendFrame(meeting.peer, reply))
        self.open(meeting)

    def _on_lacking(
        self, meeting: Meeting, frame: LackingFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        """Third step: offer what the other host lacks."""
        if not meeting.is_first or meeting.is_open:
            self.tallies["refused", "step"] += 1
            return
        meeting.is_confirmed = True
        self.be_greeted(meeting, frame, now, effects)
        meeting.begun.update(frame.begun)
        wants = set(frame.wants)
        meeting.has.update(id for id in meeting.offered if id not in wants)
        self.open(meeting)
        if frame.acknowledged:
            effects.append(SendFrame(meeting.peer, NewsFrame((), ())))  # they have come

    def _wants(self, id: MessageId) -> bool:
        """Whether a message is new here; one that was delivered elsewhere is judged when it comes."""
        return id not in self.buffer and id not in self.seen and id.system != self.name

    # Copies

    def next_copy(self, peer: str, now: float) -> CopyFrame | None:
        """The next copy, or part of one, for a host that is here; None if there is nothing for it now."""
        meeting = self.meetings.get(peer)
        if meeting is None or not meeting.is_open or meeting.bytes_sent >= self._meeting_bytes:
            return None
        while (id := meeting.next()) is not None:
            replica = self.buffer.get(id)
            if replica is None or replica.expires_at <= now:
                continue
            is_last = replica.pending == {peer}  # which carries it no further
            copies = 0 if is_last else self.strategy.share(replica, peer, now)
            if copies > 0 or peer in replica.pending:
                return self._copy(meeting, replica, copies, now)
        return None

    def _copy(self, meeting: Meeting, replica: Replica, copies: int, now: float) -> CopyFrame:
        message, offset = replica.message, meeting.begun.get(replica.id, 0)
        raw = self.buffer.raw_of(replica)
        if replica.id not in meeting.tried:
            meeting.tried.add(replica.id)
            self.strategy.begin_copy()
        if not 0 <= offset < message.size:
            offset = 0
        end = offset + CHUNK
        if len(raw) > end:  # the rest follows, unless something better comes
            meeting.begun[replica.id] = end
            meeting.offer((replica,))
        else:
            meeting.has.add(replica.id)
            meeting.copies[replica.id] = copies
        part = raw[offset:end]
        if part is not message.raw:
            message = replace(message, raw=part)
        meeting.bytes_sent += len(message.raw)
        return CopyFrame(
            message, replica.left_s(now), tuple(sorted(replica.pending)), copies, replica.hops + 1, offset
        )

    def _on_copy(self, meeting: Meeting, frame: CopyFrame, now: float, effects: list[AdhocEffect]) -> None:
        meeting.bytes_received += len(frame.message.raw)
        if meeting.bytes_received > self._meeting_bytes + CHUNK:  # the other host knows no end
            self.tallies["refused", "meeting"] += 1
            return
        message = self.partial.join(frame, now)
        if message is None:  # more of it follows
            return
        meeting.has.add(message.id)
        receipt = self._take(meeting, message, frame, now, effects)
        if receipt.reason:
            self.tallies["refused", receipt.reason] += 1
        effects.append(SendFrame(meeting.peer, receipt))

    def _take(
        self,
        meeting: Meeting,
        message: CarriedMessage,
        frame: CopyFrame,
        now: float,
        effects: list[AdhocEffect],
    ) -> ReceiptFrame:
        """Deliver a message that has come whole, carry it, or refuse it."""
        id = message.id
        problem = self._problem(message, frame)
        if problem:
            return ReceiptFrame(id, False, None, problem)
        self.tallies["received", ""] += 1
        expires_at = now + min(frame.left_s, message.ttl_s)
        pending = {one for one in frame.pending if one in message.recipients}
        if self.strategy.acknowledges:
            pending -= self.ring.recipients(id).keys()
        receipt = None
        if self.name in message.recipients:
            if id not in self.seen:
                effects += self._take_delivery(message, frame.hops, expires_at, now)
            if id not in self.seen:
                return ReceiptFrame(id, False, None, "senders")
            pending.discard(self.name)
            receipt = Acknowledgement(
                id, self.name, expires_at - now, self._proofs.sign(acknowledged(id, self.name))
            )
        if receipt is not None and not (pending and frame.copies):
            return ReceiptFrame(id, False, receipt)
        if not pending:
            return ReceiptFrame(id, False, None, "acknowledged")
        if self.buffer.sizes[id.system] + message.size > self._origin_bytes:
            return ReceiptFrame(id, False, receipt, "origin" if receipt is None else "")
        replica = Replica(message, pending, expires_at, now, max(1, frame.copies), frame.hops)
        if not self._carry(replica, effects, meeting.peer):
            return ReceiptFrame(id, False, receipt, "buffer" if receipt is None else "")
        return ReceiptFrame(id, True, receipt)

    def _problem(self, message: CarriedMessage, frame: CopyFrame) -> str:
        """Why a copy is refused, '' if it is not."""
        if message.id in self.buffer:
            return "held"
        if message.id.system == self.name:
            return "own"
        if not frame.left_s > 0 or frame.left_s > message.ttl_s:
            return "life"
        problem = refusal(message)
        if problem:
            return problem
        if not self._proofs.verify(message.id.system, message.signed, message.proof):
            return "forged"
        return self._check(message)

    def _take_delivery(
        self, message: CarriedMessage, hops: int, expires_at: float, now: float
    ) -> list[AdhocEffect]:
        """Deliver a message here, for the first time; nothing if its sender can't be remembered."""
        if not self.seen.add(message.id, now):
            return []
        self.tallies["delivered", ""] += 1
        effects: list[AdhocEffect] = [DeliverMessage(message, hops)]
        proof = self._proofs.sign(acknowledged(message.id, self.name))
        self._note_acknowledged(message.id, self.name, expires_at, proof, "", effects, now)
        return effects

    def _on_receipt(
        self, meeting: Meeting, frame: ReceiptFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        copies = meeting.copies.pop(frame.id, None)
        if copies is None:
            self.tallies["refused", "receipt"] += 1
            return
        self.strategy.end_copy()
        if frame.acknowledgement is not None and frame.acknowledgement.id == frame.id:
            self._hear(meeting.peer, (frame.acknowledgement,), now, effects)
        replica = self.buffer.get(frame.id)
        if frame.is_carried and replica is not None:
            self.strategy.given(replica, copies)
            if self.strategy.is_spent(replica):
                self._drop(replica, "spent", effects)
            else:
                effects.append(StoreReplica(replica))

    # Acknowledgements

    def _hear(
        self,
        giver: str,
        acknowledgements: Sequence[Acknowledgement],
        now: float,
        effects: list[AdhocEffect],
    ) -> None:
        """Take acknowledgements from another host; forged ones, and too many at once, are counted."""
        ignored = len(acknowledgements) - self._heard_max
        if ignored > 0:
            self.tallies["refused", "acknowledgements"] += ignored
        for one in acknowledgements[max(0, ignored) :]:
            if not 0 < one.left_s < inf or one.recipient in self.ring.recipients(one.id):
                continue
            if not self._proofs.verify(one.recipient, acknowledged(one.id, one.recipient), one.proof):
                self.tallies["refused", "forged acknowledgement"] += 1
                continue
            expires_at = now + one.left_s
            self._note_acknowledged(one.id, one.recipient, expires_at, one.proof, giver, effects, now)

    def _note_acknowledged(
        self,
        id: MessageId,
        recipient: str,
        expires_at: float,
        proof: bytes,
        giver: str,
        effects: list[AdhocEffect],
        now: float,
    ) -> None:
        """Take a recipient off the list of a message, which is dropped without any, and hand that on."""
        effects += self.awaited.acknowledge(id, recipient)
        if not self.strategy.acknowledges:
            return
        if self.ring.add(id, recipient, expires_at, proof):
            news = (Acknowledgement(id, recipient, expires_at - now, proof),)
            self._spread_news((), news, giver, effects)
        replica = self.buffer.get(id)
        if replica is not None and recipient in replica.pending:
            replica.pending.discard(recipient)
            if replica.pending:
                effects.append(StoreReplica(replica))
            else:
                self._drop(replica, "acknowledged", effects)

    def _drop(self, replica: Replica, reason: str, effects: list[AdhocEffect]) -> None:
        self.buffer.remove(replica.id)
        self.tallies["dropped", reason] += 1
        effects.append(DropReplica(replica, reason))

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
