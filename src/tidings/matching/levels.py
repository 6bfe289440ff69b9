"""Topic patterns in a tree of levels: all that take a topic are found in one walk over its levels.

At each level the walk goes on to the child of that name and to the one for any name. It costs a step for each
node it comes to: a few for a topic, and in no case more than there are nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from tidings.filters.topics import HIDDEN
from tidings.matching.clues import Keys, Path

Key = TypeVar("Key", bound=Hashable)

_EMPTY: dict[Any, Any] = {}  # shared by all nodes, most of which have only one of their tables


class _Node(Generic[Key]):
    """Where topics that begin alike stand: the patterns that end here, and those that take what is longer."""

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
        """The child of a level, which must be there."""
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
        """Let a key stand here, for topics that end, for longer ones or for both."""
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


class Levels(Generic[Key]):
    """Keys by topic pattern, in one spelling; if it hides, leading wildcards do not take a leading `$`."""

    def __init__(self, separator: str, hides: bool) -> None:
        self._separator = separator
        self._hides = hides
        self._root: _Node[Key] = _Node()
        self._depths: dict[int, int] = {}  # how many patterns have so many levels
        self._deepest = 0

    def __bool__(self) -> bool:
        return bool(self._depths)

    def add(self, path: Path, key: Key) -> None:
        """Let a key have a pattern, which it must not have yet."""
        depth = len(path.levels)
        self._depths[depth] = self._depths.get(depth, 0) + 1
        self._deepest = max(self._deepest, depth)
        node = self._root
        for reached, level in enumerate(path.levels):
            node.put(key, path.fewest <= reached, more=False)
            node = node.make_child(level)
        node.put(key, path.fewest <= depth, path.is_open)

    def remove(self, path: Path, key: Key) -> None:
        """Take a pattern of a key out, and the nodes that nobody stands at any more."""
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
        """How many keys have this pattern."""
        node = self._root
        for level in path.levels:
            following = node.any if level is None else node.children.get(level)
            if following is None:
                return 0
            node = following
        return len(node.more if path.is_open else node.here)

    def find(self, topic: str, found: list[Keys[Key]]) -> None:
        """Add the keys whose patterns take a topic, each pattern's once."""
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
