"""How often a host may fail: a bucket for each, which fills by failing and leaks with time.

A host is an IPv4 address, or the /64 network of an IPv6 address, of which one machine may have as many
addresses as it likes.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

FAILURES_MAX = 5
"""Failed attempts of a host that are let pass at once."""
FAILURE_S = 2.0
"""After so long one more is let pass."""
HOSTS_MAX = 10_000
"""Hosts that are remembered; the one that was heard of the longest ago is forgotten first."""

_ROUNDING_S = 1e-5  # times since 1970 are exact to about a millionth of a second


class Attempts:
    """Counts failures; `now` is in seconds, and may stand still or go back without harm."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}  # how full, and when that was

    def wait_s(self, host: str, now: float, forgiven: int = 0) -> int:
        """How long the host has to wait before it may fail again, 0 for not at all; some may be forgiven."""
        level = self._level(host, now) - forgiven
        return max(ceil((level - (FAILURES_MAX - 1)) * FAILURE_S - _ROUNDING_S), 0)

    def fail(self, host: str, now: float) -> None:
        """An attempt has failed, or is taken to have until it is forgiven."""
        self._set(host, self._level(host, now) + 1, now)

    def forgive(self, host: str, now: float) -> None:
        """An attempt that was counted has not failed."""
        self._set(host, max(self._level(host, now) - 1, 0.0), now)

    def _level(self, host: str, now: float) -> float:
        level, at = self._levels.get(host, (0.0, now))
        return max(level - max(now - at, 0.0) / FAILURE_S, 0.0)

    def _set(self, host: str, level: float, now: float) -> None:
        self._levels.pop(host, None)
        if level > 0.0:
            self._levels[host] = level, now
        if len(self._levels) > HOSTS_MAX:
            del self._levels[next(iter(self._levels))]


def network_of(host: str) -> str:
    """Under what a host is counted; what is no address counts as itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False))
