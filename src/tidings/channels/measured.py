"""What is measured of a channel: its size, extent and activity, and how often its members change.

Each node counts for itself since it takes part; who asks gets the sums of all nodes that can be reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from tidings.channels.description import ChannelCounts, ChannelInfo, ChannelPlace, ChannelStatus, protocol_of
from tidings.overlay.tree import Edge, weight_of

WINDOW_S = 60.0
"""Events count less for the rate the longer ago they were sent: after this time a third of what they did."""


class ChannelMeter:
    """The members of a channel that come and go at one node, and the events that they send there."""

    def __init__(self) -> None:
        self.joins = 0
        self.leaves = 0
        self.sent = 0
        self._recent = 0.0  # events sent, less what has faded
        self._since = self._at = math.nan  # when the first event was sent, and the last

    def note_sent(self, count: int, now: float) -> None:
        """Members have sent so many events."""
        if math.isnan(self._since):
            self._since = self._at = now
        self._recent = self._recent * math.exp((self._at - now) / WINDOW_S) + count
        self._at = now
        self.sent += count

    def counts(self, now: float) -> ChannelCounts:
        """Return what was counted up to now."""
        return ChannelCounts(self.joins, self.leaves, self.sent, self._per_s(now))

    def _per_s(self, now: float) -> float:
        if not self.sent:
            return 0.0
        age_s = max(1.0, now - self._since)  # one event alone is no rate
        recent = self._recent * math.exp((self._at - now) / WINDOW_S)
        return recent / (WINDOW_S * -math.expm1(-age_s / WINDOW_S))


def info_of(places: Sequence[ChannelPlace], name_of: Callable[[str], str]) -> ChannelInfo:
    """Return what anyone may know of a channel, which these nodes have."""
    about = structs.asdict(places[0].channel)
    del about["reference"], about["renewals"]
    members = {name_of(place.node): place.members for place in places}
    return ChannelInfo(**about, members=members, protocol=protocol_of(about["id"]))


def status_of(
    places: Sequence[ChannelPlace],
    tree: Iterable[Edge],
    missing: Sequence[str],
    name_of: Callable[[str], str],
    reached: Sequence[str] = (),
) -> ChannelStatus:
    """Return what several nodes have measured of a channel; `tree` has the links of the network's tree."""
    used = {_in_order(place.node, other) for place in places for other in place.neighbours}
    joins, leaves, sent = (
        sum(getattr(place.counts, what) for place in places) for what in ("joins", "leaves", "sent")
    )
    return ChannelStatus(
        **structs.asdict(info_of(places, name_of)),
        links=sorted({_in_order(name_of(one), name_of(other)) for one, other in used}),
        extent=_extent(used, tree),
        joins=joins,
        leaves=leaves,
        sent={name_of(place.node): place.counts.sent for place in places if place.counts.sent},
        rate=sum(place.counts.rate for place in places),
        fluctuation=(joins + leaves) / sent if sent else None,
        missing=sorted(map(name_of, missing)),
        reached=sorted(map(name_of, reached)),
    )


def _in_order(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _extent(used: set[tuple[str, str]], tree: Iterable[Edge]) -> float:
    """Return the weight of some links as a share of all; without weights each counts the same."""
    weights: Mapping[tuple[str, str], float | None] = {edge[1:]: weight_of(edge) for edge in tree}
    if any(weight is None for weight in weights.values()):
        weights = dict.fromkeys(weights, 1.0)
    whole = sum(weight for weight in weights.values() if weight)
    part = sum(weight for ends, weight in weights.items() if weight and ends in used)
    return part / whole if whole else 1.0  # one node is the whole network
