"""Forwarded events from other nodes: accepted once, with the ids, times and sources they have there.

FORWARD is a frame of the numbered stream, though it is not the events that are counted but the numbers that
come with them: the stream is one transmission queue of another node, and goes on after a crash of either side
where it was. So its count is stored with the commit that has its events. The events' own counters were
counted where they were published; here they count for nobody (`ForwardedOrigin`), or what a client who is
known here too says here would be taken for a repeat.

What a node hands on has the sources it says, as the node itself has seen to them. What any other user hands
on comes from that user, whatever it says, and each event needs a grant.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from tidings.errors import CodecError, EventError, NotAllowed, QueueNotFound, Refused, TidingsError, UserError
from tidings.event import Batch
from tidings.event.wire import Checked, check
from tidings.exchange import NodeSubscription
from tidings.ids import NUMBER_MAX, ForwardedOrigin, check_system
from tidings.protocol.arguments import NAME_LENGTH_MAX
from tidings.protocol.ledger import ProducerKey, identity_of
from tidings.protocol.messages import Forward, unpack_numbers
from tidings.protocol.service import Service
from tidings.protocol.session import Session
from tidings.queues.arguments import ADDRESS_LENGTH_MAX
from tidings.queues.description import TRANSMISSION
from tidings.queues.manager import SIZE_MAX, QueueManager
from tidings.queues.message import check_length
from tidings.queues.queue import MessageQueue

PARTS_SIZE_MAX = 256 << 20
"""Bytes of the parts of a body that may wait for their event."""


class Forwarded(Service):
    """Service that accepts forwarded events from other nodes; added after that of the queues."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._broker = manager.broker
        self._newest: dict[ProducerKey, Session] = {}  # who may hand on, of those who say they are the same
        self._parts: dict[Session, list[bytes]] = {}
        self._unheld: dict[Session, TidingsError] = {}  # whose parts were not kept, and why
        self.frames = {Forward: self._take}
        self.way_back: Callable[[str], NodeSubscription | None] = lambda _node: None
        """The subscription by which events go to the node of this id, if there is one."""

    def greeted(self, session: Session) -> bool:
        """A client is there: what it still has under way on another connection is not taken any more."""
        self._newest[identity_of(session.origin)] = session
        return False

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A session has ended, and with it what had not come whole."""
        self._unheld.pop(session, None)
        self._manager.grow(-sum(map(len, self._parts.pop(session, ()))))
        if self._newest.get(identity_of(session.origin)) is session:
            del self._newest[identity_of(session.origin)]

    # FORWARD

    def _take(self, session: Session, message: Forward, events: bytes) -> None:
        if self._newest.get(identity_of(session.origin)) is not session:
            raise Refused("exists", "the forwarding node has reconnected on another connection")
        self._broker.ledger.see(session.origin, message.seen)
        checked = check(events)
        batch = Batch(events, _origin(session, message), checked.offsets)
        numbers = _numbers(message.numbers, len(batch))
        if not numbers:
            self._hold(session, message.queue, batch)
            return
        parts, unheld = self._let_go(session), self._unheld.pop(session, None)
        had = self._broker.admit(session, numbers)
        rows = range(had, len(batch))
        if not rows:
            return
        checked = checked._replace(counters=numbers)
        if unheld is not None and not had:
            self._broker.refuse(session, numbers[0], numbers[0], unheld)
            rows = rows[1:]
        is_whole = not had and unheld is None
        errors = self._do(session, message.queue, batch, checked, rows, parts if is_whole else ())
        for first, last, error in _stretches(errors):
            self._broker.refuse(session, numbers[first], numbers[last], error)
        self._broker.count("forwarded", len(rows) - len(errors))

    def _hold(self, session: Session, name: str, batch: Batch) -> None:
        """Keep parts of a body until their event comes, if that may be put where it is to go."""
        try:
            if not name:
                raise Refused("too-large", "a body in parts is for queues only")
            session.allow("put", self._queue(session, name).name)
        except (UserError, Refused) as error:
            self._unheld[session] = error
            return
        held = self._parts.setdefault(session, [])
        for event in batch.events:
            held.append(event.body or b"")
            self._manager.grow(len(held[-1]))
        if sum(map(len, held)) > PARTS_SIZE_MAX or self._manager.size > SIZE_MAX:
            raise Refused("limit", f"a body has at most {PARTS_SIZE_MAX} bytes, all queues {SIZE_MAX}")

    def _let_go(self, session: Session) -> Sequence[bytes]:
        parts = self._parts.pop(session, ())
        self._manager.grow(-sum(map(len, parts)))
        return parts

    def _do(
        self,
        session: Session,
        name: str,
        batch: Batch,
        checked: Checked,
        rows: range,
        parts: Sequence[bytes],
    ) -> dict[int, TidingsError]:
        """Put events into a queue, or publish them; the rows with which that was not done, and why."""
        if not name:
            return self._publish(session, batch, checked, rows, parts)
        try:
            return self._put(session, self._queue(session, name), batch, rows, parts)
        except (UserError, Refused) as error:
            return dict.fromkeys(rows, error)

    # Queues

    def _queue(self, session: Session, name: str) -> MessageQueue:
        if len(name) > ADDRESS_LENGTH_MAX:
            raise QueueNotFound(name[:100], "is no name of a queue")
        try:
            queue = self._manager.find(name)
        except QueueNotFound:
            session.allow("put", name)  # a client that may not put there does not learn whether there is one
            raise
        if queue.name.startswith(TRANSMISSION):
            session.allow("manage", queue.name)  # what is put there is not checked again on its way
        return queue

    def _put(
        self, session: Session, queue: MessageQueue, batch: Batch, rows: range, parts: Sequence[bytes]
    ) -> dict[int, TidingsError]:
        granted = session.allow("put", queue.name)
        errors: dict[int, TidingsError] = {}
        self._broker.accept(session)
        for row, raw in zip(rows, batch.raws[rows.start :], strict=True):
            try:
                session.check_put(granted, batch, row)
                check_length(raw)
                self._manager.check_size(queue.name)
                queue.check_room()
                plan = queue.schedule.plan(raw)
                queue.put(raw, batch.origin, parts if row == rows.start else (), plan=plan)
            except (UserError, Refused) as error:
                errors[row] = error
        return errors

    # Publications

    def _publish(
        self, session: Session, batch: Batch, checked: Checked, rows: range, parts: Sequence[bytes]
    ) -> dict[int, TidingsError]:
        """Hand on what may be published; nobody has it before the commit says that it was had."""
        errors: dict[int, TidingsError] = {}
        if parts:
            errors[rows.start] = Refused("too-large", "a body in parts is for queues only")
        if session.granted is not None or session.bound is not None:
            refused = (row for row in rows if not session.may_publish(batch, row))
            errors |= {row: NotAllowed(self._broker.refusal(session, batch, row)) for row in refused}
        allowed = [row for row in rows if row not in errors]
        if allowed:
            self._broker.accept(session)
            if len(allowed) < len(batch):
                batch, checked = batch.take(allowed), checked.take(allowed)
            self._hand_on(session, batch, checked)
        return errors

    def _hand_on(self, session: Session, batch: Batch, checked: Checked) -> None:
        """Give events to all who want them, but not back to the node they come from."""
        back = self.way_back(session.origin.system or "")
        if back is None:
            self._broker.hand_on(batch, checked, session, waits=True)
            return
        before, back.origin = back.origin, session
        self._broker.hand_on(batch, checked, session, waits=True)
        back.origin = before


def _origin(session: Session, message: Forward) -> ForwardedOrigin:
    """Return the origin of events, as far as the forwarding client is trusted."""
    try:
        if message.system is not None:
            check_system(message.system)
    except EventError as error:
        raise CodecError("$.Forward.system", error.problem) from None
    source = message.source
    if not 0 <= message.epoch <= NUMBER_MAX or (source is not None and len(source) > NAME_LENGTH_MAX):
        raise CodecError("$.Forward", "an epoch or a source that can't be")
    return ForwardedOrigin(message.system, message.epoch, session.sender(source))


def _numbers(packed: bytes, count: int) -> array[int]:
    """The numbers of so many events, none where these are parts; CodecError if there are others."""
    numbers = unpack_numbers(packed, count if packed else 0, "$.Forward.numbers")
    if numbers and max(numbers) > NUMBER_MAX:
        raise CodecError("$.Forward.numbers", f"one is above {NUMBER_MAX}")
    return numbers


def _stretches(errors: dict[int, TidingsError]) -> Iterator[tuple[int, int, TidingsError]]:
    """First and last row of each stretch of rows that follow each other with the same error, and that."""

    def alike(placed: tuple[int, int]) -> tuple[int, str]:
        place, row = placed
        return row - place, str(errors[row])

    for _, stretch in groupby(enumerate(sorted(errors)), key=alike):
        rows = [row for _, row in stretch]
        yield rows[0], rows[-1], errors[rows[0]]
