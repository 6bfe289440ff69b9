"""Suspicion: which neighbours have fallen silent, and whether it is their link, the node itself, or neither.

A neighbour that is well is heard at least every ping (`pinging.py`). One that is silent for longer is
suspected, and others that have links with it are asked since when they have heard nothing of it:

| state | what happens | effect | state then |
| --- | --- | --- | --- |
| heard | silent for too long | Suspect | suspected |
| suspected | heard | Trust: it was slow | heard |
| suspected | another node hears it | Lose: the link is dead | gone |
| suspected | still silent a ping later, and no node that was asked hears it | Lose: the node is dead | gone |
| heard, suspected | its connection is gone | | cut |
| cut | for too long | Suspect | cut, suspected |
| cut, suspected | another node hears it | Lose: the link is dead | gone |
| cut, suspected | no other node hears it | | gone: it may be starting again |
| gone | its link is up | | heard |

A verdict concerns the link of this node alone, so a node that lies when it is asked harms no other link. A
neighbour whose round trips are long is given as much time more. Time in which this node itself stood still,
or came late to its work, does not count as silence of others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

from msgspec import Struct

ASK_S = 1.0
"""How long nodes that are asked may take to answer."""
SLOW_S_MAX = 10.0
"""What a neighbour with long round trips is given at most, beside the time that all have."""
PINGS_MIN = 2
"""Pings that must be missed, however short the time is after which a neighbour is suspected."""

Cause = Literal["link", "node", "alone"]
"""What is dead: the link, as another node hears the neighbour; the node; or no other node could be asked."""


class Suspect(Struct, frozen=True):
    """Report that a neighbour is silent, and ask others: how many goes to `asked`, answers to `answered`."""

    neighbour: str
    silent_s: float
    is_cut: bool


class Trust(Struct, frozen=True):
    """Report that a neighbour that was suspected is heard again: it was slow."""

    neighbour: str
    silent_s: float


class Lose(Struct, frozen=True):
    """Part from a neighbour, and let events go another way at once."""

    neighbour: str
    cause: Cause
    silent_s: float


SuspicionEffect = Suspect | Trust | Lose


class _Watched:
    """What is known of one neighbour."""

    def __init__(self, now: float) -> None:
        self.silent_since = now
        self.is_cut = False
        self.suspected_at: float | None = None
        self.heard_at_suspicion = -inf  # when it was heard last, when it was suspected
        self.waiting = 0  # answers that are still to come
        self.answers = 0  # answers that have come


class Suspicion:
    """Judge of the silence of neighbours: `suspect_s` after they were heard last; 0 for never.

    `heard_at` returns when something of a neighbour has arrived, `round_trip_s` how long its answers take.
    """

    def __init__(
        self,
        suspect_s: float,
        ping_s: float,
        heard_at: Callable[[str], float],
        round_trip_s: Callable[[str], float],
    ) -> None:
        self._suspect_s = max(suspect_s, PINGS_MIN * ping_s) if suspect_s and ping_s else 0.0
        self._look_s = ping_s
        self._heard_at = heard_at
        self._round_trip_s = round_trip_s
        self._watched: dict[str, _Watched] = {}
        self._wake_at = inf

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        return self._wake_at

    @property
    def suspected(self) -> list[str]:
        """The neighbours that are suspected now."""
        return [one for one, watched in self._watched.items() if watched.suspected_at is not None]

    def silent_s(self, neighbour: str, now: float) -> float | None:
        """How long a neighbour with a link was silent; None if there is no link to it."""
        watched = self._watched.get(neighbour)
        return None if watched is None or watched.is_cut else max(0.0, now - self._last_heard(neighbour))

    def is_recent(self, silent_s: float) -> bool:
        """Whether another node that has not heard a neighbour for so long hears it still."""
        return silent_s <= self._suspect_s / 2

    # Links

    def link_up(self, neighbour: str, now: float) -> None:
        """The link to a neighbour is there."""
        if self._suspect_s:
            self._watched[neighbour] = _Watched(now)
            self._wake_at = min(self._wake_at, now + self._look_s)

    def link_down(self, neighbour: str, now: float) -> None:
        """Its connection is gone."""
        if neighbour in self._watched:
            watched = self._watched[neighbour] = _Watched(now)
            watched.is_cut = True

    def forget(self, neighbour: str) -> None:
        """It was removed, or called lost."""
        self._watched.pop(neighbour, None)
        if not self._watched:
            self._wake_at = inf

    # Time

    def wake(self, now: float) -> list[SuspicionEffect]:
        """Look who is silent, every ping; if that is late, this node was at fault."""
        if now < self._wake_at:
            return []
        late_s = now - self._wake_at
        self._wake_at = now + self._look_s
        effects: list[SuspicionEffect] = []
        for neighbour, watched in list(self._watched.items()):
            watched.silent_since = min(now, self._last_heard(neighbour) + late_s)
            if watched.suspected_at is not None:
                watched.suspected_at += late_s
            if late_s <= self._look_s:  # otherwise what has arrived meanwhile is read first
                effects += self._look(neighbour, watched, now)
        if not self._watched:
            self._wake_at = inf
        return effects

    def _last_heard(self, neighbour: str) -> float:
        """When a neighbour was heard last, or would have been but for this node."""
        watched = self._watched[neighbour]
        return (
            watched.silent_since if watched.is_cut else max(watched.silent_since, self._heard_at(neighbour))
        )

    def _look(self, neighbour: str, watched: _Watched, now: float) -> list[SuspicionEffect]:
        silent_s = now - watched.silent_since
        if watched.suspected_at is not None:
            if not watched.is_cut and self._heard_at(neighbour) > watched.heard_at_suspicion:
                return self._trust(neighbour, watched, now)
            is_over = watched.waiting <= 0 or now >= watched.suspected_at + ASK_S
            return self._judge(neighbour, watched, now) if is_over else []
        if silent_s < self._suspect_s + min(self._round_trip_s(neighbour), SLOW_S_MAX):
            return []
        watched.suspected_at, watched.heard_at_suspicion = now, self._heard_at(neighbour)
        return [Suspect(neighbour, silent_s, watched.is_cut)]

    def _trust(self, neighbour: str, watched: _Watched, now: float) -> list[SuspicionEffect]:
        silent_s = now - watched.heard_at_suspicion
        self._watched[neighbour] = _Watched(self._heard_at(neighbour))
        return [Trust(neighbour, silent_s)]

    # What others say

    def asked(self, neighbour: str, nodes: int) -> None:
        """So many nodes will answer about a neighbour."""
        watched = self._watched.get(neighbour)
        if watched is not None:
            watched.waiting = nodes

    def answered(self, neighbour: str, silent_s: float | None, now: float) -> list[SuspicionEffect]:
        """One has answered how long it has not heard a neighbour; None if it does not know."""
        watched = self._watched.get(neighbour)
        if watched is None or watched.suspected_at is None:
            return []
        watched.waiting -= 1
        watched.answers += silent_s is not None
        if silent_s is not None and self.is_recent(silent_s):
            return self._lose(neighbour, watched, "link", now)
        return []

    def _judge(self, neighbour: str, watched: _Watched, now: float) -> list[SuspicionEffect]:
        """No other node hears it."""
        if watched.is_cut:
            self.forget(neighbour)
            return []
        return self._lose(neighbour, watched, "node" if watched.answers else "alone", now)

    def _lose(self, neighbour: str, watched: _Watched, cause: Cause, now: float) -> list[SuspicionEffect]:
        self.forget(neighbour)
        return [Lose(neighbour, cause, now - watched.silent_since)]
