"""Timers: keys with the moments at which they are due, the earliest first; leases and delays of retries.

    timers.at(now + 5, session)          # due in 5 s; a moment that was set before does not count any more
    timers.cancel(session)
    for session in timers.due(now): …    # to be called at `wake_at`

A key is anything hashable: a session, the number of a message, or what is to be called (`Alarms`). An entry
that was moved or cancelled lets go of its key at once, and stays in the heap until its moment has come or
until most entries are such. So to set and to cancel cost little however many there are.

A lease keeps something until a moment, unless its holder renews it:

    leases = Leases(lambda network: network.heard_at + network.lease_s)
    leases.watch(network)                       # when it comes, and whenever its end comes nearer
    network.heard_at = now                      # a renewal is no call
    for network in leases.ended(now): …         # to be called at `wake_at`

Who renews a lease often only notes when that was: a timer stands at the end that was known when it was set,
and is set again when it has gone off too early. All moments are of the clock that never jumps. A moment that
was stored is one of the wall clock, and becomes such a moment once, by `deadline`, when it is read: nothing
lives longer than the lease it was given, whatever the wall clock has been set to meanwhile.

Delays after failures in a row grow up to a maximum, and are spread by chance over the upper half of their
length, so that the clients of a node that was restarted do not come back all at once:

    backoff = Backoff(random.random)
    while not attempt():
        sleep(backoff.next_s())
    backoff.reset()
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Generic, TypeVar, overload

from tidings.steps import Steps

TIDY_AFTER = 1_000
"""Entries without a key, beside as many as there are others, before they are swept out."""
AT_ONCE = 64
"""Entries that are looked at in one step."""
CALLED_AT_ONCE = 16
"""Alarms that are called in one."""

RENEWALS_PER_LEASE = 3
"""How often a lease is renewed before it would end, so that a renewal may be late or lost."""
RETRY_S_MIN = 0.05
"""The first delay before a connection is made again."""
RETRY_S_MAX = 5.0
"""The longest one."""

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Keys with due times; of keys due at the same moment, the one that was set first comes first."""

    __slots__ = ("_entries", "_heap", "_made")

    def __init__(self) -> None:
        self._heap: list[list[Any]] = []  # moment, number, key or None
        self._entries: dict[Key, list[Any]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._entries))

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def at(self, moment: float, key: Key) -> Key:
        """Have a key due at a moment and at no other, never if that is inf; return the key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry[2] = None
        if moment < inf:
            self._made += 1
            entry = self._entries[key] = [moment, self._made, key]
            heappush(self._heap, entry)
            if len(self._heap) > 2 * len(self._entries) + TIDY_AFTER:
                self._heap = list(self._entries.values())
                heapify(self._heap)
        return key

    def by(self, moment: float, key: Key) -> None:
        """Have a key due at a moment, unless it is due earlier."""
        entry = self._entries.get(key)
        if entry is None or moment < entry[0]:
            self.at(moment, key)

    def cancel(self, key: Key | None) -> None:
        """Have a key not due any more; None, or one that is not set, is passed over."""
        entry = self._entries.pop(key, None)  # type: ignore[arg-type]  # None is never set
        if entry is not None:
            entry[2] = None

    def moment(self, key: Key) -> float:
        """Return when a key is due, inf if never."""
        entry = self._entries.get(key)
        return inf if entry is None else entry[0]

    @property
    def wake_at(self) -> float:
        """When something may be due. It can be earlier: no more than AT_ONCE cancelled ones are passed."""
        if self._heap and self._heap[0][2] is None:
            self._pass_over()
        return self._heap[0][0] if self._heap else inf

    def _pass_over(self) -> None:
        heap = self._heap
        for _ in range(AT_ONCE):
            if not heap or heap[0][2] is not None:
                break
            heappop(heap)

    def due(self, now: float, most: float = inf) -> Iterator[Key]:
        """Take out the keys that are due, also such as are set meanwhile; look at so many entries at most."""
        heap = self._heap
        while heap and heap[0][0] <= now and most > 0:
            most -= 1
            key = heappop(heap)[2]
            if key is not None:
                del self._entries[key]
                yield key
                heap = self._heap  # it may have been swept


class Alarms(Timers[Callable[[float], None]]):
    """Timers whose keys are what is to be called, with the time it is then."""

    __slots__ = ()

    def wake(self, now: float) -> Steps[None]:
        """Call all that is due, in steps; what that sets for now is called too."""
        while True:
            for act in self.due(now, CALLED_AT_ONCE):
                act(now)
            if self.wake_at > now:
                return
            yield


Alarm = Callable[[float], None]
"""Function that `Alarms` calls; kept by the caller that may cancel it."""


class Leases(Timers[Key]):
    """Leases by key; of those that end at the same moment, the one that was watched first comes first."""

    __slots__ = ("_ends_at",)

    def __init__(self, ends_at: Callable[[Key], float]) -> None:
        """`ends_at` returns when a lease ends as it stands, inf for never; called when its timer goes off."""
        super().__init__()
        self._ends_at = ends_at

    def watch(self, key: Key) -> None:
        """Look after a lease, until `cancel`; also to be called when it ends earlier than before."""
        self.by(self._ends_at(key), key)

    def ended(self, now: float, most: float = inf) -> Iterator[Key]:
        """Take out those that have ended; at most so many are looked at."""
        for key in self.due(now, most):
            ends_at = self._ends_at(key)
            if ends_at <= now:
                yield key
            else:
                self.at(ends_at, key)


def deadline(moment: float, wall: float, now: float, limit_s: float = inf) -> float:
    """Return when `now` reaches a moment of the wall clock as that stands, in `limit_s` at the latest."""
    return now + min(moment - wall, limit_s)


@overload
def granted_s(lease_s: float, most_s: float | None) -> float: ...
@overload
def granted_s(lease_s: float | None, most_s: float | None) -> float | None: ...
def granted_s(lease_s: float | None, most_s: float | None) -> float | None:
    """Return how long a lease is that was asked for, and is given for so long at most; None: no end."""
    return min((float(one) for one in (lease_s, most_s) if one is not None), default=None)


def renewal_s(lease_s: float) -> float:
    """Return how often the holder of a lease is to renew it."""
    return lease_s / RENEWALS_PER_LEASE


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
