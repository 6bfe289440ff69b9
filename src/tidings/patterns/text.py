"""From the text of a pattern to its tree and clauses.

    pattern  = sequence { clause }
    sequence = either { THEN ( either | NO step ) }
    either   = all { OR all }
    all      = part { AND part }
    part     = step | "(" sequence ")"
    step     = [ name ] "[" condition "]" [ "{" number [ "," [ number ] ] "}" ]
    clause   = WITHIN time | BY name { "," name } | LATE time | OVERLAPPING | TIMEOUTS
             | RETURN step "." name { "," step "." name } | AS 'type'
    time     = number ( ms | s | min | h | d )

Conditions are those of filters, and the parser of filters reads them. An error names its place in the whole
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tidings.errors import FilterError, PatternError
from tidings.filters.parser import parse
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.tokens import NAME
from tidings.patterns.tree import Absent, All, Either, Node, StepNode, Then, joined

LENGTH_MAX = 65_536
"""Characters of a pattern."""
NESTING_MAX = 20
"""Deepest nesting of brackets in a pattern."""
STEPS_MAX = 32
"""Steps of a pattern, those that must be absent included."""
REPETITIONS_MAX = 1_000
"""Events that one step takes; `{2,}` means up to so many."""
TIME_S_MAX = 366 * 86_400.0
"""The longest WITHIN and LATE: a year."""

KEYWORDS = frozenset(
    ("AND", "AS", "BY", "LATE", "NO", "OR", "OVERLAPPING", "RETURN", "THEN", "TIMEOUTS", "WITHIN")
)
UNITS_US = {
    "ms": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "seconds": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "minutes": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "hours": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "days": 86_400_000_000,
}
"""Units of time, in microseconds."""

STEP_NAME = re.compile(r"(?!\d)\w{1,64}\Z")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(NAME)
_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_STRING = re.compile(r"'((?:[^']|'')*)'")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,6})?")
_CONDITION = re.compile(r"""(?:[^\]'"]|'[^']*'|"[^"]*")*+""")


class Clauses(Struct):
    """What a pattern says beside its expression; None: nothing."""

    within_us: int | None = None
    by: tuple[str, ...] = ()
    late_us: int | None = None
    overlapping: bool = False
    timeouts: bool = False
    returns: tuple[tuple[str, str], ...] = ()
    type: str | None = None


class PatternDraft(Struct):
    """A pattern as it was read, with the place of each step for errors that are found later."""

    node: Node
    clauses: Clauses
    places: dict[str, tuple[int, int]]


def read(text: str, parameters: Mapping[str, Any], taxonomy: Taxonomy | None = None) -> PatternDraft:
    """Read a pattern; PatternError has the line and column of a mistake."""
    if len(text) > LENGTH_MAX:
        raise PatternError(f"the pattern has {len(text)} characters, more than {LENGTH_MAX}")
    reader = _Reader(text, parameters, taxonomy)
    draft = reader.pattern()
    unused = parameters.keys() - reader.used
    if unused:
        raise PatternError(f"the pattern has no parameter :{min(unused)}")
    return draft


