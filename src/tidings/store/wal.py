"""SQLite's write-ahead log, read without SQLite: to find damage that SQLite takes for the end of the log.

The log is a header and frames, each a page with its number; the last frame of a commit says so. A frame has a
checksum over itself that begins with the checksum of the frame before. SQLite reads up to the first bad frame
and ignores the rest without an error, which is right for a commit that a power cut interrupted, and loses all
commits after a flipped bit. But a frame can be checked against the *written* checksum of the frame before it,
so here every frame is judged by itself. A bad frame with a good commit behind it is damage; bad frames at the
end are a commit that was never finished.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

PAGE_SIZE = 4096

_HEADER_SIZE, _FRAME_HEAD_SIZE = 32, 24
_FRAME_SIZE = _FRAME_HEAD_SIZE + PAGE_SIZE
_LITTLE, _BIG = 0x377F0682, 0x377F0683  # the log names the byte order of its checksums
_NATIVE = "<" if sys.byteorder == "little" else ">"


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
