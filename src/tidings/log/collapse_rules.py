"""Rules of a collapse as they are written, and the units of its totals; nodes and Spark have the same."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

UNIT: Final = 1_000_000_000
"""Units of a total of numbers that are no integers, in 1."""
FINE_END, TOTAL_END = 2.0**33, 2.0**63
"""Numbers from here on are rounded to whole ones in a total; those from here on are left out."""
_TEXT = re.compile(r"\s*(?P<kind>\w+)\s*\(\s*(?P<column>[^()]*?)\s*\)\s*")


class CollapseRule(Struct, frozen=True):
    """Rule of a collapse: its kind, and the column that it reads; None: whole events."""

    kind: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"


def parse_rule(text: str) -> CollapseRule:
    """Return the rule of a text such as `highest(price)`, of whatever kind; ValueError if it is none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no rule; write one such as highest(price)")
    return CollapseRule(found["kind"], found["column"] or None)
