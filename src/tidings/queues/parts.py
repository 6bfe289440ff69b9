"""Further parts of bodies that are too long for one frame: kept beside their message, and gone with it."""

from __future__ import annotations

Part = tuple[int, bytes]
"""A part has a number of its own, under which it is stored."""


class Parts:
    """The further parts of the messages of one queue; most messages have none."""

    def __init__(self) -> None:
        self._parts: dict[int, list[Part]] = {}

    def add(self, number: int, parts: list[Part]) -> int:
        """Keep the parts of a message; how many bytes they have."""
        if not parts:
            return 0
        self._parts[number] = parts
        return sum(len(part) for _, part in parts)

    def remove(self, number: int) -> list[Part]:
        """The message is gone: its parts, which are kept no longer."""
        return self._parts.pop(number, []) if self._parts else []

    def of(self, number: int) -> list[Part]:
        """The parts of a message."""
        return self._parts.get(number, []) if self._parts else []
