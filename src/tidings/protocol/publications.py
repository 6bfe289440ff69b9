"""A client's numbered stream on its way to the node: kept until accepted, sent again after a cut.

All changes travel in it, under one count: publications, puts, settlements and commits. They are encoded as
they come and gathered into *runs*, one frame each, of items that fit one frame: of one sort, and publications
of one reliability only, since after a restart of the node the transient ones must not be sent again and all
else must be.
The rules kept: no more bytes are under way than the node's window, no more are held than SEND_BUFFER_MAX (the
caller checks `is_full` first), and runs leave in the order of their counters. A refusal is kept under its
counter until the caller takes it. An item can be withdrawn until it is sent; its number is left out then.

`publish` is on the hot path: it makes one bytes object and nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, compress, groupby

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tidings.errors import EventError
from tidings.event import Event
from tidings.event.wire import HEAD_SIZE, array_head, count_in_head
from tidings.ids import Ids
from tidings.numbered import Outbound
from tidings.protocol.frames import FRAME_MAX, PLAIN_HEAD, PLAIN_PUBLISH, PUBLISH, encode
from tidings.protocol.messages import HANDLE, Commit, Failure, Publish, Put, Refusal, Settle

SEND_BUFFER_MAX = 8 << 20
"""Bytes of events that are held, sent or not, until they are accepted."""
RUN_SIZE = 64 << 10
"""Bytes of events after which a run is closed and the next one begun."""
EVENT_SIZE_MAX = FRAME_MAX - 64
"""Bytes of one event: it must fit a frame, with what stands before it."""
PUT_SIZE_MAX = FRAME_MAX - 2048
"""The same for an event that is put into a queue, whose name stands before it."""
REFUSALS_MAX = 65_536
"""Refusals that nobody has asked for yet; beyond that the oldest are forgotten."""
UNSURE_MAX = 65_536
"""Unsure events that are remembered; the oldest are forgotten first, and sent again with a new number."""
UNSURE_SIZE_MAX = 8 << 20
"""Bytes of the bodies of these events, about as many as the send buffer holds."""

_encode_event = msgspec.msgpack.Encoder().encode
_decode_items = msgspec.msgpack.Decoder(list[Raw]).decode
_decode_counters = msgspec.msgpack.Decoder(list[tuple[int, Raw, Raw, Raw, Raw, Raw]]).decode
Sort = bool | Put | Settle
"""What a run is gathered of: publications (True: sent to a restarted node too), puts, or settlings."""


class PublicationRun:
    """Items that travel in one frame: `content` is that frame, or what follows the head in it."""

    __slots__ = ("content", "head", "is_kept", "last", "may_be_done", "size", "was_sent")

    def __init__(self, content: bytes, head: Put | Settle | Commit | None, last: int, is_kept: bool) -> None:
        self.content = content
        self.head = head
        self.last = last  # counter of the last item
        self.is_kept = is_kept  # sent again even to a node that was started anew
        self.size = len(content) + (len(head.handles) if isinstance(head, Settle) else 0)
        self.was_sent = False
        self.may_be_done = False  # by a node that was started anew since

    def frame(self, seen: int) -> bytes:
        """The frame as it leaves now; `seen` shows the node which answers need not be kept any more."""
        return self.content if self.head is None else encode(replace(self.head, seen=seen), self.content)


class Publications:
    """Sending end of a client's numbered stream."""

    def __init__(self, ids: Ids) -> None:
        self.accepted = 0
        """Everything up to this counter is as safe as it asked to be."""
        self.last = 0
        """The counter of the item that came last."""
        self.sent = 0
        """The highest counter that was sent, to whichever node."""
        self.size = 0
        """Bytes held."""
        self._next_counter = ids.next_counter
        self._next_counters = ids.next_counters
        self._stream: Outbound[PublicationRun, Refusal] = (
            Outbound()
        )  # sent on this connection and not accepted
        self._waiting: deque[PublicationRun] = deque()
        self._fresh: list[bytes] = []  # the items of the run that is being gathered
        self._fresh_size = 0
        self._sort: Sort = False  # of these
        self._refused: dict[int, Failure] = {}
        self.is_held = False
        """Whether nothing more is sent over this connection."""
        self.unasked = 0
        """Transient events that were refused: nobody waits to hear of these."""
        self.unasked_failure: Failure | None = None
        """Why the last of them was."""

    @property
    def is_full(self) -> bool:
        """Whether as much is held as may be; what is published nonetheless is taken."""
        return self.size >= SEND_BUFFER_MAX

    @property
    def is_empty(self) -> bool:
        """Whether everything was accepted or given up."""
        return not (self._fresh or self._waiting or self._stream)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was sent is accepted."""
        return not self._stream

    # What comes in

    def publish(self, event: Event) -> int:
        """Number an event and hold it; EventError if it is too large."""
        header = event.header
        is_kept = header is not None and header.delivery != "transient"
        if self._sort is not is_kept or self._fresh_size > RUN_SIZE:
            self._begin_run(is_kept)
        counter = self._next_counter()
        raw = _encode_event((counter, event.type, event.time_us, event.values, header, event.body))
        size = len(raw)
        if size > EVENT_SIZE_MAX:
            raise _too_large(size, EVENT_SIZE_MAX)
        self._fresh.append(raw)
        self._fresh_size += size
        self.size += size
        self.last = counter
        return counter

    def publish_raw(
        self, count: int, make: Callable[[int], bytes], is_kept: bool = False, source: str | None = None
    ) -> int:
        """Hold events that come as bytes, in a run of their own; the counter of the last, or before them.

        `make` is given the first of so many counters, and gives up to so many events, as an array with its
        head that fits a frame. `is_kept`: none of them is transient. `source`: who has sent them.
        """
        self._begin_run(self._sort)
        first = self._next_counters(count)
        events = make(first)
        total = count_in_head(events)
        if total:
            self.last = first + total - 1
            head = PUBLISH if source is None else Publish(source)
            run = PublicationRun(encode(head, events), None, self.last, is_kept)
            self._waiting.append(run)
            self.size += run.size
        return self.last

    def put(self, queue: str, event: Event, transaction: int = 0, is_part: bool = False) -> int:
        """Number an event for a queue, or a part of the next one's body; EventError if it is too large."""
        sort = Put(queue, 0, transaction, is_part)
        if self._sort != sort or self._fresh_size > RUN_SIZE:
            self._begin_run(sort)
        counter = self._next_counter()
        raw = _encode_event((counter, event.type, event.time_us, event.values, event.header, event.body))
        if len(raw) > PUT_SIZE_MAX:
            raise _too_large(len(raw), PUT_SIZE_MAX)
        return self._hold(counter, raw)

    def settle(
        self, number: int, delivery: int, outcome: int, text: str = "", delay_s: float | None = None
    ) -> int:
        """Say what becomes of a message that the client holds; `outcome` is one of the protocol's."""
        sort = Settle(0, 0, b"", outcome, text, delay_s)
        if self._sort != sort or self._fresh_size > RUN_SIZE:
            self._begin_run(sort)
        return self._hold(self._next_counter(), HANDLE.pack(number, delivery))

    def commit(self, transaction: int) -> int:
        """Have done what was said in a transaction."""
        self._begin_run(False)
        self.last = self._next_counter()
        self._waiting.append(PublicationRun(b"", Commit(self.last, 0, transaction), self.last, True))
        return self.last

    def withdraw(self, counters: Collection[int]) -> set[int]:
        """Take back those of these items that were never sent, and return their counters."""
        self._begin_run(self._sort)
        wanted, before = sorted(counters), 0
        withdrawn: set[int] = set()
        waiting: deque[PublicationRun] = deque()
        for run in self._waiting:
            among = wanted[bisect_right(wanted, before) : bisect_right(wanted, run.last)]
            before = run.last
            left = [run] if run.was_sent or not among else _without(run, set(among), withdrawn)
            waiting += left
            self.size += sum(one.size for one in left) - run.size
        self._waiting = waiting
        if self.is_empty:
            self.accepted = self.last
        return withdrawn

    def _hold(self, counter: int, item: bytes) -> int:
        self._fresh.append(item)
        self._fresh_size += len(item)
        self.size += len(item)
        self.last = counter
        return counter

    def _begin_run(self, sort: Sort) -> None:
        """Close the run that is being gathered; what comes next is of this sort."""
        if self._fresh:
            run = self._gathered()
            self._waiting.append(run)
            self.size += run.size - self._fresh_size
            self._fresh, self._fresh_size = [], 0
        self._sort = sort

    def _gathered(self) -> PublicationRun:
        """The run of the items that were gathered."""
        sort, fresh = self._sort, self._fresh
        if isinstance(sort, bool):
            return PublicationRun(plain_publish(fresh, self._fresh_size), None, self.last, sort)
        if isinstance(sort, Put):
            return PublicationRun(array_head(len(fresh)) + b"".join(fresh), sort, self.last, True)
        # Nothing else is numbered while a run is gathered, so its counters have no gaps.
        head = replace(sort, first=self.last - len(fresh) + 1, handles=b"".join(fresh))
        return PublicationRun(b"", head, self.last, True)

    # Frames to and from the node

    def take(self) -> list[bytes]:
        """The frames that may leave now: within the window, but always one if none is under way."""
        self._begin_run(self._sort)
        frames: list[bytes] = []
        while self._waiting and not self.is_held:
            run = self._waiting[0]
            if not self._stream.fits(run.size):
                break
            run.was_sent = True
            self.sent = max(self.sent, run.last)
            self._stream.send((run.last,), (self._waiting.popleft(),), run.size)
            frames.append(run.frame(self.accepted))
        return frames

    def accept(self, counter: int) -> None:
        """The node has everything up to this counter."""
        before, self.accepted = self.accepted, max(self.accepted, counter)
        for run, _ in self._stream.acknowledge(counter):
            if self._refused and run.head is None and not run.is_kept:
                self._pass_over(range(before + 1, run.last + 1))
            before = run.last
            self.size -= run.size
        if self.is_empty:
            self.accepted = self.last  # what was given up behind it is as safe as it asked to be

    def _pass_over(self, counters: range) -> None:
        """Count what of these was refused, as nobody will ask."""
        failures = [self._refused.pop(counter) for counter in counters if counter in self._refused]
        if failures:
            self.unasked += len(failures)
            self.unasked_failure = failures[-1]

    def resume(self, counter: int, window: int, is_same_boot: bool) -> None:
        """A connection is there again, to a node that has everything up to this counter.

        What was under way and is not in that is to be sent once more; a node that was started since gets no
        transient event that the one before it may have handed on.
        """
        self.is_held = False
        self.accept(counter)
        # What is sent again may be done this time.
        self._refused = {one: failure for one, failure in self._refused.items() if one <= counter}
        again = self._stream.cut()
        for run in () if is_same_boot else again:
            run.may_be_done = True
        self._waiting.extendleft(reversed(again))
        self._stream.resume(window)
        waiting, self._waiting = self._waiting, deque()
        for run in waiting:
            if run.last > counter and (is_same_boot or run.is_kept or not run.was_sent):
                self._waiting.append(run)
            else:
                self.size -= run.size
        if self.is_empty:
            self.accepted = self.last  # what was given up is as safe as it asked to be

    def refuse(self, refusal: Refusal) -> None:
        """The node has not done what has these counters.

        A message that was settled before the node was started anew, and is in no queue any more, was settled:
        that is no refusal.
        """
        first = max(refusal.first, self.accepted + 1)
        last = min(refusal.last, self.last)
        if refusal.failure.code == "not-yours" and not refusal.failure.details.get("queue"):
            runs = chain(self._stream, self._waiting)
            first = max([first, *(run.last + 1 for run in runs if run.may_be_done)])
        for counter in range(first, last + 1):
            self._refused[counter] = refusal.failure
        while len(self._refused) > REFUSALS_MAX:
            del self._refused[next(iter(self._refused))]

    def refusal(self, counter: int) -> Failure | None:
        """Return why the node refused the item of this counter, None if it did not; returned once."""
        return self._refused.pop(counter, None)

    def refusals(self, counters: Iterable[int]) -> dict[int, Failure]:
        """Return why the node refused these counters, as far as they are accepted; each is returned once."""
        if not self._refused:
            return {}
        known = [one for one in counters if one <= self.accepted and one in self._refused]
        return {counter: self._refused.pop(counter) for counter in known}


