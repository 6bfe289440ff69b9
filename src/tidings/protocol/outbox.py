"""The outbox of a connection: first in, first out, and nothing leaves before what it promises is on disk.

What is put in need not be a whole frame: a frame that others send too is put in as its head, and the bytes
that they share.

Only what is *patient* lets others pass while it waits: an acceptance, which says nothing of what comes behind
it. So who acknowledges one message and asks for the next does not wait for the disk.
"""

from __future__ import annotations

import sys
from typing import Protocol

ROOM = 4 << 20
"""Bytes that may wait to be read by a client before its events wait where they can be dropped."""
SIZE_ANY = sys.maxsize
"""Bytes to be taken, where it does not matter how many."""


class AwaitsRoom(Protocol):
    """Has events to send when the outbox of a session has room for them."""

    def release(self) -> None:
        """Some of what was in the outbox has left."""


class Outbox:
    """Frames on their way to one peer; each leaves once the mark it waits for is durable."""

    __slots__ = ("_frames", "_mark_max", "_terms", "size")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._terms: list[tuple[int, bool]] = []  # of each frame: its mark, and whether it is patient
        self._mark_max = 0  # the latest mark that any frame has waited for
        self.size = 0
        """Bytes that wait."""

    def put(self, frame: bytes, mark: int = 0, is_patient: bool = False) -> None:
        """Add a frame that may leave when the mark is durable, and those before have left or let it pass."""
        self._frames.append(frame)
        self._terms.append((mark, is_patient))
        self.size += len(frame)
        if mark > self._mark_max:
            self._mark_max = mark

    def end(self, frame: bytes) -> None:
        """Add the last frame: nothing lets it pass."""
        self._terms = [(mark, False) for mark, _ in self._terms]
        self.put(frame)

    def take(self, durable: int, size_max: int = SIZE_ANY) -> list[bytes]:
        """The frames that may leave now, in order: one, then as many as have `size_max` bytes together."""
        if self._mark_max <= durable and self.size <= size_max:  # most often: all of them
            ready, self._frames, self._terms, self.size = self._frames, [], [], 0
            return ready
        return self._take_some(durable, size_max)

    def _take_some(self, durable: int, size_max: int) -> list[bytes]:
        ready: list[bytes] = []
        passed: list[int] = []
        size = place = 0
        for frame, (mark, is_patient) in zip(self._frames, self._terms, strict=True):
            if mark <= durable:
                if ready and size + len(frame) > size_max:
                    break
                ready.append(frame)
                size += len(frame)
            elif is_patient:
                passed.append(place)
            else:
                break
            place += 1
        if ready:
            self._frames[:place] = [self._frames[one] for one in passed]
            self._terms[:place] = [self._terms[one] for one in passed]
            self.size -= size
        return ready

    def waits_for(self, first: int) -> bool:
        """Whether a frame waits for this mark or a later one."""
        return any(mark >= first for mark, _ in self._terms)

    def __len__(self) -> int:
        return len(self._frames)
