"""A client's publications on their way to the node: numbered, kept until accepted, sent again after a cut.

Events are encoded as they are published and gathered into *runs*, one frame each, which hold events of one
reliability only: after a restart of the node the transient ones must not be sent again, the others must be.
The rules kept: no more bytes are under way than the node's window, no more are held than SEND_BUFFER_MAX
(whoever publishes looks at `is_full` first), and runs leave in the order of their counters.

`publish` is on the hot path: it makes one bytes object and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from tidings.errors import EventError
from tidings.event import Event
from tidings.event.wire import array_head
from tidings.ids import Ids
from tidings.protocol.frames import FRAME_MAX, PUBLISH, encode

SEND_BUFFER_MAX = 8 << 20
"""Bytes of events that are held, sent or not, until they are accepted."""
RUN_SIZE = 64 << 10
"""Bytes of events after which a run is closed and the next one begun."""
EVENT_SIZE_MAX = FRAME_MAX - 64
"""Bytes of one event: it must fit a frame, with what stands before it."""

_encode_event = msgspec.msgpack.Encoder().encode


class Run:
    """Events that travel in one frame."""

    __slots__ = ("frame", "is_kept", "last", "was_sent")

    def __init__(self, frame: bytes, last: int, is_kept: bool) -> None:
        self.frame = frame
        self.last = last  # counter of the last event
        self.is_kept = is_kept  # sent again even to a node that was started anew
        self.was_sent = False


class Publications:
    """See the module."""

    def __init__(self, ids: Ids) -> None:
        self.accepted = 0
        """Everything up to this counter is as safe as it asked to be."""
        self.last = 0
        """The counter of the event that was published last."""
        self.size = 0
        """Bytes held."""
        self._next_counter = ids.next_counter
        self._window = 0
        self._flying: deque[Run] = deque()  # sent on this connection and not accepted
        self._flying_size = 0
        self._waiting: deque[Run] = deque()
        self._fresh: list[bytes] = []  # the events of the run that is being gathered
        self._fresh_size = 0
        self._fresh_is_kept = False

    @property
    def is_full(self) -> bool:
        """Whether as much is held as may be; what is published nonetheless is taken."""
        return self.size >= SEND_BUFFER_MAX

    @property
    def is_empty(self) -> bool:
        """Whether everything was accepted or given up."""
        return not (self._fresh or self._waiting or self._flying)

    def publish(self, event: Event) -> int:
        """Number an event and hold it; EventError if it is too large."""
        header = event.header
        is_kept = header is not None and header.delivery != "transient"
        if self._fresh_is_kept is not is_kept or self._fresh_size > RUN_SIZE:
            self._close_run(is_kept)
        counter = self._next_counter()
        raw = _encode_event((counter, event.type, event.time_us, event.values, header, event.body))
        size = len(raw)
        if size > EVENT_SIZE_MAX:
            raise EventError("$", f"an event of {size} bytes; at most {EVENT_SIZE_MAX} are allowed")
        self._fresh.append(raw)
        self._fresh_size += size
        self.size += size
        self.last = counter
        return counter

    def _close_run(self, next_is_kept: bool) -> None:
        if self._fresh:
            frame = encode(PUBLISH, array_head(len(self._fresh)) + b"".join(self._fresh))
            self._waiting.append(Run(frame, self.last, self._fresh_is_kept))
            self.size += len(frame) - self._fresh_size
            self._fresh, self._fresh_size = [], 0
        self._fresh_is_kept = next_is_kept

    def take(self) -> list[bytes]:
        """The frames that may leave now: within the window, but always one if none is under way."""
        self._close_run(self._fresh_is_kept)
        frames: list[bytes] = []
        while self._waiting:
            run = self._waiting[0]
            if self._flying and self._flying_size + len(run.frame) > self._window:
                break
            run.was_sent = True
            self._flying.append(self._waiting.popleft())
            self._flying_size += len(run.frame)
            frames.append(run.frame)
        return frames

    def accept(self, counter: int) -> None:
        """The node has everything up to this counter."""
        self.accepted = max(self.accepted, counter)
        while self._flying and self._flying[0].last <= counter:
            size = len(self._flying.popleft().frame)
            self._flying_size -= size
            self.size -= size
        if self.is_empty:
            self.accepted = self.last  # what was given up behind it is as safe as it asked to be

    def resume(self, counter: int, window: int, is_same_boot: bool) -> None:
        """A connection is there again, to a node that has everything up to this counter.

        What was under way and is not in that is to be sent once more; a node that was started since gets no
        transient event that the one before it may have handed on.
        """
        self.accept(counter)
        self._window = window
        self._waiting.extendleft(reversed(self._flying))
        self._flying.clear()
        self._flying_size = 0
        self._give_up(
            run
            for run in self._waiting
            if run.last <= counter or not (is_same_boot or run.is_kept or not run.was_sent)
        )
        if self.is_empty:
            self.accepted = self.last  # what was given up is as safe as it asked to be

    def _give_up(self, runs: Iterable[Run]) -> None:
        gone = set(runs)
        self.size -= sum(len(run.frame) for run in gone)
        self._waiting = deque(run for run in self._waiting if run not in gone)
