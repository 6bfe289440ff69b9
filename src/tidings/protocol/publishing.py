"""From a published batch to the outboxes: what of it is refused, stored, shown later, and delivered to whom.

A batch passes four steps. `publish` drops what was had before; `hand_on` refuses the rows that their sender
may not publish, or that can't be sent; `pass_on` stores what of the rest someone needs to be stored;
`deliver` gives it to the sinks of the subscriptions that match. This is the hot path: plain calls on whole
batches. Where many subscriptions match, or matching takes long, it returns steps, between which other
sessions have their turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.errors import NotAllowed, Refused, TidingsError
from tidings.event import Batch
from tidings.event.header import NOTED_FIELDS
from tidings.event.relayed import RepeatedBatch
from tidings.event.wire import Checked, check
from tidings.exchange import NodeSubscription, Rows
from tidings.ids import Origin
from tidings.protocol.access import OpenAuthenticator
from tidings.protocol.channels import OneChannel, channels_in
from tidings.protocol.fading import faded
from tidings.protocol.incoming import IncomingStream
from tidings.steps import Steps, finish
from tidings.turns import SLICE_S, adapted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidings.protocol.broker import Broker
    from tidings.protocol.session import Session

RECENT_SIZE_MAX = 8 << 20
"""Bytes of events kept in memory for those who ask for last values."""
DELIVERED_AT_ONCE = 8_192
"""Rows that subscriptions get of a batch in one step, all of them together."""
QUICK_MOST = 8
"""Times the size for the worst case that the first part of a batch may have, if parts of that were quick."""
DELIVERIES_FEW = 8
"""Subscriptions that are always served in one step; and the rows that each costs beside its own."""

_CHANNEL, _SUBJECT, _KEEP_S = (1 << NOTED_FIELDS.index(one) for one in ("channel", "subject", "keep_s"))
NO_CHANNELS: Mapping[int, str] = {}
_rows_of = itemgetter(1)  # of one of `MatchedRows`

MatchedRows = list[tuple[NodeSubscription, Rows]]
"""Who wants some of a batch, and which rows."""


class PublishedEvents(Struct, frozen=True):
    """Events that are being delivered, under which numbers they came, and whose they are."""

    batch: Batch
    counters: Sequence[int]
    publisher: IncomingStream | None
    deliveries: bytes


class Publishing:
    """The way of published batches through a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._exchange = broker.exchange
        self._answers = broker.answers
        self.recent: deque[Batch] = deque()  # the newest batches, for those who ask for last values
        self.recent_gone = 0  # batches that have been in it
        self._recent_size = 0
        self._quick_size = 0  # events of a part of a batch that take no longer than they may

    def publish(self, session: Session, raw: bytes, origin: Origin) -> Steps[None] | None:
        """Hand on what a session published, less what was had before; CodecError if it is not all events.

        The origin is that of the session, or of who has sent what it hands on. Steps are left to be run where
        it is much, or many want it.
        """
        checked = check(raw)
        count = len(checked.counters)
        if not count:
            return None
        batch = Batch(raw, origin, checked.offsets)
        if count > 1 and count > self._exchange.rows_at_first:
            return self.in_parts(batch, checked, partial(self._publish, session))
        return self._publish(session, batch, checked)

    def in_parts(
        self, batch: Batch, checked: Checked, hand_on: Callable[[Batch, Checked], Steps[None] | None]
    ) -> Steps[None]:
        """Hand on a long batch part by part; a part that is not reached is not counted either.

        What matching costs is known when it is done: parts are small at first, and grow while they are quick.
        Those of later batches begin with what was quick.
        """
        clock, end, least = self._broker.turns.clock, 0, self._exchange.rows_at_first
        size = min(max(least, min(self._quick_size, QUICK_MOST * least)), self._exchange.rows_at_once)
        while end < len(batch):
            begun = clock()
            start, end = end, min(end + size, len(batch))
            is_whole = end - start == len(batch)
            part = batch if is_whole else batch.slice(start, end)
            left = hand_on(part, checked if is_whole else checked.slice(start, end))
            if end - start == size:
                size = adapted(size, clock() - begun, SLICE_S / 4, SLICE_S, self._exchange.rows_at_once)
                self._quick_size = size
            if left is not None:
                yield from left
            yield

    def _publish(self, session: Session, batch: Batch, checked: Checked) -> Steps[None] | None:
        had = self._broker.admit(session, checked.counters)
        if had:
            batch = batch.slice(had, len(batch))
            checked = checked.slice(had, len(checked.counters))
        if not len(batch):
            return None
        if session.repeated and int(checked.counters[0]) <= session.repeated:
            return self._publish_repeats(session, batch, checked)
        return self._publish_new(session, batch, checked)

    def _publish_new(self, session: Session, batch: Batch, checked: Checked) -> Steps[None] | None:
        if self._broker.is_linked and not checked.is_plain:
            self._broker.repeats.originals(batch.origin or Origin(), checked.counters)
        return self._hand_on(batch, checked, session)

    def _publish_repeats(self, session: Session, batch: Batch, checked: Checked) -> Steps[None]:
        """Hand on events that another node may have taken in: those that have not come from there."""
        broker, end = self._broker, bisect_right(checked.counters, session.repeated)
        part, facts = batch.slice(0, end), checked.slice(0, end)
        had = set(broker.repeats.repeats(batch.origin or Origin(), facts.counters))
        broker.count("repeated", len(part))
        broker.accept(session)
        rows = [row for row in range(len(part)) if row not in had]
        if rows:
            left = part.take(rows)
            repeated = RepeatedBatch(left.raw, left.origin, left.offsets)
            yield from self._hand_on(repeated, facts.take(rows), session) or ()
        if end < len(batch):
            yield
            rest, others = batch.slice(end, len(batch)), checked.slice(end, len(batch))
            yield from self._publish_new(session, rest, others) or ()

    def hand_on(
        self, batch: Batch, checked: Checked, stream: IncomingStream | None = None, waits: bool = False
    ) -> None:
        """Give events to all who want them, and store what must be stored of them.

        `stream` is that on which they came. `waits`: even those that are not stored are for nobody before
        this tick's commit is made.
        """
        left = self._hand_on(batch, checked, stream, waits)
        if left is not None:
            finish(left)

    def _hand_on(
        self, batch: Batch, checked: Checked, stream: IncomingStream | None = None, waits: bool = False
    ) -> Steps[None] | None:
        session = None if stream is None else stream.session
        matches = self._exchange.match(batch, session)
        if session is not None and (session.granted is not None or session.bound is not None):
            allowed = self._allowed(batch, session, matches)
            if stream is not None and len(allowed) < len(batch):
                self._hand_on_allowed(batch, checked, stream, allowed, waits)
                return None
        channels = self.channels_of(batch, checked, matches)
        if (channels or self._broker.routes is not None) and stream is not None:
            refused = self._refusals(batch, checked, stream, channels)
            if refused:
                self._hand_on_others(batch, checked, stream, refused.get, waits)
                return None
        if channels and self._broker.ordered.concerns(channels):
            self._broker.ordered.hand_on(batch, checked, matches, stream, waits, channels)
            return None
        if self._broker.before_publishing is not None and self._broker.before_publishing(batch):
            matches = self._exchange.match(batch, session)
        return self.pass_on(batch, checked, matches, stream, waits, channels)

    def channels_of(self, batch: Batch, checked: Checked, matches: MatchedRows) -> Mapping[int, str]:
        """Return the rows that are for the members of channels, and which; few batches are searched.

        If all rows are for one channel that has members here, the index has found that already.
        """
        if not checked.noted & _CHANNEL:
            return NO_CHANNELS
        known = self._broker.channels
        members_of = {} if known is None else known.members_of
        for subscription, rows in matches:
            if len(rows) == len(batch) and subscription in members_of:
                return OneChannel(members_of[subscription], len(batch))
        return channels_in(batch)

    def _refusals(
        self, batch: Batch, checked: Checked, stream: IncomingStream, channels: Mapping[int, str]
    ) -> dict[int, TidingsError]:
        """The rows of a publication that can't be sent to inboxes, or to channels, and why not."""
        refused = self._lost_answers(batch, checked, stream)
        if channels and self._broker.channels is not None:
            refused |= self._broker.channels.refusals(stream.session, batch, channels, checked.deliveries)
        return refused

    def _lost_answers(
        self, batch: Batch, checked: Checked, stream: IncomingStream
    ) -> dict[int, TidingsError]:
        """The rows of a publication that are answers which can't be sent to their inboxes, and why not."""
        if self._broker.routes is None or batch.origin is not stream.origin or not _has_subjects(checked):
            return {}
        problems = [
            (row, self._broker.routes.problem(address, batch[row]))
            for row, address in self._answers.addresses(batch).items()
        ]
        return {row: Refused("no-way", problem) for row, problem in problems if problem}

    def pass_on(
        self,
        batch: Batch,
        checked: Checked,
        matches: MatchedRows,
        stream: IncomingStream | None,
        waits: bool,
        channels: Mapping[int, str],
    ) -> Steps[None] | None:
        """Store what must be stored of events, and deliver them to those that match.

        `channels` has the rows that are for the members of channels.
        """
        has_answers = _has_subjects(checked)  # or may have; an answer goes to an inbox by its subject
        if channels or (has_answers and self._broker.routes is not None):
            matches = self._routed(batch, matches, channels, is_stored=False)
        if has_answers and not isinstance(self._broker.authenticator, OpenAuthenticator):
            matches = self._answers.heard(batch, matches)
        checked = without_faded(batch, checked)
        positions = self._broker.appending.keep(batch, checked, matches)
        if waits and positions is None:
            positions = [None] * len(batch)
        if positions is not None and stream is not None:
            stream.accept_mark = self._broker.mark
            if batch.origin is not stream.origin:
                self._broker.ledger.keep(stream.origin)  # the events themselves count for nobody
        self._broker.count("published", len(batch))
        self._show(batch, checked, positions, channels)
        published = PublishedEvents(batch, checked.counters, stream, checked.deliveries)
        if positions is None and len(matches) > DELIVERIES_FEW:
            total = DELIVERIES_FEW * len(matches) + sum(map(len, map(_rows_of, matches)))
            if total > DELIVERED_AT_ONCE:
                parts = self._deliver_parts(published, matches, self._exchange.ended)
                next(parts)  # from here on it is delivered to all, whoever goes
                return parts
        self.deliver(published, matches, positions)
        batch.forget()
        return None

    def _show(
        self, batch: Batch, checked: Checked, positions: list[int | None] | None, hidden: Collection[int]
    ) -> None:
        """Keep the newest batches, and let those have events who look at them later.

        The rows for the members of channels are left out.
        """
        if isinstance(hidden, OneChannel):
            return
        if hidden:
            rows = [row for row in range(len(batch)) if row not in hidden]
            if not rows:
                return
            batch = batch.take(rows)
            positions = None if positions is None else [positions[row] for row in rows]
        self.recent.append(batch)
        memory, size = self._broker.memory, self._recent_size + len(batch.raw)
        while size > RECENT_SIZE_MAX or size > memory.recent_max:
            size -= len(self.recent.popleft().raw)
            self.recent_gone += 1
        memory.node.used += size - self._recent_size
        self._recent_size = size
        if checked.noted & _SUBJECT and not checked.is_plain:
            self._broker.last_pages.remember(batch)
        if self._exchange.later:
            for later in self._exchange.later:
                later.put(batch, positions)

    def routed(self, batch: Batch, matches: MatchedRows, is_stored: bool = False) -> MatchedRows:
        """Return the matches of a batch, with answers to inboxes and events of channels on their own ways.

        `is_stored`: it was published before, and is read from the store.
        """
        return self._routed(batch, matches, channels_in(batch), is_stored)

    def _routed(
        self, batch: Batch, matches: MatchedRows, channels: Mapping[int, str], is_stored: bool
    ) -> MatchedRows:
        if channels and self._broker.channels is not None:
            matches = self._broker.channels.routed(channels, matches)
        addresses = {} if self._broker.routes is None else self._answers.addresses(batch)
        if self._broker.routes is None or not addresses:
            return matches
        return self._broker.routes.routed(batch, addresses, matches, is_stored)

    def deliver(
        self, published: PublishedEvents, matches: MatchedRows, positions: list[int | None] | None
    ) -> None:
        before, self._broker.published = self._broker.published, published  # a delivery may lead to another
        batch = published.batch
        for subscription, rows in matches:
            subscription.sink.deliver(batch, rows, positions)
        self._broker.published = before

    def _deliver_parts(self, published: PublishedEvents, matches: MatchedRows, ended: int) -> Steps[None]:
        """Deliver what is not stored to some at a time; what has a position goes to all at once, in order.

        What a delivery costs is known when it is done, as some consumers look at each event and some do not.
        `ended` is how many subscriptions had ended when it was matched: some of these may since. If the
        publisher goes meanwhile, which may have got the acceptance, the rest is delivered beside.
        """
        clock, end, size = self._broker.turns.clock, 0, 1
        while end < len(matches):
            begun = clock()
            start, end = end, end + size
            part = matches[start:end]
            if self._exchange.ended != ended:
                part = [one for one in part if not one[0].is_over]
            self.deliver(published, part, None)
            size = adapted(size, clock() - begun, SLICE_S / 8, SLICE_S / 4, len(matches))
            try:
                yield
            except GeneratorExit:
                self._broker.background.add(self._deliver_parts(published, matches[end:], ended))
                raise
        published.batch.forget()

    def _allowed(self, batch: Batch, session: Session, matches: MatchedRows) -> Rows:
        """The rows of a batch that a session may publish."""
        allowed: Rows = range(len(batch))
        if session.granted is not None:
            allowed = next((rows for one, rows in matches if one is session.granted), ())
        if session.bound is None:
            return allowed
        return self._answers.allowed(session.bound, batch, allowed, self._broker.now)

    def _hand_on_allowed(
        self, batch: Batch, checked: Checked, stream: IncomingStream, allowed: Rows, waits: bool
    ) -> None:
        """Hand on what a session may publish of a batch, and refuse the rest."""
        kept, session = set(map(int, allowed)), stream.session

        def error(row: int) -> TidingsError | None:
            return None if row in kept else NotAllowed(self._broker.refusal(session, batch, row))

        self._hand_on_others(batch, checked, stream, error, waits)

    def _hand_on_others(
        self,
        batch: Batch,
        checked: Checked,
        stream: IncomingStream,
        error_of: Callable[[int], TidingsError | None],
        waits: bool,
    ) -> None:
        """Hand on the rows of a batch that have no error, and refuse the others."""
        errors = {row: error for row in range(len(batch)) if (error := error_of(row)) is not None}
        problems = {row: str(error) for row, error in errors.items()}
        for problem, rows in groupby(range(len(batch)), problems.get):
            run = list(rows)
            if problem is None:
                part = checked.slice(run[0], run[-1] + 1)
                self.hand_on(batch.take(run), part, stream, waits)
            else:
                first, last = (int(checked.counters[row]) for row in (run[0], run[-1]))
                self._broker.refuse(stream, first, last, errors[run[0]])

    def forget_recent(self) -> None:
        """Forget the newest batches: they may not be stored as they were to be."""
        self.recent.clear()
        self._broker.memory.charge(self._broker.memory.node, -self._recent_size)
        self._recent_size = 0


def without_faded(batch: Batch, checked: Checked) -> Checked:
    """Return what is known of a batch, where events that are stored no longer count as transient."""
    return faded(batch, checked) if checked.noted & _KEEP_S and not checked.is_plain else checked


def _has_subjects(checked: Checked) -> bool:
    """Whether some of the events may have a subject."""
    return checked.noted & _SUBJECT != 0
