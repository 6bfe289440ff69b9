"""Conditions on dotted or slashed names: topic patterns as NATS and MQTT have them, and SwiftMQ's hierarchy.

TOPIC knows two spellings. A pattern with `/`, `+` or `#` anywhere in it is MQTT's: levels are separated by
`/`, `+` stands for one level and a final `#` for all that follow and for the parent too (`a/#` matches `a`);
a wildcard at the beginning does not match topics that begin with `$`. Any other pattern is that of NATS:
levels are separated by `.`, `*` stands for one level and a final `>` for one or more. The pattern decides how
the strings it is tested on are cut, too: `a.b` is one level for the first, `a/b` for the second. A level is
the part between two separators and may be empty, as in MQTT. Wildcards stand for whole levels; within one, as
in `sens*`, they are errors (NATS would take them as plain characters, which is seldom what was meant).

UNDER matches the topic itself, its parents (an event sent to a node is meant for all below it) and everything
below. Each name between the dots may be a pattern of LIKE, and then the same holds with 'is like' for 'is':
`iit.s%s` matches `iit`, `iit.sales` and `iit.sales.US`.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from tidings.filters.intervals import Intervals, points, prefixed
from tidings.filters.patterns import Holds, check_length, like_head, prepare_like


class Spelling(NamedTuple):
    """Three signs of a way to write topic patterns."""

    separator: str
    one: str
    rest: str


DOTS = Spelling(".", "*", ">")
SLASHES = Spelling("/", "+", "#")
HIDDEN = "$"
"""Beginning of MQTT topics that no leading wildcard matches."""


class TopicPattern(NamedTuple):
    """Parsed pattern: its levels, None for a wildcard, and whether more levels may follow."""

    spelling: Spelling
    levels: tuple[str | None, ...]
    is_open: bool

    @property
    def hides(self) -> bool:
        """Whether topics that begin with `$` are left out."""
        return self.spelling is SLASHES and (not self.levels or self.levels[0] is None)


def read_topic(pattern: str) -> TopicPattern:
    """Parse a pattern in either spelling; ValueError names a mistake."""
    check_length(pattern)
    spelling = SLASHES if any(sign in pattern for sign in SLASHES) else DOTS
    other = DOTS if spelling is SLASHES else SLASHES
    levels = pattern.split(spelling.separator)
    is_open = levels[-1] == spelling.rest
    if is_open:
        levels.pop()
    for level in levels:
        _check_level(level, spelling, other)
    known = tuple(None if level == spelling.one else level for level in levels)
    return TopicPattern(spelling, known, is_open)


def _check_level(level: str, spelling: Spelling, other: Spelling) -> None:
    separator, one, rest = spelling
    if level == rest:
        raise ValueError(f"{rest} may stand only at the end of a topic pattern")
    if spelling is DOTS and not level:
        raise ValueError("a topic pattern has no empty level between its dots")
    if level != one and (one in level or rest in level):
        raise ValueError(f"{one} and {rest} stand for whole levels: they can't be part of {level!r}")
    if level in (other.one, other.rest):
        raise ValueError(
            f"with {separator} between levels {one} is any level and {rest} the rest, not {level}"
        )


def prepare_topic(pattern: str) -> Holds:
    """Return a test whether the pattern matches a string; time linear in the pattern's levels."""
    topic = read_topic(pattern)
    (separator, _, _), levels, is_open = topic
    hides = topic.hides
    least = len(levels) + (is_open and topic.spelling is DOTS)

    def holds(subject: str) -> bool:
        found = subject.split(separator, len(levels))
        if len(found) < least or (len(found) > len(levels) and not is_open):
            return False
        if hides and subject.startswith(HIDDEN):
            return False
        return all(level is None or level == name for level, name in zip(levels, found, strict=False))

    return holds


def implied_by_topic(pattern: str) -> tuple[Intervals, bool]:
    """Return the strings with the literal head of the pattern; inexact with a wildcard for one level."""
    topic = read_topic(pattern)
    literal = list(takewhile(lambda level: level is not None, topic.levels))
    stem = "".join(f"{level}{topic.spelling.separator}" for level in literal)
    exact = len(literal) == len(topic.levels)
    if exact and not topic.is_open:
        return points([pattern]), True
    if topic.hides:
        return prefixed(HIDDEN).complement(), exact
    if exact and topic.spelling is SLASHES:
        return points([stem[:-1]]).union(prefixed(stem)), True
    return prefixed(stem), exact


def prepare_under(pattern: str, escape: str | None = None) -> Holds:
    """Return a test whether a string is the topic, a parent of it or below it; `escape` is that of LIKE."""
    tests = [prepare_like(name, escape) for name in _names(pattern)]

    def holds(subject: str) -> bool:
        found = subject.split(".", len(tests))
        return all(test(name) for test, name in zip(tests, found, strict=False))

    return holds


def implied_by_under(pattern: str, escape: str | None = None) -> tuple[Intervals, bool]:
    """Return the topic, its parents, and all strings under the topic; exact without wildcards."""
    parents: list[str] = []
    stem = ""
    for name in _names(pattern):
        head, whole = like_head(name, escape)
        if not whole:
            return points(parents).union(prefixed(stem + head)), False
        parents.append(stem + head)
        stem += head + "."
    return points(parents).union(prefixed(stem)), True


def levels_of_under(pattern: str, escape: str | None = None) -> tuple[str | None, ...]:
    """Return the names of the topic, None for each that is a pattern."""
    heads = (like_head(name, escape) for name in _names(pattern))
    return tuple(head if whole else None for head, whole in heads)


def _names(pattern: str) -> list[str]:
    check_length(pattern)
    names = pattern.split(".")
    if "" in names:
        raise ValueError(f"{pattern!r} has an empty name between its dots")
    return names
