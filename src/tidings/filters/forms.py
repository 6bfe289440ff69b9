"""Other ways to write a filter: by example, as a list of terms, as JSON.

Each becomes text with bound parameters, which the one parser reads: so all forms mean the same, have the same
limits and end as the same tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from tidings.errors import EventError, FilterError
from tidings.event.header import SHOWN_FIELDS, Header
from tidings.event.json import from_tagged, to_tagged
from tidings.event.model import Event
from tidings.event.values import EPOCH, flatten
from tidings.filters import tree
from tidings.filters.kinds import plain
from tidings.filters.parser import NESTING_MAX, parse
from tidings.filters.text import write, write_name
from tidings.filters.tree import Condition

Form = tuple[str, dict[str, Any]]
"""Text with parameters, and their values."""

DEPTH_MAX = 2 * NESTING_MAX
"""Deepest nesting of a JSON filter: brackets, and NOT before each."""

_ANY_OF_TYPE: dict[Any, tuple[str, Any]] = {
    int: ("{name} <= {value} OR {name} > {value}", 0),
    float: ("{name} <= {value} OR {name} > {value}", 0),
    str: ("{name} >= {value}", ""),
    bool: ("{name} IN (TRUE, FALSE)", None),
    datetime: ("{name} <= {value} OR {name} > {value}", EPOCH),
    bytes: ("{name} >= {value}", b""),
    object: ("{name} IS NOT NULL", None),
}
_OPERATORS = {
    "any": "{name} IS NOT NULL",
    "exists": "{name} IS NOT NULL",
    "missing": "{name} IS NULL",
    "=": "{name} = {value}",
    "==": "{name} = {value}",
    "!=": "{name} <> {value}",
    "<>": "{name} <> {value}",
    "≠": "{name} <> {value}",
    "<": "{name} < {value}",
    "<=": "{name} <= {value}",
    "≤": "{name} <= {value}",
    ">": "{name} > {value}",
    ">=": "{name} >= {value}",
    "≥": "{name} >= {value}",
    "prefix": "STARTS_WITH({name}, {value})",
    ">*": "STARTS_WITH({name}, {value})",
    "suffix": "ENDS_WITH({name}, {value})",
    "*<": "ENDS_WITH({name}, {value})",
    "contains": "CONTAINS({name}, {value})",
    "*": "CONTAINS({name}, {value})",
    "in": "{name} IN {value}",
    "between": "{name} BETWEEN {value} AND {second}",
}
_WITHOUT_VALUE = frozenset(("any", "exists", "missing"))


class _FormWriter:
    """Collects parameters under names of their own while text is put together."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self._numbers = count()

    def term(self, pattern: str, name: object, value: Any, place: str) -> str:
        """Return one condition; `value` is a list if the pattern has IN or BETWEEN."""
        if not isinstance(name, str) or not name:
            raise FilterError(f"{place}: a name is text, not {name!r}")
        bound = {"value": "", "second": ""}
        if "{second}" in pattern:
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise FilterError(f"{place}: between takes two values")
            bound = {"value": self._bind(value[0], place), "second": self._bind(value[1], place)}
        elif "{value}" in pattern:
            bound["value"] = self._bind(value, place)
        return pattern.format(name=write_name(name), **bound)

    def _bind(self, value: Any, place: str) -> str:
        """Return the parameter for a value, which is checked here, where its place is known."""
        for index, item in enumerate(
            value if isinstance(value, list | tuple | set | frozenset) else (value,)
        ):
            try:
                plain(item)
            except ValueError as error:
                at = f"{place}[{index}]" if item is not value else place
                raise FilterError(f"{at}: {getattr(error, 'problem', error)}") from None
        parameter = f"p{next(self._numbers)}"
        self.parameters[parameter] = value
        return f":{parameter}"


