"""Rules and types of a collapse as they are written, and the units of its totals, for nodes and for Spark.

Nothing here needs Arrow or Spark.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

UNIT: Final = 1_000_000_000
"""Units of a total of numbers that are no integers, in 1."""
FINE_END, TOTAL_END = 2.0**33, 2.0**63
"""Numbers from here on are rounded to whole ones in a total; those from here on are left out."""
TYPES: Final = frozenset(
    {
        *("tinyint", "smallint", "int", "bigint", "float", "double"),
        *("string", "boolean", "timestamp", "date", "binary"),
    }
)
"""Types of columns, in Spark's words; beside them there are decimals, such as `decimal(10,2)`."""
_SAME = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_DIGITS_MAX = 38
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


def normal_type(text: str) -> str | None:
    """Return a type in its one spelling, such as bigint for long; None if no column can have it."""
    plain = text.strip().lower()
    plain = _SAME.get(plain, plain)
    digits = decimal_digits(plain)
    if digits is not None:
        return f"decimal({digits[0]},{digits[1]})"
    return plain if plain in TYPES else None


def decimal_digits(type: str) -> tuple[int, int] | None:
    """Return all digits of a decimal, and those after the point; None if the type is none."""
    found = _DECIMAL.fullmatch(type)
    if found is None or not 0 <= int(found[2]) <= int(found[1]) <= _DIGITS_MAX or int(found[1]) == 0:
        return None
    return int(found[1]), int(found[2])
