"""Environment variables of tidings, and the names that are probably misspelt ones.

Other programs may have variables with our prefix, so an unknown one is reported only if it is close to one of
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

PREFIX = "TIDINGS_"
CLIENT = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("NODE", "USER", "PASSWORD", "PASSWORD_FILE", "TOKEN", "TOKEN_FILE", "CA", "CERT", "KEY"),
        *("KEYS", "GATEWAY", "DIR", "SECURITY", "DELIVERIES", "JOIN", "GROUP", "AGENT"),
    )
)
"""Variables that are no settings of a node, or not only that."""
OF_OTHERS = ("TIDINGS_CITY_", "TIDINGS_TEST_", "TIDINGS_BENCH_")
"""Prefixes of further variables, which their own readers check."""
CLOSENESS = 0.75
"""How much of a name must agree, as difflib counts it; at 0.75 two exchanged letters of four still do."""


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are probably meant to be others, and these."""
    unknown = [name for name in environment if name.startswith(PREFIX) and name not in CLIENT]
    unknown = [name for name in unknown if not name.startswith(OF_OTHERS)]
    if not unknown:
        return {}
    from tidings.node.settings import SETTINGS  # not before: a client needs none of it

    known = CLIENT | {setting.variable for setting in SETTINGS.values()}
    found = {name: _closest(name, known) for name in unknown if name not in known}
    return {name: close for name, close in found.items() if close is not None}


def _closest(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that is closest to one, None if none is close."""
    rests = [one.removeprefix(PREFIX) for one in sorted(known)]
    close = get_close_matches(name.removeprefix(PREFIX).upper(), rests, n=1, cutoff=CLOSENESS)
    return PREFIX + close[0] if close else None


def new_hints(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence about each variable that is probably misspelt; in one process, each once."""
    found = {name: close for name, close in misspelt(environment).items() if name not in _reported}
    _reported.update(found)
    return [f"unknown variable: {name}; did you mean {close}?" for name, close in found.items()]


_reported: set[str] = set()
