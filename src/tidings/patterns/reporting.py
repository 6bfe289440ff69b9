"""Matches, time-outs and events that were not used, as events.

A match has the type that AS names, its key as `subject` and under the names of its attributes, `start`, the
number of `events`, for each step that took any the `time` of the last one and the `count`, and the values
that RETURN names. Its own time is that of its end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from tidings.event.model import Event
from tidings.event.values import EPOCH, MICROSECOND, RESERVED, Value
from tidings.patterns.pattern import Pattern
from tidings.patterns.runs import Row, RunOutcome

TIMEOUT, LATE_TYPE = ".timeout", ".late"
"""What the types of time-outs, and of events that were not used, end with."""


def time_of(time_us: int) -> datetime:
    """Return a time in UTC."""
    return EPOCH + time_us * MICROSECOND


class MatchSummary(Struct, frozen=True, array_like=True):
    """A match or time-out as it is reported: for each step the number of its events, and the last one."""

    start_us: int
    end_us: int
    count: int
    steps: tuple[tuple[int, int, Row], ...]
    is_timeout: bool = False


def summary_of(outcome: RunOutcome) -> MatchSummary:
    """Return what is reported of a match."""
    last: dict[int, Row] = {}
    counts: dict[int, int] = {}
    for step, row in outcome.events:
        last[step] = row
        counts[step] = counts.get(step, 0) + 1
    steps = tuple([(step, counts[step], row) for step, row in last.items()])
    return MatchSummary(outcome.start_us, outcome.end_us, len(outcome.events), steps, outcome.is_timeout)


def values_of(pattern: Pattern, key: tuple[object, ...], match: MatchSummary) -> dict[str, Any]:
    """Return the attributes of a match; header fields of its key are in the subject only."""
    keyed = zip(pattern.by, key, strict=True)
    values: dict[str, Any] = {name: part for name, part in keyed if name not in RESERVED}
    values["start"] = time_of(match.start_us)
    values["events"] = match.count
    for step, count, row in match.steps:
        name = pattern.steps[step].name
        values[f"{name}.time"] = time_of(row.time_us)
        values[f"{name}.count"] = count
    for name, attribute, value in returned(pattern, {step: row for step, _, row in match.steps}):
        if value is not None:
            values[f"{name}.{attribute}"] = value
    return values


def returned(pattern: Pattern, last: dict[int, Row]) -> list[tuple[str, str, Value | None]]:
    """Return the values that RETURN names, None where there is none."""
    numbers = {step.name: number for number, step in enumerate(pattern.steps)}
    found = []
    for name, attribute in pattern.returns:
        row = last.get(numbers[name])
        value = None if row is None else row.values[pattern.columns.index(attribute)]
        found.append((name, attribute, value))
    return found


def subject_of(key: tuple[object, ...]) -> str | None:
    """Return the subject of a key: its parts as text, joined by slashes; None without a key."""
    texts = [part.isoformat() if isinstance(part, datetime) else str(part) for part in key]
    if len(texts) == 1:
        return texts[0]
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in texts) or None


def match_event(
    pattern: Pattern, key: tuple[object, ...], match: MatchSummary, more: dict[str, Any], delivery: str
) -> Event:
    """Return a match or a time-out as an event; `more` are further attributes."""
    kind = pattern.type + TIMEOUT if match.is_timeout else pattern.type
    values = values_of(pattern, key, match) | more
    header = {"time": time_of(match.end_us), "subject": subject_of(key), "delivery": delivery}
    return Event(kind, values, **{name: value for name, value in header.items() if value is not None})


def late_event(pattern: Pattern, row: Row, reason: str, more: dict[str, Any], delivery: str) -> Event:
    """Return an event that was not used as an event of the history `late`: its place, and the reason."""
    values = {"reason": reason, "node": row.node, "position": row.number, **more}
    return Event(pattern.type + LATE_TYPE, values, time=time_of(row.time_us), delivery=delivery)
