"""Events that another node has handed on: a batch that says which node took them in, and under which numbers.

The *first node* is the one that took a publication in. Its number there, an epoch and a position, is its
identity on every link: duplicates, gaps and the place to resume at are read off it, by whichever node. What
is not stored has a *volatile* number, counted in the memory of the first node. The bytes of events pass
untouched; these numbers travel and are stored beside them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from tidings.event.batch import Batch
from tidings.ids import Origin


class FirstNode(Struct, frozen=True, gc=False):
    """The node that took events in, and the epoch of its numbers; volatile ones are of what is not stored."""

    node: str
    epoch: int
    is_volatile: bool = False


class _Provenance(Struct, array_like=True, frozen=True):
    """First node and numbers of a stored batch, as they are written."""

    node: str
    epoch: int
    is_volatile: bool
    numbers: bytes  # none where the node is this one: they are the positions
    via: str = ""
    is_had: bool = False
    is_again: bool = False
    is_late: bool = False
    after: bytes = b""
    is_released: bool = False
    only: str = ""
    is_repeat: bool = False


GrowingNumbers: TypeAlias = "array[int] | range"
"""Numbers of events; a range where each follows the one before, as most do."""

_decode = msgspec.msgpack.Decoder(_Provenance).decode


class RelayedBatch(Batch):
    """Events of one origin that were handed on by another node; `numbers` grow from row to row.

    `age_us` is the part of their lives that was used up before they came here, `via` the neighbour that
    handed them on. What comes *again* may have been had here, or anywhere beyond, and be lacked by nodes that
    are further on: it is marked so over all hops. What was *had* here is not for clients. What is *late* was
    reported as missed here before it came. `after` names what comes before it in its channel; what was held
    for that and is *released* is for clients alone, as neighbours have it. What is there for one reader
    *only*, named by `only`, has moved here with a durable subscription: no other cursor reads it, and no
    neighbour gets it.
    """

    __slots__ = (
        "after",
        "age_us",
        "first",
        "is_again",
        "is_had",
        "is_late",
        "is_released",
        "is_repeat",
        "numbers",
        "only",
        "via",
    )

    def __init__(
        self,
        raw: bytes,
        origin: Origin | None,
        first: FirstNode,
        numbers: GrowingNumbers,
        age_us: int = 0,
        offsets: array[int] | None = None,
        via: str = "",
        is_again: bool = False,
        is_had: bool = False,
        is_late: bool = False,
        after: bytes = b"",
        is_released: bool = False,
        only: str = "",
        is_repeat: bool = False,
    ) -> None:
        super().__init__(raw, origin, offsets)
        self.after = after
        self.is_released = is_released
        self.first = first
        self.numbers = numbers
        self.age_us = age_us
        self.via = via
        self.is_again = is_again
        self.is_had = is_had
        self.is_late = is_late
        self.only = only
        self.is_repeat = is_repeat

    def take(self, rows: Iterable[int]) -> RelayedBatch:
        if isinstance(rows, range) and rows.step == 1 and 0 <= rows.start < rows.stop <= len(self):
            return self.slice(rows.start, rows.stop)
        wanted = [int(row) for row in rows]
        return self._with(super().take(wanted), array("Q", [self.numbers[row] for row in wanted]))

    def slice(self, start: int, end: int) -> RelayedBatch:
        return self._with(super().slice(start, end), self.numbers[start:end])

    def _with(self, part: Batch, numbers: GrowingNumbers) -> RelayedBatch:
        taken = RelayedBatch(
            part.raw,
            self.origin,
            self.first,
            numbers,
            self.age_us,
            via=self.via,
            is_again=self.is_again,
            is_had=self.is_had,
            is_late=self.is_late,
            after=self.after,
            is_released=self.is_released,
            only=self.only,
            is_repeat=self.is_repeat,
        )
        taken._events = part._events
        return taken

    @property
    def provenance(self) -> bytes:
        """First node and numbers, as they are stored beside the events."""
        first, numbers = self.first, array("Q", self.numbers).tobytes()
        about = first.node, first.epoch, first.is_volatile, numbers, self.via
        marks = self.is_had, self.is_again, self.is_late
        ordered = self.after, self.is_released
        stored = _Provenance(*about, *marks, *ordered, self.only, self.is_repeat)
        return msgspec.msgpack.encode(stored)


class OrderedBatch(Batch):
    """Events of an ordered channel that this node takes in; `after` names what comes before them there.

    What is *had* is not for clients yet, and what is *released* for them alone.
    """

    __slots__ = ("after", "is_had", "is_released", "is_repeat")

    def __init__(self, batch: Batch, after: bytes, is_had: bool = False, is_released: bool = False) -> None:
        super().__init__(batch.raw, batch.origin, batch._offsets)
        self._events = batch._events
        self.after = after
        self.is_had = is_had
        self.is_released = is_released
        self.is_repeat = batch.is_repeat

    def take(self, rows: Iterable[int]) -> OrderedBatch:
        return self._part(super().take(rows))

    def slice(self, start: int, end: int) -> OrderedBatch:
        return self._part(super().slice(start, end))

    def _part(self, part: Batch) -> OrderedBatch:
        taken = OrderedBatch(part, self.after, self.is_had, self.is_released)
        taken.is_repeat = self.is_repeat
        return taken

    @property
    def provenance(self) -> bytes:
        """What is stored beside the events; nothing for those that name nothing, as for most."""
        if not (self.after or self.is_had or self.is_released):
            return OWN_REPEAT if self.is_repeat else b""
        about = _Provenance(
            "",
            0,
            False,
            b"",
            "",
            self.is_had,
            after=self.after,
            is_released=self.is_released,
            is_repeat=self.is_repeat,
        )
        return msgspec.msgpack.encode(about)


def restored(raw: bytes, origin: Origin, provenance: bytes, age_us: int = 0) -> RelayedBatch:
    """Return a stored batch that another node had handed on."""
    stored = _decode(provenance)
    first = FirstNode(stored.node, stored.epoch, stored.is_volatile)
    numbers = array("Q", stored.numbers)
    is_again = stored.is_again or stored.is_had  # what was had is stored only as it came again
    about = first, numbers, age_us
    marks = is_again, stored.is_had, stored.is_late
    batch = RelayedBatch(raw, origin, *about, None, stored.via, *marks, only=stored.only)
    batch.after, batch.is_released, batch.is_repeat = stored.after, stored.is_released, stored.is_repeat
    return batch


class OwnMarks(NamedTuple):
    """What is stored beside events of this node's own clients: see `OrderedBatch` and `RepeatedBatch`."""

    after: bytes = b""
    is_released: bool = False
    is_repeat: bool = False


