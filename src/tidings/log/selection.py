"""Rows of stored batches that match a filter, as live parts: how a node searches its log.

This is the hot path of a search. Batches are stored as publishers sent them, often few events each, so a
search for one after the other would spend its time on calls. Those that are read together are joined and
matched as one, with compiled code and without decoding an event; the bytes of events that match are copied,
and what matches in batches of one origin that were stored at one time becomes one part.

The rule: parts have their events in the order of positions, and an event belongs to the origin with which it
was stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.wire import HEAD_SIZE, array_head
from tidings.filters import Filter
from tidings.filters.tree import And, Condition, FunctionCall, IsNull, Literal, Not, Or, names_in
from tidings.ids import Origin
from tidings.log.chunks import LivePart, live_part, rows_bytes
from tidings.matching import Index
from tidings.store.interface import StoredBatch

_OF_ORIGIN: Final = frozenset({"id", "JMSMessageID", "source"})
"""Names of a filter whose values depend on the origin of an event."""
_SPAN_BITS: Final = 31
"""Positions of one part differ by less than 2^32, whatever leaps there are between them."""


class Selection:
    """Rows of stored batches that match a filter, as live parts; for one thread.

    A selection is made once for a request: to prepare its index costs more than to match a batch.
    """

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self._index: Index[str] = Index()
        self._index.add("", filter)
        self._needles = _contained_by_misses(filter.condition)
        self._goes_by_origin = not names_in(filter.condition).isdisjoint(_OF_ORIGIN)
        self.searched = 0  # bytes that were matched, not only passed on

    def parts(self, batches: Iterable[StoredBatch], start: int, end: int) -> Iterator[LivePart]:
        """Yield the matching events of stored batches, which ascend, within these positions."""

        def kind(stored: StoredBatch) -> tuple[bool, Origin | None]:
            is_inside = start <= stored.first and stored.first + stored.count <= end
            if is_inside and self._wants_all(stored.raw):
                return True, None
            return False, _origin(stored) if self._goes_by_origin else None

        for (wants_all, _), run in groupby(batches, kind):
            if wants_all:
                yield from map(live_part, run)
            else:
                yield from self._search(list(run), start, end)

    def _wants_all(self, raw: bytes) -> bool:
        return self._needles is not None and not any(needle in raw for needle in self._needles)

    def _search(self, stored: Sequence[StoredBatch], start: int, end: int) -> Iterator[LivePart]:
        """Yield the matching events of batches that are matched as one."""
        joined = _joined(stored)
        self.searched += len(joined.raw)
        matched = self._index.match_rows(joined).rows.tolist()  # of the only key
        if not matched:
            return
        _check_places(joined, stored)
        for (is_whole, *_), found in groupby(_by_batch(stored, matched, start, end), _part_key):
            if is_whole:
                yield from (live_part(one.stored) for one in found)
            else:
                yield _part(joined, list(found))


def _contained_by_misses(condition: Condition) -> tuple[bytes, ...] | None:
    """Return bytes of which each event contains some that does not match, none if all match; None: unknown.

    A search for them is much quicker than to evaluate the filter that readers without a filter have.
    """
    match condition:
        case Literal(True):
            return ()
        case Not(FunctionCall("STARTS_WITH", ("type",), (str(prefix),))):
            return (prefix.encode(),)
        case Or((IsNull("channel"), Not(FunctionCall("STARTS_WITH", ("channel",), (str(prefix),))))):
            return (prefix.encode(),)
        case And(operands):
            found = [_contained_by_misses(one) for one in operands]
            return None if None in found else tuple(needle for one in found for needle in one or ())
    return None


def _origin(stored: StoredBatch) -> Origin:
    return Origin(stored.system, stored.epoch, stored.source)


# Joined batches


class _Found(NamedTuple):
    """Rows that match in one stored batch; in the joined batch its own begin at `base`."""

    stored: StoredBatch
    base: int
    rows: list[int]  # of the joined batch


def _joined(stored: Sequence[StoredBatch]) -> Batch:
    """Return the events of all these as one batch, with the origin of the first."""
    if len(stored) == 1:
        return Batch(stored[0].raw, _origin(stored[0]))
    head = array_head(sum(one.count for one in stored))
    return Batch(b"".join([head, *(memoryview(one.raw)[HEAD_SIZE:] for one in stored)]), _origin(stored[0]))


def _check_places(joined: Batch, stored: Sequence[StoredBatch]) -> None:
    """Raise CodecError if a batch has not as many events as it says: its rows would be taken for others."""
    offsets = joined.offsets
    bases = accumulate((one.count for one in stored), initial=0)
    places = accumulate((len(one.raw) - HEAD_SIZE for one in stored), initial=HEAD_SIZE)
    for base, place in zip(bases, places, strict=True):
        if offsets[base] != place:
            raise CodecError(
                "$", f"event {base} of those stored from {stored[0].first} on is not where it should be"
            )


def _by_batch(stored: Sequence[StoredBatch], matched: list[int], start: int, end: int) -> Iterator[_Found]:
    """Yield the batches in which rows match at these positions."""
    base = place = 0
    for one in stored:
        following = bisect_left(matched, base + one.count, place)
        if following > place:
            rows = matched[place:following]
            if one.first < start or one.first + one.count > end:
                low, high = start - one.first + base, end - one.first + base
                rows = [row for row in rows if low <= row < high]
            if rows:
                yield _Found(one, base, rows)
        base, place = base + one.count, following


def _part_key(found: _Found) -> tuple[Any, ...]:
    """Return what is the same for all batches of one part; first, whether a batch is a part as it is."""
    one = found.stored
    is_whole = len(found.rows) == one.count
    return is_whole, one.stored_us, one.system, one.epoch, one.source, one.first >> _SPAN_BITS


def _part(joined: Batch, found: Sequence[_Found]) -> LivePart:
    """Return the rows that match in batches of one origin that were stored at one time."""
    one, last = found[0].stored, found[-1].stored
    offsets = array("I")
    for some in found:
        shift = some.stored.first - one.first - some.base
        offsets.extend([row + shift for row in some.rows])
    raw = joined.raw_of([row for some in found for row in some.rows])
    count = last.first + last.count - one.first
    return LivePart(
        one.first, count, rows_bytes(offsets), one.system, one.epoch, one.source, one.stored_us, raw
    )
