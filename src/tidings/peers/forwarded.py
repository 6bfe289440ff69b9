"""Forwarded events from other nodes: accepted once, with the ids, times and sources they have there.

FORWARD is a frame of a numbered stream, though it is not the events that are counted but the numbers that
come with them: the stream is one transmission queue of another node, and goes on after a crash of either side
where it was. So its count is stored with the commit that has its events. The events' own counters were
counted where they were published; here they count for nobody (`ForwardedOrigin`), or what a client who is
known here too says here would be taken for a repeat.

A node has one connection to another, and opens a stream on it for each of its queues (`forward.open`). Nodes
of earlier releases make a connection for each stream: its HELLO opens it, and its number is 0.

A publication names the nodes it has passed. One that has passed this node has come round a ring of upstreams:
it was taken in before, and is accepted and dropped.

What a node hands on has the sources it says, as the node itself has seen to them. What any other user hands
on comes from that user, whatever it says, and each event needs a grant.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta, Struct, structs, to_builtins

from tidings.errors import CodecError, EventError, NotAllowed, QueueNotFound, Refused, TidingsError, UserError
from tidings.event import Batch
from tidings.event.wire import Checked, check
from tidings.ids import NUMBER_MAX, ForwardedOrigin, Origin, check_system
from tidings.protocol.arguments import NAME_LENGTH_MAX
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.ledger import ProducerKey, identity_of
from tidings.protocol.login import WINDOW, source_of
from tidings.protocol.messages import Forward, unpack_numbers
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.queues.arguments import ADDRESS_LENGTH_MAX
from tidings.queues.description import TRANSMISSION
from tidings.queues.manager import SIZE_MAX, QueueManager
from tidings.queues.message import check_length
from tidings.queues.queue import MessageQueue

PARTS_SIZE_MAX = 256 << 20
"""Bytes of the parts of a body that may wait for their event."""
HOPS_MAX = 100
"""Nodes that a publication may pass from upstream to upstream."""
SYSTEM_LENGTH_MAX = 64
STREAMS_MAX = 4_000
"""Streams that may be open on one connection: a node forwards fewer queues at a time."""


class OpenStream(Struct, frozen=True):
    """The arguments of `forward.open`: the number of the stream on this connection, and who counts on it."""

    stream: Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
    system: str
    epoch: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    seen: int = 0  # the sender has had all answers up to this number


class CloseStream(Struct, frozen=True):
    """The arguments of `forward.close`."""

    stream: int


class ForwardedStream(IncomingStream):
    """A stream that another node has opened on its connection."""

    def __init__(self, session: Session, opening: OpenStream) -> None:
        # Who counts is the same however the connection is named, and was so when each stream had its own.
        origin = Origin(opening.system, opening.epoch, source_of("", session.principal) or None)
        super().__init__(origin)
        self.session = session
        self.stream = opening.stream
        self.resume(origin, opening.seen)


class Forwarded(Service):
    """Service that accepts forwarded events from other nodes; added after that of the queues."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._broker = manager.broker
        # Where may be handed on, of the streams that say they are the same.
        self._newest: dict[ProducerKey, IncomingStream] = {}
        self._parts: dict[IncomingStream, list[bytes]] = {}
        self._unheld: dict[IncomingStream, TidingsError] = {}  # whose parts were not kept, and why
        self.frames = {Forward: self._take}
        self.operations = {
            "forward.open": (OpenStream, self._open),
            "forward.close": (CloseStream, self._close),
        }

    def greeted(self, session: Session) -> bool:
        """A client is there: what it still has under way on another connection is not taken any more."""
        self._newest[identity_of(session.origin)] = session
        return False

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A session has ended, and with it what had not come whole."""
        for stream in (session, *session.streams.values()):
            self._end(stream)

    # Streams

    def _open(self, asked: IncomingRequest, opening: OpenStream) -> dict[str, Any]:
        """Open a stream: the reply says what a WELCOME says of the stream of a client."""
        session = asked.session
        check_system(opening.system)
        if len(session.streams) >= STREAMS_MAX:
            raise Refused("limit", f"{STREAMS_MAX} streams are open on this connection")
        if opening.stream in session.streams:
            raise Refused("exists", f"stream {opening.stream} is open")
        stream = session.streams[opening.stream] = ForwardedStream(session, opening)
        self._newest[identity_of(stream.origin)] = stream
        refused = to_builtins(self._broker.ledger.refused(stream.origin))
        return {"counter": stream.accepted, "window": WINDOW, "refused": refused}

    def _close(self, asked: IncomingRequest, closing: CloseStream) -> None:
        """Close a stream: nothing more comes on it."""
        stream = asked.session.streams.pop(closing.stream, None)
        if stream is not None:
            self._end(stream)

    def _end(self, stream: IncomingStream) -> None:
        self._unheld.pop(stream, None)
        self._manager.grow(-sum(map(len, self._parts.pop(stream, ()))))
        if self._newest.get(identity_of(stream.origin)) is stream:
            del self._newest[identity_of(stream.origin)]

    # FORWARD

    def _take(self, session: Session, message: Forward, events: bytes) -> None:
        stream = session.streams.get(message.stream) if message.stream else session
        if stream is None:
            raise Refused("protocol", f"stream {message.stream} is not open")
        if self._newest.get(identity_of(stream.origin)) is not stream:
            raise Refused("exists", "the forwarding node has reconnected on another connection")
        self._broker.ledger.see(stream.origin, message.seen)
        checked = check(events)
        batch = Batch(events, _origin(stream, message), checked.offsets)
        numbers = _numbers(message.numbers, len(batch))
        if not numbers:
            self._hold(stream, message.queue, batch)
            return
        parts, unheld = self._let_go(stream), self._unheld.pop(stream, None)
        had = self._broker.admit(stream, numbers)
        rows = range(had, len(batch))
        if not rows:
            return
        if not message.queue and self._broker.node in message.passed:
            self._broker.accept(stream)  # it has come round a ring of upstreams
            self._broker.count("forwarded_back", len(rows))
            return
        checked = structs.replace(checked, counters=numbers)
        if unheld is not None and not had:
            self._broker.refuse(stream, numbers[0], numbers[0], unheld)
            rows = rows[1:]
        is_whole = not had and unheld is None
        errors = self._do(stream, message.queue, batch, checked, rows, parts if is_whole else ())
        for first, last, error in _stretches(errors):
            self._broker.refuse(stream, numbers[first], numbers[last], error)
        self._broker.count("forwarded", len(rows) - len(errors))

    def _hold(self, stream: IncomingStream, name: str, batch: Batch) -> None:
        """Keep parts of a body until their event comes, if that may be put where it is to go."""
        try:
            if not name:
                raise Refused("too-large", "a body in parts is for queues only")
            session = stream.session
            session.allow("put", self._queue(session, name).name)
        except (UserError, Refused) as error:
            self._unheld[stream] = error
            return
        held = self._parts.setdefault(stream, [])
        for event in batch.events:
            held.append(event.body or b"")
            self._manager.grow(len(held[-1]))
        if sum(map(len, held)) > PARTS_SIZE_MAX or self._manager.size > SIZE_MAX:
            raise Refused("limit", f"a body has at most {PARTS_SIZE_MAX} bytes, all queues {SIZE_MAX}")

    def _let_go(self, stream: IncomingStream) -> Sequence[bytes]:
        parts = self._parts.pop(stream, ())
        self._manager.grow(-sum(map(len, parts)))
        return parts

    def _do(
        self,
        stream: IncomingStream,
        name: str,
        batch: Batch,
        checked: Checked,
        rows: range,
        parts: Sequence[bytes],
    ) -> dict[int, TidingsError]:
        """Put events into a queue, or publish them; the rows with which that was not done, and why."""
        if not name:
            return self._publish(stream, batch, checked, rows, parts)
        try:
            return self._put(stream, self._queue(stream.session, name), batch, rows, parts)
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
        self, stream: IncomingStream, queue: MessageQueue, batch: Batch, rows: range, parts: Sequence[bytes]
    ) -> dict[int, TidingsError]:
        session = stream.session
        granted = session.allow("put", queue.name)
        errors: dict[int, TidingsError] = {}
        self._broker.accept(stream)
        for row, raw in zip(rows, batch.raws[rows.start :], strict=True):
            try:
                session.check_put(granted, batch, row)
                check_length(raw)
                self._manager.check_size(queue.name)
                more = parts if row == rows.start else ()
                queue.check_room_for(raw, more)
                plan = queue.schedule.plan(raw)
                queue.put(raw, batch.origin, more, plan=plan)
            except (UserError, Refused) as error:
                errors[row] = error
        return errors

    # Publications

    def _publish(
        self, stream: IncomingStream, batch: Batch, checked: Checked, rows: range, parts: Sequence[bytes]
    ) -> dict[int, TidingsError]:
        """Hand on what may be published; nobody has it before the commit says that it was had."""
        session = stream.session
        errors: dict[int, TidingsError] = {}
        if parts:
            errors[rows.start] = Refused("too-large", "a body in parts is for queues only")
        if session.granted is not None or session.bound is not None:
            refused = (row for row in rows if not session.may_publish(batch, row))
            errors |= {row: NotAllowed(self._broker.refusal(session, batch, row)) for row in refused}
        allowed = [row for row in rows if row not in errors]
        if allowed:
            self._broker.accept(stream)
            if len(allowed) < len(batch):
                batch, checked = batch.take(allowed), checked.take(allowed)
            self._broker.publishing.hand_on(batch, checked, stream, waits=True)
        return errors


def _origin(stream: IncomingStream, message: Forward) -> ForwardedOrigin:
    """Return the origin of events, as far as the forwarding client is trusted."""
    try:
        if message.system is not None:
            check_system(message.system)
    except EventError as error:
        raise CodecError("$.Forward.system", error.problem) from None
    source = message.source
    if not 0 <= message.epoch <= NUMBER_MAX or (source is not None and len(source) > NAME_LENGTH_MAX):
        raise CodecError("$.Forward", "an epoch or a source that can't be")
    if len(message.passed) > HOPS_MAX or max(map(len, message.passed), default=0) > SYSTEM_LENGTH_MAX:
        raise CodecError("$.Forward.passed", f"more than {HOPS_MAX} nodes, or an id that can't be")
    passed = () if message.queue else (*message.passed, stream.origin.system or "")
    return ForwardedOrigin(message.system, message.epoch, stream.session.sender(source), passed)


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
