"""Spreading: what clients and neighbours of a node want and offer goes to all its other neighbours.

A new neighbour gets all of it in steps (`Announcer.prepare`). What comes while these are under way goes to it
at once, and what goes is not announced to it by a later step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.interest import Advertisement
from tidings.overlay.inboxes import is_for_inboxes
from tidings.overlay.neighbours import KnownNeighbours, Neighbour
from tidings.overlay.new_offers import NewOffers, UndeclaredTypes
from tidings.protocol.broker import Broker
from tidings.protocol.channels import is_of_channel
from tidings.steps import Steps


class Spreading:
    """The exchange's watcher, which hears what clients want and offer.

    `offers_all`: anything may be published here, advertised or not.
    """

    def __init__(
        self, broker: Broker, known: KnownNeighbours, new_offers: NewOffers, offers_all: bool
    ) -> None:
        self._exchange = broker.exchange
        self._known = known
        self._new_offers = new_offers
        self._offers: dict[Hashable, Filter] = {"all": Filter()} if offers_all else {}
        self._offers_all = offers_all
        self._undeclared = UndeclaredTypes(self._offer_all_others)
        self._exchange.watcher = self
        self.on_offer: Callable[[str, Filter | None], None] = lambda _node, _offer: None
        """Called first, with what a neighbour, or with "" a client here, offers; None: something less."""
        if not offers_all:
            broker.before_publishing = self._undeclared.look

    def is_offered(self, filter: Filter) -> bool:
        """Whether anything that is published at this node may match."""
        return any(offer.overlaps(filter) for offer in self._offers.values())

    # New neighbours

    def let_in(self, neighbour: Neighbour) -> None:
        """Announce to a neighbour what all others want and offer."""
        neighbour.announcer.prepare(self._want_all(neighbour))
        neighbour.offerer.prepare(self._offer_all(neighbour))

    def _want_all(self, neighbour: Neighbour) -> Steps[None]:
        """Want from a neighbour what clients and all other neighbours want; what comes meanwhile is added."""
        announced = self._exchange.announced
        for subscription in list(announced):
            if subscription in announced and subscription not in neighbour.wants:
                _want(neighbour, subscription)
            yield
        for other in self._known.others(neighbour):
            for text in list(other.table.entries if other.table is not None else ()):
                is_there = other.table is not None and text in other.table.entries
                if is_there and (other.node, text) not in neighbour.wants:
                    self._pass_on(other, text, neighbour)
                yield

    def _offer_all(self, neighbour: Neighbour) -> Steps[None]:
        """Offer a neighbour what clients and all other neighbours offer; what comes meanwhile is added."""
        for key in list(self._offers):
            if key in self._offers:
                self._offer(neighbour, key, self._offers[key])
            yield
        for other in self._known.others(neighbour):
            for text in list(other.wants.offers):
                if text in other.wants.offers:
                    self._offer(neighbour, (other.node, text), other.wants.offers[text])
                yield
        for key, filter in self._new_offers.ending().items():
            if key not in neighbour.offerer:
                self._new_offers.offer(neighbour, key, filter)
                self._new_offers.remove(neighbour, key)
            yield

    def _offer(self, neighbour: Neighbour, key: Hashable, filter: Filter) -> None:
        if self._offers_all:
            neighbour.offerer.add(key, filter, passive=False)
        else:
            self._new_offers.offer(neighbour, key, filter)

    # Clients

    def subscribed(self, subscription: NodeSubscription) -> None:
        """Announce what a client of this node wants."""
        for neighbour in self._known.others(None):
            _want(neighbour, subscription)

    def unsubscribed(self, subscription: NodeSubscription) -> None:
        """Announce it no longer."""
        self._want_no_more(subscription, self._known.others(None))

    def advertised(self, advertisement: Advertisement) -> None:
        """Offer what a client of this node advertises."""
        if not self._offers_all:
            self._undeclared.declare(advertisement, advertisement.filter)
            self._offer_all_others(advertisement, advertisement.filter)

    def _offer_all_others(self, key: Hashable, filter: Filter) -> None:
        """Offer all neighbours something more that is published here."""
        self.on_offer("", filter)
        self._offers[key] = filter
        for neighbour in self._known.others(None):
            self._new_offers.add(neighbour, key, filter)

    def withdrawn(self, advertisement: Advertisement) -> None:
        """Offer it no longer."""
        self.on_offer("", None)
        if self._offers.pop(advertisement, None) is not None:
            self._undeclared.withdraw(advertisement)
            self._offer_no_more(advertisement, self._known.others(None))

    # Neighbours

    def offer(self, neighbour: Neighbour, text: str, _passive: bool) -> None:
        """A neighbour offers something: offer it to the others, unless it has before."""
        if not neighbour.wants.offer(text):
            return
        key, filter = (neighbour.node, text), neighbour.wants.offers[text]
        self.on_offer(neighbour.node, filter)
        for other in self._known.others(neighbour):
            if self._offers_all:  # filters have come from all sides already
                other.offerer.add(key, filter, passive=False)
            else:
                self._new_offers.add(other, key, filter)

    def withdraw(self, neighbour: Neighbour, text: str) -> None:
        """A neighbour does not offer something any more."""
        if neighbour.wants.withdraw(text):
            self.on_offer(neighbour.node, None)
            self._offer_no_more((neighbour.node, text), self._known.others(neighbour))

    def announce(self, neighbour: Neighbour, text: str) -> None:
        """Announce to the others what a neighbour wants."""
        for other in self._known.others(neighbour):
            self._pass_on(neighbour, text, other)

    def _pass_on(self, neighbour: Neighbour, text: str, other: Neighbour) -> None:
        """Want from another what a neighbour wants; channels know by themselves who takes part."""
        assert neighbour.table is not None
        if not is_of_channel(text):
            entry = neighbour.table.entries[text]
            other.wants.add((neighbour.node, text), entry.granted, entry.passive)

    def forget(self, neighbour: Neighbour, text: str) -> None:
        """A neighbour does not want something any more."""
        assert neighbour.table is not None
        if neighbour.table.remove(text):
            self._want_no_more((neighbour.node, text), self._known.others(neighbour))

    def _want_no_more(self, key: Hashable, neighbours: list[Neighbour]) -> None:
        """Want something no longer from these, as far as they were reached already (`_want_all`)."""
        for one in neighbours:
            if key in one.wants:
                one.wants.remove(key)

    def _offer_no_more(self, key: Hashable, neighbours: list[Neighbour]) -> None:
        """Offer something no longer to these, as far as they were reached already (`_offer_all`)."""
        for one in neighbours:
            if key not in one.offerer:
                continue
            if self._offers_all:
                one.offerer.remove(key)
            else:
                self._new_offers.remove(one, key)


def _want(neighbour: Neighbour, subscription: NodeSubscription) -> None:
    """Want from a neighbour what a client of this node wants; answers to inboxes come without asking."""
    if subscription.but_from != neighbour.node and not is_for_inboxes(subscription.filter):
        neighbour.wants.add(subscription, subscription.filter, subscription.passive)
    elif subscription in neighbour.wants:
        neighbour.wants.remove(subscription)
