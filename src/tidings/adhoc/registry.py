"""Registry of one host: which queues and topics it knows, and which hosts hold them.

Each host has its own, without a server. A holder announces what it holds to every host that it meets, and
these hand the announcement on: at the beginning of a meeting, and while it lasts what is new. Each entry is a
lease: if its holder does not renew it, it ends, and the queue counts as unreachable. An entry made by hand
has no end: it is for hosts that were never met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isfinite

from msgspec.structs import replace

from tidings.adhoc.frames import ANNOUNCED_MAX, Announcement
from tidings.adhoc.proofs import Proofs
from tidings.errors import UserError
from tidings.timers import Leases, renewal_s

LEASE_S = 3_600.0
"""How long an announcement holds without renewal."""
LEASE_S_MAX = 86_400.0
"""How long one of another host is believed at most."""


class HeldPlace:
    """A queue or a topic, and the host that holds it."""

    def __init__(self, name: str, kind: str, holder: str) -> None:
        self.name = name
        self.kind = kind
        self.holder = holder
        self.stamp = 0, 0  # epoch of the holder, and a number that grows with each renewal
        self.ends_at = inf
        self.proof = b""

    def __repr__(self) -> str:
        return f"<HeldPlace {self.kind} {self.name} at {self.holder}>"


class PlaceRegistry:
    """The queues and topics that a host knows, by name."""

    def __init__(
        self,
        host: str,
        proofs: Proofs,
        epoch: int = 0,
        lease_s: float = LEASE_S,
        places_max: int = ANNOUNCED_MAX,
    ) -> None:
        """`epoch` is that of the host's ids: one that starts again announces anew."""
        self.host = host
        self._proofs = proofs
        self._epoch = epoch
        self._lease_s = lease_s
        self._places_max = places_max
        self._places: dict[str, HeldPlace] = {}
        self._leases: Leases[str] = Leases(self._ends_at)
        self._renew_at = inf  # when the announcements of what is held here have a new number
        self._fresh: dict[str, None] = {}  # what was heard of and is not handed on yet

    @property
    def wake_at(self) -> float:
        """When `due` has announcements for the hosts that are here."""
        return self._renew_at

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[HeldPlace]:
        return iter(list(self._places.values()))

    def _ends_at(self, name: str) -> float:
        place = self._places.get(name)
        return inf if place is None else place.ends_at

    def hold(self, name: str, kind: str = "queue") -> HeldPlace:
        """Hold a queue or a topic here from now on."""
        self._renew_at = -inf
        return self._put(HeldPlace(name, kind, self.host))

    def add(self, name: str, holder: str, kind: str = "queue") -> HeldPlace:
        """Make an entry by hand, for a host that was never met; it has no end."""
        return self._put(HeldPlace(name, kind, holder))

    def _put(self, place: HeldPlace) -> HeldPlace:
        if place.name not in self._places and len(self._places) >= self._places_max:
            raise UserError(f"the registry has {self._places_max} entries; remove one first")
        self._places[place.name] = place
        return place

    def remove(self, name: str) -> None:
        """Forget an entry; one that others announce comes back with the next announcement."""
        self._places.pop(name, None)
        self._leases.cancel(name)

    def find(self, name: str, now: float) -> HeldPlace | None:
        """The queue or topic of this name, None if none is known to be reachable."""
        self._sweep(now)
        return self._places.get(name)

    def _sweep(self, now: float) -> None:
        for name in self._leases.ended(now):
            del self._places[name]

    def announced(self, now: float) -> tuple[Announcement, ...]:
        """Announcements for another host: of what is held here, renewed in time, and those of others."""
        self._sweep(now)
        return tuple(
            self._announcement(place, now) for place in self._places.values() if self._is_announced(place)
        )

    def due(self, now: float) -> tuple[Announcement, ...]:
        """Announcements that hosts must have which are here since before: of what is held here, renewed."""
        if now < self._renew_at:
            return ()
        own = [place for place in self._places.values() if place.holder == self.host]
        self._renew_at = now + self._left_s(now) if own else inf
        return tuple(self._announcement(place, now) for place in own)

    def take_fresh(self, now: float) -> tuple[Announcement, ...]:
        """Return what was heard of other hosts since this was asked last, to be handed on."""
        fresh, self._fresh = self._fresh, {}
        places = [self._places[name] for name in fresh if name in self._places]
        return tuple(self._announcement(place, now) for place in places if place.ends_at > now)

    def _number(self, now: float) -> int:
        """A number that grows with each renewal."""
        return int(now / renewal_s(self._lease_s)) + 1

    def _left_s(self, now: float) -> float:
        """Seconds until it grows; a little more, so that it has grown then whatever is rounded."""
        return max(0.0, self._number(now) * renewal_s(self._lease_s) - now) + 1e-3

    def _is_announced(self, place: HeldPlace) -> bool:
        return place.holder == self.host or place.ends_at < inf

    def _announcement(self, place: HeldPlace, now: float) -> Announcement:
        if place.holder != self.host:
            left_s = place.ends_at - now
            return Announcement(place.name, place.kind, place.holder, *place.stamp, left_s, place.proof)
        stamp = self._epoch, self._number(now)
        made = Announcement(place.name, place.kind, self.host, *stamp, self._lease_s)
        if stamp != place.stamp:
            place.stamp, place.proof = stamp, self._proofs.sign(made.signed)
        return replace(made, proof=place.proof)

    def hear(self, announcements: Iterable[Announcement], now: float) -> int:
        """Take the announcements of another host; the number of those that were refused."""
        refused = 0
        for one in announcements:
            known = self._places.get(one.name)
            if known is not None and not self._is_newer(one, known, now):
                continue
            is_full = known is None and len(self._places) >= self._places_max
            if one.holder == self.host or is_full or not self._is_fine(one):
                refused += 1
            else:
                self._believe(one, now)
        return refused

    def _is_newer(self, one: Announcement, known: HeldPlace, now: float) -> bool:
        """Whether an announcement renews an entry. An entry of this host, or by hand, is not replaced."""
        if known.ends_at == inf:
            return False
        return known.ends_at <= now or (one.holder == known.holder and (one.epoch, one.number) > known.stamp)

    def _is_fine(self, one: Announcement) -> bool:
        is_alive = isfinite(one.left_s) and one.left_s > 0
        return is_alive and self._proofs.verify(one.holder, one.signed, one.proof)

    def _believe(self, one: Announcement, now: float) -> None:
        place = HeldPlace(one.name, one.kind, one.holder)
        place.stamp, place.proof = (one.epoch, one.number), one.proof
        place.ends_at = now + min(one.left_s, LEASE_S_MAX)
        self._places[one.name] = place
        self._fresh[one.name] = None
        self._leases.watch(one.name)