def from_template(example: Event | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> Form:
    """Return a filter by example: the given fields must be equal, a type stands for any value of it."""
    demands = dict(_fields_of(example) if isinstance(example, Event) else flatten(example or {}))
    for name, value in fields.items():
        if name in demands:
            raise FilterError(f"{name} is given twice")
        demands[name] = value
    writer = _FormWriter()
    terms = [_template_term(writer, name, value) for name, value in demands.items() if value is not None]
    return " AND ".join(terms), writer.parameters


def _template_term(writer: _FormWriter, name: str, value: Any) -> str:
    if not isinstance(value, type):
        return writer.term("{name} = {value}", name, value, f"$.{name}")
    if value not in _ANY_OF_TYPE:
        raise FilterError(f"$.{name}: {value.__name__} is no type of value")
    pattern, constant = _ANY_OF_TYPE[value]
    return f"({writer.term(pattern, name, constant, f'$.{name}')})"


def _fields_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event as an example: not its number, time or place of origin."""
    header = event.header or Header()
    default = Header()
    said = {name: getattr(header, name) for name in ("id", *SHOWN_FIELDS)}
    unsaid = {name for name, value in said.items() if value == getattr(default, name)}
    body = {} if event.body is None else {"body": event.body}
    return {"type": event.type} | event.values | {n: v for n, v in said.items() if n not in unsaid} | body


def from_terms(terms: Iterable[tuple[Any, ...]]) -> Form:
    """Return a conjunction of (name, operator, value)."""
    writer = _FormWriter()
    parts = [_term(writer, term, f"$[{index}]") for index, term in enumerate(terms)]
    return " AND ".join(parts), writer.parameters


def _term(writer: _FormWriter, term: Sequence[Any], place: str) -> str:
    if not isinstance(term, list | tuple) or not 2 <= len(term) <= 3:
        raise FilterError(f"{place}: a term is a name, an operator and a value")
    name, operator, *value = term
    pattern = _OPERATORS.get(operator) if isinstance(operator, str) else None
    if pattern is None:
        raise FilterError(
            f"{place}: there is no operator {operator!r}", hint="there are " + " ".join(_OPERATORS)
        )
    if (operator in _WITHOUT_VALUE) == bool(value) and value != [None]:
        raise FilterError(f"{place}: the operator {operator} takes {'no' if value else 'a'} value")
    return writer.term(pattern, name, value[0] if value else None, place)


def from_json(document: str | bytes | Mapping[str, Any]) -> Form:
    """Read the form that `to_json` writes, as text or as its values."""
    if isinstance(document, str | bytes):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise FilterError(f"not JSON: {error}") from None
    writer = _FormWriter()
    return _read_json(writer, document, "$", 0), writer.parameters


def _read_json(writer: _FormWriter, part: Any, place: str, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise FilterError(f"{place[:60]}…: nested more than {DEPTH_MAX} deep")
    match part:
        case {"and": list() as parts, **rest} if not rest:
            return _read_joint(writer, parts, " AND ", "TRUE", f"{place}.and", depth)
        case {"or": list() as parts, **rest} if not rest:
            return _read_joint(writer, parts, " OR ", "FALSE", f"{place}.or", depth)
        case {"not": operand, **rest} if not rest:
            return f"NOT {_read_json(writer, operand, f'{place}.not', depth + 1)}"
        case {"text": str() as text, **rest} if not rest:
            return _read_text(text, f"{place}.text")
        case {"name": name, "op": operator, **rest} if rest.keys() <= {"value"}:
            values = [_read_value(value, f"{place}.value") for value in rest.values()]
            return _term(writer, (name, operator, *values), place)
    raise FilterError(f'{place}: expected "and", "or", "not", "text" or a term with "name" and "op"')


def _read_joint(writer: _FormWriter, parts: list[Any], joint: str, empty: str, place: str, depth: int) -> str:
    texts = [_read_json(writer, part, f"{place}[{i}]", depth + 1) for i, part in enumerate(parts)]
    return "(" + joint.join(texts) + ")" if texts else empty


def _read_text(text: str, place: str) -> str:
    """Read a part that is text, by itself, so that no bracket in it reaches out."""
    try:
        return f"({write(parse(text, {}))})"
    except FilterError as error:
        raise FilterError(f"{place}: {error}") from None


def _read_value(value: Any, place: str) -> Any:
    if isinstance(value, list):
        return [_read_value(item, f"{place}[{index}]") for index, item in enumerate(value)]
    try:
        return from_tagged(value, place)
    except EventError as error:
        raise FilterError(str(error)) from None


def to_json(node: Condition) -> dict[str, Any]:
    """Return the condition as JSON values."""
    match node:
        case tree.And(operands):
            return {"and": [to_json(operand) for operand in operands]}
        case tree.Or(operands):
            return {"or": [to_json(operand) for operand in operands]}
        case tree.Not(tree.IsNull(name)):
            return {"name": name, "op": "any"}
        case tree.Not(operand):
            return {"not": to_json(operand)}
        case tree.IsNull(name):
            return {"name": name, "op": "missing"}
        case tree.In(name, values):
            return {"name": name, "op": "in", "value": [to_tagged(value) for value in values]}
        case tree.Between(tree.Name(name), tree.Literal(low), tree.Literal(high)):
            return {"name": name, "op": "between", "value": [to_tagged(low), to_tagged(high)]}
        case tree.Compare(operator, tree.Name(name), tree.Literal(value)):
            return {"name": name, "op": operator, "value": to_tagged(value)}
        case tree.FunctionCall("STARTS_WITH" | "ENDS_WITH" | "CONTAINS" as function, (name,), (value,)):
            return {"name": name, "op": _CALLED[function], "value": to_tagged(value)}
    return {"text": write(node)}


_CALLED = {"STARTS_WITH": "prefix", "ENDS_WITH": "suffix", "CONTAINS": "contains"}
