"""Flow graphs in files: TOML, or a Python program that makes one.

    name = "quotes"

    [history.trades]
    where = "type = 'trade'"
    columns = { symbol = "string", price = "double", volume = "bigint" }

    [history.large]
    from = "trades"
    select = "volume > 1000"
    publish = "quotes.large"

    [state.high]
    from = "large"
    by = "symbol"
    window_s = 86400
    collapse = { high = "highest(price)" }
    publish = "quotes.high"

A TOML file may have its nodes in any order, and all that graphs have except Python functions.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import FlowError
from tidings.filters.text import write_literal
from tidings.log.collapse_rules import parse_rule
from tidings.pipeline.flow.edges import KEYS_MAX, Collapse, Edge, Expand, Merge, Read, Select, Transform
from tidings.pipeline.flow.graph import Draft, Graph, arrange
from tidings.pipeline.flow.program import graph_of_program

FILE_SIZE_MAX = 1 << 20
"""Bytes of a file in TOML."""


class HistoryTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"after": "from"}):
    """Table `[history.NAME]` of a file."""

    after: str | list[str] = ()  # type: ignore[assignment]
    where: str | None = None
    columns: dict[str, str] | None = None
    select: str | None = None
    transform: dict[str, str] | None = None
    expand: bool = False
    publish: str | None = None


class StateTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"after": "from"}):
    """Table `[state.NAME]` of a file."""

    after: str
    collapse: dict[str, str]
    by: str | list[str] = ()  # type: ignore[assignment]
    window_s: float | None = None
    late_s: float | None = None
    keys_max: int = KEYS_MAX
    publish: str | None = None


class GraphTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Whole file."""

    name: str | None = None
    late: str | None = None
    history: dict[str, Any] = {}
    state: dict[str, Any] = {}


def load(path: str | Path) -> Graph:
    """Return the graph in a TOML file, or the one that a Python file makes; FlowError names the place.

    A Python file is run, with the rights of the caller.
    """
    path = Path(path)
    if path.suffix == ".py":
        return graph_of_program(path)
    if path.suffix == ".toml":
        return parse_graph(_text(path), path.stem, str(path))
    raise FlowError(str(path), "is no file of a graph; its name ends with .toml or .py")


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FlowError(str(path), error.strerror or "can't be read") from None
    if len(raw) > FILE_SIZE_MAX:
        raise FlowError(str(path), f"has {len(raw)} bytes; at most {FILE_SIZE_MAX} are allowed")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise FlowError(str(path), "is no text in UTF-8") from None


def parse_graph(text: str, name: str = "graph", place: str = "graph") -> Graph:
    """Return the graph in a text in TOML; without a name of its own it has the given one."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FlowError(place, str(error)) from None
    table = _converted(found, GraphTable, place)
    drafts = [*_histories(table.history, place), *_states(table.state, place)]
    return arrange(table.name or name, drafts, table.late, place)


def _histories(tables: Mapping[str, Any], place: str) -> Iterator[Draft]:
    for name, found in tables.items():
        where = f"{place}, [history.{name}]"
        table = _converted(found, HistoryTable, where)
        after = (table.after,) if isinstance(table.after, str) else tuple(table.after)
        edges = list(_edges(table, name, after))
        if len(edges) != 1:
            kinds = "where and columns, or from with one of select, transform or expand"
            raise FlowError(where, f"needs one edge: {kinds}; a merge has several names in from alone")
        yield Draft(name, edges[0], after, table.publish, where)


def _edges(table: HistoryTable, name: str, after: tuple[str, ...]) -> Iterator[Edge]:
    if table.where is not None or table.columns is not None or not after:
        default = f"type = {write_literal(name)}"
        yield Read(default if table.where is None else table.where, table.columns or {})
    if table.select is not None:
        yield Select(table.select)
    if table.transform is not None:
        yield Transform(table.transform)
    if table.expand:
        yield Expand()
    if len(after) > 1 and table.select is None and table.transform is None and not table.expand:
        yield Merge()


def _states(tables: Mapping[str, Any], place: str) -> Iterator[Draft]:
    for name, found in tables.items():
        where = f"{place}, [state.{name}]"
        table = _converted(found, StateTable, where)
        try:
            rules = {result: parse_rule(text) for result, text in table.collapse.items()}
        except ValueError as error:
            raise FlowError(where, str(error)) from None
        by = (table.by,) if isinstance(table.by, str) else tuple(table.by)
        edge = Collapse(by, rules, table.window_s, table.late_s, table.keys_max)
        yield Draft(name, edge, (table.after,), table.publish, where)


def _converted(found: Any, kind: type[Any], place: str) -> Any:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise FlowError(place, str(error)) from None
