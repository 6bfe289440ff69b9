"""A numbered stream, at both ends: each item is done once, in order, however often the connection is cut.

The numbers of a stream grow; some may be left out. The receiver says up to which number it has come, which
*acknowledges* everything below. It may *refuse* items, which it says before it acknowledges them, and it
remembers that until the sender says that it has heard it. When they meet again after a cut, the receiver says
how far it has come and what it has refused, and the sender goes on behind that.

Items come from memory, from a queue or from a cursor on what is stored. So `Outbound` knows only those in
flight: its feeder takes them back when the connection is cut, and sends them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from tidings.seen import SeenNumbers

REFUSALS_MAX = 10_000
"""Refusals that either end remembers until the other one has heard of them; the oldest are forgotten."""


class RefusedNumbers(Protocol):
    """The numbers from `first` to `last` were not done, for a reason that only users of the stream know."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


Item = TypeVar("Item")
Refusal = TypeVar("Refusal", bound=RefusedNumbers)


class Outbound(Generic[Item, Refusal]):
    """The sending end: what is in flight, within a window of bytes."""

    __slots__ = ("_in_flight", "_refusals", "size", "window")

    def __init__(self) -> None:
        self.window = 0
        self.size = 0  # bytes in flight
        self._in_flight: deque[tuple[int, int, Item]] = deque()  # with number and size, in order
        self._refusals: deque[Refusal] = deque(maxlen=REFUSALS_MAX)

    def __len__(self) -> int:
        return len(self._in_flight)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in self._in_flight)

    def fits(self, size: int) -> bool:
        """Whether so many bytes may be sent now; if nothing is in flight, however many."""
        return not self._in_flight or self.size + size <= self.window

    def send(self, numbers: Sequence[int], items: Sequence[Item], size: int) -> None:
        """Have items in flight that travel together: they take their bytes until the last is acknowledged."""
        self._in_flight += zip(numbers, chain(repeat(0, len(numbers) - 1), (size,)), items, strict=True)
        self.size += size

    def acknowledge(self, number: int) -> Iterator[tuple[Item, Refusal | None]]:
        """The items up to this number, which are in flight no longer, and which refusal each is part of."""
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= number:
            acknowledged, size, item = in_flight.popleft()
            self.size -= size
            yield item, self.refusal(acknowledged) if self._refusals else None

    def refuse(self, refusal: Refusal) -> None:
        """The receiver will not do these."""
        self._refusals.append(refusal)

    def refusal(self, number: int) -> Refusal | None:
        """Return the refusal of this number, if there is one; to be asked in ascending order."""
        refusals = self._refusals
        while refusals and refusals[0].last < number:
            refusals.popleft()
        return refusals[0] if refusals and refusals[0].first <= number else None

    def resume(self, window: int, refusals: Iterable[Refusal] = ()) -> None:
        """Begin on a new connection, with what was refused before and may not have been heard."""
        self.window = window
        self._refusals = deque(sorted(refusals, key=attrgetter("first")), REFUSALS_MAX)

    def cut(self) -> list[Item]:
        """Return the items in flight when the connection is lost: they may have to be sent again."""
        items = list(self)
        self._in_flight.clear()
        self.size = 0
        return items


class Inbound(SeenNumbers, Generic[Refusal]):
    """The receiving end, which has come as far as `last`, and after a crash as far as `stored`."""

    __slots__ = ("doubtful", "heard", "pending", "refusals", "stored")

    def __init__(self, last: int = 0, refusals: Iterable[Refusal] = ()) -> None:
        super().__init__(last)
        self.stored = last
        self.heard = 0  # up to here the sender has had all answers
        self.refusals = list(refusals)
        self.pending: dict[int, None] = {}  # numbers that are being done elsewhere, in their order
        self.doubtful: dict[int, int] = {}  # first and last of those that a crash of the receiver loses

    def safe(self, number: int) -> int:
        """Up to where all is done of what came up to this number."""
        return min(number, next(iter(self.pending)) - 1) if self.pending else number

    def refuse(self, refusal: Refusal) -> None:
        """Remember that something was refused, until the sender has heard it."""
        self.refusals.append(refusal)
        if len(self.refusals) > REFUSALS_MAX:
            del self.refusals[0]

    def hear(self, number: int) -> None:
        """The sender has had all answers up to this number."""
        self.heard = number
        if self.refusals and self.refusals[0].last <= number:
            self.refusals = [one for one in self.refusals if one.last > number]

    def set_back(self) -> None:
        """Forget what came after `stored`, which was not done: it will come again."""
        self.last = self.stored
        self.pending = {one: None for one in self.pending if one <= self.stored}
        self.doubtful = {first: last for first, last in self.doubtful.items() if first <= self.stored}
        self.refusals = [one for one in self.refusals if one.last <= self.stored]