class _Unsure(Struct, gc=False):
    event: Event  # kept, so that no other event has its identity
    counters: list[int]
    size: int


class UnsureEvents:
    """Events whose sender does not know whether the node has them: sent again, they keep their numbers.

    A put or publication that was sent and not answered in time stays in the numbered stream, so the node does
    it once if it can be reached again. The usual retry loop sends the same event again meanwhile; then the
    caller waits for the item that is under way, and there is no second one.

    An event is recognised as the object that it is, together with the place that it was sent to: a queue, or
    the exchange (a queue without a name), and a transaction. Events can't be referred to weakly, so they are
    kept here, and the oldest are forgotten beyond the limits.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, str, int], _Unsure] = {}
        """The events; empty unless a call has failed. Callers test that first, as it costs nothing."""
        self._size = 0

    def add(self, event: Event, queue: str, transaction: int, counter: int) -> None:
        """Remember under which counter an event was sent to a place."""
        key = id(event), queue, transaction
        known = self.known.get(key)
        if known is None:
            size = len(event.body or b"")
            known = self.known[key] = _Unsure(event, [], size)
            self._size += size
        known.counters.append(counter)
        while len(self.known) > UNSURE_MAX or (self._size > UNSURE_SIZE_MAX and len(self.known) > 1):
            self._forget(next(iter(self.known)))

    def take(self, event: Event, queue: str, transaction: int) -> int:
        """Return the counter of an event that is sent again, and forget it; 0 if it is not known."""
        key = id(event), queue, transaction
        known = self.known.get(key)
        if known is None:
            return 0
        counter = known.counters.pop(0)
        if not known.counters:
            self._forget(key)
        return counter

    def _forget(self, key: tuple[int, str, int]) -> None:
        self._size -= self.known.pop(key).size


def _without(run: PublicationRun, counters: set[int], withdrawn: set[int]) -> list[PublicationRun]:
    """Return what is left of a run without these of its items; `withdrawn` gets those that were in it."""
    known = list(_counters(run))
    left = [one for one in known if one not in counters]
    withdrawn |= counters.intersection(known)
    if len(left) == len(known):
        return [run]
    head = run.head
    if not left or isinstance(head, Commit):
        return []
    if isinstance(head, Settle):
        return list(_settle_runs(head, left))
    array = run.content if head is not None else run.content[PLAIN_HEAD - HEAD_SIZE :]
    items = list(map(bytes, compress(_decode_items(array), [one not in counters for one in known])))
    if head is None:
        content = plain_publish(items, sum(map(len, items)))
    else:
        content = array_head(len(items)) + b"".join(items)
    return [PublicationRun(content, head, left[-1], run.is_kept)]


def _counters(run: PublicationRun) -> Iterable[int]:
    """The counters of the items of a run."""
    head = run.head
    if isinstance(head, Commit):
        return (head.counter,)
    if isinstance(head, Settle):
        return range(head.first, head.first + len(head.handles) // HANDLE.size)
    array = run.content if head is not None else run.content[PLAIN_HEAD - HEAD_SIZE :]
    return [one[0] for one in _decode_counters(array)]


def _settle_runs(head: Settle, left: list[int]) -> Iterator[PublicationRun]:
    """Runs of the settlements that are left, each without gaps."""
    for _, group in groupby(enumerate(left), lambda one: one[1] - one[0]):
        counters = [counter for _, counter in group]
        begin, end = ((one - head.first) * HANDLE.size for one in (counters[0], counters[-1] + 1))
        settled = replace(head, first=counters[0], handles=head.handles[begin:end])
        yield PublicationRun(b"", settled, counters[-1], True)


def plain_publish(events: list[bytes], size: int) -> bytes:
    """A PUBLISH frame of these events, which have so many bytes: joined once, as runs can be long."""
    length = PLAIN_HEAD - 4 + size
    return b"".join((length.to_bytes(4, "big"), PLAIN_PUBLISH, len(events).to_bytes(4, "big"), *events))


def _too_large(size: int, size_max: int) -> EventError:
    return EventError("$", f"an event of {size} bytes; at most {size_max} are allowed")
