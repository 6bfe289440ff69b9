"""Messages on disk, in *runs*, many to a row.

One row of sixty messages costs SQLite about as much as a few rows of one, so those of a commit are written
together. A run is never changed. The set of its messages that are gone is in a row of another table,
`settled`, a few bytes that every commit that removes some of them writes anew; with the last one both rows
go. A message that is changed is gone from its run and is in a later one.

The row of a run has the numbers of its messages before the messages themselves, so a store is opened without
reading these, and the loss of a bad run can be reported by number. In memory the *stock* knows all messages
and their runs, at eight bytes a message.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import cast

import msgspec
from msgspec import Struct

from tidings.store.interface import StoredMessage
from tidings.store.packing import PLAIN, PackingError, pack, unpack
from tidings.store.records import RUN, SETTLED, Row, checksum_of, sealed

RUN_COUNT_MAX = 64
RUN_BYTES_MAX = 64 * 2**10  # most that is lost with a bad run, except a larger message
# A larger message is a run of its own: there is little to save, and its space is free as soon as it is gone.
SHARED_BYTES_MAX = 8 * 2**10
# A run with few messages left keeps its whole space. When such runs have more than this together, the oldest
# are rewritten: apart from this much, at least a quarter of the messages of every run on disk is still there.
SPARSE_BYTES_MAX = 16 * 2**20
_FIELDS_BYTES = 64  # size of the other fields of a message, about

# Reads all rows of RUN with the size of the content in its place.
FRONTS = """SELECT id, checksum, changed, packing, numbers, content_checksum, length(content)
    FROM run ORDER BY id"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredMessage]).decode


class MessageRun(Struct, gc=False, eq=False):
    """Facts about a run that are known without its content."""

    key: int
    checksum: int
    size: int  # of its content
    numbers: array[int]  # of its messages, ascending; including those that are gone
    gone: int = 0  # a bit set of those; the lowest bit is for the first
    settled: int | None = None  # the checksum of the row with `gone`, if there is one
    is_stray: bool = False  # its numbers lie among those of other runs

    @property
    def all(self) -> int:
        """Bits of all its messages."""
        return (1 << len(self.numbers)) - 1

    @property
    def left(self) -> list[int]:
        """Numbers of the messages that are not gone."""
        return [number for index, number in enumerate(self.numbers) if not self.gone >> index & 1]

    @property
    def is_sparse(self) -> bool:
        """Whether so few are left that their space is wasted: fewer than a quarter."""
        return 4 * self.gone.bit_count() > 3 * len(self.numbers)

    def bits_of(self, numbers: Sequence[int]) -> int:
        """Return the bits of these messages, gone or not; the numbers ascend, and some may be unknown."""
        mine, count = self.numbers, len(numbers)
        first = bisect_left(mine, numbers[0])
        if mine[first : first + count] == array("Q", numbers):  # as messages mostly go: one after the other
            return (1 << count) - 1 << first
        bits = 0
        for number in numbers:
            place = bisect_left(mine, number, first)
            if place < len(mine) and mine[place] == number:
                bits |= 1 << place
        return bits


def runs_of(messages: list[StoredMessage]) -> Iterator[list[StoredMessage]]:
    """Divide messages into runs, in their order."""
    lengths = [len(one.raw) for one in messages]
    sizes = [one + _FIELDS_BYTES if one <= SHARED_BYTES_MAX else RUN_BYTES_MAX for one in lengths]
    ends = list(accumulate(sizes))
    begin = size = 0
    while begin < len(messages):
        end = bisect_right(ends, size + RUN_BYTES_MAX, begin, min(begin + RUN_COUNT_MAX, len(messages)))
        yield messages[begin:end]
        begin, size = end, ends[end - 1]


def run_row(key: int, changed: int, messages: list[StoredMessage]) -> Row:
    """Return a row for RUN; `changed` is the number of the commit. Raises MissingExtra.

    The messages ascend, and all are to be compressed or none.
    """
    content = _encode(messages)
    packing, content = pack(content) if messages[0].compress else (PLAIN, content)
    numbers = array("Q", [message.number for message in messages])
    return sealed(RUN, key, (changed, packing, _big_endian(numbers).tobytes(), content))


