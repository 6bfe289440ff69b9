"""Leases: something is kept until a moment, unless its holder renews it.

    leases = Leases(lambda network: network.heard_at + network.lease_s)
    leases.watch(network)                       # when it comes, and whenever its end comes nearer
    network.heard_at = now                      # a renewal is no call
    for network in leases.ended(now): …         # to be called at `wake_at`

Who renews a lease often only notes when that was: a timer stands at the end that was known when it was set,
and is set again when it has gone off too early. All moments are of the clock that never jumps. A moment that
was stored is one of the wall clock, and becomes such a moment once, by `deadline`, when it is read: nothing
lives longer than the lease it was given, whatever the wall clock has been set to meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import inf
from typing import Generic, TypeVar, overload

from tidings.timers import Timers

RENEWALS_PER_LEASE = 3
"""How often a lease is renewed before it would end, so that a renewal may be late or lost."""

Key = TypeVar("Key", bound=Hashable)


class Leases(Generic[Key]):
    """Leases by key; of those that end at the same moment, the one that was watched first comes first."""

    __slots__ = ("_ends_at", "_timers")

    def __init__(self, ends_at: Callable[[Key], float]) -> None:
        """`ends_at` returns when a lease ends as it stands, inf for never; called when its timer goes off."""
        self._ends_at = ends_at
        self._timers: Timers[Key] = Timers()

    def watch(self, key: Key) -> None:
        """Look after a lease; also to be called when it ends earlier than before."""
        self._timers.by(self._ends_at(key), key)

    def drop(self, key: Key) -> None:
        """Give up a lease, if it is watched."""
        self._timers.cancel(key)

    @property
    def wake_at(self) -> float:
        """When a lease may have ended; it can be earlier than that."""
        return self._timers.wake_at

    def ended(self, now: float, most: float = inf) -> Iterator[Key]:
        """Take out those that have ended; at most so many are looked at."""
        for key in self._timers.due(now, most):
            ends_at = self._ends_at(key)
            if ends_at <= now:
                yield key
            else:
                self._timers.at(ends_at, key)


def deadline(moment: float, wall: float, now: float, limit_s: float = inf) -> float:
    """Return when `now` reaches a moment of the wall clock as that stands, in `limit_s` at the latest."""
    return now + min(moment - wall, limit_s)


@overload
def granted_s(lease_s: float, most_s: float | None) -> float: ...
@overload
def granted_s(lease_s: float | None, most_s: float | None) -> float | None: ...
def granted_s(lease_s: float | None, most_s: float | None) -> float | None:
    """Return how long a lease is that was asked for, and is given for so long at most; None is for ever."""
    return min((float(one) for one in (lease_s, most_s) if one is not None), default=None)


def renewal_s(lease_s: float) -> float:
    """Return how often the holder of a lease is to renew it."""
    return lease_s / RENEWALS_PER_LEASE
