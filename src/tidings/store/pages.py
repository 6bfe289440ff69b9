"""Files of a database at rest, read without SQLite: its log, and its pages.

The *log* is read to find damage that SQLite takes for the end of the log. It is a header and frames, each a
page with its number; the last frame of a commit says so. A frame has a checksum over itself that begins with
the checksum of the frame before. SQLite reads up to the first bad frame and ignores the rest without an
error, which is right for a commit that a power cut interrupted, and loses all commits after a flipped bit.
But a frame can be checked against the *written* checksum of the frame before it, so here every frame is
judged by itself. A bad frame with a good commit behind it is damage; bad frames at the end are a commit that
was never finished.

The *pages* are read in files that SQLite will not read any more, after
https://www.sqlite.org/fileformat2.html. A table is a tree whose leaves hold the rows; here every leaf is
found by itself, so damage to the upper parts of a tree costs nothing, and damage to one row costs that row.
The result is only what the bytes say: the caller checks each row by its own checksum.

Deleted rows remain in pages that are no longer used. So each place says if its page belongs to a tree and if
SQLite lists it as free; where damage makes these two contradict, the caller has to judge.

Bytes of users are never taken for a row: a row is only looked for where a leaf or its neighbour in the leaf
says one begins, and a page that continues a row begins with a page number, not with the mark of a leaf.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from msgspec import Struct

from tidings.store.records import HEAD_BEFORE, TABLES, TABLES_BEFORE, Row

PAGE_SIZE = 4096

_HEADER_SIZE, _FRAME_HEAD_SIZE = 32, 24
_FRAME_SIZE = _FRAME_HEAD_SIZE + PAGE_SIZE
_LITTLE, _BIG = 0x377F0682, 0x377F0683  # the log names the byte order of its checksums
_NATIVE = "<" if sys.byteorder == "little" else ">"

_INTERIOR, _LEAF = 0x05, 0x0D
_LOCAL_MAX = PAGE_SIZE - 35
_LOCAL_MIN = (PAGE_SIZE - 12) * 32 // 255 - 23
_MORE = PAGE_SIZE - 4  # capacity of a continuation page
_ROOTS = range(2, 2 + len(TABLES_BEFORE))  # of the tables that were always there; a later one is anywhere
_SCHEMA_AT = 100  # offset of the leaf with the schema in the first page
_WIDTHS = {table.width for table in (*TABLES, HEAD_BEFORE)}
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


# The log


class WalFrame(Struct):
    """Page as one commit left it."""

    page: int
    ends_commit: bool
    is_good: bool
    content: bytes


def log_of(database: Path) -> Path:
    """Return the path of a database's log."""
    return database.with_name(database.name + "-wal")


class WalLog(Struct):
    """Good frames of all commits in a log, in order, and the state of the rest."""

    frames: list[WalFrame]
    is_damaged: bool  # SQLite would lose some of these
    ends_in_zeros: bool  # commits may have been there that can't be read any more


def read_log(database: Path) -> WalLog:
    """Read the log of a database, if there is one.

    A commit with a bad page is taken without that page, for later frames show that it was finished; the last
    commit counts only if it is whole.
    """
    log = log_of(database)
    data = log.read_bytes() if log.exists() else b""
    has_header = _is_good_header(data[:_HEADER_SIZE])
    frames = list(_frames(data, has_header))
    frames = frames[: _end(frames)]
    good = [frame for frame in frames if frame.is_good]
    is_damaged = bool(good) and not (has_header and len(good) == len(frames))
    rest = data[_HEADER_SIZE + len(frames) * _FRAME_SIZE :] if has_header else data
    return WalLog(good, is_damaged, len(rest) >= _HEADER_SIZE and not any(rest[-_FRAME_SIZE:]))


def _end(frames: list[WalFrame]) -> int:
    """Return the number of frames of finished commits: a commit is finished once a good frame follows it."""
    last_good = max((index for index, frame in enumerate(frames) if frame.is_good), default=-1)
    begin = 0
    for index, frame in enumerate(frames[: last_good + 1]):
        if frame.ends_commit and index < last_good:
            begin = index + 1
    last_commit = frames[begin : last_good + 1]
    if last_commit and last_commit[-1].ends_commit and all(frame.is_good for frame in last_commit):
        return last_good + 1
    return begin


def _frames(data: bytes, has_header: bool) -> Iterator[WalFrame]:
    """Yield all frames of this generation of the log, good or bad; those of earlier ones have other salts."""
    order, salts = _NATIVE, data[_HEADER_SIZE + 8 : _HEADER_SIZE + 16]
    if has_header:
        order, salts = _order(data), data[16:24]
    before = data[24:_HEADER_SIZE]
    starts = range(_HEADER_SIZE, len(data) - _FRAME_SIZE + 1, _FRAME_SIZE)
    end = max((at + 1 for at in starts if data[at + 8 : at + 16] == salts), default=0)
    for at in range(_HEADER_SIZE, end, _FRAME_SIZE):
        head, content = data[at : at + _FRAME_HEAD_SIZE], data[at + _FRAME_HEAD_SIZE : at + _FRAME_SIZE]
        number, pages = struct.unpack(">II", head[:8])
        is_good = head[8:16] == salts and _checksum(head[:8] + content, before, order) == head[16:]
        yield WalFrame(number, pages != 0, is_good and number > 0, content)
        before = head[16:]


