"""Rules by which a collapse reduces the events of a key to one row.

Each of them merges exactly: the result is the same in whatever parts the events are collapsed, and in
whatever order, so a batch and a stream agree. Nulls are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tidings.filters.kinds import Kind
from tidings.log.collapse_rules import CollapseRule
from tidings.pipeline.flow.types import INTEGERS, Columns, kind_of_type

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
