"""When a reading was taken: a timestamp in any of the forms that sensors use.

ISO 8601 text, with a zone or in UTC; or a number since 1970, also as text, of seconds, or of milliseconds or
microseconds where seconds would lie thousands of years ahead.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidings.event.values import us_from_time

EARLIEST_US = us_from_time(datetime(2000, 1, 1, tzinfo=UTC))
"""Clocks that were never set begin in 1970 or 1980."""
AHEAD_US_MAX = 86_400_000_000
"""How far a clock may be ahead of the gateway's, so that a wrong zone is still believed."""
LENGTH_MAX = 64
"""Characters of a timestamp that is text."""

_MILLISECONDS_FROM = 10**11
_MICROSECONDS_FROM = 10**14
# Of at least nine digits, as every second since 2000 has; eight are a date without hyphens.
_COUNT = re.compile(r"(?a)\d{9,20}(\.\d+)?")


def moment_of(timestamp: str | float) -> int | None:
    """Microseconds since 1970, or None if the timestamp can't be read."""
    if not isinstance(timestamp, str):
        return _counted(timestamp)
    if len(timestamp) > LENGTH_MAX:
        return None
    if timestamp[4:5] != "-" and (found := _COUNT.fullmatch(timestamp)) is not None:
        return _counted(float(timestamp) if found[1] else int(timestamp))
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return us_from_time(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)


def _counted(count: float) -> int:
    if count < _MILLISECONDS_FROM:
        return round(count * 1_000_000)
    return round(count * 1000) if count < _MICROSECONDS_FROM else round(count)


def is_credible(moment_us: int, now_us: int) -> bool:
    """Whether a reading that arrives now can be of that moment."""
    return EARLIEST_US <= moment_us <= now_us + AHEAD_US_MAX
