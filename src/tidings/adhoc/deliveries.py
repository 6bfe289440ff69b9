"""What becomes of carried messages at a node: into the queue that they name, and reports to their senders.

The sender of a message is the host that has signed it, and what may be put is what that host was granted
here. A message that can't be put becomes a dead letter, with the reason. Programs may make their queues after
they have begun to meet others: what has come for a queue before is put into it when it is made.
"""

from __future__ import annotations

from msgspec.structs import replace

from tidings.adhoc.carried_events import CarriedEvent, asking_only, unpack, with_life
from tidings.adhoc.effects import ReportOutcome
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.records import AWAITED, AwaitedRecord, id_of
from tidings.errors import CodecError, NotAllowed, QueueError, QueueNotFound, Refused
from tidings.event import Batch, Event
from tidings.event.wire import check, decode_event
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import NOBODY, Principal
from tidings.queues.description import DEAD
from tidings.queues.manager import QueueManager
from tidings.queues.message import QueuedMessage, check_length
from tidings.queues.queue import MessageQueue
from tidings.security.authenticator import CERTIFICATE
from tidings.steps import Steps

MISSING = "it was carried here, and there is no such queue"
"""Reason of the dead letters that are put into their queue when that is made."""


class Deliveries:
    """Puts what has arrived, and publishes it, with the rights of the host that has sent it."""

    def __init__(self, queues: QueueManager) -> None:
        self._queues = queues
        self._broker = queues.broker

    def put(self, name: str, message: CarriedMessage, left_s: float) -> str:
        """Put an event into a queue here; why not, '' if it was."""
        try:
            carried = with_life(unpack(message.raw), left_s)
        except CodecError:
            return "event"
        origin = carried.origin_from(message.id.system)
        try:
            self._check_rights(name, message.id.system, carried, origin)
            queue = self._queues.find(name)
            check_length(carried.raw)
            self._queues.check_size(queue.name)
            queue.check_room_for(carried.raw)
            queue.put(carried.raw, origin, undo=False, plan=queue.schedule.plan(carried.raw))
        except NotAllowed:
            return "rights"  # it is not said whether there is such a queue
        except QueueNotFound:
            self._bury(name, carried, origin, MISSING)
            return "queue"
        except (QueueError, Refused) as error:
            self._bury(name, carried, origin, str(error))
            return "queue"
        return ""

    def made(self, queue: MessageQueue) -> None:
        """A queue was made: put into it what has come for it before."""
        if queue.name != DEAD and self._queues.get(DEAD) is not None:
            early = Filter("dead.queue = :queue AND dead.reason = :reason", queue=queue.name, reason=MISSING)
            self._queues.begin(self._put_early(early))

    def _put_early(self, early: Filter) -> Steps[None]:
        yield from self._queues.dead_letters.replay(early, None, lambda _queue: None)

    def may_hold(self, name: str, kind: str, host: str) -> bool:
        """Whether a host may do with a queue or topic here what its holder has to."""
        rights = self._rights(host)
        try:
            granted = rights.queue_grant("put", name) if kind == "queue" else rights.grant("publish")
        except NotAllowed:
            return False
        return granted is None

    def problem(self, name: str, message: CarriedMessage) -> str:
        """Why a message can't be for a queue of this name, '' if it can."""
        try:
            carried = unpack(message.raw)
            origin = carried.origin_from(message.id.system)
            self._check_rights(name, message.id.system, carried, origin)
        except CodecError:
            return "event"
        except NotAllowed:
            return "rights"
        return ""

    def _rights(self, host: str) -> Principal:
        """Return what the host that has signed a message may do here, by its certificate."""
        authenticator = self._broker.authenticator
        known = authenticator.principal_of(host) or NOBODY
        if known.rules is None:
            return known
        return authenticator.renew(replace(known, credential=CERTIFICATE)) or NOBODY

    def _check_rights(self, queue: str, host: str, carried: CarriedEvent, origin: Origin) -> None:
        granted = self._rights(host).queue_grant("put", queue)
        if granted is not None and not granted.matches(decode_event(carried.raw, origin)):
            raise NotAllowed(f"{host!r} may put only what matches: {granted}")

    def _bury(self, name: str, carried: CarriedEvent, origin: Origin, reason: str) -> None:
        message = QueuedMessage(self._queues.numbers.next(self._broker.wall), carried.raw, origin)
        self._queues.dead_letters.bury_alone(name, message, reason)

    def publish(
        self, message: CarriedMessage, left_s: float, is_sent_on: bool = False, is_own: bool = False
    ) -> str:
        """Publish an event here, as its sender may; why not, '' if it was.

        `is_sent_on`: the sender is the holder of a topic, and another host has published it there; `is_own`:
        it was sent here, where its rights were checked.
        """
        try:
            carried = with_life(unpack(message.raw), left_s)
            granted = None if is_own else self._rights(message.id.system).grant("publish")
        except CodecError:
            return "event"
        except NotAllowed:
            return "rights"
        if not is_sent_on and not carried.is_from(message.id.system):
            return "source"
        batch = Batch(carried.array, carried.origin_as_told)
        if granted is not None and not granted.matches(batch[0]):
            return "rights"
        self._broker.publishing.hand_on(batch, check(batch.raw), waits=True)
        return ""


class SenderReports:
    """Reports on messages of this host, for the senders that ask for them; they survive a restart."""

    def __init__(self, queues: QueueManager) -> None:
        self._queues = queues
        self._broker = queues.broker
        self._awaited: dict[MessageId, AwaitedRecord] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def watch(self, message: CarriedMessage, queue: str, event: Event, report_s: float) -> None:
        """Report on a message, if its event asks for that."""
        if event.reply_to is None or not isinstance(event.values.get("report"), str):
            return
        origin = event.origin or Origin()
        about = origin.system, origin.epoch, origin.source
        wall = self._broker.wall + report_s
        self._keep(message.id, AwaitedRecord(queue, message.recipients, wall, asking_only(event), *about))

    def _keep(self, id: MessageId, record: AwaitedRecord) -> None:
        self._awaited[id] = record
        self._broker.store(AWAITED.set((str(id),), record))

    def restore(self) -> list[tuple[MessageId, tuple[str, ...], float]]:
        """Know again what was stored; each message, whom it waits for, and until when."""
        found = []
        for (text,), record in AWAITED.taken(self._broker.state).items():
            id = id_of(text)
            self._awaited[id] = record
            found.append((id, record.pending, self._broker.deadline(record.report)))
        return found

    def report(self, outcome: ReportOutcome) -> None:
        """Send the report on a message; the last one ends the wait for it."""
        record = self._awaited.get(outcome.id)
        if record is None:
            return
        pending = tuple(one for one in record.pending if one != outcome.recipient)
        if outcome.recipient and pending:
            self._keep(outcome.id, replace(record, pending=pending))
        else:
            del self._awaited[outcome.id]
            self._broker.store(AWAITED.drop((str(outcome.id),)))
        origin = Origin(record.system, record.epoch, record.source)
        message = QueuedMessage(0, record.raw, origin)
        reason = "" if outcome.outcome == "delivered" else "it was not delivered in time"
        if outcome.outcome == "undeliverable":
            reason = "this host has no room for it"
        self._queues.dead_letters.report_on(record.queue, message, outcome.outcome, reason)
