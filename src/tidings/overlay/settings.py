"""Settings of a node for its links to others."""

from __future__ import annotations

from msgspec import Struct


class OverlaySettings(Struct, frozen=True, kw_only=True):
    """A node's settings for its links."""

    leaf: bool = False  # it never carries the events of others
    subnet: str = ""  # label of the local network that it is on
    finds: bool = False  # without a label: it is on that of the nodes that it finds nearby
    offers_all: bool = True  # its clients may publish to other nodes what they have not advertised
    tolerate: int = 1  # hops within which all that want an event have it when it is held
    reroute_s: float = 5.0  # how long a link may be cut before events go another way
    ping_s: float = 0.5  # between two pings on a link; 0: none
    weigh_s: float = 10.0  # after which links are weighed again; 0: they are not
    weight_delay: float = 1.0  # of a link, for each millisecond
    weight_capacity: float = 100.0  # of a link that carries 1 Mbit/s
    rebuild_threshold: float = 0.3  # part of its weight by which a link in use is undercut to be replaced
    away_s: float = 604_800.0  # for which events are kept for a neighbour that is away
    away_bytes: int = 1 << 30  # of events that are kept for one that is
    merge_waste: float = 0.0  # part of the events over a link that may come for nobody, for shorter tables
    suspect_s: float = 1.5  # how long a neighbour may be silent before it is suspected; 0: for ever
