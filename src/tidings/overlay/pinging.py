"""Pings on the links of a node: how long a neighbour takes to answer, and how many pings it has not answered.

Each end of a link pings the other every `ping_s`, whatever else is said on it, so each hears something of a
neighbour that is well. A round trip lasts from the ping to its answer at this node's end; it includes the
time that either node takes to come to it, so the least of some is nearest to what the network takes.

    pinging.link_up(neighbour, now)             the next `wake` sends it the first ping
    for ping in pinging.wake(now): …            at `wake_at`
    pinging.answered(neighbour, number, now)    the answer to that ping
    pinging.of(neighbour)                       its round trips
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from msgspec import Struct

SAMPLES_MAX = 32
"""Round trips of a link that are kept."""
UNANSWERED_MAX = 64
"""Pings of a link whose answers are waited for; the oldest beyond these counts as lost."""


class SendPing(Struct, frozen=True):
    """Send a neighbour a ping with this number; its answer, with the same, goes to `answered`."""

    neighbour: str
    number: int


class RoundTrips:
    """Last round trips of one link, in seconds, the oldest first."""

    def __init__(self) -> None:
        self.samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self.sent = 0  # pings that were sent over it, in all connections of this life
        self.lost = 0  # of these, how many were not answered before their connection was gone
        self._sent_at: dict[int, float] = {}  # when each was sent that has no answer yet

    @property
    def least_s(self) -> float | None:
        """The shortest of them; None before the first."""
        return min(self.samples, default=None)

    @property
    def longest_s(self) -> float:
        """The longest of them; 0 before the first."""
        return max(self.samples, default=0.0)

    def begin(self, number: int, now: float) -> None:
        """A ping leaves."""
        self.sent += 1
        self._sent_at[number] = now
        if len(self._sent_at) > UNANSWERED_MAX:
            del self._sent_at[next(iter(self._sent_at))]
            self.lost += 1

    def end(self, number: int, now: float) -> float | None:
        """Return how long a ping took whose answer has come; None if none was waited for."""
        sent_at = self._sent_at.pop(number, None)
        if sent_at is None:
            return None
        self.samples.append(max(0.0, now - sent_at))
        return self.samples[-1]

    def cut(self) -> None:
        """The connection is gone, and with it the answers that were under way."""
        self.lost += len(self._sent_at)
        self._sent_at.clear()


class Pinging:
    """Pings to all neighbours with links, every `ping_s`; none if that is 0.

    `on_sample` is called with each round trip: the neighbour, and how long it took.
    """

    def __init__(self, ping_s: float) -> None:
        self.on_sample: Callable[[str, float], None] = lambda _neighbour, _round_trip_s: None
        self._ping_s = ping_s
        self._links: dict[str, RoundTrips] = {}
        self._due: dict[str, None] = {}  # neighbours whose links are up
        self._numbers = 0
        self._wake_at = inf

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called; inf while there is no link."""
        return self._wake_at

    def of(self, neighbour: str) -> RoundTrips:
        """Return the round trips of a link, also of one that is cut now."""
        return self._links.get(neighbour) or RoundTrips()

    def link_up(self, neighbour: str, now: float) -> None:
        """The link to a neighbour is there."""
        self._links.setdefault(neighbour, RoundTrips())
        self._due[neighbour] = None
        if self._ping_s:
            self._wake_at = now

    def link_down(self, neighbour: str) -> None:
        """It is gone."""
        if neighbour in self._due:
            del self._due[neighbour]
            self._links[neighbour].cut()
        if not self._due:
            self._wake_at = inf

    def forget(self, neighbour: str) -> None:
        """It was removed."""
        self.link_down(neighbour)
        self._links.pop(neighbour, None)

    def answered(self, neighbour: str, number: int, now: float) -> None:
        """A neighbour has answered a ping; an answer to none is passed over."""
        found = None if neighbour not in self._due else self._links[neighbour].end(number, now)
        if found is not None:
            self.on_sample(neighbour, found)

    def wake(self, now: float) -> list[SendPing]:
        """Return the pings that are due."""
        if now < self._wake_at:
            return []
        self._wake_at = now + self._ping_s if self._due else inf
        pings = []
        for neighbour in self._due:
            self._numbers += 1
            self._links[neighbour].begin(self._numbers, now)
            pings.append(SendPing(neighbour, self._numbers))
        return pings
