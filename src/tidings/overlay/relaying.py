"""Relaying: how stored and transient events reach a neighbour, and how far they have come.

A neighbour is a cursor on the stored stream (`LinkCursor`) with many filters, its table. While it is
connected a `LinkConsumer` sends it what matches, as it sends clients their durable subscriptions: live while
the neighbour keeps up, from the store otherwise. A RELAY frame says which node took the events in and under
which numbers, so the receiver can tell what it has had, whichever way it came.

Reliable events are kept until the neighbour has stored them, until all within `tolerate` hops beyond it that
want them have, and until all nodes behind it have. A cursor has a position for each of these levels. The
stream is trimmed behind the last of them: if the tree changes, whatever is on its way is still held on the
side of its first node. Of more than KEPT_MAX positions only what the hops before need is kept.

Transient events are not stored. Those for which a neighbour has no credit wait in memory. When CROWD_MAX of
them wait the link is *crowded*: publishers here are held, as a subscription with `on_slow="block"` holds
them, and other neighbours get no credit for more, until half of that is left. A link that does not get there
within CROWDED_S holds nobody until it does: its oldest events are dropped, past WAITING_MAX. So a slow
neighbour slows others down to a pace that is bounded below, and a dead one stops nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import pack
from typing import Protocol

from msgspec.structs import replace

from tidings.event import Batch, Event
from tidings.event.relayed import FirstNode, RelayedBatch, own_marks, restored
from tidings.exchange import Positions, Rows
from tidings.ids import ForwardedOrigin, Origin
from tidings.overlay.gaps import LinkGaps
from tidings.overlay.packing import LinkSpeed, packed
from tidings.protocol.arguments import NAME_LENGTH_MAX
from tidings.protocol.broker import Broker
from tidings.protocol.consumer import CREDITED_SIZE_MAX, BlockingConsumer, DroppingConsumer
from tidings.protocol.cursor import Cursor, Options, options_of
from tidings.protocol.frames import encode_head
from tidings.protocol.messages import OrderedRelay, Relay
from tidings.protocol.missed import MissedRange
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoredConsumer
from tidings.store.interface import Durable, PutCursor, StoredBatch

OWNER = "\x1flink"
"""Owner of the cursors of neighbours: no client can have this name."""
WAITING_MAX = 1_000_000
"""Transient events that wait for a neighbour, within the bytes that a slow client has."""
CROWD_MAX = 50_000
"""Transient events that wait for a neighbour before publishers are held."""
CROWD_SIZE_MAX = 8 << 20
"""Their bytes."""
CROWDED_S = 1.0
"""How long publishers are held for a neighbour at a time: it must have taken half of that many by then."""
KEPT_MAX = 1_000_000
"""Positions that are kept until all nodes behind a neighbour have confirmed them."""
LINK_OPTIONS = Options(link=True, passive=True)


class OwnNumbers(Protocol):
    """Numbers of the events that this node has taken in."""

    def stored(self, position: int) -> FirstNode:
        """Return this node with the epoch in which the position was stored."""

    def volatile(self, batch: Batch) -> tuple[FirstNode, int]:
        """Return this node, and the volatile number of the first row of a batch that is being published."""


class LinkCursor(Cursor):
    """Place of a neighbour on the stored stream; `levels` are the positions that it has confirmed.

    The first level is what the neighbour has stored itself, the last what all nodes behind it have.
    """

    is_link = True

    def __init__(self, broker: Broker, record: Durable, tolerate: int) -> None:
        super().__init__(broker, record)
        self.subscription.owner = self.subscription.origin = self  # its events do not go back to it
        options = options_of(record)
        self.levels = [record.cursor] + [options.kept] * (tolerate + 1)
        self.is_heir = options.heir
        self.skips = dict(options.skips)
        self._again = options.again
        self._reviews = 0  # of its table, under way: its rights have changed
        self.is_expected_to_want = False  # more than it has announced: see `new_offers.py`
        self.gaps = LinkGaps(broker, record.name)  # what is not kept for it any more
        self.stalled_until = 0.0  # it confirms nothing, and counts as away

    @staticmethod
    def begun(node: str, position: int) -> Durable:
        """Return the record of a new cursor: its neighbour gets what comes after the position."""
        return Durable(node, OWNER, "", position, position, LINK_OPTIONS.encode())

    def enter(self) -> None:
        """Match nothing by itself: the table of the neighbour has its filters."""

    def leave(self) -> None:
        """The same: the table is emptied by its owner."""
        self.subscription.is_over = True

    def inherit(self, former: Mapping[str, LinkCursor]) -> None:
        """Begin again with what is kept for other neighbours, as nodes are behind this one that were there.

        What came from a neighbour while such a node was behind it is left out: this node was not on the way
        to that node, so it may not have had all. It comes again, over the way that there is now.
        """
        self.is_heir = True
        for node, cursor in former.items():
            for via, until in {**cursor.skips, node: self.broker.position}.items():
                self.skips[via] = max(until, self.skips.get(via, 0))
            for missed in cursor.gaps:
                self.gaps.add(missed)
        self._begin_again(min(cursor.released for cursor in former.values()))
        if self.consumer is not None:
            self.consumer.part("nodes have moved")

    def begin_again(self) -> None:
        """Send again what may be lacked by nodes beyond the neighbour, though that had it."""
        self._begin_again(self.levels[-1])

    def _begin_again(self, position: int) -> None:
        self.acknowledged = min(self.acknowledged, position)
        self.levels = [min(level, position) for level in self.levels]
        self._again = self.broker.position
        self.broker.cursors.keep(self)

    def is_again(self, position: int) -> bool:
        """Whether what is stored at a position may be lacked beyond the neighbour, though it had that."""
        return position <= self._again

    def is_left_out(self, batch: RelayedBatch, position: int) -> bool:
        """Whether a stored event is not part of the stream of all nodes behind the neighbour."""
        return batch.via == self.name or position <= self.skips.get(batch.via, 0)

    def give_up(self, position: int) -> None:
        """Keep nothing up to a position any more, though it was not confirmed."""
        self.acknowledged = max(self.acknowledged, position)
        self.levels = [max(level, position) for level in self.levels]
        self.broker.cursors.keep(self)

    def miss(self, missed: MissedRange) -> None:
        """Report a gap to the neighbour before it gets anything more of what is stored."""
        self.gaps.add(missed)
        if isinstance(self.consumer, LinkConsumer):
            self.consumer.is_abreast = False

    def gaps_reported(self, reported: Sequence[MissedRange]) -> None:
        """The neighbour has noted gaps: let it have what is stored after them."""
        self.gaps.reported(reported)
        if isinstance(self.consumer, LinkConsumer):
            self.consumer.read_on()

    def let_have(self) -> None:
        """Let the neighbour have what is stored: it has announced what is wanted behind it."""
        self.is_heir = False
        self.broker.cursors.keep(self)
        if isinstance(self.consumer, LinkConsumer):
            self.consumer.read_on()

    def expect(self, is_answered: bool) -> None:
        """Let the neighbour have nothing more that is stored before it has answered what is offered to it."""
        self.is_expected_to_want = not is_answered
        if isinstance(self.consumer, LinkConsumer):
            if is_answered:
                self.consumer.read_on()
            else:
                self.consumer.pause()

    def wait_for_review(self, is_over: bool) -> None:
        """Let the neighbour have nothing until its table was compared with the rules."""
        self._reviews += -1 if is_over else 1
        if isinstance(self.consumer, LinkConsumer):
            if not self.is_reviewed:
                self.consumer.read_on()
            elif not is_over:
                self.consumer.pause()

    @property
    def is_reviewed(self) -> bool:
        """Whether some filters of its table may match what it may not have any more."""
        return self._reviews > 0

    def acknowledge(self, position: int) -> None:
        super().acknowledge(position)
        self.levels[0] = position

    def stored(self) -> PutCursor:
        trimmed = self.broker.cursors.trimmed
        self.skips = {via: until for via, until in self.skips.items() if until > trimmed}
        about = {"heir": self.is_heir, "kept": self.levels[-1], "skips": self.skips, "again": self._again}
        self.options = replace(LINK_OPTIONS, **about).encode()
        return super().stored()

    # Stored events

    def batch_of(self, stored: StoredBatch, own: OwnNumbers) -> RelayedBatch:
        """The events of a stored batch, with the part of their lives that is used up."""
        broker = self.broker
        age_us = max(0, int(broker.wall * 1e6) - stored.stored_us)
        marks = own_marks(stored.provenance)
        if marks is None:
            origin = ForwardedOrigin(stored.system, stored.epoch, stored.source)
            return restored(stored.raw, origin, stored.provenance, age_us)
        source = at_node(stored.source, broker.name or broker.node)
        origin = ForwardedOrigin(stored.system, stored.epoch, source)
        numbers = range(stored.first, stored.first + stored.count)
        batch = RelayedBatch(stored.raw, origin, own.stored(stored.first), numbers, age_us)
        batch.after, batch.is_released, batch.is_repeat = marks
        return batch

    def wanted(
        self, batch: Batch, rows: range, stored: StoredBatch, leads_to: Callable[[str], bool]
    ) -> list[int]:
        """The rows of a stored batch that the neighbour wants and that do not come from its side."""
        if isinstance(batch, RelayedBatch) and (
            batch.only
            or batch.is_released
            or leads_to(batch.first.node)
            or self.is_left_out(batch, stored.first)
        ):
            return []
        part = batch.take(rows) if len(rows) < len(batch) else batch
        matched = self.broker.publishing.routed(part, self.broker.exchange.match(part), is_stored=True)
        found = next((found for one, found in matched if one is self.subscription), ())
        return [rows[int(row)] for row in found if self._is_due(part[int(row)], stored)]

    def _is_due(self, event: Event, stored: StoredBatch) -> bool:
        """Whether a stored event is to be sent: it is not there only for somebody who spills, nor expired."""
        is_over = event.ttl_s is not None and stored.stored_us / 1e6 + event.ttl_s <= self.broker.wall
        return event.delivery != "transient" and not is_over

    # How far it has come

    def confirm(self, positions: Sequence[int]) -> None:
        """Note how far all beyond the neighbour have got, level by level; nothing is taken back.

        The last one is of all nodes. A neighbour that tolerates fewer deaths has fewer levels before it:
        those that it lacks are confirmed with the last.
        """
        if not positions:
            return
        hops, of_all = positions[:-1], positions[-1]
        missing = len(self.levels) - 2 - len(hops)
        known = [*hops[: len(self.levels) - 2], *[of_all] * max(0, missing), of_all]
        for level, position in enumerate(known, 1):
            self.levels[level] = max(self.levels[level], min(position, self.levels[level - 1]))

    def confirmed(self, level: int) -> int:
        """The position up to which everything the neighbour wants is confirmed at this level."""
        position = self.levels[level]
        if self.consumer is not None and self.consumer.passed == self.broker.position:
            # All that it wanted is confirmed by itself: the rest is for others.
            return self.broker.position if position >= self.acknowledged else position
        return position

    @property
    def released(self) -> int:
        """The position up to which nothing need be in the store for it."""
        kept, least = self.confirmed(len(self.levels) - 1), self.broker.position - KEPT_MAX
        return kept if kept >= least else min(least, self.confirmed(len(self.levels) - 2))


class LinkConsumer(StoredConsumer, BlockingConsumer):
    """Delivers to a neighbour what it wants; `leads_to` tells whether it is the way to a node.

    Transient events wait for its credit as those of clients do, beside what is read from the store. If many
    wait they hold their publishers.
    """

    cursor: LinkCursor
    hold_reason = "link"

    def __init__(
        self,
        cursor: LinkCursor,
        session: Session,
        number: int,
        credit: int,
        numbers: OwnNumbers,
        leads_to: Callable[[str], bool],
        packs: bool = False,
    ) -> None:
        """`packs`: the neighbour can unpack frames that are compressed."""
        super().__init__(cursor, session, number, credit)
        self._speed = LinkSpeed() if packs else None
        self._numbers = numbers
        self._leads_to = leads_to

    @property
    def _is_idle(self) -> bool:
        """Whether to read: an heir has to announce first what is wanted behind it, or to note gaps."""
        cursor = self.cursor
        is_ahead = cursor.is_heir or cursor.is_expected_to_want or cursor.gaps.are_due
        return super()._is_idle and not is_ahead and not cursor.is_reviewed

    def pause(self) -> None:
        """Read what comes from now on from the store, later."""
        if self.is_abreast:
            self.is_abreast = False
            self.next = self.broker.position + 1

    def confirm(self, positions: Sequence[int]) -> None:
        """All beyond the neighbour have come so far."""
        self.cursor.confirm(positions)

    @property
    def is_owed(self) -> bool:
        """Whether the neighbour has been sent what it has not confirmed."""
        return self._last > self.cursor.acknowledged and not self.session.outbox.size

    # What is sent

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Send what is new. What is stored comes from the store, if it must wait.

        A transient event may be stored for somebody else, who spills: its number here is a volatile one.
        """
        published = self.broker.published
        if positions is not None and published is not None:
            kept = published.deliveries
            positions = [place if kept[row] else None for row, place in enumerate(positions)]
            StoredConsumer.deliver(self, batch, rows, positions)
        elif self.cursor.is_reviewed:
            self.lose(len(rows), "review")
        elif not self.waiting and len(rows) <= self.credit and self.session.has_room:
            self.send(batch, rows)
        else:
            self._wait(self._numbered(batch, rows))
            self.release()
            self.trim()
            self.hold_back(batch, rows)

    # Who is held

    @property
    def _is_full(self) -> bool:
        return self.count > CROWD_MAX or self.size > CROWD_SIZE_MAX

    @property
    def _is_eased(self) -> bool:
        return self.count <= CROWD_MAX // 2 and self.size <= CROWD_SIZE_MAX // 2

    def _hold(self, batch: Batch, rows: Rows) -> None:
        """Hold the publisher of a batch, and other neighbours."""
        self.broker.crowded_links.add(self.cursor)
        self.broker.timers.by(self.broker.now + CROWDED_S, self._give_up)
        super()._hold(batch, rows)

    def _get_on(self) -> None:
        """Credit alone gives it no more time: half of what waits must go."""

    def release(self) -> None:
        """Send what waits; if little is left, hold nobody, and allow it to hold others again."""
        super().release()
        if self._is_eased:
            self.is_given_up = False

    def _let_go(self) -> None:
        super()._let_go()
        self.broker.crowded_links.discard(self.cursor)

    def lose(self, dropped: int, reason: str) -> None:
        """Count events that are dropped, whether it holds publishers or not."""
        DroppingConsumer.lose(self, dropped, reason)

    @property
    def _limits(self) -> tuple[int, int]:
        """As for a client with credit that is slow to read: many clients wait behind a link."""
        return WAITING_MAX, CREDITED_SIZE_MAX

    def _numbered(self, batch: Batch, rows: Rows) -> RelayedBatch:
        """Rows that wait, under the numbers that they have on all links."""
        if isinstance(batch, RelayedBatch):
            part = batch.part(rows)
            assert isinstance(part, RelayedBatch)
            return part
        first, base = self._numbers.volatile(batch)
        origin = batch.origin or Origin()
        origin = ForwardedOrigin(origin.system, origin.epoch, self._named(origin.source))
        is_whole = len(rows) == len(batch)  # most often: then nobody has to know where each event begins
        about = range(base, base + len(batch)), 0, None if is_whole else batch.offsets
        numbered = RelayedBatch(batch.raw, origin, first, *about)
        numbered.after = batch.after
        return numbered if is_whole else numbered.take(rows)

    def send(
        self, batch: Batch, rows: Rows, positions: Sequence[int] | None = None, redelivered: bool = False
    ) -> None:
        """Put rows into the outbox, in one frame, with their first node and numbers."""
        self.sent += len(rows)
        raw = batch.raw if len(rows) == len(batch) else batch.raw_of(rows)
        mark = self.mark if positions is None else self.broker.promise
        self._post(self._relay(batch, rows, positions, redelivered), raw, mark)
        self.broker.count("relayed", len(rows))

    def _post(self, message: Relay, raw: bytes, mark: int) -> None:
        """Put a frame into the outbox, compressed if the link is slow."""
        frames = [encode_head(message, len(raw)), raw]
        speed = self._speed
        if speed is not None:
            speed.look(self.session.outbox.size, self.broker.now)
            if speed.is_slow:
                frames = [self._packed(b"".join(frames))]
            speed.posted(sum(map(len, frames)))
        for part in frames:
            self.session.post(part, mark)

    def _packed(self, frame: bytes) -> bytes:
        shorter = packed(frame)
        self.broker.count("compressed_bytes", len(frame), "before")
        self.broker.count("compressed_bytes", len(shorter), "after")
        return shorter

    @property
    def is_packing(self) -> bool:
        """Whether its link is slow, so that frames are compressed."""
        return self._speed is not None and self._speed.is_slow

    def _relay(self, batch: Batch, rows: Rows, positions: Sequence[int] | None, redelivered: bool) -> Relay:
        origin, age_us = batch.origin, 0
        numbers: bytes | int | None = None
        is_again = positions is not None and self.cursor.is_again(positions[0])
        source = None if origin is None else origin.source
        if isinstance(batch, RelayedBatch):
            first, age_us, is_again = batch.first, batch.age_us, is_again or batch.is_again
            numbers = _travelling(batch.numbers, rows)
        elif positions is not None:
            first, source = self._numbers.stored(positions[0]), self._named(source)
        else:
            first, base = self._numbers.volatile(batch)
            source, numbers = self._named(source), _travelling(range(base, base + len(batch)), rows)
        about = (
            self.number,
            None if origin is None else origin.system,
            0 if origin is None else origin.epoch,
            source,
            None if positions is None else _packed(positions),
            redelivered,
            first.node,
            first.epoch,
            numbers,
            first.is_volatile,
            age_us,
            is_again,
            batch.is_repeat,
        )
        return OrderedRelay(*about, batch.after) if batch.after else Relay(*about)

    def _named(self, source: str | None) -> str:
        """Return how a source of this node is called elsewhere."""
        return at_node(source, self.broker.name or self.broker.node)

    # Stored events

    def batch_of(self, stored: StoredBatch) -> Batch:
        """The events of a stored batch, with the part of their lives that is used up."""
        return self.cursor.batch_of(stored, self._numbers)

    def _wanted(self, batch: Batch, rows: range, stored: StoredBatch) -> list[int]:
        """The rows of a stored batch that the neighbour wants and that do not come from its side."""
        return self.cursor.wanted(batch, rows, stored, self._leads_to)


def at_node(source: str | None, node: str) -> str:
    """Return a source as other nodes call it: `alice@kitchen`."""
    return f"{(source or '')[: NAME_LENGTH_MAX - len(node) - 1]}@{node}"


def _travelling(numbers: Sequence[int], rows: Rows) -> bytes | int:
    """Return the numbers of some rows as a frame has them: the first, if all others follow it one by one."""
    if isinstance(numbers, range) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return numbers[int(rows[0])]
    return _packed([numbers[row] for row in rows])


def _packed(numbers: Sequence[int]) -> bytes:
    return pack(f">{len(numbers)}Q", *numbers)
