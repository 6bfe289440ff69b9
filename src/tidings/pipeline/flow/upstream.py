"""Collapses that the nodes can do before they send anything: option `collapse` of the format `tidings`.

A source whose events only feed one collapse, by selects that mean the same at a node, can be read as partial
rows. These have the parts of the collapse (`edges.parts_of`), which Spark merges as it merges those of
batches. So the state is the same, and of the events of a key one row is sent.
"""

from __future__ import annotations

import msgspec

from tidings.filters import Filter
from tidings.filters.tree import names_in
from tidings.log.arguments import COLLAPSE_COLUMNS_MAX, COLLAPSE_KEYS_MAX, COLLAPSE_RULES_MAX
from tidings.log.collapse_rules import CollapseRule
from tidings.pipeline.flow.edges import NEWEST, Collapse, parts_of
from tidings.pipeline.flow.types import Columns

SELECTABLE = frozenset({"string", "boolean", "timestamp", "binary", "double"})
"""Types of columns by which a node selects as Spark does; an integer that has a fraction is null in Spark."""
COLLAPSIBLE = frozenset({"tinyint", "smallint", "int", "bigint", "double", "boolean", "timestamp"})
"""Types of columns to which rules apply at a node; for texts, Spark checks the length of each."""
POSITION = "s"
"""Column of a partial row with the first position of its events."""
MISMATCHES = "mismatches"
"""Column of a source's rows, and of partial rows: the number of values that did not fit their columns."""


def part_rules(edge: Collapse) -> dict[str, CollapseRule]:
    """Return the rules of the parts p0, p1… of a collapse."""
    parts = [NEWEST, *(part for rule in edge.rules.values() for part in parts_of(rule))]
    return {f"p{number}": part for number, part in enumerate(parts)}


def is_selectable(condition: str, columns: Columns) -> bool:
    """Whether a condition is true at a node for exactly the events for which it is true in Spark."""
    return all(columns.get(name) in SELECTABLE for name in names_in(Filter(condition).condition))


def is_collapsible(edge: Collapse, columns: Columns) -> bool:
    """Whether a node can do the collapse: only whole windows can be late, and its rules read no texts."""
    read = {rule.column for rule in edge.rules.values() if rule.column is not None}
    rules = {POSITION, MISMATCHES, *part_rules(edge)}
    is_free = not {"node", "start", "time", "position", *rules} & {name.lower() for name in edge.by}
    is_late_by_row = edge.late_s is not None and edge.window_s is None
    is_small = len(rules) <= COLLAPSE_RULES_MAX and len(edge.by) <= COLLAPSE_KEYS_MAX
    is_small = is_small and len({MISMATCHES, *edge.by, *read}) <= COLLAPSE_COLUMNS_MAX
    is_readable = all(columns[name] in COLLAPSIBLE for name in read)
    return is_free and is_small and is_readable and not is_late_by_row


def collapse_option(edge: Collapse, columns: Columns) -> str:
    """Return the option `collapse` for reading partial rows."""
    rules = {name: str(rule) for name, rule in part_rules(edge).items()}
    read = {rule.column for rule in edge.rules.values() if rule.column is not None}
    named = {name: type for name, type in columns.items() if name in {*edge.by, *read} - {"time", "position"}}
    window = {} if edge.window_s is None else {"window_s": edge.window_s}
    own = {POSITION: "lowest(position)", MISMATCHES: f"total({MISMATCHES})"}
    option = {"columns": {**named, MISMATCHES: "bigint"}, "by": list(edge.by), **window}
    return msgspec.json.encode({**option, "rules": {**rules, **own}}).decode()
