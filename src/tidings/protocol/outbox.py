"""The outbox of a connection: first in, first out, and nothing leaves before what it promises is on disk."""

from __future__ import annotations

from collections import deque


class Outbox:
    """Frames on their way to one peer; each leaves once the mark it waits for is durable."""

    __slots__ = ("_items", "size")

    def __init__(self) -> None:
        self._items: deque[tuple[int, bytes]] = deque()
        self.size = 0
        """Bytes that wait."""

    def put(self, frame: bytes, mark: int = 0) -> None:
        """Add a frame that may leave when this mark is durable, and all before it have left."""
        self._items.append((mark, frame))
        self.size += len(frame)

    def take(self, durable: int) -> list[bytes]:
        """The frames that may leave now, in order."""
        items = self._items
        ready: list[bytes] = []
        while items and items[0][0] <= durable:
            ready.append(items.popleft()[1])
        self.size -= sum(map(len, ready))
        return ready

    def waits_for(self, first: int) -> bool:
        """Whether a frame waits for this mark or a later one."""
        return any(mark >= first for mark, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)
