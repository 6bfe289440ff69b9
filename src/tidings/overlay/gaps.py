"""Gaps of a link: what is not kept for a neighbour any more, until it has noted that.

What a neighbour has confirmed itself is kept for those beyond it. When that goes, it is a gap only for others
that take the neighbour's place (`moving.py`): the neighbour has it on its own disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tidings.protocol.broker import Broker
from tidings.protocol.missed import MissedRange
from tidings.store.interface import RecordKind


class LinkGap(Struct, frozen=True):
    """The stored record of a gap of a link; `is_beyond`: the neighbour itself has what is missed."""

    missed: MissedRange
    is_beyond: bool = False


LINK_GAPS: RecordKind[tuple[str, str, str], LinkGap] = RecordKind("link-gap", LinkGap)


class LinkGaps:
    """Gaps that are to be reported to one neighbour: one range for each first node and epoch."""

    def __init__(self, broker: Broker, node: str) -> None:
        self._broker = broker
        self._node = node
        self._gaps: dict[tuple[str, str], LinkGap] = {}

    def restore(self) -> None:
        """Go on with what was stored before the start."""
        for (node, first, number), gap in LINK_GAPS.known(self._broker.state).items():
            if node == self._node:
                self._gaps[first, number] = gap

    def __len__(self) -> int:
        return len(self._gaps)

    def __iter__(self) -> Iterator[MissedRange]:
        """All of them, those for others too."""
        return iter([gap.missed for gap in self._gaps.values()])

    @property
    def due(self) -> list[MissedRange]:
        """What is to be reported to the neighbour."""
        return [gap.missed for gap in self._gaps.values() if not gap.is_beyond]

    @property
    def are_due(self) -> bool:
        """Whether anything is to be reported to the neighbour."""
        return any(not gap.is_beyond for gap in self._gaps.values()) if self._gaps else False

    def add(self, missed: MissedRange, is_beyond: bool = False) -> None:
        """Note a gap."""
        key = missed.node, f"{missed.epoch}{'+' if is_beyond else ''}"
        known = self._gaps.get(key)
        gap = LinkGap(missed if known is None else known.missed.joined(missed), is_beyond)
        if known != gap:
            self._gaps[key] = gap
            self._broker.store(LINK_GAPS.set((self._node, *key), gap))

    def reported(self, reported: Sequence[MissedRange]) -> None:
        """Forget what the neighbour has noted, unless more of it is missed by now; and what it has itself."""
        for key, gap in list(self._gaps.items()):
            if gap.is_beyond or gap.missed in reported:
                self._drop(key)

    def clear(self) -> None:
        """Forget all."""
        for key in list(self._gaps):
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        del self._gaps[key]
        self._broker.store(LINK_GAPS.drop((self._node, *key)))
