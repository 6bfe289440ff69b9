"""Values as texts, for readers who want one plain map of all attributes.

A number is written as JSON has it, a bool `true` or `false`, a time in RFC 3339, bytes in base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidings.event.json import time_text


def texts(letter: str, values: Sequence[Any]) -> list[str]:
    """The texts of values, none of them None, that are all of the kind of that letter."""
    return _TEXTS[letter](values)


def _numbers(values: Sequence[float]) -> list[str]:
    """One call writes them all; Python's `repr` takes six times as long."""
    if not values:
        return []
    written = msgspec.json.encode(values).decode()[1:-1].split(",")
    if "null" in written:  # which is how JSON has what is not finite
        written = [
            str(value) if text == "null" else text for text, value in zip(written, values, strict=True)
        ]
    return written


_TEXTS: dict[str, Callable[[Sequence[Any]], list[str]]] = {
    "b": lambda values: ["true" if value else "false" for value in values],
    "i": _numbers,
    "f": _numbers,
    "s": list,
    "t": lambda values: [time_text(value) for value in values],
    "x": lambda values: [b64encode(value).decode() for value in values],
}
