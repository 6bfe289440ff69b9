"""Whether raw events are all good, and what a node wants to know of each, without keeping any as an object.

A node passes on the bytes of a sender as they came, so it must know that everybody will be able to read them.
The rule: `check` takes exactly what `decode_events` takes. By itself it decodes, and drops what it decoded;
after `use_compiled` the bytes are walked over in place, and only what that walk is not certain of is decoded.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from tidings.errors import MissingExtra
from tidings.event.header import DELIVERIES
from tidings.event.wire import decode_events

_CODES = {delivery: code for code, delivery in enumerate(DELIVERIES)}


class Checked(NamedTuple):
    """Facts about events that were checked."""

    offsets: array[int] | None
    """Where each one begins, and after them where the last one ends, if that was found out."""
    counters: array[int]
    deliveries: bytes
    """One byte each, its place in DELIVERIES: 0 transient, 1 reliable, 2 persistent."""
    is_plain: bool
    """Every event is transient."""


_certain: Callable[[bytes], Checked | None] | None = None


def check(raw: bytes) -> Checked:
    """Check the events of an array and return facts about them; CodecError names the place of a fault."""
    if _certain is not None:
        checked = _certain(raw)
        if checked is not None:
            return checked
    return check_decoding(raw)


def check_decoding(raw: bytes) -> Checked:
    """The same as `check`, by decoding every event."""
    events = decode_events(raw)
    counters = array("q", [event.counter for event in events])
    deliveries = bytes([0 if event.header is None else _CODES[event.header.delivery] for event in events])
    return Checked(None, counters, deliveries, deliveries == bytes(len(events)))


def use_compiled() -> None:
    """From now on check in place, with numba.

    To load it takes half a second and 130 MB, and the first time on a machine some seconds more to compile.
    """
    global _certain
    try:
        from tidings.event.check_compiled import check_certain
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tidings"):
            raise
        raise MissingExtra("checking events in place", "node") from None
    _certain = check_certain