def own_marks(provenance: bytes) -> OwnMarks | None:
    """Return what is stored beside own events; None for those of other nodes."""
    if not provenance:
        return OwnMarks()
    stored = _decode(provenance)
    return None if stored.node else OwnMarks(stored.after, stored.is_released, stored.is_repeat)


def was_had(provenance: bytes) -> bool:
    """Whether a stored batch was had before it came, and is stored for neighbours that lack it."""
    return bool(provenance) and _decode(provenance).is_had


def is_late(provenance: bytes) -> bool:
    """Whether a stored batch came after it was reported as missed."""
    return bool(provenance) and _decode(provenance).is_late


class RepeatedBatch(Batch):
    """Events of a client here that it has sent to another node before, which may have taken them in, too."""

    __slots__ = ()
    is_repeat = True

    def take(self, rows: Iterable[int]) -> RepeatedBatch:
        return _repeated(super().take(rows))

    def slice(self, start: int, end: int) -> RepeatedBatch:
        return _repeated(super().slice(start, end))


def _repeated(part: Batch) -> RepeatedBatch:
    return RepeatedBatch(part.raw, part.origin, part.offsets)


OWN_REPEAT = msgspec.msgpack.encode(_Provenance("", 0, False, b"", is_repeat=True))
"""What is stored beside such events: this node is their first one, and their positions are their numbers."""


def is_for(provenance: bytes, reader: str) -> bool:
    """Whether a stored batch is for a reader: it was not had before it came, and is not another's only."""
    if not provenance:
        return True
    stored = _decode(provenance)
    return not stored.is_had and stored.only in ("", reader)


def moved_for(provenance: bytes) -> str:
    """Return the one reader for whom a stored batch has moved here; empty if it is for all."""
    return _decode(provenance).only if provenance else ""


class Had(Struct, array_like=True, frozen=True):
    """The number up to which all of a first node's events were had: an epoch, and a number in it."""

    epoch: int
    number: int

    def has(self, first: FirstNode, number: int) -> bool:
        """Whether an event of that node was had."""
        return not first.is_volatile and (first.epoch, number) <= (self.epoch, self.number)
