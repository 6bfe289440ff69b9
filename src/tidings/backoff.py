"""Delays after failures in a row: each up to twice as long as the one before, to a maximum, spread by chance.

    backoff = Backoff(random.random)
    while not attempt():
        sleep(backoff.next_s())
    backoff.reset()

A delay is spread over the upper half of its length, so that the clients of a node that was restarted do not
come back all at once. Randomness is given by the caller; without any, delays are exact.
"""

from __future__ import annotations

from collections.abc import Callable

RETRY_S_MIN = 0.05
"""The first delay before a connection is made again."""
RETRY_S_MAX = 5.0
"""The longest one."""


class Backoff:
    """The delays of one thing that is tried again."""

    __slots__ = ("_delay_s", "_first_s", "_most_s", "_random")

    def __init__(
        self, random: Callable[[], float] | None, first_s: float = RETRY_S_MIN, most_s: float = RETRY_S_MAX
    ) -> None:
        """`random` returns numbers from 0 to 1; None: delays are not spread."""
        self._random = random
        self._first_s = self._delay_s = first_s
        self._most_s = most_s

    def reset(self) -> None:
        """Begin with the first delay again: an attempt has succeeded."""
        self._delay_s = self._first_s

    def next_s(self) -> float:
        """Return how long to wait after one more failure."""
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, self._most_s)
        return delay_s if self._random is None else delay_s * (0.5 + 0.5 * self._random())
