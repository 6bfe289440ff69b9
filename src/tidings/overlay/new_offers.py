"""New offers: what is published under an advertisement waits until the neighbours have answered it.

Where nodes offer what is declared, no filter has come from where nothing was offered. An advertiser may
publish at once, so until a neighbour has answered a new offer it is *expected* to want all that matches it:
reliable events are stored for it, and judged when it has announced what is wanted of them. It answers when
all behind it have (`waiting.py`). One behind a link that is cut can't; the node at this link expects the same
of it, until it is back, and announces that as its own wish.

An offer is withdrawn from a neighbour when that has answered it and has stored all that was published
before: else the filters would be gone by which that is judged. For that offers are stored: a node that
starts again makes them once more, and withdraws them in this way.

Events that no client has advertised are offered by their type, from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from tidings.event import Batch
from tidings.filters import Filter
from tidings.matching import Index
from tidings.overlay.neighbours import KnownNeighbours, Later, Neighbour, rights_of
from tidings.overlay.waiting import SidesOf, ask
from tidings.protocol.arguments import InForce
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind

UNDECLARED_MAX = 1_000
"""Types that are offered though no client advertises them; past this, everything is."""
UNANSWERED_MAX = 3
"""Questions that a neighbour leaves without an answer, though it is there; then nothing waits for it."""

Log = Callable[..., None]


class StoredOffer(Struct, frozen=True):
    """The stored record of an offer."""

    filter: str


OFFERS: RecordKind[tuple[str], StoredOffer] = RecordKind("overlay-offer", StoredOffer)


class _Expected:
    """Offers that one neighbour has not answered, with what it may have of them."""

    def __init__(self) -> None:
        self.filters: dict[Hashable, Filter] = {}
        self.asked: list[Hashable] | None = None  # the offers of a question that is under way
        self.failed = 0  # questions without an answer, one after the other
        self.is_shared = False  # other neighbours are asked for what is expected to be wanted


class NewOffers:
    """Offers to the neighbours of a node, from when they are announced until they may go."""

    def __init__(self, broker: Broker, known: KnownNeighbours, later: Later, sides_of: SidesOf) -> None:
        self._broker = broker
        self._known = known
        self._later = later
        self._sides_of = sides_of
        self._expected: dict[Neighbour, _Expected] = {}
        self._offered: dict[tuple[Neighbour, Hashable], Filter] = {}
        self._ending: dict[tuple[Neighbour, Hashable], int] = {}  # with the position to be stored before
        self._stored: dict[str, int] = {}  # how many of the offers have this text
        self.log: Log = lambda *_arguments, **_more: None

    # Offers

    def restore(self) -> None:
        """Offer once more what was offered before this start: events of it may be stored."""
        for (name,), stored in list(OFFERS.known(self._broker.state).items()):
            for neighbour in self._known.others(None):
                key = "before", stored.filter
                self.add(neighbour, key, Filter(stored.filter))
                self.remove(neighbour, key)
            if stored.filter not in self._stored:
                self._broker.store(OFFERS.drop((name,)))

    def offer(self, neighbour: Neighbour, key: Hashable, filter: Filter) -> None:
        """Offer something to a neighbour that is new itself."""
        self._ending.pop((neighbour, key), None)
        neighbour.offerer.add(key, filter, passive=False)
        if (neighbour, key) not in self._offered:
            self._offered[neighbour, key] = filter
            text = str(filter)
            self._stored[text] = self._stored.get(text, 0) + 1
            if self._stored[text] == 1:
                self._broker.store(OFFERS.set(_record_key(text), StoredOffer(text)))

    def _unstore(self, neighbour: Neighbour, key: Hashable) -> None:
        text = str(self._offered.pop((neighbour, key)))
        self._stored[text] -= 1
        if not self._stored[text]:
            del self._stored[text]
            self._broker.store(OFFERS.drop(_record_key(text)))

    def ending(self) -> dict[Hashable, Filter]:
        """Return the offers that are withdrawn, of which not all neighbours have stored everything."""
        return {one[1]: self._offered[one] for one in self._ending}

    def add(self, neighbour: Neighbour, key: Hashable, filter: Filter) -> None:
        """Offer something to a neighbour, and keep what is published of it until that has answered."""
        self.offer(neighbour, key, filter)
        expected = self._expected.setdefault(neighbour, _Expected())
        if neighbour.table is None or neighbour.cursor is None or key in expected.filters:
            return
        granted = expected.filters[key] = rights_of(self._broker, neighbour).reach(filter)
        neighbour.table.match(granted)
        neighbour.cursor.expect(is_answered=False)
        if expected.is_shared:
            self._share(neighbour, key, granted)

    def remove(self, neighbour: Neighbour, key: Hashable) -> None:
        """Withdraw an offer, when all that was published of it has arrived."""
        if (neighbour, key) in self._offered:
            self._ending[neighbour, key] = self._broker.position

    def forget(self, neighbour: Neighbour) -> None:
        """Expect nothing of a neighbour any more, for which nothing is kept."""
        expected = self._expected.pop(neighbour, None)
        if expected is not None:
            self._settle(neighbour, expected, list(expected.filters))
        for one in [one for one in self._offered if one[0] is neighbour]:
            self._ending.pop(one, None)
            self._unstore(*one)

    # Answers

    def work(self) -> None:
        """Ask those that have not answered, and withdraw what may go."""
        for neighbour, expected in list(self._expected.items()):
            is_there = neighbour.is_up and neighbour.is_in_tree
            if expected.filters and expected.asked is None and is_there:
                expected.asked = list(expected.filters)
                reply = ask(neighbour, True, [], self._later, self._sides_of)
                reply.then(partial(self._told, neighbour, expected), lambda _error: None)
        for (neighbour, key), position in list(self._ending.items()):
            if self._may_go(neighbour, key, position):
                del self._ending[neighbour, key]
                self._unstore(neighbour, key)
                if key in neighbour.offerer:
                    neighbour.offerer.remove(key)

    def _may_go(self, neighbour: Neighbour, key: Hashable, position: int) -> bool:
        cursor, expected = neighbour.cursor, self._expected.get(neighbour)
        is_answered = expected is None or key not in expected.filters
        return cursor is None or (is_answered and cursor.confirmed(0) >= position)

    def _told(self, neighbour: Neighbour, expected: _Expected, told: InForce) -> None:
        asked, expected.asked = expected.asked or [], None
        if told.nodes:
            expected.failed = 0
        elif not neighbour.is_up:
            return  # it is asked when it is back
        else:
            expected.failed += 1
            if expected.failed < UNANSWERED_MAX:
                return
            expected.failed = 0
            self._broker.count("offers_unanswered")
            self.log("warning", "a neighbour does not answer what is offered", node=neighbour.node)
        self._settle(neighbour, expected, asked)

    def _settle(self, neighbour: Neighbour, expected: _Expected, keys: list[Hashable]) -> None:
        """A neighbour has announced what it wants of some offers: judge by that."""
        for key in keys:
            granted = expected.filters.pop(key, None)
            if granted is not None and neighbour.table is not None:
                neighbour.table.unmatch(granted)
            for other in self._known.others(neighbour) if expected.is_shared else ():
                if _share_key(neighbour, key) in other.wants:
                    other.wants.remove(_share_key(neighbour, key))
        if not expected.filters:
            expected.is_shared = False
            if neighbour.cursor is not None:
                neighbour.cursor.expect(is_answered=True)

    # Neighbours that can't answer

    def heard(self, neighbour: Neighbour, told: InForce) -> InForce:
        """A neighbour was asked for another one: if it can't answer, want all from the others that it may."""
        expected = self._expected.get(neighbour)
        if not told.nodes and expected is not None and not expected.is_shared:
            expected.is_shared = True
            for key, granted in expected.filters.items():
                self._share(neighbour, key, granted)
        return told

    def _share(self, neighbour: Neighbour, key: Hashable, granted: Filter) -> None:
        for other in self._known.others(neighbour):
            other.wants.add(_share_key(neighbour, key), granted, passive=True)