def settled_row(key: int, changed: int, gone: int) -> Row:
    """Return a row for SETTLED; `changed` is the number of the commit."""
    return sealed(SETTLED, key, (changed, gone.to_bytes((gone.bit_length() + 7) // 8, "big")))


def run_of(row: Row) -> MessageRun:
    """Decode a sound row of RUN; the size of the content may stand in its place."""
    content = row[6]
    size = len(content) if isinstance(content, bytes) else cast(int, content)
    return MessageRun(cast(int, row[0]), checksum_of(row), size, _big_endian(array("Q", cast(bytes, row[4]))))


def gone_of(row: Row) -> int:
    """Decode a sound row of SETTLED."""
    return int.from_bytes(cast(bytes, row[3]), "big")


def messages_of(row: Row) -> list[StoredMessage]:
    """Return the messages in a sound and whole row of RUN, gone or not; raises PackingError, MissingExtra."""
    content = unpack(cast(int, row[3]), cast(bytes, row[6]))
    try:
        messages = _decode(content)
    except msgspec.MsgspecError as error:
        raise PackingError(f"can't be decoded: {error}") from error
    if run_of(row).numbers != array("Q", [message.number for message in messages]):
        raise PackingError("holds other messages than it says")
    return messages


def spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words: `1 to 5, 7`."""
    breaks = [index for index, (one, other) in enumerate(pairwise(numbers), start=1) if other != one + 1]
    parts = [numbers[begin:end] for begin, end in pairwise([0, *breaks, len(numbers)]) if begin < end]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


def _big_endian(numbers: array[int]) -> array[int]:
    """Convert numbers to the byte order of the disk, or back."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class Stock:
    """Runs of a database. Speed is its contract, as every put and every get comes here.

    Numbers mostly grow from commit to commit, so most runs stand one behind the other and a message is found
    by bisecting. What does not fit between the others is *stray*: messages that were changed, came late, or
    are compressed beside others that are not; each of those has an entry of its own.
    """

    def __init__(self) -> None:
        self.runs: dict[int, MessageRun] = {}
        self.last = 0  # no message ever had a higher number
        self._firsts: list[int] = []  # the first number of each run in order
        self._ordered: list[MessageRun] = []
        self._strays: dict[int, MessageRun] = {}
        self._sparse: dict[int, MessageRun] = {}  # by key, the one that has been sparse for longest first
        self._sparse_size = 0

    def has(self, number: int) -> bool:
        """Whether there is a message of that number."""
        return bool(self.locate([number]))

    def locate(self, numbers: list[int]) -> dict[int, int]:
        """Return the bits of these messages in their runs, by the keys of the runs.

        The numbers ascend; unknown ones are left out.
        """
        found: dict[int, int] = {}
        if self._strays:
            for number in numbers:
                run = self._strays.get(number)
                if run is not None:
                    found[run.key] = found.get(run.key, 0) | run.bits_of((number,))
        for run, here in self._in_order(numbers):
            bits = run.bits_of(here) & ~run.gone
            if bits:
                found[run.key] = bits
        return found

    def overdue(self, count_max: int) -> list[MessageRun]:
        """Return the sparse runs to be rewritten, at most so many."""
        found: list[MessageRun] = []
        excess = self._sparse_size - SPARSE_BYTES_MAX
        for run in self._sparse.values():
            if excess <= 0 or len(found) == count_max:
                break
            found.append(run)
            excess -= run.size
        return found

    def in_order(self) -> list[tuple[int, int]]:
        """Return the first number and the key of each run, in order."""
        return sorted((run.numbers[0], key) for key, run in self.runs.items())

    def add(self, run: MessageRun) -> None:
        """Add a run; its messages replace those of the same numbers in other runs."""
        self.runs[run.key] = run
        self.last = max(self.last, run.numbers[-1])
        place = self._place(run)
        if place is None or self._strays:
            for key, bits in self.locate(run.left).items():
                other = self.runs[key]
                self.settle(other, other.gone | bits, other.settled)
        if place is None:
            run.is_stray = True
            self._strays.update(dict.fromkeys(run.left, run))
        else:
            self._firsts.insert(place, run.numbers[0])
            self._ordered.insert(place, run)
        self._weigh(run)

    def settle(self, run: MessageRun, gone: int, settled: int | None) -> None:
        """Mark these messages of a run as gone; `settled` is the checksum of the row that says so."""
        if run.is_stray:
            for number in run.left:
                del self._strays[number]
        run.gone, run.settled = gone, settled
        if run.is_stray:
            self._strays.update(dict.fromkeys(run.left, run))
        self._weigh(run)

    def remove(self, run: MessageRun) -> None:
        """Remove a run with all its messages."""
        del self.runs[run.key]
        if self._sparse.pop(run.key, None) is not None:
            self._sparse_size -= run.size
        if run.is_stray:
            for number in run.left:
                del self._strays[number]
        else:
            place = bisect_left(self._firsts, run.numbers[0])
            del self._firsts[place], self._ordered[place]

    def _in_order(self, numbers: list[int]) -> Iterator[tuple[MessageRun, list[int]]]:
        """Yield each run whose numbers may be among these, with those between its first and its last."""
        begin = 0
        while begin < len(numbers):
            place = bisect_right(self._firsts, numbers[begin]) - 1
            end = begin
            if place >= 0:
                run = self._ordered[place]
                end = bisect_right(numbers, run.numbers[-1], begin)
                if end > begin:
                    yield run, numbers[begin:end]
            begin = max(end, begin + 1)

    def _place(self, run: MessageRun) -> int | None:
        """Return the place of a run between the others, None if it does not fit."""
        place = bisect_right(self._firsts, run.numbers[0])
        if place > 0 and self._ordered[place - 1].numbers[-1] >= run.numbers[0]:
            return None
        if place < len(self._firsts) and self._firsts[place] <= run.numbers[-1]:
            return None
        return place

    def _weigh(self, run: MessageRun) -> None:
        if run.is_sparse and run.key not in self._sparse:
            self._sparse[run.key] = run
            self._sparse_size += run.size
