"""Times, ages and sizes as they are typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidings.errors import UserError

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_AGE_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.IGNORECASE)
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def read_age(text: str, option: str) -> timedelta:
    """How long ago, such as `90s`, `30min`, `12h` or `7d`."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise UserError(f"{option}: {text!r} is no age such as 30min, 12h or 7d")
    return timedelta(seconds=float(found[1]) * _AGE_S[found[2]])


def read_moment(text: str, option: str, now: datetime) -> datetime:
    """A time in ISO 8601, in UTC if it has no zone, or an age, which counts from now."""
    if _AGE.fullmatch(text):
        return now - read_age(text, option)
    try:
        return read_time(text)
    except ValueError:
        problem = f"{text!r} is neither a time such as 2026-05-01T08:30 nor an age such as 12h"
        raise UserError(f"{option}: {problem}") from None


def read_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC if it has no zone; ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_size(text: str, option: str) -> int:
    """So many bytes, such as `500MB` or `20G`."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UserError(f"{option}: {text!r} is no size such as 500MB or 20G")
    return int(float(found[1]) * _SIZES[found[2].lower()])
