"""Journal of numbered messages in flight to the node, so that a new gateway counts none twice.

A gateway that dies may have passed on readings that it had not acknowledged. Its successor finds here which
numbers were sent under which of its own counters, asks the node for its counter, and so knows which were
stored. The others are forgotten, as their network sends them again.

A file of msgpack values, each led by its length in four bytes: the system and epoch under which events are
numbered, then `[counter, [[sensing-id, seq], …]]` before each batch leaves; the counter 0 stands for messages
stored in an earlier life. It survives the death of the process, and is not waited for to be on the disk.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tidings.errors import StoreError
from tidings.gateway.networks import WINDOW
from tidings.gateway.uplink import Journaled
from tidings.node import logs

SIZE_MAX = 2 << 20
"""Bytes of the file before it is written anew with what still matters, if that is less than half."""


class Life(Struct, array_like=True, frozen=True):
    """Name and epoch under which a gateway numbers its events."""

    system: str
    epoch: int


class _JournalEntry(Struct, array_like=True, frozen=True):
    counter: int
    numbers: list[Journaled]


_encode = msgspec.msgpack.Encoder().encode
_decode_life = msgspec.msgpack.Decoder(Life).decode
_decode_entry = msgspec.msgpack.Decoder(_JournalEntry).decode
_LENGTH = 4


class Journal:
    """Journal in a file; StoreError if it can't be opened. `previous` is the life before this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._size = 0
        self._size_max = SIZE_MAX
        self.previous: Life | None = None
        self._found: list[_JournalEntry] = []
        try:
            self._read(path.read_bytes())
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreError(str(path), f"can't be read: {error.strerror}") from None

    def begin(self, life: Life, counter: int) -> list[Journaled]:
        """Begin a new life; return the numbers of the one before that are stored up to this counter."""
        stored = [entry for entry in self._found if entry.counter <= counter]
        self._found = [_JournalEntry(0, numbers) for numbers in _latest(stored)]
        self._rewrite(life)
        return [one for entry in self._found for one in entry.numbers]

    def note(self, counter: int, numbers: list[Journaled]) -> None:
        """Note that these are sent now, with counters up to this one."""
        if self._file < 0:
            return
        try:
            self._write(_encode(_JournalEntry(counter, numbers)))
            if self._size > self._size_max:
                self._shrink()
        except OSError as error:
            self.close()
            logs.error("the journal of the gateway can't be written", problem=error.strerror)

    def close(self) -> None:
        """Stop writing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self, data: bytes) -> None:
        """Read as far as it is whole: the process may have died while it wrote."""
        pieces = list(_pieces(data))
        try:
            if pieces:
                self.previous = _decode_life(pieces[0])
                self._found = [_decode_entry(piece) for piece in pieces[1:]]
        except msgspec.DecodeError:
            raise StoreError(str(self._path), "is no journal of a gateway") from None

    def _shrink(self) -> None:
        """Write the file anew with what still matters."""
        self._read(self._path.read_bytes())
        assert self.previous is not None, "a journal begins with a life"
        counters = {one: entry.counter for entry in self._found for one in entry.numbers}
        kept = [one for numbers in _latest(self._found) for one in numbers]
        self._found = [_JournalEntry(counters[one], [one]) for one in kept]
        self.close()
        self._rewrite(self.previous)
        self._found = []
        self._size_max = max(SIZE_MAX, 2 * self._size)

    def _rewrite(self, life: Life) -> None:
        aside = self._path.with_suffix(".new")
        self._file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._size = 0
        self._write(_encode(life), *map(_encode, self._found))
        aside.replace(self._path)

    def _write(self, *pieces: bytes) -> None:
        data = b"".join(len(piece).to_bytes(_LENGTH, "big") + piece for piece in pieces)
        self._size += len(data)
        os.write(self._file, data)


def _pieces(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _LENGTH <= len(data):
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
        if end > len(data):
            return
        yield data[at + _LENGTH : end]
        at = end


def _latest(entries: list[_JournalEntry]) -> list[list[Journaled]]:
    """Return the latest numbers of each network, as many as a gateway remembers."""
    networks: dict[str, deque[Journaled]] = {}
    for entry in entries:
        for one in entry.numbers:
            networks.setdefault(one[0], deque(maxlen=WINDOW)).append(one)
    return [list(numbers) for numbers in networks.values()]
