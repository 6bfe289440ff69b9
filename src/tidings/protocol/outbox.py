"""The outbox of a connection: first in, first out, and nothing leaves before what it promises is on disk.

What is put in need not be a whole frame: a frame that others send too is put in as its head, and the bytes
that they share.

Only what is *patient* lets others pass while it waits: an acceptance, which says nothing of what comes behind
it. So who acknowledges one message and asks for the next does not wait for the disk.
"""

from __future__ import annotations

from collections import deque

ROOM = 4 << 20
"""Bytes that may wait to be read by a client before its events wait where they can be dropped."""


class Outbox:
    """Frames on their way to one peer; each leaves once the mark it waits for is durable."""

    __slots__ = ("_items", "size")

    def __init__(self) -> None:
        self._items: deque[tuple[int, bytes, bool]] = deque()
        self.size = 0
        """Bytes that wait."""

    def put(self, frame: bytes, mark: int = 0, is_patient: bool = False) -> None:
        """Add a frame that may leave when the mark is durable, and those before have left or let it pass."""
        self._items.append((mark, frame, is_patient))
        self.size += len(frame)

    def end(self, frame: bytes) -> None:
        """Add the last frame: nothing lets it pass."""
        self._items = deque((mark, before, False) for mark, before, _ in self._items)
        self.put(frame)

    def take(self, durable: int, size_max: int | None = None) -> list[bytes]:
        """The frames that may leave now, in order: one, then as many as have `size_max` bytes together."""
        items = self._items
        if len(items) == 1 and items[0][0] <= durable:  # most often
            self.size = 0
            return [items.popleft()[1]]
        ready: list[bytes] = []
        passed: list[tuple[int, bytes, bool]] = []
        size = 0
        while items and (items[0][0] <= durable or items[0][2]):
            if ready and size_max is not None and size + len(items[0][1]) > size_max:
                break
            item = items.popleft()
            if item[0] <= durable:
                ready.append(item[1])
                size += len(item[1])
            else:
                passed.append(item)
        items.extendleft(reversed(passed))
        self.size -= size
        return ready

    def waits_for(self, first: int) -> bool:
        """Whether a frame waits for this mark or a later one."""
        return any(mark >= first for mark, _, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)