class _Reader:
    """One pass over the text; `at` is where it goes on."""

    def __init__(self, text: str, parameters: Mapping[str, Any], taxonomy: Taxonomy | None) -> None:
        self.text, self.parameters, self.taxonomy = text, parameters, taxonomy
        self.at = self.depth = 0
        self.places: dict[str, tuple[int, int]] = {}
        self.used: set[str] = set()

    # The grammar

    def pattern(self) -> PatternDraft:
        node = self.sequence()
        clauses, seen = Clauses(), set[str]()
        while not self.is_over():
            begun = self.at
            word = self.word("THEN, a clause such as WITHIN, or the end").upper()
            if word not in _CLAUSES:
                raise self.error("expected THEN, a clause such as WITHIN, or the end", begun)
            if word in seen:
                raise self.error(f"{word} stands twice", begun)
            seen.add(word)
            _CLAUSES[word](self, clauses)
        return PatternDraft(node, clauses, self.places)

    def sequence(self) -> Node:
        if self.comes("NO"):
            raise self.error("NO needs a step before it: absence of what, since when?", self.at)
        parts: list[Node] = [self.either()]
        while self.take("THEN"):
            if self.take("NO"):
                absent = self.step()
                if (absent.low, absent.high) != (1, 1):
                    raise PatternError("a step that must be absent has no number", *self.places[absent.name])
                parts.append(Absent(absent))
            else:
                parts.append(self.either())
        return joined(Then, parts)

    def either(self) -> Node:
        parts = [self.all()]
        while self.take("OR"):
            parts.append(self.all())
        return joined(Either, parts)

    def all(self) -> Node:
        parts = [self.part()]
        while self.take("AND"):
            parts.append(self.part())
        return joined(All, parts)

    def part(self) -> Node:
        if not self.take("("):
            return self.step()
        begun = self.at
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise self.error(f"brackets are nested more than {NESTING_MAX} deep", begun)
        node = self.sequence()
        if isinstance(node, Then) and isinstance(node.parts[-1], Absent):
            raise self.error("a sequence in brackets can't end with NO: it has no end of its own", begun)
        self.expect(")")
        self.depth -= 1
        return node

    def step(self) -> StepNode:
        self.skip()
        begun, name = self.at, f"s{len(self.places) + 1}"
        if not self.comes("["):
            name = self.word("a step such as a[type = 'x']")
            if name.upper() in KEYWORDS:
                raise self.error(f"expected a step such as a[type = 'x'], found {name}", begun)
            if "." in name or not STEP_NAME.match(name):
                raise self.error(f"a step has a short name without dots, not {name[:70]}", begun)
        if name in self.places:
            raise self.error(f"two steps have the name {name}", begun)
        if len(self.places) >= STEPS_MAX:
            raise self.error(f"a pattern has at most {STEPS_MAX} steps", begun)
        self.places[name] = self.place(begun)
        self.expect("[")
        condition = self.condition()
        return StepNode(name, condition, *self.count())

    def condition(self) -> Any:
        begun = self.at
        found = _CONDITION.match(self.text, begun)
        end = begun if found is None else found.end()
        if self.text[end : end + 1] != "]":
            raise self.error("this bracket of a condition has no end ]", begun - 1)
        # All before it becomes blanks, so that the place of an error is that in the whole text.
        blanks = re.sub(r"[^\n]", " ", self.text[:begun])
        text = self.text[begun:end]
        named = {name: value for name, value in self.parameters.items() if re.search(rf":{name}\b", text)}
        self.used.update(named)
        try:
            condition = parse(blanks + text, named, self.taxonomy)
        except FilterError as error:
            raise PatternError(error.problem, error.line, error.column, error.hint) from None
        self.at = end + 1
        return condition

    def count(self) -> tuple[int, int | None]:
        self.skip()
        begun = self.at
        if not self.take("{"):
            return 1, 1
        low = self.integer()
        high: int | None = low
        if self.take(","):
            high = None if self.comes("}") else self.integer()
        self.expect("}")
        if low < 1:
            raise self.error("a step takes at least one event; NO says that there is none", begun)
        if high is not None and high < low:
            raise self.error(f"{high} is less than {low}", begun)
        if max(low, high or 0) > REPETITIONS_MAX:
            raise self.error(f"a step takes at most {REPETITIONS_MAX} events", begun)
        return low, high

    # Clauses

    def within(self, clauses: Clauses) -> None:
        clauses.within_us = self.time()

    def late(self, clauses: Clauses) -> None:
        clauses.late_us = self.time(least_us=0)

    def overlapping(self, clauses: Clauses) -> None:
        clauses.overlapping = True

    def timeouts(self, clauses: Clauses) -> None:
        clauses.timeouts = True

    def by(self, clauses: Clauses) -> None:
        clauses.by = tuple(self.list(self.name))

    def returns(self, clauses: Clauses) -> None:
        clauses.returns = tuple(self.list(self.reference))

    def type(self, clauses: Clauses) -> None:
        self.skip()
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.error("expected a type in quotes, such as 'alarm'", self.at)
        self.at = found.end()
        clauses.type = found[1].replace("''", "'")

    def reference(self) -> tuple[str, str]:
        self.skip()
        begun = self.at
        step, _, name = self.word("a step and an attribute, such as a.value").partition(".")
        if not name and self.take("."):
            name = self.name()
        if step not in self.places or not name:
            raise self.error("expected a step and an attribute, such as a.value", begun)
        return step, name

    def list(self, read: Callable[[], Any]) -> list[Any]:
        items = [read()]
        while self.take(","):
            items.append(read())
        return items

    def time(self, least_us: int = 1) -> int:
        self.skip()
        begun = self.at
        found = _NUMBER.match(self.text, begun)
        if found is None:
            raise self.error("expected a time such as 300 s", begun)
        self.at = found.end()
        unit = self.word("a unit of time: ms, s, min, h or d").lower()
        if unit not in UNITS_US:
            raise self.error(f"there is no unit of time {unit}; there are ms, s, min, h and d", begun)
        whole, _, fraction = found[0].partition(".")
        time_us = (int(whole) * 10**6 + int(fraction.ljust(6, "0") or 0)) * UNITS_US[unit] // 10**6
        if not least_us <= time_us <= TIME_S_MAX * 1e6:
            raise self.error("a time is at least a microsecond and at most a year", begun)
        return time_us

    # Tokens

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = self.at if found is None else found.end()

    def is_over(self) -> bool:
        self.skip()
        return self.at >= len(self.text)

    def comes(self, mark: str) -> bool:
        self.skip()
        if not mark.isalpha():
            return self.text.startswith(mark, self.at)
        found = _WORD.match(self.text, self.at)
        # A name directly before a bracket is that of a step, whatever it is.
        return (
            found is not None and found[0].upper() == mark and self.text[found.end() : found.end() + 1] != "["
        )

    def take(self, mark: str) -> bool:
        if not self.comes(mark):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.error(f"expected {mark}", self.at)

    def word(self, expected: str) -> str:
        self.skip()
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {expected}", self.at)
        self.at = found.end()
        return found[0]

    def name(self) -> str:
        """Read the name of an attribute or header field, in double quotes if it needs them."""
        self.skip()
        found = _QUOTED.match(self.text, self.at)
        if found is None:
            return self.word("the name of an attribute or header field")
        self.at = found.end()
        return found[1].replace('""', '"')

    def integer(self) -> int:
        self.skip()
        found = re.compile(r"\d{1,9}").match(self.text, self.at)
        if found is None:
            raise self.error("expected a number", self.at)
        self.at = found.end()
        return int(found[0])

    def place(self, offset: int) -> tuple[int, int]:
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)

    def error(self, problem: str, offset: int) -> PatternError:
        return PatternError(problem, *self.place(offset))


_CLAUSES: dict[str, Callable[[_Reader, Clauses], None]] = {
    "WITHIN": _Reader.within,
    "BY": _Reader.by,
    "LATE": _Reader.late,
    "OVERLAPPING": _Reader.overlapping,
    "TIMEOUTS": _Reader.timeouts,
    "RETURN": _Reader.returns,
    "AS": _Reader.type,
}
