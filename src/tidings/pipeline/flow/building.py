"""Flow graphs written in Python: histories and states whose methods add edges.

Each method checks its edge at once, so the traceback of a FlowError ends at the line that has the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from tidings.errors import FlowError
from tidings.filters.text import write_literal
from tidings.log.collapse_rules import CollapseRule
from tidings.pipeline.flow.checking import EdgeResult, outcome
from tidings.pipeline.flow.edges import (
    KEYS_MAX,
    Apply,
    Collapse,
    Edge,
    Expand,
    Merge,
    Read,
    Select,
    Transform,
)
from tidings.pipeline.flow.graph import ROW_TYPE, Draft, Graph, arrange
from tidings.pipeline.flow.types import Columns


class FlowSpace:
    """A history or a state of a graph that is being written."""

    def __init__(self, edge: Edge, after: tuple[FlowSpace, ...], name: str | None = None) -> None:
        self._edge = edge
        self._after = after
        self._name = name
        self._published: str | None = None
        self._outcome: EdgeResult = outcome(edge, [one._outcome for one in after], self._place())

    def _place(self) -> str:
        before = ", ".join(one._name or type(one._edge).__name__.lower() for one in self._after)
        word = type(self._edge).__name__.lower()
        if self._name is not None:
            return f"{self._name!r} ({word})"
        return f"{word} after {before!r}"

    @property
    def columns(self) -> Columns:
        """Types of the columns, by their names."""
        return dict(self._outcome.columns)

    def named(self, name: str) -> Self:
        """Give the node a name, for commands, pictures and stored states; return the node."""
        if self._name not in (None, name):
            raise FlowError(self._place(), f"has a name already; it can't become {name!r}")
        self._name = name
        return self

    def _publish(self, type: str) -> None:
        if self._published not in (None, type):
            raise FlowError(self._place(), f"is published as {self._published!r}; it can't become {type!r}")
        self._published = type

    def __repr__(self) -> str:
        return f"<{self._outcome.kind} {self._place()}>"


class History(FlowSpace):
    """A history: rows, each of them an event."""

    def select(self, condition: str) -> History:
        """Keep the rows for which a filter is true: `select("volume > 1000")`."""
        return History(Select(condition), (self,))

    def transform(
        self,
        function: Callable[..., Any] | None = None,
        columns: Mapping[str, str] | None = None,
        /,
        **expressions: str,
    ) -> History:
        """Make new columns: `transform(symbol="symbol", amount="price * volume")`.

        An expression is a value or a condition of the filter language. Only the named columns remain, and
        the time and place of the event. Instead, a function of a DataFrame may make the rows; then
        `columns` are the types of its columns, and it must come before the first collapse.
        """
        if function is None:
            return History(Transform(dict(expressions)), (self,))
        if expressions:
            raise FlowError(self._place(), "a transform takes a function or expressions, not both")
        return History(Apply(function, dict(columns or {})), (self,))

    def collapse(
        self,
        by: str | tuple[str, ...] | list[str] = (),
        *,
        window_s: float | None = None,
        late_s: float | None = None,
        keys_max: int = KEYS_MAX,
        **rules: CollapseRule,
    ) -> State:
        """Reduce the events of each key to one row: `collapse(by="symbol", high=highest("price"))`.

        With `window_s` there is one row for each key and window of time, in the columns `start` and `end`. An
        event whose time is more than `late_s` before the newest one of earlier batches goes to the
        history `late` instead, and so do events of keys past `keys_max`.
        """
        keys = (by,) if isinstance(by, str) else tuple(by)
        for name, rule in rules.items():
            if not isinstance(rule, CollapseRule):
                raise FlowError(
                    self._place(), f"{name}={rule!r} is no rule; use one such as highest('price')"
                )
        return State(Collapse(keys, dict(rules), window_s, late_s, keys_max), (self,))

    def published(self, type: str = ROW_TYPE) -> Self:
        """Publish each row as an event of this type, or of the type in its column `type`; return the node."""
        self._publish(type)
        return self


class State(FlowSpace):
    """A state: one row for each key."""

    def expand(self) -> History:
        """Return the history of the state: the row of the key after each of its events."""
        return History(Expand(), (self,))

    def published(self, type: str) -> Self:
        """Publish each change as an event of this type, with the key as its subject; return the node."""
        self._publish(type)
        return self


def history(name: str, where: str | None = None, columns: Mapping[str, str] | None = None) -> History:
    """Read events from nodes: those that match the filter, by default those of type `name`.

    `columns` are the attributes and header fields to read, with their types in Spark's words. The columns
    `time`, `node` and `position` are always there.
    """
    condition = f"type = {write_literal(name)}" if where is None else where
    return History(Read(condition, dict(columns or {})), (), name)


def merge(*histories: History) -> History:
    """Put the rows of several histories with the same columns together."""
    return History(Merge(), histories)


def join(function: Callable[..., Any], columns: Mapping[str, str], *histories: History) -> History:
    """Make rows of several histories by a function of as many DataFrames; it returns these columns."""
    return History(Apply(function, dict(columns)), histories)


def graph(name: str, *ends: FlowSpace, late: str | None = None) -> Graph:
    """Return the graph of these nodes and all they are made from; FlowError if it can't run.

    Late rows are published as events of the type `late`, by default NAME.late.
    """
    spaces = list(_upwards(ends))
    names = _names(spaces)
    drafts = [
        Draft(
            names[id(space)],
            space._edge,
            tuple(names[id(one)] for one in space._after),
            space._published,
            f"{names[id(space)]!r} ({type(space._edge).__name__.lower()})",
        )
        for space in spaces
    ]
    return arrange(name, drafts, late)


def _upwards(ends: tuple[FlowSpace, ...]) -> Iterator[FlowSpace]:
    """Yield the nodes above these, each once, after those it is made from."""
    seen: set[int] = set()
    waiting = [(space, False) for space in reversed(ends)]
    while waiting:
        space, is_ready = waiting.pop()
        if is_ready:
            yield space
        elif id(space) not in seen:
            seen.add(id(space))
            waiting.append((space, True))
            waiting.extend((one, False) for one in reversed(space._after))


def _names(spaces: list[FlowSpace]) -> dict[int, str]:
    """Return a name for each node: its own, or one made of that of the node before it and its edge."""
    taken = {space._name for space in spaces}
    names: dict[int, str] = {}
    for space in spaces:
        name = space._name
        if name is None:
            before = names[id(space._after[0])] if space._after else "events"
            name = stem = f"{before}_{type(space._edge).__name__.lower()}"
            number = 1
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            taken.add(name)
        names[id(space)] = name
    return names


# Rules


def count(column: str | None = None) -> CollapseRule:
    """Count the events, or those that have a value in this column."""
    return CollapseRule("count", column)


def total(column: str) -> CollapseRule:
    """Add up numbers: integers exactly, others in units of 1e-9; NaN and infinity are left out."""
    return CollapseRule("total", column)


def mean(column: str) -> CollapseRule:
    """Return the mean of numbers: their total divided by their count."""
    return CollapseRule("mean", column)


def lowest(column: str) -> CollapseRule:
    """Return the least value."""
    return CollapseRule("lowest", column)


def highest(column: str) -> CollapseRule:
    """Return the greatest value."""
    return CollapseRule("highest", column)


def latest(column: str) -> CollapseRule:
    """Return the value of the event with the latest time."""
    return CollapseRule("latest", column)


def first(column: str) -> CollapseRule:
    """Return the value of the event with the earliest time."""
    return CollapseRule("first", column)
