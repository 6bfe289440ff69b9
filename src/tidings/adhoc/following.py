"""Queues that follow their main reader: one goes to the host whose clients want most to read it.

A host whose clients ask for messages of a queue to which there is no path says so to the holder, once in a
*period* in which they do. The holder counts the periods in which its own clients get messages likewise. When
another host has twice as many, of which earlier ones weigh less, the holder *offers* it the queue: a naming
by which that host may hold it at once. The offer lasts for a lease. When the holder hears that it was taken,
it hands over what is in the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
from msgspec import Struct

from tidings.adhoc.effects import TakePlace
from tidings.adhoc.frames import DEPUTIES_MAX, Naming
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import CarriedMessage
from tidings.adhoc.recent_counts import RecentCounts

PERIODS = 60
"""Periods of one lease."""
READ_MIN = 4.5
"""Periods in which a host wants to read, of which earlier ones weigh less, before a queue goes there."""
WISHES_MAX = 1_000
"""Queues of other hosts that clients here want to read."""


class QueueOffer(Struct, frozen=True, array_like=True):
    """Offer of a queue to one host; `about` describes it as the drivers of the hosts do."""

    naming: Naming
    replicas: int = 0
    about: bytes = b""


class FollowedQueues:
    """Queues that one host holds and offers, and those that it wants to read."""

    def __init__(self, host: AdhocHost) -> None:
        self._host = host
        self._period_s = host.registry.lease_s / PERIODS
        self._readers: dict[str, RecentCounts] = {}
        self._noted: dict[str, float] = {}  # when clients here were noted last as readers
        self._wishes: dict[str, float] = {}  # when it was said last that clients here want one
        self._offered: dict[str, float] = {}  # when another offer may be made
        self.describe: Callable[[str], bytes | None] = lambda _queue: b""
        """Returns what the next holder of a queue has to know of it, None for one that can't be moved."""

    # At hosts that want to read

    def wish(self, queue: str, now: float) -> str | None:
        """A client here wants to read a queue: return the host to which that is to be said, None for none."""
        place = self._host.registry.find(queue, now)
        if place is None or place.holder == self._host.name or place.kind != "queue":
            return None
        if now < self._wishes.get(queue, -inf) + self._period_s:
            return None
        self._wishes.pop(queue, None)
        self._wishes[queue] = now
        if len(self._wishes) > WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]
        return place.holder

    def take(self, queue: str, message: CarriedMessage, now: float) -> TakePlace | None:
        """Take an offer of the holder, if clients here still want to read the queue."""
        registry, sender = self._host.registry, message.id.system
        try:
            offer = msgspec.msgpack.decode(message.raw, type=QueueOffer)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None
        naming, known = offer.naming, registry.find(queue, now)
        is_ours = naming.is_moved and naming.holder == sender and naming.deputies == (self._host.name,)
        is_wanted = now < self._wishes.get(queue, -inf) + registry.lease_s
        if not is_ours or not is_wanted or not registry.has_named(queue, "queue", naming):
            return None
        is_free = known is None or (known.holder == sender and known.stamp < naming.stamp)
        if not is_free or not registry.may_stand_in(queue, "queue", sender):
            return None
        replicas = min(max(0, offer.replicas), DEPUTIES_MAX)
        registry.stand_in(queue, "queue", naming, replicas).follows = True
        return TakePlace(queue, "queue", offer.about)

    # At the holder

    def note(self, queue: str, host: str, now: float) -> bool:
        """Note that clients of a host read a queue that is held here, or want to; False for any other."""
        place = self._host.registry.holding(queue)
        if place is None or not place.follows or place.holder != self._host.name:
            return False
        readers = self._readers.setdefault(queue, RecentCounts(self._host.registry.lease_s))
        if host == self._host.name:
            if now < self._noted.get(queue, -inf) + self._period_s:
                return True
            self._noted[queue] = now
        elif not self._host.may_deputise(place, host):
            return False
        readers.add(host, now)
        return True

    def offers(self, now: float) -> list[tuple[str, str, QueueOffer]]:
        """Return the queues that are offered to other hosts now: each with its host."""
        made = []
        for queue, readers in list(self._readers.items()):
            place = self._host.registry.holding(queue)
            if place is None or not place.follows:
                del self._readers[queue]
                self._noted.pop(queue, None)
                self._offered.pop(queue, None)
                continue
            host = self._main(readers, now)
            if host is None or now < self._offered.get(queue, -inf) or place.holder != self._host.name:
                continue
            about = self.describe(queue)
            if about is not None:
                self._offered[queue] = now + self._host.registry.lease_s
                naming = self._host.registry.offer(queue, host, now)
                made.append((queue, host, QueueOffer(naming, place.replicas, about)))
        return made

    def _main(self, readers: RecentCounts, now: float) -> str | None:
        """The host to which a queue belongs more than to this one."""
        weights = readers.weights(now)
        own = weights.pop(self._host.name, 0.0)
        if not weights:
            return None
        main = max(weights, key=lambda host: (weights[host], host))
        return main if weights[main] > max(2 * own, READ_MIN) else None
