"""Edges of a flow graph: how the rows of a node are made from those of the nodes before it.

The rules by which a collapse reduces the events of a key to one row merge exactly: the result is the same in
whatever parts the events are collapsed, and in whatever order, so a batch and a stream agree. Nulls are left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tidings.filters.kinds import Kind
from tidings.log.collapse_rules import CollapseRule
from tidings.pipeline.flow.types import INTEGERS, Columns, kind_of_type

KEYS_MAX = 1_000_000
"""Keys of a state; events of further keys go to the history `late`."""


class Read(Struct, frozen=True):
    """Read events from nodes: those that match `where`, with these columns."""

    where: str
    columns: Mapping[str, str]


class Select(Struct, frozen=True):
    """Keep the rows for which the condition is true."""

    condition: str


class Transform(Struct, frozen=True):
    """Make new columns, by expressions of the filter language: a value or a condition each."""

    expressions: Mapping[str, str]


class Apply(Struct, frozen=True):
    """Make new rows by a Python function of DataFrames, which has declared its columns."""

    function: Callable[..., Any]
    columns: Mapping[str, str]


class Merge(Struct, frozen=True):
    """Put the rows of several histories together."""


class Collapse(Struct, frozen=True):
    """Reduce the events of each key, or of each key and window of time, to one row."""

    by: tuple[str, ...]
    rules: Mapping[str, CollapseRule]
    window_s: float | None = None
    late_s: float | None = None
    """How much older than the newest event one may be; None: as old as it is."""
    keys_max: int = KEYS_MAX


class Expand(Struct, frozen=True):
    """Give the row of the key after each event that has reached the state."""


class Late(Struct, frozen=True):
    """Collect the rows that no collapse has taken, with the reason."""


Edge = Read | Select | Transform | Apply | Merge | Collapse | Expand | Late

# Rules of a collapse

NEWEST = CollapseRule("highest", "time")
"""Time of a row of a state."""


class RuleKind(Struct, frozen=True):
    """Kind of rule: whether it needs a column, of numbers only, and the type of its result."""

    result: Callable[[str], str]
    needs_column: bool = True
    numbers_only: bool = False


def _same(type: str) -> str:
    return type


RULES = {
    "count": RuleKind(lambda _: "bigint", needs_column=False),
    "total": RuleKind(lambda type: "bigint" if type in INTEGERS else "double", numbers_only=True),
    "mean": RuleKind(lambda _: "double", numbers_only=True),
    "lowest": RuleKind(_same),
    "highest": RuleKind(_same),
    "latest": RuleKind(_same),
    "first": RuleKind(_same),
}
"""All rules by their names."""


def result_type(rule: CollapseRule, columns: Columns) -> str:
    """Return the type of a rule's result over these columns; ValueError says why it can't be applied."""
    kind = RULES.get(rule.kind)
    if kind is None:
        raise ValueError(f"there is no rule {rule.kind!r}; the rules are {', '.join(RULES)}")
    if rule.column is None:
        if kind.needs_column:
            raise ValueError(f"{rule.kind} needs a column, such as {rule.kind}(price)")
        return kind.result("bigint")
    type = columns.get(rule.column)
    if type is None:
        raise ValueError(f"{rule} reads a column that does not exist; the columns are {', '.join(columns)}")
    if kind.numbers_only and kind_of_type(type) is not Kind.NUMBER:
        raise ValueError(f"{rule} needs numbers, but {rule.column} is {type}")
    return kind.result(type)


def parts_of(rule: CollapseRule) -> tuple[CollapseRule, ...]:
    """Return the rules of which one is made, each of which merges by sum, minimum or maximum.

    `numbers` counts the values that a total takes.
    """
    if rule.kind == "mean":
        return CollapseRule("total", rule.column), CollapseRule("numbers", rule.column)
    return (rule,)
