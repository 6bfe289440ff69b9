"""Index of conditions that demand one value: `number = 7 AND color = 'blue'` is filed under `number` and 7.

A message is compared only with the conditions filed under one of its own values, so thousands of consumers
that each wait for a reply of their own cost nothing while others' replies come, in plain Python too. If a
condition demands several values, it is filed under the one with the fewest others: the most selective one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from tidings.event import Event, Value
from tidings.filters import Filter
from tidings.filters.tree import And, Compare, Condition, Literal, Name

NAMES_MAX = 16
"""Names under which conditions may be filed: each of them is looked up for every message."""

Key = TypeVar("Key", bound=Hashable)


class Equalities(Generic[Key]):
    """Index of conditions that demand one value; each condition has a key."""

    def __init__(self) -> None:
        self._places: dict[str, dict[Value, dict[Key, Filter]]] = {}
        self._keys: dict[Key, tuple[str, Value]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def items(self) -> Iterator[tuple[Key, Filter]]:
        """Yield the keys and their conditions."""
        for key, (name, value) in self._keys.items():
            yield key, self._places[name][value][key]

    def add(self, key: Key, wanted: Filter) -> bool:
        """Add a condition; return False if it demands no value, or none under a name there is room for."""
        has_room = len(self._places) < NAMES_MAX
        demands = [one for one in _demands(wanted.condition) if has_room or one[0] in self._places]
        if not demands:
            return False
        # The last of equals: specific conditions are mostly written after general ones.
        name, value = min(reversed(demands), key=self._crowd)
        self._places.setdefault(name, {}).setdefault(value, {})[key] = wanted
        self._keys[key] = name, value
        return True

    def _crowd(self, demand: tuple[str, Value]) -> int:
        """Number of conditions filed there."""
        name, value = demand
        return len(self._places.get(name, {}).get(value, ()))

    def remove(self, key: Key) -> None:
        """Remove the condition of a key."""
        name, value = self._keys.pop(key)
        values = self._places[name]
        del values[value][key]
        if not values[value]:
            del values[value]
        if not values:
            del self._places[name]

    def match(self, event: Event) -> list[Key]:
        """Return the keys whose conditions the event matches."""
        found: list[Key] = []
        for name, values in self._places.items():
            candidates = values.get(event.get(name))
            if candidates is not None:
                found += [key for key, wanted in candidates.items() if wanted.matches(event)]
        return found


def _demands(condition: Condition) -> Iterator[tuple[str, Value]]:
    """Yield names and the values that they must have, whatever else holds."""
    for operand in condition.operands if isinstance(condition, And) else (condition,):
        match operand:
            case Compare("=", Name(name), Literal(value)):
                yield name, value