def _order(header: bytes) -> str:
    return "<" if int.from_bytes(header[:4], "big") == _LITTLE else ">"


def _is_good_header(header: bytes) -> bool:
    magic = int.from_bytes(header[:4], "big")
    if len(header) < _HEADER_SIZE or magic not in (_LITTLE, _BIG):
        return False
    return _checksum(header[:24], bytes(8), _order(header)) == header[24:]


def _checksum(data: bytes, before: bytes, order: str) -> bytes:
    one, two = struct.unpack(">II", before)
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return struct.pack(">II", one, two)


# Pages


class RowPlace(Struct, frozen=True, gc=False):
    """The number of a leaf, the offset of a row in it, and the frame if it is not the newest."""

    leaf: int
    offset: int
    frame: int | None = None
    is_in_tree: bool = False  # the leaf is reached from the root of a table
    is_free: bool = False  # the leaf is listed as free

    @property
    def is_old(self) -> bool:
        """Whether tree and free list agree that the row no longer counts."""
        return self.frame is not None or (self.is_free and not self.is_in_tree)


class Pages:
    """All pages of the database and of the commits in its log; use as a context."""

    def __init__(self, database: Path) -> None:
        self._file = os.open(database, os.O_RDONLY)
        log = read_log(database)
        self._frames, self.has_log_damage = log.frames, log.is_damaged
        self._log = {frame.page: index for index, frame in enumerate(self._frames)}
        size = os.fstat(self._file).st_size
        self.count = max([-(-size // PAGE_SIZE), *self._log])
        self._roots = {*_ROOTS, *_later_roots(self.page(1))}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def page(self, number: int) -> bytes:
        """Return the newest page of that number; pages after the end of a truncated file are zeros."""
        logged = self._log.get(number)
        if logged is not None:
            return self._frames[logged].content
        return os.pread(self._file, PAGE_SIZE, (number - 1) * PAGE_SIZE).ljust(PAGE_SIZE, b"\0")

    def places(self) -> Iterator[RowPlace]:
        """Yield the places where rows begin or may begin: in the newest pages, then in older versions."""
        in_trees, free = self._in_trees(), self._listed_free()
        for number in self._leaves():
            for offset in _offsets(self.page(number)):
                yield RowPlace(number, offset, None, number in in_trees, number in free)
        for index, frame in enumerate(self._frames):
            if frame.content[0] == _LEAF and self._log[frame.page] != index:
                for offset in _offsets(frame.content):
                    yield RowPlace(frame.page, offset, index)

    def _in_trees(self) -> set[int]:
        """Return the pages that are reached from the roots of our tables."""
        found: set[int] = set()
        waiting = list(self._roots)
        while waiting:
            number = waiting.pop()
            if number not in found and 1 < number <= self.count:
                found.add(number)
                page = self.page(number)
                if page[0] == _INTERIOR:
                    waiting.extend(_children(page))
        return found

    def _listed_free(self) -> set[int]:
        """Return the pages listed as free: a chain that begins in the first page, each with a list."""
        free: set[int] = set()
        trunk = int.from_bytes(self.page(1)[32:36], "big")
        while 1 < trunk <= self.count and trunk not in free:
            page = self.page(trunk)
            count = min(int.from_bytes(page[4:8], "big"), (PAGE_SIZE - 8) // 4)
            free.add(trunk)
            free.update(struct.unpack(f">{count}I", page[8 : 8 + 4 * count]))
            trunk = int.from_bytes(page[:4], "big")
        return free

    def _leaves(self) -> list[int]:
        """Return pages that say they are leaves, and those that a tree takes for leaves whatever they say."""
        leaves, interiors = set(self._roots), set()
        children: set[int] = set()
        for number in range(2, self.count + 1):
            page = self.page(number)
            if page[0] == _LEAF:
                leaves.add(number)
            elif page[0] == _INTERIOR:
                interiors.add(number)
                children.update(_children(page))
        found = leaves | (children - interiors)
        return sorted(number for number in found if 1 < number <= self.count)

    def row(self, place: RowPlace) -> Row | None:
        """Return the row at that place, as the statement that wrote it gave it, or None where none can be.

        If its end can't be reached, that part is zeros, so that the good part before it is there.
        """
        page = self.page(place.leaf) if place.frame is None else self._frames[place.frame].content
        cell = _cell(page, place.offset)
        if cell is None:
            return None
        key, size, start = cell
        payload = self._payload(page, start, size)
        values = None if payload is None else _values(payload)
        return None if values is None else (key, *values[1:])

    def _payload(self, page: bytes, start: int, size: int) -> bytes | None:
        local = _local_size(size)
        parts = [page[start : start + local]]
        if size == local:
            return parts[0]
        if size > self.count * PAGE_SIZE:
            return None
        following = int.from_bytes(page[start + local : start + local + 4], "big")
        rest = size - local
        while rest > 0:
            if not 1 < following <= self.count:
                break
            more = self.page(following)
            parts.append(more[4 : 4 + min(rest, _MORE)])
            following = int.from_bytes(more[:4], "big")
            rest -= _MORE
        return b"".join(parts).ljust(size, b"\0")


def _later_roots(first: bytes) -> Iterator[int]:
    """Yield the first pages of the tables of later formats, by the schema in the first page of all."""
    later = {table.name.encode() for table in TABLES} - {table.name.encode() for table in TABLES_BEFORE}
    count = min(int.from_bytes(first[_SCHEMA_AT + 3 : _SCHEMA_AT + 5], "big"), len(TABLES))
    for at in range(_SCHEMA_AT + 8, _SCHEMA_AT + 8 + 2 * count, 2):
        cell = _cell(first, int.from_bytes(first[at : at + 2], "big"))
        values = None if cell is None else _values(first[cell[2] : cell[2] + cell[1]])
        if values is not None and values[1] in later and isinstance(values[3], int):
            yield values[3]


def _children(page: bytes) -> Iterator[int]:
    yield int.from_bytes(page[8:12], "big")
    count = min(int.from_bytes(page[3:5], "big"), (PAGE_SIZE - 12) // 2)
    for at in range(12, 12 + 2 * count, 2):
        offset = int.from_bytes(page[at : at + 2], "big")
        yield int.from_bytes(page[offset : offset + 4], "big")


def _offsets(page: bytes) -> Iterator[int]:
    """Yield the offsets where the leaf says rows begin: by its list, by its content area, and after each row.

    Rows lie one behind the other, so a damaged list costs no row that has a good neighbour.
    """
    count = min(int.from_bytes(page[3:5], "big"), (PAGE_SIZE - 8) // 2)
    waiting = [int.from_bytes(page[at : at + 2], "big") for at in range(8, 8 + 2 * count, 2)]
    waiting.append(int.from_bytes(page[5:7], "big"))
    seen: set[int] = set()
    while waiting:
        offset = waiting.pop()
        cell = None if offset in seen else _cell(page, offset)
        seen.add(offset)
        if cell is not None:
            _, size, start = cell
            local = _local_size(size)
            waiting.append(start + local + (0 if local == size else 4))
            yield offset


def _cell(page: bytes, offset: int) -> tuple[int, int, int] | None:
    """Return the key of a row, the size of its record, and the offset of that in the page."""
    size, offset = _number(page, offset)
    key, offset = _number(page, offset)
    if size == 0 or size < 0 or offset + _local_size(size) > PAGE_SIZE:
        return None
    return key, size, offset


def _local_size(size: int) -> int:
    """Return how many bytes of a record of that size lie in the leaf itself."""
    if size <= _LOCAL_MAX:
        return size
    fitting = _LOCAL_MIN + (size - _LOCAL_MIN) % _MORE
    return fitting if fitting <= _LOCAL_MAX else _LOCAL_MIN


def _values(record: bytes) -> Row | None:
    """Return the values of a record, or None if no row of ours has such values."""
    end, at = _number(record, 0)
    kinds: list[int] = []
    while at < end and len(kinds) < max(_WIDTHS):
        kind, at = _number(record, at)
        kinds.append(kind)
    if at != end or len(kinds) not in _WIDTHS:
        return None
    values: list[int | bytes | None] = []
    for kind in kinds:
        size = _size(kind)
        if size is None or at + size > len(record):
            return None
        values.append(_value(kind, record[at : at + size]))
        at += size
    return tuple(values) if at == len(record) else None


def _size(kind: int) -> int | None:
    if kind in (0, 8, 9):
        return 0
    if kind in _INTEGER_SIZES:
        return _INTEGER_SIZES[kind]
    return (kind - 12) // 2 if kind >= 12 else None  # of bytes, or of a text, which only the schema has


def _value(kind: int, data: bytes) -> int | bytes | None:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    return data if kind >= 12 else int.from_bytes(data, "big", signed=True)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of one to nine bytes; return it and the next offset. Bytes past the end read as zeros."""
    value = 0
    for index in range(at, at + 8):
        byte = data[index] if index < len(data) else 0
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, index + 1
    last = data[at + 8] if at + 8 < len(data) else 0
    value = value << 8 | last
    return value - (1 << 64) if value >> 63 else value, at + 9
