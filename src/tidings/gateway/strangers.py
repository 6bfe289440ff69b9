"""Networks that send readings and never registered: these are advertised on their behalf, for a while.

They can't be asked for anything; they are only known by what they sent last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.gateway.checks import is_type
from tidings.gateway.effects import Effect
from tidings.gateway.offers import Offers
from tidings.leases import Leases

STRANGERS_MAX = 10_000
"""Networks that are known without having registered; readings of more are taken, but not advertised."""
TYPES_MAX = 20
"""Types of readings of one of them that are advertised."""
SILENT_S_MAX = 300.0
"""How long one of them is known after its last reading."""


class Stranger:
    """One network that never registered."""

    __slots__ = ("heard_at", "types")

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.types: set[str] = set()


class Strangers:
    """All of them."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._strangers: dict[str, Stranger] = {}
        self._leases: Leases[str] = Leases(lambda one: self._strangers[one].heard_at + SILENT_S_MAX)

    def __len__(self) -> int:
        return len(self._strangers)

    def heard(self, sensing_id: str, types: Iterable[str], now: float) -> list[Effect]:
        """Readings of these types came."""
        stranger = self._strangers.get(sensing_id)
        if stranger is None:
            if len(self._strangers) >= STRANGERS_MAX:
                return []
            stranger = self._strangers[sensing_id] = Stranger(now)
            self._leases.watch(sensing_id)
        stranger.heard_at = now
        effects: list[Effect] = []
        for type in types:
            if type not in stranger.types and len(stranger.types) < TYPES_MAX and is_type(type):
                stranger.types.add(type)
                effects += self._offers.add(type, None, None)
        return effects

    def forget(self, sensing_id: str, now: float) -> None:
        """It has registered, or was silent for too long; one that is not known is passed over."""
        self._leases.drop(sensing_id)
        stranger = self._strangers.pop(sensing_id, None)
        for type in stranger.types if stranger is not None else ():
            self._offers.remove(type, now)

    def wake(self, now: float) -> None:
        """Forget those who were silent for too long."""
        for sensing_id in self._leases.ended(now):
            self.forget(sensing_id, now)

    @property
    def wake_at(self) -> float:
        """When there is one to forget."""
        return self._leases.wake_at

    def __iter__(self) -> Iterator[tuple[str, Stranger]]:
        return iter(self._strangers.items())
