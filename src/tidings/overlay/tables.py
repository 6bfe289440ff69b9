"""Tables: what this node and the neighbours over active links announce to each other, wishes and offers.

This node announces to each neighbour, as a covering set, what its own clients want and what all other
neighbours have announced. Offers go the same way, and before wishes, since only what overlaps an offer is
announced. As long as the table of some neighbour may be out of date nothing is taken back from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from tidings.errors import Refused
from tidings.overlay.announcing import Announcer
from tidings.overlay.neighbours import UNKNOWN, KnownNeighbours, Neighbour, rights_of
from tidings.overlay.pruning import OFFERS_MAX
from tidings.overlay.receiving import TableChange
from tidings.overlay.relaying import LinkCursor
from tidings.overlay.spreading import Spreading
from tidings.overlay.table import NeighbourTable
from tidings.protocol.broker import Broker
from tidings.steps import Steps

STEPS_MAX = 10_000
"""Steps after which what was worked out so far is announced, though more is to be."""


class Tables:
    """Tables of a node and its neighbours."""

    def __init__(
        self,
        broker: Broker,
        known: KnownNeighbours,
        spreading: Spreading,
        is_waiting: Callable[[], bool],
    ) -> None:
        """`is_waiting` returns whether this node does not know the ways of its channels."""
        self._broker = broker
        self._known = known
        self._spreading = spreading
        self._is_waiting = is_waiting
        self._was_waiting = False

    # What is announced to neighbours

    def answered(self, neighbour: Neighbour) -> None:
        """Begin to announce, if the neighbour relays and has told what it knows: offers before wishes."""
        link, intake = neighbour.link, neighbour.intake
        if link is None or intake is None or not intake.is_begun:
            return
        if link.table_there is None or link.offers_there is None:
            return
        # The digests are those of when the link came up: they hold for the first time that it is used. If it
        # stood by since then the neighbour is to hear of that: it may have to say again what it has in mind.
        if neighbour.offerer.state == "down":
            digest, is_agreed = link.offers_there
            neighbour.offerer.up(link.connection, digest, is_agreed and not link.is_anew)
            link.offers_there = UNKNOWN
        if neighbour.has_offered and neighbour.announcer.state == "down":
            digest, is_agreed = link.table_there
            neighbour.announcer.up(link.connection, digest, is_agreed and not link.is_anew)
            link.table_there = UNKNOWN

    def announce(self) -> None:
        """Work out what has changed, in steps, and send it."""
        for neighbour in self._known.others(None):
            for announcer in (neighbour.offerer, neighbour.announcer):
                if not announcer.is_working and announcer.is_due:
                    announcer.is_working = True
                    self._broker.background.begin(_announcing(announcer))

    def settle(self) -> None:
        """See to which neighbours less may be announced than before.

        To none while this node does not know the ways of its channels: what it wanted of them, or was taken
        to want, it may want again.
        """
        active = self._known.in_tree
        self._was_waiting = self._is_waiting()
        for neighbour in active:
            are_settled = all(one.is_settled or one is neighbour for one in active)
            neighbour.announcer.may_narrow = are_settled and not self._was_waiting
            neighbour.offerer.may_narrow = all(one.has_offered or one is neighbour for one in active)

    def look(self) -> None:
        """See whether the ways of channels are known by now, or are not any more."""
        if self._is_waiting() is not self._was_waiting:
            self.settle()

    # What they announce

    def change_table(self, neighbour: Neighbour, change: TableChange) -> Steps[dict[str, Any]]:
        """A neighbour wants more, or less; the reply leaves when that is stored."""
        self._hear_anew(neighbour, change)
        table, principal = neighbour.table, rights_of(self._broker, neighbour)
        assert table is not None

        def add(text: str, passive: bool) -> None:
            if table.add(text, passive, principal):
                self._spreading.announce(neighbour, text)

        yield from neighbour.wanting.steps(
            change, table.entries, add, partial(self._spreading.forget, neighbour)
        )
        if change.done:
            neighbour.is_settled = change.agrees(table.digest)
            self.settle()
        return change.answer(table.digest)

    def _hear_anew(self, neighbour: Neighbour, change: TableChange) -> None:
        """Say what this node wants and offers once more, if only that it is the same.

        The neighbour may have let the link stand by for a moment, of which this node has not heard.
        """
        link = neighbour.link
        if change.anew and link is not None:
            for announcer in (neighbour.announcer, neighbour.offerer):
                announcer.speak_up()
            link.table_there = link.table_there and link.table_there._replace(is_agreed=False)
            link.offers_there = link.offers_there and link.offers_there._replace(is_agreed=False)

    def change_offers(self, neighbour: Neighbour, change: TableChange) -> Steps[dict[str, Any]]:
        """A neighbour offers more, or less."""
        self._hear_anew(neighbour, change)
        wants = neighbour.wants
        if len(wants.offers) + len(change.add) > OFFERS_MAX:
            raise Refused("limit", f"a neighbour has at most {OFFERS_MAX} offers")
        offer = partial(self._spreading.offer, neighbour)
        withdraw = partial(self._spreading.withdraw, neighbour)
        yield from neighbour.offering.steps(change, wants.offers, offer, withdraw)
        if change.done:
            neighbour.has_offered = change.agrees(wants.digest)
            self.settle()
            self.answered(neighbour)
        return change.answer(wants.digest)

    def lend_all(
        self, neighbour: Neighbour, other: Neighbour, done: Callable[[], None] = lambda: None
    ) -> None:
        """Let a neighbour that can't be asked want what another one does; `done` is called after that."""
        self._broker.background.begin(self._lending(neighbour, other, done))

    def _lending(self, neighbour: Neighbour, other: Neighbour, done: Callable[[], None]) -> Steps[None]:
        table = other.table
        for text in [] if table is None else list(table.entries):
            entry = None if table is None else table.entries.get(text)
            if entry is not None:
                self.lend(neighbour, text, entry.passive)
            yield
        done()

    def lend(self, neighbour: Neighbour, text: str, passive: bool) -> None:
        """Let a neighbour that can't be asked want something more, until it announces what it wants."""
        is_mute = neighbour.announcer.state == "down"  # else it says by itself what it wants
        if is_mute and neighbour.table is not None and text not in neighbour.table.entries:
            neighbour.table.add(text, passive, rights_of(self._broker, neighbour))
            self._spreading.announce(neighbour, text)
            if neighbour.link is not None:  # it has greeted, and its greeting was compared with less
                neighbour.link.is_anew, neighbour.link.is_table_same = True, False

    # What they may have

    def review(self) -> None:
        """The rules may have changed: what neighbours were granted is looked up again."""
        for neighbour in self._known.others(None):
            cursor, table = neighbour.cursor, neighbour.table
            assert cursor is not None and table is not None  # noqa: PT018 - one fact
            if table.is_due(rights_of(self._broker, neighbour)):
                cursor.wait_for_review(is_over=False)
                self._broker.background.begin(self._reviewing(neighbour, cursor, table))

    def _reviewing(self, neighbour: Neighbour, cursor: LinkCursor, table: NeighbourTable) -> Steps[None]:
        """Grant a neighbour what it may have by now; nothing goes to it meanwhile."""
        for text in list(table.entries):
            if neighbour.table is not table:
                return
            if table.review(text, rights_of(self._broker, neighbour)):
                self._spreading.announce(neighbour, text)
            yield
        cursor.wait_for_review(is_over=True)


def _announcing(announcer: Announcer) -> Steps[None]:
    """Work out what is to be announced, and send it."""
    yield from islice(announcer.steps(), STEPS_MAX)
    announcer.is_working = False
    announcer.flush()
