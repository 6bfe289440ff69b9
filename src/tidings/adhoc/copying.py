"""Copies of messages that go from host to host: which one is next, and what becomes of one that has come.

They are asked for one by one, whenever the link has room: so the best go first, and a meeting may end at any
moment. A long message goes in parts, and what has come of one is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.adhoc.effects import AdhocEffect, SendFrame, StoreReplica
from tidings.adhoc.frames import CHUNK, CopyFrame, ReceiptFrame
from tidings.adhoc.meeting import Meeting
from tidings.adhoc.messages import CarriedMessage, Replica, refusal
from tidings.adhoc.proofs import acknowledged
from tidings.adhoc.ring import Acknowledgement

if TYPE_CHECKING:
    from tidings.adhoc.host import AdhocHost


class Copies:
    """Copies that one host gives and takes.

    `origin_bytes` are carried for one other sender at most, `meeting_bytes` are taken and given in one
    meeting; `check` returns why nobody could make use of a message, '' if somebody can.
    """

    def __init__(
        self,
        host: AdhocHost,
        origin_bytes: float,
        meeting_bytes: float,
        check: Callable[[CarriedMessage], str],
    ) -> None:
        self._host = host
        self._origin_bytes = origin_bytes
        self._meeting_bytes = meeting_bytes
        self._check = check

    def next(self, peer: str, now: float) -> CopyFrame | None:
        """The next copy, or part of one, for a host that is here; None if there is nothing for it now."""
        host = self._host
        meeting = host.meetings.get(peer)
        if meeting is None or not meeting.is_open or meeting.bytes_sent >= self._meeting_bytes:
            return None
        while (id := meeting.next()) is not None:
            replica = host.buffer.get(id)
            if replica is None or replica.expires_at <= now:
                continue
            is_last = replica.pending == {peer}  # which carries it no further
            copies = 0 if is_last else host.strategy.share(replica, peer, now)
            if copies > 0 or peer in replica.pending or host.is_in(replica.message.area):
                return self._copy(meeting, replica, copies, now)
        return None

    def _copy(self, meeting: Meeting, replica: Replica, copies: int, now: float) -> CopyFrame:
        host = self._host
        message, offset = replica.message, meeting.begun.get(replica.id, 0)
        raw = host.buffer.raw_of(replica)
        if replica.id not in meeting.tried:
            meeting.tried.add(replica.id)
            host.strategy.begin_copy()
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
        if not copies and message.area:
            copies = 1  # within the area everybody carries it on, whatever the strategy
        pending = tuple(sorted(replica.pending))
        return CopyFrame(message, replica.left_s(now), pending, copies, replica.hops + 1, offset)

    def receive(self, meeting: Meeting, frame: CopyFrame, now: float, effects: list[AdhocEffect]) -> None:
        """Take a copy, or a part of one, and say what has come of it."""
        host = self._host
        meeting.bytes_received += len(frame.message.raw)
        if meeting.bytes_received > self._meeting_bytes + CHUNK:  # the other host knows no end
            host.tallies["refused", "meeting"] += 1
            return
        message = host.partial.join(frame, now)
        if message is None:  # more of it follows
            return
        meeting.has.add(message.id)
        receipt = self._take(meeting, message, frame, now, effects)
        if receipt.reason:
            host.tallies["refused", receipt.reason] += 1
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
        host = self._host
        id = message.id
        problem = self.problem(message, frame)
        if problem:
            return ReceiptFrame(id, False, None, problem)
        host.tallies["received", ""] += 1
        expires_at = now + min(frame.left_s, message.ttl_s)
        pending = {one for one in frame.pending if one in message.recipients}
        if host.is_in(message.area):
            effects += host.deliver_here(message, frame.hops, expires_at - now, now)
        if host.strategy.acknowledges:
            pending -= host.ring.recipients(id).keys()
        receipt = None
        if host.name in message.recipients:
            if id not in host.seen:
                effects += host.take_delivery(message, frame.hops, expires_at, now)
            if id not in host.seen:
                return ReceiptFrame(id, False, None, "senders")
            if not host.strategy.acknowledges:  # otherwise its acknowledgement says so
                host.need_no_copy(id, expires_at, meeting.peer, effects)
            pending.discard(host.name)
            receipt = Acknowledgement(
                id, host.name, expires_at - now, host.proofs.sign(acknowledged(id, host.name))
            )
        if receipt is not None and not (pending and frame.copies):
            return ReceiptFrame(id, False, receipt)
        if not pending:
            return ReceiptFrame(id, False, None, "acknowledged")
        if host.buffer.sizes[id.system] + message.size > self._origin_bytes:
            return ReceiptFrame(id, False, receipt, "origin" if receipt is None else "")
        replica = Replica(message, pending, expires_at, now, max(1, frame.copies), frame.hops)
        if not host.carry(replica, effects, meeting.peer):
            return ReceiptFrame(id, False, receipt, "buffer" if receipt is None else "")
        return ReceiptFrame(id, True, receipt)

    def problem(self, message: CarriedMessage, frame: CopyFrame) -> str:
        """Why a copy is refused, '' if it is not."""
        host = self._host
        if message.id in host.buffer:
            return "held"
        if message.id.system == host.name:
            return "own"
        if not frame.left_s > 0 or frame.left_s > message.ttl_s:
            return "life"
        problem = refusal(message)
        if problem:
            return problem
        if not host.proofs.verify(message.id.system, message.signed, message.proof):
            return "forged"
        return self._check(message)

    def be_answered(
        self, meeting: Meeting, frame: ReceiptFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        """Take what has come of a copy at the other host."""
        host = self._host
        copies = meeting.copies.pop(frame.id, None)
        if copies is None:
            host.tallies["refused", "receipt"] += 1
            return
        host.strategy.end_copy()
        if frame.acknowledgement is not None and frame.acknowledgement.id == frame.id:
            host.delivered.hear(meeting.peer, (frame.acknowledgement,), now, effects)
        replica = host.buffer.get(frame.id)
        if frame.is_carried and replica is not None:
            host.strategy.given(replica, copies)
            if host.strategy.is_spent(replica):
                host.drop(replica, "spent", effects)
            else:
                effects.append(StoreReplica(replica))
