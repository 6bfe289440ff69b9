"""The past of a network: what its nodes have stored since a time, delivered before what is new.

A subscription with `since_us` begins like this at a node that knows others:

1. It is announced, and what is published from then on stays in the store, behind the place of its cursor.
2. Each other node is asked for a first page, behind what is announced to it. The answer names the numbers up
   to which that node has taken events in: these are read there, and all later ones come by the subscription.
3. The pages of all nodes, this one too, are merged by the time of storing, at the pace of the client.
4. The cursor goes on as that of any subscription to what is stored, and leaves out what was read elsewhere.

Copies that this node has of the events of others are left out as well, save those of nodes that could not be
asked: each event comes from its first node, if that is there.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.errors import TidingsError
from tidings.event import Batch
from tidings.event.relayed import Had
from tidings.exchange import Need
from tidings.protocol.cursor import Cursor
from tidings.protocol.elsewhere import Elsewhere, NodePage, UpTo
from tidings.protocol.stored_consumer import StoredConsumer, wanted_rows
from tidings.protocol.stored_pages import PageReading, StoredPiece
from tidings.replies import Deferred, gathered
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

if TYPE_CHECKING:
    from tidings.protocol.session import Session

FIRST_AT_ONCE = 16
"""Nodes that are asked for their first pages at a time."""
AGAIN_S = 1.0
"""How long to wait before a node is asked again that could not be reached."""
TRIES_MAX = 10
"""How often; then its rest is reported as a gap."""


class _Source:
    """One node, as far as it was read."""

    def __init__(self, node: str, name: str) -> None:
        self.node = node
        self.name = name
        self.pieces: deque[StoredPiece] = deque()
        self.next: int | None = 0  # where to go on; None at the end
        self.up_to = UpTo(0, 0, 0)
        self.is_asked = False
        self.is_reached = False  # it has answered
        self.tries = 0  # since then, without an answer

    @property
    def lacks(self) -> bool:
        """Whether its next piece is not known."""
        return not self.pieces and self.next is not None


class PastConsumer(StoredConsumer):
    """Delivers what all nodes have stored since a time, and then what comes; see the module."""

    def __init__(
        self,
        cursor: Cursor,
        session: Session,
        number: int,
        credit: int,
        keeps_all: bool,
        elsewhere: Elsewhere,
    ) -> None:
        """The cursor has the time from which on all nodes are read."""
        super().__init__(cursor, session, number, credit, keeps_all)
        assert self.since_us is not None
        self._since_us, self.since_us, cursor.since_us = self.since_us, None, None
        self._end = self.next = self.broker.position + 1  # of what is read here
        self._elsewhere = elsewhere
        self._own = _Source("", "")
        self._sources = [_Source(node, name) for node, name in elsewhere.others.items()]
        self._is_past = True  # there may be more of it
        self._is_sending = False
        self._has_caught_up = False
        self.begun: Deferred[dict[str, Any]] = Deferred()
        """The answer to the client, once all first pages are there."""

    @property
    def passed(self) -> int:
        if not self._is_past:
            return super().passed
        own = self._own
        return max(0, (self._end if own.next is None else own.next) - 1)

    def need(self, count: int) -> Need:
        """Have stored what comes until it is abreast for the first time, as far as that asks for it."""
        self._has_caught_up = self._has_caught_up or self.is_abreast
        if self._has_caught_up:
            return super().need(count)
        return Need.EVERYTHING if self.keeps_all else Need.RELIABLE

    # The first pages

    def attach(self) -> None:
        """Ask all others for what they have; then the client is answered, and gets it."""
        super().attach()
        self._begin_with(self._sources)

    def _begin_with(self, left: list[_Source]) -> None:
        some, left = left[:FIRST_AT_ONCE], left[FIRST_AT_ONCE:]
        if some:
            gathered([self._ask(one) for one in some]).then(lambda _answers: self._begin_with(left))
            return
        missing = sorted(one.name for one in self._sources if not one.is_reached)
        self._sources = [one for one in self._sources if one.is_reached]
        self.cursor.had = {one.node: Had(one.up_to.epoch, one.up_to.number) for one in self._sources}
        self._sources.append(self._own)
        opened: dict[str, Any] = {"position": self.broker.position}
        self.begun.resolve({**opened, "missing": missing} if missing else opened)
        self.read_on()

    # Pages

    def _ask(self, source: _Source) -> Deferred[None]:
        """Have the next page of a source read; the reply comes when it is there, or can't be had now."""
        source.is_asked = True
        asked = self._read_here(source) if source is self._own else self._read_there(source)
        done: Deferred[None] = Deferred()
        asked.then(partial(self._answered, source, done), partial(self._failed, source, done))
        return done

    def _read_there(self, source: _Source) -> Deferred[NodePage]:
        about = self.subscription.filter, self._since_us, source.next or 0, source.up_to.number + 1
        return self._elsewhere.stored(source.node, *about)

    def _read_here(self, source: _Source) -> Deferred[NodePage]:
        since_us = None if source.next else self._since_us
        about = source.next or 0, self._end, self.subscription.filter, self._wanted_here, since_us
        return PageReading(self.broker, *about).reply.map(lambda page: NodePage(source.up_to, page))

    def _wanted_here(self, stored: StoredBatch, rows: range) -> Batch | None:
        batch = self.batch_of(stored)
        wanted = wanted_rows(self.cursor, batch, rows, stored)
        return batch.take(wanted) if wanted else None

    def _answered(self, source: _Source, done: Deferred[None], answer: NodePage) -> None:
        source.is_asked, source.is_reached, source.tries = False, True, 0
        if not self.is_over:
            before, following = source.next or 0, answer.page.next
            if not before:
                source.up_to = answer.up_to
            source.next = following if following is not None and following > before else None
            for piece in answer.page.pieces:
                source.pieces.append(piece)
                self.session.hold_batch(piece.batch)
        done.resolve(None)

    def _failed(self, source: _Source, done: Deferred[None], _error: TidingsError) -> None:
        source.tries += 1
        if source.is_reached and source.tries < TRIES_MAX and not self.is_over:
            self.broker.timers.at(self.broker.now + AGAIN_S, lambda _now: self._ask_again(source))
            return
        if source.is_reached and not self.is_over:
            about = {"node": source.name, "epoch": source.up_to.epoch}
            numbers = {"first": source.next, "last": source.up_to.number}
            self.report_missed({"dropped": 0, "reason": "away", **about, **numbers})
        source.is_asked, source.next = False, None
        done.resolve(None)

    def _ask_again(self, source: _Source) -> None:
        self._ask(source).then(lambda _none: self.read_on())

    # Sending

    def release(self) -> None:
        """Go on: the outbox has room."""
        self.read_on()

    def read_on(self) -> None:
        """Send more of the past, or what has come since."""
        if not self._is_past:
            super().read_on()
        elif self.begun.is_over and not (self._is_sending or self.is_over):
            self._is_sending = True
            self.session.do(self._sending())

    def _sending(self) -> Steps[None]:
        while self.credit > 0 and not (self.is_over or self.session.is_closed):
            if not self.session.has_room:
                self.session.await_room(self)
                break
            source = self._earliest()
            if source is None:
                break
            self._send_next(source)
            yield
        self._is_sending = False
        self._is_past = any(one.pieces or one.lacks for one in self._sources)
        if not self._is_past:
            super().read_on()

    def _earliest(self) -> _Source | None:
        """Return the source whose piece is next; None if there is none, or some are being read."""
        for source in self._sources:
            if source.lacks and not source.is_asked:
                self._ask_again(source)
        if any(source.lacks for source in self._sources):
            return None
        found = [source for source in self._sources if source.pieces]
        return min(found, key=lambda one: one.pieces[0].stored_us, default=None)

    def _send_next(self, source: _Source) -> None:
        """Send as much of a piece as there is credit for."""
        stored_us, batch = source.pieces.popleft()
        count = min(self.credit, len(batch))
        self.session.holdings.remove(batch)
        if count < len(batch):
            rest = batch.slice(count, len(batch))
            source.pieces.appendleft(StoredPiece(stored_us, rest))
            self.session.hold_batch(rest)
        self.send(batch, range(count))

    def end(self) -> None:
        for source in self._sources:
            while source.pieces:
                self.session.holdings.remove(source.pieces.popleft().batch)
