"""What a queue needs of the node it is in: time, numbers, and someone to tell what happens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from tidings.queues.message import Message, Numbers
from tidings.steps import Steps
from tidings.store.interface import Operation
from tidings.timers import Alarms

if TYPE_CHECKING:
    from tidings.queues.inflight import InFlight
    from tidings.queues.queue import Queue
    from tidings.queues.waiting import Reader

Undo = Callable[[], None]


class Host(Protocol):
    """What a queue needs of the manager."""

    numbers: Numbers
    timers: Alarms
    fresh: OrderedDict[int, int]
    in_flight: InFlight

    @property
    def now(self) -> float:
        """The time that never jumps, for deadlines."""

    @property
    def wall(self) -> float:
        """The time by the wall clock, for numbers."""

    def deadline(self, moment: float, limit_s: float) -> float:
        """When `now` reaches a moment of the wall clock, in `limit_s` at the latest."""

    def keep(self, operations: Sequence[Operation], undo: Undo | None = None) -> int:
        """Store these with this tick; `undo` is called if that can't be. The mark of the commit."""

    def ready(self, reader: Reader) -> None:
        """A reader has got something, and is to be told when the tick ends."""

    def bury(self, queue: Queue, message: Message, reason: str, deliveries: int) -> None:
        """Put a message that can't be dealt with among the dead letters."""

    def report(self, queue: Queue, message: Message, kind: str, reason: str = "") -> None:
        """Tell whoever wanted to know what has become of a message."""

    def grow(self, size: int) -> None:
        """Count bytes that messages hold; fewer, if it is negative."""

    def begin(self, steps: Steps[None]) -> Steps[None] | None:
        """Have long work done to its end, the first step now; what is left, for who waits for that."""

    def gone(self, message: Message) -> None:
        """A message is stored no longer, nor is the counter that its sender gave it."""
