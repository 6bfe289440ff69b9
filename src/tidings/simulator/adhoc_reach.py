"""How far messages come over a trace: the share of ordered pairs that are reached after so many hours.

Every host sends to all others at the start. Where buffers are unlimited and the strategy is epidemic, a pair
is reached exactly if contacts lead from one to the other whose times do not go back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tidings.adhoc.strategies import strategy_type
from tidings.errors import UserError
from tidings.simulator.adhoc_arrays import KINDS, NEVER, flood, spread
from tidings.simulator.adhoc_cores import spread_by_cores
from tidings.simulator.contacts import ContactTrace

AT = ("1h", "6h", "24h", "end")
"""Times for which the share is given."""
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES = {"": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000}
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-z]*)")


class ReachReport(Struct, frozen=True):
    """What has come of the messages of a trace; shares are from 0 to 1."""

    hosts: int
    contacts: int
    step_s: float
    span_s: float
    start_s: float
    strategy: str
    buffer: str
    pairs: int
    reached: dict[str, float]
    delay_s: float | None
    copies: int | None

    def __str__(self) -> str:
        words = {at: "at the end" if at == "end" else f"after {at}" for at in self.reached}
        shares = ", ".join(f"{share:.4f} {words[at]}" for at, share in self.reached.items())
        return f"{self.hosts} hosts, {self.contacts} contacts, {self.pairs} ordered pairs: {shares}"


def parse_seconds(text: str) -> float:
    """Seconds of a text such as `1h`, `90min`, `3600` or `end`, which is inf; UserError for any other."""
    if text == "end":
        return inf
    found = _NUMBER.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise UserError(f"{text!r} is no time: give one such as 90s, 30min, 6h, 2d or end")
    return float(found[1]) * _UNITS[found[2]]


def parse_start(text: str, trace: ContactTrace) -> float:
    """The moment of a text such as `25%` of the trace's span, or `2h` after its begin."""
    if text.endswith("%"):
        found = _NUMBER.fullmatch(text[:-1].strip())
        if found is None or found[2] or float(found[1]) > 100:
            raise UserError(f"{text!r} is no part of the trace: give one such as 25%")
        return trace.first_s + float(found[1]) / 100 * (trace.last_s - trace.first_s)
    after_s = parse_seconds(text)
    if after_s == inf:
        raise UserError("a start at the end leaves no contacts: give one such as 25% or 2h")
    return trace.first_s + after_s


def parse_size(text: str) -> int | None:
    """Bytes of a text such as `5MB`; None for `unlimited`."""
    found = _NUMBER.fullmatch(text.strip().lower())
    if text.strip().lower() == "unlimited":
        return None
    if found is None or found[2] not in _SIZES:
        raise UserError(f"buffer {text!r} is no size: give unlimited, 5MB or a number of messages")
    return int(float(found[1]) * _SIZES[found[2]])


def parse_room(text: str, size: int) -> int | None:
    """Messages of a buffer such as `unlimited`, `50` messages, or `5MB` of messages of one size."""
    room = parse_size(text)
    is_bytes = room is not None and not text.strip().replace(".", "").isdecimal()
    return room // size if is_bytes and room is not None else room


def reach(
    trace: ContactTrace,
    strategy: str = "epidemic",
    buffer: str = "unlimited",
    at: Sequence[str] = AT,
    start: str = "0%",
    size: int = 1_000,
) -> ReachReport:
    """Send from every host to all others at the start, and return which pairs are reached when."""
    strategy_type(strategy)
    moments = {text: parse_seconds(text) for text in at}
    start_s, room = parse_start(start, trace), parse_room(buffer, size)
    left = trace.since(start_s)
    hosts = len(trace.names)
    steps, copies = _steps(left, strategy, room)
    times = np.where(steps == NEVER, inf, steps * trace.step_s - start_s)
    pairs = hosts * (hosts - 1)
    reached = times[times < inf]
    counts = {text: int((reached <= moment).sum()) for text, moment in moments.items()}
    return ReachReport(
        hosts=hosts,
        contacts=len(left),
        step_s=trace.step_s,
        span_s=trace.last_s - trace.first_s,
        start_s=start_s,
        strategy=strategy,
        buffer=buffer,
        pairs=pairs,
        reached={text: count / pairs if pairs else 0.0 for text, count in counts.items()},
        delay_s=float(reached.mean()) if len(reached) else None,
        copies=copies,
    )


def _steps(trace: ContactTrace, strategy: str, room: int | None) -> tuple[NDArray[np.int64], int | None]:
    """The step of each delivery, NEVER for none, and how many copies were sent, if that was counted."""
    hosts = len(trace.names)
    if strategy == "epidemic" and room is None:
        return flood(trace)[~np.eye(hosts, dtype=bool)], None
    senders, recipients = np.nonzero(~np.eye(hosts, dtype=bool))
    run = spread if strategy in KINDS else spread_by_cores
    return run(trace, strategy, senders.astype(np.int32), recipients.astype(np.int32), room)
