"""The work of a session, done frame by frame and step by step in its turn.

What takes longer than a step is gone on with before the next frame is looked at, so what a client asks for is
done in the order in which it asks. Beside that there are *chores*, such as sending on stored events that were
read for it. Frames wait while the client does not read the answers to what it asked for before, and while
more than its window has come since the last tick that had room in the store.

Long work that no client waits for is one more worker among the sessions, with a share of its own.

`SessionWorker.work` is on the hot path: it is called for whatever arrives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from tidings.errors import CodecError, Refused
from tidings.protocol.frames import FrameReader
from tidings.protocol.messages import ProtocolMessage
from tidings.protocol.outbox import Outbox
from tidings.steps import PAUSE, Steps
from tidings.turns import Share, Turns

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

UNREAD_SIZE_MAX = 8 << 20
"""Bytes that may wait to be read by a client before what it asks for next waits, too."""
TAKEN_SIZE_MAX = 8 << 20
"""Bytes of events that are taken from a client between two ticks: twice the window that it should keep to."""

_END: Any = object()


class SessionWorker(ABC):
    """The work of one client; see the module."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.outbox = Outbox()
        self.is_closed = False
        self.share = Share()  # of the time there is; that of its user, once it is let in
        self._reader = FrameReader(is_node=True)
        self._task: Steps[None] | None = None  # what the last frame has begun
        self._is_paused = False  # whether that waits for something
        self._chores: deque[Steps[None]] = deque()
        self._is_working = False
        self.is_swollen = False  # whether it may hold what comes or goes without a tick, or was weighed so
        self.is_stalled = False  # whether frames wait for the client to read, or for a tick to end
        self._taken_size = 0  # bytes of events since the last tick

    @abstractmethod
    def _take(self, message: ProtocolMessage, events: bytes) -> Steps[None] | None:
        """Do what a frame says; what takes longer is left as a task."""

    @abstractmethod
    def _stall(self) -> None:
        """Let frames wait for the client to read, or for the end of a tick."""

    @abstractmethod
    def _part_for(self, error: CodecError | Refused) -> None:
        """End the connection for what the client has sent."""

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left. Called when it is its turn."""
        clock = self.broker.turns.clock
        self._is_working = True
        try:
            while self._step():
                if clock() >= until:
                    return self.has_work
            return False
        except (CodecError, Refused) as error:
            self._part_for(error)
            return self.has_work
        finally:
            self._is_working = False

    @property
    def has_work(self) -> bool:
        """Whether there is anything to go on with."""
        if self._chores:
            return True
        if self._task is not None:
            return not self._is_paused
        return not self.is_closed and self._reader.has_next and self._may_go_on

    @property
    def _may_go_on(self) -> bool:
        """Whether the client has read enough, and not sent too much, for another frame of it."""
        return self.outbox.size <= UNREAD_SIZE_MAX and self._taken_size <= TAKEN_SIZE_MAX

    @property
    def is_kept_waiting(self) -> bool:
        """Whether it is the node that lets the client wait, and not the other way round."""
        return self.has_work or self._taken_size > TAKEN_SIZE_MAX

    @property
    def unread(self) -> int:
        """Bytes that have arrived and wait for their turn, those of a frame that is not whole left out."""
        return self._reader.held if self._reader.has_next and not self.is_closed else 0

    def _step(self) -> bool:
        """Do the next thing; whether there may be another."""
        if self._chores:
            if next(self._chores[0], _END) is _END:
                self._chores.popleft()
        elif self._task is not None:
            if self._is_paused:
                return False
            self._advance(self._task)
        elif self.is_closed or self.outbox.size > UNREAD_SIZE_MAX or self._taken_size > TAKEN_SIZE_MAX:
            self._stall()
            return False
        else:
            frame = self._reader.next()
            if frame is None:
                self.is_swollen = True
                return False
            self._taken_size += len(frame[1])
            self._task = self._take(*frame)
            return self._reader.has_next or self._task is not None or bool(self._chores)
        return True

    def _advance(self, task: Steps[None]) -> None:
        given = next(task, _END)
        self._is_paused = given is PAUSE
        if given is _END or self.is_closed:
            self._drop_task()

    def _drop_task(self) -> None:
        task, self._task, self._is_paused = self._task, None, False
        if task is not None:
            task.close()

    def go_on(self) -> None:
        """Go on with a task that has waited for something."""
        self._is_paused = False
        self.broker.turns.add(self, self.share)  # type: ignore[arg-type]  # sessions are the only workers

    def do(self, chore: Steps[None]) -> None:
        """Have something done for this client when it is its turn, beside what it asks for.

        It has to notice by itself that nobody wants it any more.
        """
        self._chores.append(chore)
        turns = self.broker.turns
        put = turns.add if self._is_working else turns.offer
        put(self, self.share)  # type: ignore[arg-type]


class Background:
    """Steps to be taken one behind the other, in turn with what sessions do."""

    def __init__(self, turns: Turns[Any]) -> None:
        self._turns = turns
        self._share = Share()
        self._steps: deque[Steps[None]] = deque()

    def __len__(self) -> int:
        """Amount of work that is left."""
        return len(self._steps)

    def add(self, steps: Steps[None]) -> None:
        """Have these taken, from the end of this tick on."""
        self._steps.append(steps)
        self._turns.add(self, self._share)

    def begin(self, steps: Steps[None]) -> bool:
        """Take the first step now, the others from the end of this tick on; whether there are others."""
        has_more = next(steps, _END) is not _END
        if has_more:
            self.add(steps)
        return has_more

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left. Called when it is its turn."""
        while self._steps:
            if next(self._steps[0], _END) is _END:
                self._steps.popleft()
            if self._turns.clock() >= until:
                break
        return bool(self._steps)

    def give_up(self) -> bool:
        """Drop the work that has failed; whether more is left."""
        self._steps.popleft()
        return bool(self._steps)
