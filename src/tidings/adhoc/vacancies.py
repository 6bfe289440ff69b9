"""Places that this host may hold when their holder is gone: it was named by that, which has signed it.

The first that was named stands in when the lease of the holder has ended, the next one if it has heard of no
other for a renewal more, and so on. The statement of a holder that came last counts: a holder that names
others, or none, takes back what it said before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidings.adhoc.frames import Naming
from tidings.timers import Timers


class Vacancy(NamedTuple):
    """A place that may become vacant, and by which naming this host may hold it then."""

    name: str
    kind: str
    naming: Naming
    ends_at: float
    """When the lease of its holder does, as far as this host knows."""


class Vacancies:
    """Places for which one host was named; a further one waits `turn_s` longer for those before it."""

    def __init__(self, host: str, turn_s: float) -> None:
        self._host = host
        self._turn_s = turn_s
        self._known: dict[str, Vacancy] = {}
        self._turns: Timers[str] = Timers()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[Vacancy]:
        return iter(list(self._known.values()))

    def get(self, name: str) -> Vacancy | None:
        """The place of this name, if this host was named for it."""
        return self._known.get(name)

    @property
    def wake_at(self) -> float:
        """When this host may have to stand in."""
        return self._turns.wake_at

    def note(self, name: str, kind: str, naming: Naming | None, ends_at: float) -> bool:
        """Note who may hold a place after its holder, whose lease ends then; whether that has changed."""
        before = self._known.get(name)
        if naming is None or self._host not in naming.deputies:
            self.forget(name)
            return before is not None
        after = self._known[name] = Vacancy(name, kind, naming, ends_at)
        self._turns.at(ends_at + naming.deputies.index(self._host) * self._turn_s, name)
        return before != after

    def forget(self, name: str) -> None:
        """Do not stand in for a place."""
        self._known.pop(name, None)
        self._turns.cancel(name)

    def due(self, now: float) -> Iterator[Vacancy]:
        """Return the places for which it is the turn of this host."""
        for name in self._turns.due(now):
            yield self._known[name]
