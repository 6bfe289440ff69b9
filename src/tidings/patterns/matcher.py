"""Matches of a pattern in the events of all keys, as they come: watermark, late events, limits.

The watermark follows the newest event, `LATE` behind it. While nothing newer comes it goes on with the clock,
so that an absence is noticed when all are silent; the time that a node was down does not count. An event that
can't be used is returned with its reason, and never dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from tidings.patterns.pattern import Pattern
from tidings.patterns.runs import Found, KeyRuns, Row
from tidings.timers import Timers

KEYS_MAX = 100_000
"""Keys of one pattern at a node that have partial matches or waiting events; events of others are refused."""
WAITING_MAX = 100_000
"""Events of one pattern at a node that wait for the watermark; further ones are refused."""
KEY_SIZE, EVENT_SIZE = 600, 300
"""About how many bytes a key costs, and each event and each partial match of it."""

LATE, TOO_MANY_KEYS, TOO_MANY_WAITING = "late", "too many keys", "too many events wait"


class Matcher:
    """All keys of one pattern. `now` is steady time; keys are bytes, as `encode_key` makes them."""

    def __init__(self, pattern: Pattern, now: float, watermark_us: int | None = None) -> None:
        self.pattern = pattern
        self._keys: dict[bytes, KeyRuns] = {}
        self._due: Timers[bytes] = Timers()  # keys by the time to which the watermark must come
        self._waiting = self._weight = 0
        self._mark_us, self._marked_at = watermark_us, now

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return KEY_SIZE * len(self._keys) + EVENT_SIZE * self._weight

    @property
    def partial(self) -> int:
        """Number of keys with something to remember."""
        return len(self._keys)

    def watermark_us(self, now: float) -> int | None:
        """Return the time up to which all events have come; None if none has come yet."""
        if self._mark_us is None:
            return None
        return self._mark_us + int((now - self._marked_at) * 1e6)

    def offer(self, key: bytes, row: Row, now: float) -> str | None:
        """Take an event that is some step; why it is not used, None if it is."""
        mark = self.watermark_us(now)
        if mark is not None and row.time_us <= mark:
            return LATE
        runs = self._keys.get(key)
        if runs is None and len(self._keys) >= KEYS_MAX:
            return TOO_MANY_KEYS
        if self._waiting >= WAITING_MAX:
            return TOO_MANY_WAITING
        if runs is None:
            runs = self._keys[key] = KeyRuns(self.pattern.compiled)
        runs.offer(row)
        runs.weight += 1
        self._waiting += 1
        self._weight += 1
        self._due.by(row.time_us, key)
        newest = row.time_us - self.pattern.late_us - 1
        if mark is None or newest > mark:
            self._mark_us, self._marked_at = newest, now
        return None

    def advance(self, now: float, most: float = inf) -> Iterator[tuple[bytes, list[Found]]]:
        """Use what has come in time; yields each key that has changed, and what was found for it.

        `most`: after about so many steps, one for each key, event and run, the rest is for the next call.
        """
        mark = self.watermark_us(now)
        if mark is None:
            return
        for key in self._due.due(mark):
            runs = self._keys[key]
            waiting, weight = runs.waiting, runs.weight
            found = runs.advance(mark, most)
            used = waiting - runs.waiting
            self._waiting -= used
            self._weight += runs.weigh() - weight
            wake = runs.wake_us
            if wake is not None:
                self._due.at(wake, key)
            elif runs.is_idle:
                del self._keys[key]
            yield key, found
            most -= 1 + used * (1 + runs.runs)
            if most <= 0:
                return

    def is_due(self, now: float) -> bool:
        """Whether `advance` has something to do."""
        mark = self.watermark_us(now)
        return mark is not None and self._due.wake_at <= mark

    def wake_at(self) -> float:
        """Return when `advance` has something to do though nothing comes; inf: never."""
        due = self._due.wake_at
        if self._mark_us is None or due == inf:
            return inf
        return self._marked_at + (due - self._mark_us + 1) / 1e6

    # Storage

    def all_keys(self) -> list[bytes]:
        """Return all keys with something to remember."""
        return list(self._keys)

    def state(self, key: bytes) -> bytes | None:
        """Return the state of a key as bytes; None if there is nothing to remember."""
        runs = self._keys.get(key)
        return None if runs is None else runs.encode()

    def restore(self, key: bytes, state: bytes | None) -> None:
        """Give a key the state that it had; None: nothing."""
        before = self._keys.pop(key, None)
        self._due.cancel(key)
        if before is not None:
            self._waiting -= before.waiting
            self._weight -= before.weight
        if state is None:
            return
        runs = self._keys[key] = KeyRuns.decode(self.pattern.compiled, state)
        self._waiting += runs.waiting
        self._weight += runs.weigh()
        wake = runs.wake_us
        if wake is not None:
            self._due.at(wake, key)

    def forget_oldest(self) -> int:
        """Forget the key that has been there longest; how many events and partial matches that were."""
        key, runs = next(iter(self._keys.items()))
        self.restore(key, None)
        return runs.weight

    def clear(self) -> None:
        """Forget everything, so that nobody has to look for what is garbage."""
        self._keys.clear()
        self._due = Timers()
        self._waiting = self._weight = 0

    def reset(self, watermark_us: int | None, now: float) -> None:
        """Go back to an earlier watermark."""
        self._mark_us, self._marked_at = watermark_us, now


def encode_key(key: tuple[object, ...]) -> bytes:
    """Return a key as bytes; equal keys have equal bytes."""
    return msgspec.msgpack.encode(key)


def decode_key(data: bytes) -> tuple[object, ...]:
    """Return the key of its bytes."""
    return tuple(msgspec.msgpack.decode(data))
