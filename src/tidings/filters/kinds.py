"""The kinds of value an event may have: comparisons hold only within a kind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum

from tidings.errors import EventError
from tidings.event.values import Value, plain_moment, plain_value, time_from_us


class Kind(IntEnum):
    """In the order in which IN lists are written."""

    BOOLEAN = 0
    NUMBER = 1
    STRING = 2
    TIME = 3
    BYTES = 4

    def __str__(self) -> str:
        return self.name.lower()


_KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    datetime: Kind.TIME,
    bytes: Kind.BYTES,
}


def kind_of(value: Value) -> Kind:
    """The kind of a plain value."""
    return _KINDS[type(value)]


def by_kind(values: Iterable[Value]) -> dict[Kind, list[Value]]:
    """The values of each kind, in their order."""
    kinds: dict[Kind, list[Value]] = {}
    for value in values:
        kinds.setdefault(kind_of(value), []).append(value)
    return kinds


def read_time(text: str) -> datetime:
    """A time literal: ISO 8601, in UTC where no zone is written; a date alone is its first moment."""
    try:
        return time_from_us(plain_moment(text, "$"))
    except EventError as error:
        raise ValueError(error.problem) from None


def read_bytes(text: str) -> bytes:
    """A bytes literal: pairs of hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("it takes pairs of hexadecimal digits") from None


def plain(value: object) -> Value:
    """A value handed in by a program, as it may stand in a filter; ValueError says why it may not."""
    plainly = plain_value(value, "the value")
    if isinstance(plainly, float) and not math.isfinite(plainly):
        raise ValueError(f"{plainly} can't be written in a filter")
    return plainly
