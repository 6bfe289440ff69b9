"""Texts that strings must end with, or have in them: all that a string has are found in one look.

Ends are looked up by each length that is in use. Parts stand under a *gram*, a few characters of them, the
one that the fewest others stand under; a string is asked for each of its grams, and those who stand there are
compared. So a part costs nothing to strings that do not have its gram.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from tidings.matching.clues import Keys

END_MAX: Final = 64
"""Characters of an end that are looked up; of a longer one it is the last ones, and the rest is compared."""
GRAM_SIZES: Final = (8, 4, 2, 1)
"""Lengths of grams: a part has grams of the longest of these that fits it."""
FEW_PARTS: Final = 16
"""Parts that are quicker looked for one by one."""

Key = TypeVar("Key", bound=Hashable)


class Ends(Generic[Key]):
    """Keys by what a string must end with."""

    def __init__(self) -> None:
        self._by_size: dict[int, dict[str, dict[str, Keys[Key]]]] = {}  # by length, looked up text, whole end

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def add(self, end: str, key: Key) -> None:
        """Let a key have an end, which is not empty."""
        looked_up = end[-END_MAX:]
        ends = self._by_size.setdefault(len(looked_up), {}).setdefault(looked_up, {})
        ends.setdefault(end, {})[key] = None

    def remove(self, end: str, key: Key) -> None:
        """Take an end of a key out."""
        looked_up = end[-END_MAX:]
        of_size = self._by_size[len(looked_up)]
        ends = of_size[looked_up]
        del ends[end][key]
        if not ends[end]:
            del ends[end]
        if not ends:
            del of_size[looked_up]
        if not of_size:
            del self._by_size[len(looked_up)]

    def crowd(self, end: str) -> int:
        """How many keys have this end."""
        looked_up = end[-END_MAX:]
        return len(self._by_size.get(len(looked_up), {}).get(looked_up, {}).get(end, ()))

    def find(self, text: str, found: list[Keys[Key]]) -> None:
        """Add the keys whose ends a text has, each end's once."""
        for size, ends_of_size in self._by_size.items():
            ends = ends_of_size.get(text[-size:])
            if ends is not None:
                for end, keys in ends.items():
                    if size < END_MAX or text.endswith(end):
                        found.append(keys)


class Parts(Generic[Key]):
    """Keys by what a string must have in it."""

    def __init__(self) -> None:
        self._keys: dict[str, Keys[Key]] = {}
        self._grams: dict[str, str] = {}  # by part: the gram it stands under
        self._by_gram: dict[int, dict[str, Keys[str]]] = {}  # by length, gram: the parts

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, part: str, key: Key) -> None:
        """Let a key have a part, which is not empty."""
        if part not in self._keys:
            size = next(size for size in GRAM_SIZES if size <= len(part))
            parts = self._by_gram.setdefault(size, {})
            gram = min(_grams(part, size), key=lambda gram: (len(parts.get(gram, ())), gram))
            parts.setdefault(gram, {})[part] = None
            self._grams[part] = gram
        self._keys.setdefault(part, {})[key] = None

    def remove(self, part: str, key: Key) -> None:
        """Take a part of a key out."""
        del self._keys[part][key]
        if self._keys[part]:
            return
        del self._keys[part]
        gram = self._grams.pop(part)
        parts = self._by_gram[len(gram)]
        del parts[gram][part]
        if not parts[gram]:
            del parts[gram]
        if not parts:
            del self._by_gram[len(gram)]

    def crowd(self, part: str) -> int:
        """How many keys have this part."""
        return len(self._keys.get(part, ()))

    def find(self, text: str, found: list[Keys[Key]]) -> None:
        """Add the keys whose parts a text has in it, each part's once."""
        if len(self._keys) <= FEW_PARTS:
            for part, keys in self._keys.items():
                if part in text:
                    found.append(keys)
            return
        for size, parts in self._by_gram.items():
            for gram in parts.keys() & _grams(text, size):
                found += [self._keys[part] for part in parts[gram] if part in text]


def _grams(text: str, size: int) -> set[str]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}
