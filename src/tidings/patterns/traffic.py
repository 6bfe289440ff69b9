"""What a pattern costs links: the events that it has used, by the side from which they came, and its matches.

The node of the client gets all matches in any case; at another node they have to travel. So a side outweighs
the others if more comes from there than from all others and than matches would have to go the other way. A
pattern that moves takes its partial matches along, and those of a pattern that moved to and fro would cost
more than is saved: so a side must have twice as much as all others, over some time, and more in number than
there are keys.
"""

from __future__ import annotations

EVENTS_MIN = 100
"""Events that a pattern must have used, and that a move must save, before it moves for their sake."""
WINDOW_S = 10.0
"""How long they are counted at least."""
TIMES_MORE = 2
"""How many times as much must come from one side as there is of all else."""


class Traffic:
    """Events of one pattern at one node, since it came or since they were last compared."""

    def __init__(self) -> None:
        self._sides: dict[str, int] = {}
        self._found = self._total = 0
        self._since: float | None = None
        self._enough = EVENTS_MIN

    def note(self, side: str, events: int, now: float) -> None:
        """Count events that came from a neighbour, or with "" from this node."""
        if self._since is None:
            self._since = now
        self._sides[side] = self._sides.get(side, 0) + events
        self._total += events

    def find(self, matches: int) -> None:
        """Count matches that were found."""
        self._found += matches

    @property
    def is_due(self) -> bool:
        """Whether there is enough to compare."""
        return self._total >= self._enough

    def heaviest(self, asker: str, keys: int, now: float) -> str | None:
        """Return the side to which the pattern should go, and begin anew; None if none outweighs the others.

        Matches go to the side of the `asker`, "" if that is this node; so many keys have partial matches.
        """
        if self._since is None or now < self._since + WINDOW_S or self._total < EVENTS_MIN + keys:
            self._enough = max(self._total + EVENTS_MIN // 10, EVENTS_MIN + keys)
            return None
        weights = dict(self._sides)
        weights[asker] = weights.get(asker, 0) + self._found
        side, most = max(weights.items(), key=lambda one: one[1])
        rest = sum(weights.values()) - most
        self.clear()
        return side if most > TIMES_MORE * rest and most - rest >= EVENTS_MIN + keys else None

    def clear(self) -> None:
        """Begin anew: the pattern has moved."""
        self.__init__()  # type: ignore[misc]  # as it began
