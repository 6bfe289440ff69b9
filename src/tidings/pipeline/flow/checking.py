"""Checks of the edges of a flow graph before Spark starts: columns, kinds and keys.

`outcome` returns what an edge makes of the nodes before it, or raises FlowError with the place. The rule
kept: a graph that passes refers to no column, type or key that does not exist when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, cast

from msgspec import Struct

from tidings.errors import EventError, FilterError, FlowError
from tidings.event.values import HEADER_NAMES, JMS_ALIASES, check_name
from tidings.filters import Filter
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.notes import HEADER_VALUES, KnownValues, any_of_kind
from tidings.filters.parser import parse_expression
from tidings.filters.tree import Arithmetic, FunctionCall, Name, Negative, TreeNode, names_in
from tidings.filters.tree import Literal as Constant
from tidings.log.collapse_rules import normal_type
from tidings.pipeline.flow.edges import (
    Apply,
    Collapse,
    Edge,
    Expand,
    Merge,
    Read,
    Select,
    Transform,
    result_type,
)
from tidings.pipeline.flow.types import COLUMNS_MAX, KEYS, PLACE, WINDOW, Columns, kind_of_type

DURATION_S_MAX = 366 * 86_400.0
"""Longest window and lateness."""
WINDOW_S_MIN = 0.001
_CONSTANT_TYPES = {
    Kind.STRING: "string",
    Kind.BOOLEAN: "boolean",
    Kind.TIME: "timestamp",
    Kind.BYTES: "binary",
}

NodeKind = Literal["history", "state"]


class EdgeResult(Struct, frozen=True):
    """Result of an edge: a history or a state, its columns, and of a state those of the key."""

    kind: NodeKind
    columns: Columns
    by: tuple[str, ...] = ()


def outcome(edge: Edge, before: Sequence[EdgeResult], place: str) -> EdgeResult:
    """Return what the edge makes of the nodes before it; FlowError names the place."""
    check = cast("Callable[[Any, Sequence[EdgeResult]], EdgeResult]", _CHECKS[type(edge)])
    try:
        made = check(edge, before)
        _check_columns(made.columns)
        return made
    except FilterError as error:
        raise FlowError(place, f"{error}") from None
    except ValueError as error:
        raise FlowError(place, str(error)) from None


def _read(edge: Read, _before: Sequence[EdgeResult]) -> EdgeResult:
    Filter(edge.where)
    columns = dict(PLACE)
    for name, text in edge.columns.items():
        type = _type(name, text)
        if PLACE.get(name, type) != type:
            raise ValueError(f"column {name!r} is {PLACE[name]} in every event, and never {type}")
        columns[name] = type
    return EdgeResult("history", columns)


def _select(edge: Select, before: Sequence[EdgeResult]) -> EdgeResult:
    (history,) = _histories(before, "select")
    filter = Filter(edge.condition)
    _check_known(names_in(filter.condition), history.columns)
    known = {name: _known(name, type) for name, type in history.columns.items()}
    for note in filter.notes_with(known):
        if note.never:
            raise ValueError(f"the condition is true for no event: {note}")
    return history


def _transform(edge: Transform, before: Sequence[EdgeResult]) -> EdgeResult:
    (history,) = _histories(before, "transform")
    if not edge.expressions:
        raise ValueError("a transform needs at least one column")
    columns = {name: type for name, type in PLACE.items() if name in history.columns}
    for name, text in edge.expressions.items():
        if name in PLACE:
            raise ValueError(f"column {name!r} passes a transform as it is; leave it out")
        try:
            columns[name] = expression_type(parse_expression(text), history.columns)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return EdgeResult("history", columns)


def _apply(edge: Apply, before: Sequence[EdgeResult]) -> EdgeResult:
    _histories(before, "a function")
    if not edge.columns:
        raise ValueError("a transform by a function needs its columns")
    return EdgeResult("history", {name: _type(name, text) for name, text in edge.columns.items()})


def _merge(_edge: Merge, before: Sequence[EdgeResult]) -> EdgeResult:
    first, *others = _histories(before, "merge")
    if not others:
        raise ValueError("a merge needs at least two histories")
    for other in others:
        if dict(other.columns) != dict(first.columns):
            different = set(first.columns.items()) ^ set(other.columns.items())
            names = ", ".join(sorted({name for name, _ in different}))
            raise ValueError(f"the histories have different columns: {names}")
    return first


def _collapse(edge: Collapse, before: Sequence[EdgeResult]) -> EdgeResult:
    (history,) = _histories(before, "collapse")
    missing = [name for name in PLACE if name not in history.columns]
    if missing:
        raise ValueError(f"collapse needs the columns {', '.join(PLACE)}: {', '.join(missing)} is missing")
    if not edge.by:
        raise ValueError("collapse needs a key; name its columns with by")
    _check_known(edge.by, history.columns)
    for name in edge.by:
        if history.columns[name] not in KEYS or name in ("time", "position"):
            raise ValueError(f"{name!r} can't be a key: it is {history.columns[name]}")
    _check_key(edge)
    if not edge.rules:
        raise ValueError("collapse needs at least one rule, such as high=highest('price')")
    _check_limits(edge)
    key = {name: history.columns[name] for name in edge.by}
    results = {name: result_type(rule, history.columns) for name, rule in edge.rules.items()}
    windows = {} if edge.window_s is None else WINDOW
    _check_results(results, {**key, **windows, "time": ""})
    by = edge.by if edge.window_s is None else (*edge.by, "start")
    return EdgeResult("state", {**key, **windows, "time": "timestamp", **results}, by)


def _check_key(edge: Collapse) -> None:
    for name in edge.by:
        if edge.by.count(name) > 1:
            raise ValueError(f"the key has the column {name!r} twice; name it once")
        if edge.window_s is not None and name.lower() in WINDOW:
            problem = f"the key column {name!r} has the name of a column of the window"
            raise ValueError(f"{problem}; leave window_s out, or rename the column by a transform")


def _check_limits(edge: Collapse) -> None:
    if edge.window_s is not None and not WINDOW_S_MIN <= edge.window_s <= DURATION_S_MAX:
        raise ValueError(f"window_s must be {WINDOW_S_MIN} to {DURATION_S_MAX:.0f}, not {edge.window_s}")
    if edge.late_s is not None and not 0 <= edge.late_s <= DURATION_S_MAX:
        raise ValueError(f"late_s must be 0 to {DURATION_S_MAX:.0f}, not {edge.late_s}")
    if edge.keys_max < 1:
        raise ValueError(f"keys_max must be at least 1, not {edge.keys_max}")


def _check_results(results: Columns, taken: Columns) -> None:
    for name in results:
        if name in taken:
            raise ValueError(f"the result {name!r} has the name of another column of the state; rename it")
        if name in HEADER_NAMES or name in PLACE:
            raise ValueError(f"the result {name!r} has the name of a header field; rename it")


def _expand(_edge: Expand, before: Sequence[EdgeResult]) -> EdgeResult:
    if len(before) != 1 or before[0].kind != "state":
        raise ValueError("expand needs a state, which a collapse makes")
    columns = {name: type for name, type in before[0].columns.items() if name not in PLACE}
    return EdgeResult("history", {**PLACE, **columns})


_CHECKS: Mapping[type, Any] = {
    Read: _read,
    Select: _select,
    Transform: _transform,
    Apply: _apply,
    Merge: _merge,
    Collapse: _collapse,
    Expand: _expand,
}


def expression_type(node: TreeNode, columns: Columns) -> str:
    """Return the type of an expression over these columns; ValueError says what is wrong.

    A name has the type of its column, a calculation is double, and a condition boolean.
    """
    match node:
        case Name(name):
            if name not in columns:
                _check_known([name], columns)
                raise ValueError(f"{name} is for conditions; name the column {JMS_ALIASES[name]!r}")
            return columns[name]
        case Constant(value):
            kind = kind_of(value)
            return _CONSTANT_TYPES.get(kind) or ("bigint" if isinstance(value, int) else "double")
        case Arithmetic(_, left, right):
            _check_numbers((left, right), columns)
            return "double"
        case Negative(operand):
            _check_numbers((operand,), columns)
            return "double"
        case FunctionCall("DISTANCE", _, _):
            raise ValueError("DISTANCE can't be calculated in Spark; transform with a Python function")
    _check_known(names_in(cast("Any", node)), columns)
    return "boolean"


def _check_numbers(operands: Iterable[TreeNode], columns: Columns) -> None:
    for operand in operands:
        type = expression_type(operand, columns)
        if kind_of_type(type) is not Kind.NUMBER:
            raise ValueError(f"calculates with {type}; only numbers can be")


def _histories(before: Sequence[EdgeResult], what: str) -> Sequence[EdgeResult]:
    if any(one.kind == "state" for one in before):
        raise ValueError(f"{what} needs a history, not a state; expand the state first")
    if len(before) > 1 and what in ("select", "transform", "collapse"):
        raise ValueError(f"{what} needs one history; merge the {len(before)} first")
    return before


def _type(name: str, text: str) -> str:
    type = normal_type(text)
    if type is None:
        raise ValueError(f"column {name!r}: {text!r} is no type; use one such as string, bigint or double")
    return type


def _known(name: str, type: str) -> KnownValues:
    return HEADER_VALUES.get(name) or any_of_kind(kind_of_type(type)).optional()


def _check_known(names: Iterable[str], columns: Columns) -> None:
    for name in sorted(names):
        field = JMS_ALIASES.get(name, name)
        if field not in columns:
            close = get_close_matches(name, list(columns), 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(columns)}"
            raise ValueError(f"there is no column {name!r}; {hint}")


def _check_columns(columns: Columns) -> None:
    seen: dict[str, str] = {}
    for name in columns:
        known = seen.setdefault(name.lower(), name)
        if known != name:
            raise ValueError(f"columns {known!r} and {name!r} differ by case only; rename one")
        if name not in HEADER_NAMES and name not in PLACE:
            try:
                check_name(name)
            except EventError as error:
                raise ValueError(f"column {name!r}: {error.problem}") from None
    if len(columns) > COLUMNS_MAX:
        raise ValueError(f"has {len(columns)} columns; at most {COLUMNS_MAX} are allowed")
