"""Links of a node that are cut: when each counts as lost, and when one that is lost is looked for no more."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from tidings.overlay.records import LinkRecord
from tidings.timers import Timers

FORGET_S = 3600.0
"""How long a lost link is kept, and the record of a node that no links connect with this one any more."""
START_S = 30.0
"""How long after a start links that were known before may take to come up."""


class CutLinks:
    """Links by their neighbours; after `reroute_s` one that is cut is lost."""

    def __init__(self, reroute_s: float) -> None:
        self.reroute_s = reroute_s
        self._to_lose: Timers[str] = Timers()
        self._to_forget: Timers[str] = Timers()

    def __contains__(self, neighbour: str) -> bool:
        """Whether the link to a neighbour is cut, and will be lost."""
        return neighbour in self._to_lose

    def start(self, links: Iterable[LinkRecord], now: float) -> None:
        """Begin to wait for the links that were there before."""
        for link in links:
            if link.lost:
                self._to_forget.at(now + FORGET_S, link.neighbour)
            else:
                self._to_lose.at(now + max(START_S, self.reroute_s), link.neighbour)

    def note(self, neighbour: str, now: float, is_dead: bool) -> None:
        """A link was cut; if it, or the neighbour, was found dead, it is lost at once."""
        is_at_once = is_dead and self.reroute_s < inf
        self._to_lose.at(now if is_at_once else now + self.reroute_s, neighbour)

    def forget(self, neighbour: str) -> None:
        """A link is there again, or was removed."""
        self._to_lose.cancel(neighbour)
        self._to_forget.cancel(neighbour)

    def lost(self, now: float) -> list[str]:
        """Take out those that were cut for too long."""
        lost = list(self._to_lose.due(now))
        for neighbour in lost:
            self._to_forget.at(now + FORGET_S, neighbour)
        return lost

    def old(self, now: float) -> list[str]:
        """Return those that were lost for long; they are returned again later, unless they are forgotten."""
        old = list(self._to_forget.due(now))
        for neighbour in old:
            self._to_forget.at(now + FORGET_S, neighbour)
        return old

    @property
    def wake_at(self) -> float:
        """When something is due."""
        return min(self._to_lose.wake_at, self._to_forget.wake_at)
