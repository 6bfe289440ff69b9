"""Tables of clues (`clues.py`): one look-up finds all clues that a string fits.

Topic patterns stand in a tree of levels. At each level the walk goes on to the child of that name and to the
one for any name. It costs a step for each node on its way: a few for a topic, and never more than there are
nodes.

Texts that strings must end with are looked up by each length that is in use. Texts that strings must contain
are filed under a *gram*, a few characters of them, the one with the fewest others; each gram of a string is
looked up, and the parts under it are compared. So a part costs nothing to strings that do not have its gram.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

from tidings.filters.topics import HIDDEN
from tidings.matching.clues import Keys, Path

END_MAX: Final = 64
"""Characters of an end that are looked up; of a longer one the last ones, and the rest is compared."""
GRAM_SIZES: Final = (8, 4, 2, 1)
"""Lengths of grams: a part has grams of the longest of these that fits it."""
FEW_PARTS: Final = 16
"""Parts that are searched for one by one, which is quicker for so few."""

Key = TypeVar("Key", bound=Hashable)

_EMPTY: dict[Any, Any] = {}  # shared by all nodes, most of which have only one of their tables


# Topics


class _Node(Generic[Key]):
    """Node of the tree of topic levels: patterns that end here, and those that match longer topics too."""

    __slots__ = ("any", "children", "here", "more")

    def __init__(self) -> None:
        self.children: dict[str, _Node[Key]] = _EMPTY
        self.any: _Node[Key] | None = None
        self.here: Keys[Key] = _EMPTY
        self.more: Keys[Key] = _EMPTY

    @property
    def is_bare(self) -> bool:
        return not (self.children or self.any or self.here or self.more)

    def child(self, level: str | None) -> _Node[Key]:
        """Return the child of a level, which must exist."""
        found = self.any if level is None else self.children[level]
        assert found is not None
        return found

    def make_child(self, level: str | None) -> _Node[Key]:
        if level is None:
            self.any = self.any or _Node()
            return self.any
        if not self.children:
            self.children = {}
        return self.children.setdefault(level, _Node())

    def put(self, key: Key, here: bool, more: bool) -> None:
        """File a key here, for topics that end here, for longer ones or for both."""
        if here:
            self.here = self.here or {}
            self.here[key] = None
        if more:
            self.more = self.more or {}
            self.more[key] = None

    def drop_child(self, level: str | None) -> None:
        if level is None:
            self.any = None
        else:
            del self.children[level]


class TopicLevels(Generic[Key]):
    """Keys by topic pattern, in one spelling; if it hides, leading wildcards do not match a leading `$`."""

    def __init__(self, separator: str, hides: bool) -> None:
        self._separator = separator
        self._hides = hides
        self._root: _Node[Key] = _Node()
        self._depths: dict[int, int] = {}  # number of patterns by number of levels
        self._deepest = 0

    def __bool__(self) -> bool:
        return bool(self._depths)

    def add(self, path: Path, key: Key) -> None:
        """Add a pattern of a key, which must not have it yet."""
        depth = len(path.levels)
        self._depths[depth] = self._depths.get(depth, 0) + 1
        self._deepest = max(self._deepest, depth)
        node = self._root
        for reached, level in enumerate(path.levels):
            node.put(key, path.fewest <= reached, more=False)
            node = node.make_child(level)
        node.put(key, path.fewest <= depth, path.is_open)

    def remove(self, path: Path, key: Key) -> None:
        """Remove a pattern of a key, and the nodes that become empty."""
        depth = len(path.levels)
        self._depths[depth] -= 1
        if not self._depths[depth]:
            del self._depths[depth]
            self._deepest = max(self._depths, default=0)
        nodes = list(self._way(path))
        for node in nodes:
            node.here.pop(key, None)
        nodes[-1].more.pop(key, None)
        for reached in range(depth, 0, -1):
            if nodes[reached].is_bare:
                nodes[reached - 1].drop_child(path.levels[reached - 1])

    def _way(self, path: Path) -> Iterator[_Node[Key]]:
        node = self._root
        yield node
        for level in path.levels:
            node = node.child(level)
            yield node

    def crowd(self, path: Path) -> int:
        """Number of keys with this pattern."""
        node = self._root
        for level in path.levels:
            following = node.any if level is None else node.children.get(level)
            if following is None:
                return 0
            node = following
        return len(node.more if path.is_open else node.here)

    def find(self, topic: str, found: list[Keys[Key]]) -> None:
        """Append the keys whose patterns match a topic, each pattern's once."""
        levels = topic.split(self._separator, self._deepest)
        nodes = [self._root]
        if self._hides and topic.startswith(HIDDEN):
            child = self._root.children.get(levels.pop(0))
            nodes = [] if child is None else [child]
        for level in levels:
            following: list[_Node[Key]] = []
            for node in nodes:
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                child = node.any
                if child is not None:
                    following.append(child)
                if node.more:
                    found.append(node.more)
            if not following:
                return
            nodes = following
        found += [node.here for node in nodes if node.here]


# Texts


class Ends(Generic[Key]):
    """Keys by the text that a string must end with."""

    def __init__(self) -> None:
        self._by_size: dict[int, dict[str, dict[str, Keys[Key]]]] = {}  # by length, looked-up text, whole end

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def add(self, end: str, key: Key) -> None:
        """Add an end of a key; it is not empty."""
        looked_up = end[-END_MAX:]
        ends = self._by_size.setdefault(len(looked_up), {}).setdefault(looked_up, {})
        ends.setdefault(end, {})[key] = None

    def remove(self, end: str, key: Key) -> None:
        """Remove an end of a key."""
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
        """Number of keys with this end."""
        looked_up = end[-END_MAX:]
        return len(self._by_size.get(len(looked_up), {}).get(looked_up, {}).get(end, ()))

    def find(self, text: str, found: list[Keys[Key]]) -> None:
        """Append the keys whose ends a text has, each end's once."""
        for size, ends_of_size in self._by_size.items():
            ends = ends_of_size.get(text[-size:])
            if ends is not None:
                for end, keys in ends.items():
                    if size < END_MAX or text.endswith(end):
                        found.append(keys)


class TextParts(Generic[Key]):
    """Keys by the text that a string must contain."""

    def __init__(self) -> None:
        self._keys: dict[str, Keys[Key]] = {}
        self._grams: dict[str, str] = {}  # by part: the gram that it is filed under
        self._by_gram: dict[int, dict[str, Keys[str]]] = {}  # by length, gram: the parts

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, part: str, key: Key) -> None:
        """Add a part of a key; it is not empty."""
        if part not in self._keys:
            size = next(size for size in GRAM_SIZES if size <= len(part))
            parts = self._by_gram.setdefault(size, {})
            gram = min(_grams(part, size), key=lambda gram: (len(parts.get(gram, ())), gram))
            parts.setdefault(gram, {})[part] = None
            self._grams[part] = gram
        self._keys.setdefault(part, {})[key] = None

    def remove(self, part: str, key: Key) -> None:
        """Remove a part of a key."""
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
        """Number of keys with this part."""
        return len(self._keys.get(part, ()))

    def find(self, text: str, found: list[Keys[Key]]) -> None:
        """Append the keys whose parts a text contains, each part's once."""
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
