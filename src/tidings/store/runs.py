"""How messages lie on disk: in *runs*, many to a row.

One row of sixty messages costs SQLite about as much as a few rows of one, so those of a commit are written
together. A run is never changed. Which of its messages are gone stands in a row of another table, `settled`,
a few bytes that every commit that takes some of them writes anew; with the last one both rows go. A message
that is changed is gone from its run and is in a later one.

The row of a run has the numbers of its messages before the messages themselves, so a store is opened without
reading these, and what is lost with a bad run can be told.
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
RUN_BYTES_MAX = 64 * 2**10  # what is lost with a bad one, save a message that is larger
# A larger message is a run of its own: there is little to save, and its space is free as soon as it is gone.
SHARED_BYTES_MAX = 8 * 2**10
_FIELDS_BYTES = 64  # what the other fields of a message take, about

# Reads all rows of RUN with the size of the content in its place.
FRONTS = """SELECT id, checksum, changed, packing, numbers, content_checksum, length(content)
    FROM run ORDER BY id"""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredMessage]).decode


class Run(Struct, gc=False, eq=False):
    """What is known of a run without its content."""

    key: int
    checksum: int
    size: int  # of its content
    numbers: array[int]  # of its messages, ascending; those that are gone too
    gone: int = 0  # which are: the lowest bit is for the first
    settled: int | None = None  # the checksum of the row that says so, if there is one
    is_stray: bool = False  # its numbers lie among those of other runs

    @property
    def all(self) -> int:
        """The bits of all its messages."""
        return (1 << len(self.numbers)) - 1

    @property
    def left(self) -> list[int]:
        """The numbers of the messages that are not gone."""
        return [number for index, number in enumerate(self.numbers) if not self.gone >> index & 1]

    @property
    def is_sparse(self) -> bool:
        """Whether so few are left that their space is wasted: fewer than a quarter."""
        return 4 * self.gone.bit_count() > 3 * len(self.numbers)

    def bits_of(self, numbers: Sequence[int]) -> int:
        """The bits of these of its messages, gone or not; the numbers ascend, and some may not be here."""
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
    """A row for RUN; `changed` is the number of the commit. Raises MissingExtra.

    The messages ascend, and all are to be compressed or none.
    """
    content = _encode(messages)
    packing, content = pack(content) if messages[0].compress else (PLAIN, content)
    numbers = array("Q", [message.number for message in messages])
    return sealed(RUN, key, (changed, packing, _big_endian(numbers).tobytes(), content))


def settled_row(key: int, changed: int, gone: int) -> Row:
    """A row for SETTLED; `changed` is the number of the commit."""
    return sealed(SETTLED, key, (changed, gone.to_bytes((gone.bit_length() + 7) // 8, "big")))


def run_of(row: Row) -> Run:
    """What a sound row of RUN says; the size of the content may stand in its place."""
    content = row[6]
    size = len(content) if isinstance(content, bytes) else cast(int, content)
    return Run(cast(int, row[0]), checksum_of(row), size, _big_endian(array("Q", cast(bytes, row[4]))))


def gone_of(row: Row) -> int:
    """What a sound row of SETTLED says."""
    return int.from_bytes(cast(bytes, row[3]), "big")


def messages_of(row: Row) -> list[StoredMessage]:
    """The messages in a sound and whole row of RUN, gone or not; raises PackingError, MissingExtra."""
    content = unpack(cast(int, row[3]), cast(bytes, row[6]))
    try:
        messages = _decode(content)
    except msgspec.MsgspecError as error:
        raise PackingError(f"can't be decoded: {error}") from error
    if run_of(row).numbers != array("Q", [message.number for message in messages]):
        raise PackingError("holds other messages than it says")
    return messages


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers in words: `1 to 5, 7`."""
    breaks = [index for index, (one, other) in enumerate(pairwise(numbers), start=1) if other != one + 1]
    parts = [numbers[begin:end] for begin, end in pairwise([0, *breaks, len(numbers)]) if begin < end]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts)


def _big_endian(numbers: array[int]) -> array[int]:
    """The same numbers for the disk, or from it."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
