"""Weights of links, as pings measure them: a·delay + b/capacity, more where pings are lost.

Delay is half the shortest of the last round trips (`pinging.py`): what waited behind events, or for the disk,
does not count. For the capacity each end sends the other a padded request now and then, a *probe*, and
compares the time that it takes with a ping's. A weight counts as often as a ping must be sent on average to
come through. What an end measures is in its record (`records.py`), and the mean of both ends' figures is the
weight for all nodes; so an end that lies can at most halve the weight of its links.

A figure has two digits, and is replaced only by one that differs from it by a quarter, so that jitter is not
flooded. Weights up to 5 are equal: on a local network ids and ages decide, not noise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import floor, inf, log10

from tidings.overlay.neighbours import Later, Neighbour, NeighbourLink
from tidings.overlay.pinging import Pinging, RoundTrips
from tidings.overlay.records import WEIGHT_MAX
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.replies import ignore

WINDOW = 8
"""Probes, and times of weighing, that a weight is made from."""
SAMPLES_MIN = 4
"""Round trips that there must be before a link has a weight."""
PADDING = 16 << 10
"""Bytes of padding in a probe."""
WEIGHT_MIN = 5_000
"""Smallest weight, in thousandths."""
CHANGE = 1.25
"""Factor by which a weight must have changed to be announced to others."""
DISAGREE = 10
"""Factor by which the figures of both ends may differ before that is reported."""
LOSS_MAX = 0.9
"""Largest share of lost pings that counts."""
WAIT = 3
"""How many times as long as from one weighing to the next a better tree must be there before it is used."""


def wait_s(settings: OverlaySettings) -> float:
    """Return how long a better tree must be there before it is used."""
    return WAIT * settings.weigh_s or inf


class LinkMeter:
    """Measurements of one link."""

    def __init__(self, settings: OverlaySettings) -> None:
        self._a, self._b = settings.weight_delay, settings.weight_capacity
        self._probe: tuple[object, float] | None = None  # the connection of the one under way, and when
        self._probes: deque[float] = deque(maxlen=WINDOW)
        self._counts: deque[tuple[int, int]] = deque([(0, 0)], maxlen=WINDOW)  # pings sent and lost

    def begin(self, connection: object, now: float) -> bool:
        """Whether to send a probe now: not while another is under way."""
        if not self._b or (self._probe is not None and self._probe[0] is connection):
            return False
        self._probe = connection, now
        return True

    def end(self, connection: object, now: float) -> None:
        """Note the answer to a probe; one of a former connection counts for nothing."""
        if self._probe is not None and self._probe[0] is connection:
            self._probes.append(now - self._probe[1])
            self._probe = None

    def weigh(self, trips: RoundTrips) -> int:
        """Return what the link weighs by this end, in thousandths; 0 if too little is known."""
        sent, lost = self._counts[0]
        self._counts.append((trips.sent, trips.lost))
        least_s = trips.least_s
        if least_s is None or len(trips.samples) < SAMPLES_MIN or (self._b and not self._probes):
            return 0
        longer_s = max(0.0, min(self._probes) - least_s) if self._b else 0.0
        loss = min(LOSS_MAX, max(0, trips.lost - lost) / max(1, trips.sent - sent))
        delay_ms, s_per_mbit = 1000 * least_s / 2, longer_s / (PADDING * 8e-6)
        return rounded(1000 * (self._a * delay_ms + self._b * s_per_mbit) / (1 - loss))


def rounded(weight: float) -> int:
    """Return a weight with two digits, within the limits."""
    weight = min(max(weight, WEIGHT_MIN), WEIGHT_MAX)
    return int(round(weight, 1 - floor(log10(weight))))


def is_news(weight: int, announced: int) -> bool:
    """Whether a weight differs enough from the announced one, 0 for none."""
    return bool(weight) and not announced / CHANGE <= weight <= announced * CHANGE


class Weighing:
    """Weighs the links of a node. `tell` is called with a neighbour's id and what its link weighs now.

    `report` is called with a neighbour and what both ends say when these begin to disagree, this end first.
    """

    def __init__(
        self,
        settings: OverlaySettings,
        broker: Broker,
        links: Iterable[tuple[NeighbourLink, Neighbour]],
        pinging: Pinging,
        topology: Topology,
    ) -> None:
        self.tell: Callable[[str, int], None] = lambda _node, _weight: None
        self.report: Callable[[Neighbour, int, int], None] = lambda _neighbour, _own, _other: None
        self._settings = settings
        self._broker = broker
        self._links = links
        self._pinging = pinging
        self._topology = topology
        self._meters: dict[str, LinkMeter] = {}
        self._disagreeing: set[str] = set()
        self._is_weighing = False

    def begin(self, later: Later) -> None:
        """Weigh all links, as often as the settings say, for as long as there are any; a link is there."""
        if self._is_weighing or not self._settings.weigh_s:
            return

        def again() -> None:
            self._weigh_all()
            self._is_weighing = bool(self._meters)
            if self._is_weighing:
                later(self._settings.weigh_s, again)

        self._is_weighing = True
        later(self._settings.weigh_s, again)

    def _weigh_all(self) -> None:
        links = {neighbour.node: (link, neighbour) for link, neighbour in self._links if link.is_up}
        self._meters = {node: self._meters.get(node) or LinkMeter(self._settings) for node in links}
        self._disagreeing &= links.keys()
        for node, (link, neighbour) in links.items():
            meter = self._meters[node]
            weight = meter.weigh(self._pinging.of(node))
            own, other = self._topology.weights_said(node)
            if is_news(weight, own):
                self.tell(node, weight)
            self._compare(neighbour, own, other)
            self._probe(meter, link)

    def _probe(self, meter: LinkMeter, link: NeighbourLink) -> None:
        if meter.begin(link, self._broker.now):
            call = link.send("link.probe", {"padding": bytes(PADDING)}, "forget")
            call.then(lambda _reply: meter.end(link, self._broker.now), ignore)

    def _compare(self, neighbour: Neighbour, own: int, other: int) -> None:
        """Report if the other end begins to say something quite different."""
        if not (own and other) or max(own, other) <= DISAGREE * min(own, other):
            self._disagreeing.discard(neighbour.node)
        elif neighbour.node not in self._disagreeing:
            self._disagreeing.add(neighbour.node)
            self.report(neighbour, own, other)
