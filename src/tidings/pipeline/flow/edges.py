"""Edges of a flow graph: how the rows of a node are made from those of the nodes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tidings.log.collapse_rules import CollapseRule

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
