"""Validity check of raw events, with the facts that a node needs of each, without keeping any as an object.

A node passes on the bytes of a sender as they came, so it must know that every receiver can read them. The
rule: `check` accepts exactly what `decode_events` accepts. By default it decodes, and drops the result; after
`use_compiled` the bytes are scanned in place, and only doubtful ones are decoded.
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
    """Offset of each event, and the end of the last one, if they were found."""
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
    """Check as `check` does, by decoding every event."""
    events = decode_events(raw)
    counters = array("q", [event.counter for event in events])
    deliveries = bytes([0 if event.header is None else _CODES[event.header.delivery] for event in events])
    return Checked(None, counters, deliveries, deliveries == bytes(len(events)))


def use_compiled() -> None:
    """Check in place from now on, with numba.

    Loading it takes half a second and 130 MB, and the first time on a machine some seconds more to compile.
    """
    global _certain
    try:
        from tidings.event.check_compiled import check_certain
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tidings"):
            raise
        raise MissingExtra("checking events in place", "node") from None
    _certain = check_certain