def _record_key(text: str) -> tuple[str]:
    return (blake2b(text.encode(), digest_size=16).hexdigest(),)


def _share_key(neighbour: Neighbour, key: Hashable) -> Hashable:
    return "expected", neighbour.node, key


class UndeclaredTypes:
    """Types of events that are published here and that no client advertises; `offer` is called with each."""

    def __init__(self, offer: Callable[[Hashable, Filter], None]) -> None:
        self._offer = offer
        self._declared: Index[Any] = Index()
        self._types = 0

    def declare(self, key: Hashable, filter: Filter) -> None:
        """Note what is offered here."""
        self._declared.add(key, filter)

    def withdraw(self, key: Hashable) -> None:
        """Note that it is not any more."""
        self._declared.remove(key)

    def look(self, batch: Batch) -> bool:
        """Offer what is about to be published, as far as it is not offered yet; whether that was any."""
        found = {int(row) for _, rows in self._declared.match_items(batch) for row in rows}
        if len(found) == len(batch):
            return False
        for kind in dict.fromkeys(batch[row].type for row in range(len(batch)) if row not in found):
            self._types += 1
            is_one = self._types <= UNDECLARED_MAX
            filter = Filter("type = :type", type=kind) if is_one else Filter()
            key = "undeclared", kind if is_one else None
            self.declare(key, filter)
            self._offer(key, filter)
            if not is_one:
                break
        return True
