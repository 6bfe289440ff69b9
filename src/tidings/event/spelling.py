"""Names that were probably meant as a header field or an option, such as `prority` or `ttl`.

Attributes are free, so the rule must not suspect a name that somebody may want: `item`, `receiver`, `sources`
and `ID` are attributes. A name is suspected if it differs from a header field

- by two neighbouring letters that are swapped, in fields of four letters or more;
- by one letter that is missing, too many or wrong, but not the last one, in fields of six letters or more;
- by capitals, hyphens and underscores only (`replyTo`, `content-type`), in fields of seven letters or more;

or if it stands in a short list of other systems' names (`ttl`, `prio`). A keyword is also compared with the
options of the calls that take attributes as keywords, such as `timeout_s`.
"""

from __future__ import annotations

from functools import lru_cache

from tidings.event.values import HEADER_NAMES, NAMES_KEPT_MAX

SWAPPED_LENGTH_MIN = 4
"""Letters of a field of which two may be swapped."""
SLIP_LENGTH_MIN = 6
"""Letters of a field that may be misspelt in another way."""
RESPELT_LENGTH_MIN = 7
"""Letters of a field that may be written with other capitals, hyphens or underscores."""

FIELDS_MEANT = {"ttl": "ttl_s", "prio": "priority"}
"""Other names of header fields."""
KEYWORDS_MEANT = {
    **FIELDS_MEANT,
    "expires": "ttl_s",
    "expiration": "ttl_s",
    "timeout": "timeout_s",
}
"""Other names of header fields and options, which only a keyword is suspected of."""

OPTIONS = ("delay_s", "not_before", "timeout_s", "transaction")
"""Options of the calls that take attributes as keywords."""

_FIELDS = tuple(sorted(HEADER_NAMES))


@lru_cache(NAMES_KEPT_MAX)
def field_meant(name: str) -> str | None:
    """Return the header field that the name of an attribute is probably meant as."""
    if name in HEADER_NAMES:
        return None
    return FIELDS_MEANT.get(name) or _nearest(name, _FIELDS)


def keyword_meant(name: str) -> str | None:
    """Return the header field or option that a keyword is probably meant as."""
    if name in OPTIONS:
        return None
    return KEYWORDS_MEANT.get(name) or field_meant(name) or _nearest(name, OPTIONS)


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    return next((one for one in known if _is_near(name, one)), None)


def _is_near(name: str, field: str) -> bool:
    if abs(len(name) - len(field)) > 1:
        return False
    return _is_swapped(name, field) or _is_slip(name, field) or _is_respelt(name, field)


def _is_respelt(name: str, field: str) -> bool:
    """Whether only capitals, hyphens and underscores differ; but `timeouts` may be a number of them."""
    is_long = len(field) >= RESPELT_LENGTH_MIN and not field.endswith("_s")
    return is_long and _plain(name) == _plain(field)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _is_swapped(name: str, field: str) -> bool:
    one, other = _difference(name, field)
    return len(field) >= SWAPPED_LENGTH_MIN and len(one) == 2 and one == other[::-1]


def _is_slip(name: str, field: str) -> bool:
    """Whether one letter is missing, too many or wrong, but not the last: a `receiver` is not `received`."""
    one, other = _difference(name, field)
    is_single = max(len(one), len(other)) == 1 and "_" not in one + other
    return len(field) >= SLIP_LENGTH_MIN and name[-1:] == field[-1:] and is_single


def _difference(name: str, field: str) -> tuple[str, str]:
    """Return both without the letters that they begin and end with alike."""
    start = 0
    while start < min(len(name), len(field)) and name[start] == field[start]:
        start += 1
    name, field = name[start:], field[start:]
    end = 0
    while end < min(len(name), len(field)) and name[-1 - end] == field[-1 - end]:
        end += 1
    return name[: len(name) - end], field[: len(field) - end]
