"""Registry of one host: which queues and topics it knows, and which hosts hold them.

Each host has its own, without a server. A holder announces what it holds to every host that it meets, and
these hand the announcement on: at the beginning of a meeting, and while it lasts what is new. Each entry is a
lease: if its holder does not renew it, it ends, and the queue counts as unreachable. An entry made by hand
has no end: it is for hosts that were never met.

A holder may name *deputies*, hosts that it often meets. When its lease has ended, the first of them *stands
in*: it holds the place, by the naming that the holder has signed, until it hears of the holder again, or of a
deputy before it (`vacancies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite
from typing import NamedTuple

from tidings.adhoc.frames import ANNOUNCED_MAX, Announcement, Naming, held
from tidings.adhoc.proofs import Proofs
from tidings.adhoc.vacancies import Vacancies
from tidings.errors import UserError
from tidings.timers import RENEWALS_PER_LEASE, Leases, renewal_s

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
        self.follows = False  # whether it goes to the host of its main reader
        self.replicas = 0  # how many deputies it is to have, if it is held here
        self.deputies: tuple[str, ...] = ()
        self.naming: Naming | None = None  # by which its holder stands in for another one

    @property
    def stands_in_for(self) -> str:
        """The host that is gone in whose place its holder holds it, '' if that holds it for itself."""
        return "" if self.naming is None or self.naming.is_moved else self.naming.holder

    def __repr__(self) -> str:
        return f"<HeldPlace {self.kind} {self.name} at {self.holder}>"


class LeftPlace(NamedTuple):
    """A place that this host has held, and by which naming another holds it now."""

    name: str
    kind: str
    naming: Naming
    holder: str


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
        self.lease_s = lease_s
        self._places_max = places_max
        self._places: dict[str, HeldPlace] = {}
        self._leases: Leases[str] = Leases(self._ends_at)
        self._renew_at = inf  # when the announcements of what is held here have a new number
        self._fresh: dict[str, None] = {}  # what was heard of and is not handed on yet
        self._changed: dict[str, None] = {}  # whose deputies have changed, or that have become vacant
        self._left: list[LeftPlace] = []
        self.vacancies = Vacancies(host, renewal_s(lease_s))
        self.choose: Callable[[HeldPlace, float], tuple[str, ...]] = lambda _place, _now: ()
        """Returns the deputies for a place that is held here; called when it is renewed."""
        self.may_stand_in: Callable[[str, str, str], bool] = lambda _name, _kind, _holder: True
        """Whether this host can stand in for the holder of a place."""

    @property
    def wake_at(self) -> float:
        """When `due` has announcements for the hosts that are here, or this host may have to stand in."""
        return min(self._renew_at, self.vacancies.wake_at)

    @property
    def held(self) -> dict[str, HeldPlace]:
        """What is held here, or was entered by hand: by name, without an end."""
        return {name: place for name, place in self._places.items() if place.ends_at == inf}

    def holding(self, name: str) -> HeldPlace | None:
        """The same of this name."""
        place = self._places.get(name)
        return place if place is not None and place.ends_at == inf else None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[HeldPlace]:
        return iter(list(self._places.values()))

    def _ends_at(self, name: str) -> float:
        place = self._places.get(name)
        return inf if place is None else place.ends_at

    def hold(self, name: str, kind: str = "queue", replicas: int = 0) -> HeldPlace:
        """Hold a queue or a topic here from now on, with so many deputies."""
        self._renew_at = -inf
        place = HeldPlace(name, kind, self.host)
        place.replicas = replicas
        return self._put(place)

    def stand_in(self, name: str, kind: str, naming: Naming, replicas: int = 0) -> HeldPlace:
        """Hold a place for the host that has named this one."""
        place = self.hold(name, kind, replicas)
        place.naming = naming
        return place

    def add(self, name: str, holder: str, kind: str = "queue") -> HeldPlace:
        """Make an entry by hand, for a host that was never met; it has no end."""
        return self._put(HeldPlace(name, kind, holder))

    def _put(self, place: HeldPlace) -> HeldPlace:
        if place.name not in self._places and len(self._places) >= self._places_max:
            raise UserError(f"the registry has {self._places_max} entries; remove one first")
        self._places[place.name] = place
        self._leases.cancel(place.name)
        return place

    def remove(self, name: str) -> None:
        """Forget an entry; one that others announce comes back with the next announcement."""
        self._places.pop(name, None)
        self._leases.cancel(name)
        self.vacancies.forget(name)

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

    def offer(self, name: str, host: str, now: float) -> Naming:
        """Name a host that may hold a place from now on, for a lease."""
        stamp = self._epoch, self._number(now) + RENEWALS_PER_LEASE
        about = held(name, self._places[name].kind, self.host, *stamp, (host,), True)
        return Naming(self.host, *stamp, (host,), self._proofs.sign(about), True)

    def take_over(self, now: float) -> list[HeldPlace]:
        """Stand in for holders whose leases have ended, where it is the turn of this host."""
        self._sweep(now)
        taken = []
        for name, kind, naming, _ in self.vacancies.due(now):
            if name not in self._places and self.may_stand_in(name, kind, naming.holder):
                taken.append(self.stand_in(name, kind, naming))
        return taken

    def take_left(self) -> list[LeftPlace]:
        """Return the places that this host holds no longer since this was asked last."""
        left, self._left = self._left, []
        return left

    def take_changed(self) -> list[str]:
        """Return the places for which deputies were named since this was asked last, here or elsewhere."""
        changed, self._changed = self._changed, {}
        return list(changed)

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
        return int(now / renewal_s(self.lease_s)) + 1

    def _left_s(self, now: float) -> float:
        """Seconds until it grows; a little more, so that it has grown then whatever is rounded."""
        return max(0.0, self._number(now) * renewal_s(self.lease_s) - now) + 1e-3

    def _is_announced(self, place: HeldPlace) -> bool:
        return place.holder == self.host or place.ends_at < inf

    def _announcement(self, place: HeldPlace, now: float) -> Announcement:
        is_own, stamp = place.holder == self.host, (self._epoch, self._number(now))
        if is_own and stamp != place.stamp:
            self._renew(place, stamp, now)
        left_s = self.lease_s if is_own else place.ends_at - now
        about = place.name, place.kind, place.holder, *place.stamp
        return Announcement(*about, left_s, place.proof, place.deputies, place.naming)

    def _renew(self, place: HeldPlace, stamp: tuple[int, int], now: float) -> None:
        """Sign a place anew, with the deputies that it has from now on."""
        deputies = self.choose(place, now) if place.replicas else ()
        if deputies != place.deputies:
            self._changed[place.name] = None
        place.stamp, place.deputies = stamp, deputies
        place.proof = self._proofs.sign(held(place.name, place.kind, self.host, *stamp, deputies))

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
        """Whether an announcement replaces an entry. One of this host, or by hand, is not replaced.

        Where a host stands in for another, that one replaces it by what it has said after the naming, and so
        does another deputy that was named later, or before it in the same naming.
        """
        if known.ends_at <= now:
            return True
        if one.holder == known.holder:
            return known.ends_at < inf and one.stamp > known.stamp
        if known.ends_at == inf and known.holder != self.host:
            return False
        if one.naming is not None and one.naming.is_moved and one.naming.holder == known.holder:
            return one.naming.stamp > known.stamp
        if known.naming is None:
            return False
        if one.holder == known.naming.holder:
            return one.stamp > known.naming.stamp
        if one.naming is None or one.naming.holder != known.naming.holder:
            return False
        return _precedence(one.naming, one.holder) > _precedence(known.naming, known.holder)

    def _is_fine(self, one: Announcement) -> bool:
        is_alive = isfinite(one.left_s) and one.left_s > 0
        if not is_alive or not self._proofs.verify(one.holder, one.signed, one.proof):
            return False
        return one.naming is None or self._is_named(one, one.naming)

    def _is_named(self, one: Announcement, naming: Naming) -> bool:
        return one.holder in naming.deputies and self.has_named(one.name, one.kind, naming)

    def has_named(self, name: str, kind: str, naming: Naming) -> bool:
        """Whether the holder of a place has made this naming."""
        about = held(name, kind, naming.holder, *naming.stamp, naming.deputies, naming.is_moved)
        return self._proofs.verify(naming.holder, about, naming.proof)

    def _believe(self, one: Announcement, now: float) -> None:
        known = self._places.get(one.name)
        if known is not None and known.holder == self.host:
            naming = known.naming or one.naming
            assert naming is not None, "one that is held for no other is left to a host that was named"
            self._left.append(LeftPlace(one.name, known.kind, naming, one.holder))
        place = HeldPlace(one.name, one.kind, one.holder)
        place.stamp, place.proof = one.stamp, one.proof
        place.deputies, place.naming = one.deputies, one.naming
        place.ends_at = now + min(one.left_s, LEASE_S_MAX)
        self._places[one.name] = place
        self._fresh[one.name] = None
        self._leases.watch(one.name)
        said = Naming(one.holder, *one.stamp, one.deputies, one.proof) if one.deputies else one.naming
        if self.vacancies.note(one.name, one.kind, said, place.ends_at):
            self._changed[one.name] = None


def _precedence(naming: Naming, deputy: str) -> tuple[int, int, int]:
    """The deputy for whom this is highest is to stand in."""
    place = naming.deputies.index(deputy) if deputy in naming.deputies else len(naming.deputies)
    return *naming.stamp, -place
