"""How many messages a second a queue hands out: a token bucket.

A message handed out costs a token; tokens come at the rate of the queue, up to those of BURST_S. A search
that was begun with enough tokens may end with too few: then the bucket is in debt, and others wait longer.
"""

from __future__ import annotations

BURST_S = 0.1
"""Seconds whose tokens a bucket holds, at least one token."""


class TokenBucket:
    """The tokens of one queue."""

    __slots__ = ("_at", "_capacity", "_rate", "tokens")

    def __init__(self, rate: float, now: float, tokens: float | None = None) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self.tokens = self._capacity if tokens is None else tokens
        self._at = now

    def available(self, now: float) -> int:
        """Return how many messages may be handed out now."""
        self.tokens = min(self._capacity, self.tokens + (now - self._at) * self._rate)
        self._at = now
        return max(0, int(self.tokens + _ROUNDING))

    def take(self, count: int = 1) -> None:
        """Messages are handed out."""
        self.tokens -= count

    @property
    def wake_at(self) -> float:
        """When the next message may be handed out."""
        return self._at + max(0.0, 1.0 - self.tokens) / self._rate


_ROUNDING = 1e-6
"""A token that is there but for the rounding of moments is there."""
