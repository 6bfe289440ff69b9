"""Keeping for neighbours that are away: within bytes and age; the oldest go, and are reported as gaps.

While a neighbour is away a reader follows the stored stream for it and adds up what it wants, in *pieces*.
When these exceed the bytes that are allowed, or are too old, the oldest pieces are given up: the neighbour's
cursor passes them, and their first nodes and numbers are noted as gaps of the link (`gaps.py`). They are
reported before the neighbour gets anything more, or to those that take its place. A node that hears of a gap
notes it (`protocol/missed.py`) and passes it on to its other neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from tidings.errors import Refused, TidingsError
from tidings.filters import Filter
from tidings.overlay.neighbours import KnownNeighbours, Neighbour, NeighbourLink
from tidings.overlay.numbers import Numbers
from tidings.overlay.relaying import LinkConsumer, LinkCursor
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.table import NeighbourTable
from tidings.overlay.topology import Topology
from tidings.protocol.broker import Broker
from tidings.protocol.missed import TYPES_MAX, MissedRange
from tidings.steps import Steps
from tidings.store.interface import StoredBatch

LOOK_S = 1.0
"""How often what is kept for neighbours that are away is looked at."""
PIECES = 64
"""Parts of the bytes, and of the time, that are given up at once."""
CONFIRM_S = 300.0
"""How long a neighbour may confirm nothing of what it was sent; then it counts as away for a while."""
STALLED_S = 60.0
"""How long that is: it is looked at what is kept for it, and it is sent nothing."""
REPORTED_AT_ONCE = 500
"""Gaps in one request."""
FILTERS_MAX = 1_000
"""Filters of a neighbour that are compared with a gap; one with more gets each gap."""

Log = Callable[..., None]


class GapRequest(Struct, frozen=True):
    """The arguments of `link.gap`: what is not kept for the one that is asked."""

    missed: list[MissedRange]


class KeptPiece:
    """Part of the stored stream; what of it a neighbour wants, by its first nodes and numbers."""

    def __init__(self, is_beyond: bool, since_us: int) -> None:
        self.is_beyond = is_beyond  # the neighbour has it, and those beyond may not
        self.since_us = self.until_us = since_us
        self.last = 0  # position
        self.size = self.count = 0
        self.missed: dict[tuple[str, int], MissedRange] = {}

    def add(self, one: MissedRange, size: int) -> None:
        """Add events that the neighbour wants."""
        known = self.missed.get((one.node, one.epoch))
        self.missed[one.node, one.epoch] = one if known is None else known.joined(one)
        self.size += size
        self.count += one.count


class AwayReader:
    """Reader of the stored stream for a neighbour that is away."""

    since_us = None
    is_backward = False

    def __init__(self, keeping: Keeping, cursor: LinkCursor) -> None:
        self._keeping = keeping
        self._broker = cursor.broker
        self.cursor = cursor
        self.pieces: deque[KeptPiece] = deque()
        self.size = self.count = 0
        self.has_dropped = False
        self._next = cursor.released + 1
        self._readable = 0
        self._is_reading = False

    @property
    def is_over(self) -> bool:
        """Whether the neighbour is back, or nothing is kept for it any more."""
        return self.cursor.consumer is not None or self.cursor.subscription.is_over

    @property
    def place(self) -> int:
        """The position of the next read."""
        return self._next

    @property
    def filter(self) -> Filter:
        """Filter of what it needs to see: everything, as the table decides."""
        return self.cursor.subscription.filter

    def begin(self, position: int) -> None:
        """Begin at a position."""
        self._next = position

    def read_on(self) -> None:
        """Ask for what is new."""
        self._readable = self._broker.position_durable
        if not self._is_reading and self._next <= self._readable:
            self._is_reading = True
            self._broker.reads.append(self)

    def fail_reading(self) -> None:
        """Try again the next time."""
        self._is_reading = False

    def take(self, stored: Sequence[StoredBatch]) -> None:
        """Add up what was read."""
        self._broker.background.begin(self._taking(stored))

    def _taking(self, stored: Sequence[StoredBatch]) -> Steps[None]:
        for one in stored:
            end = one.first + one.count
            if not self.is_over and end > self._next:
                self._add(one, range(max(0, self._next - one.first), one.count))
                self._next = end
            yield
        if not stored:
            self._next = self._readable + 1
        self._is_reading = False
        if not self.is_over:
            self._keeping.enforce(self)
            self.read_on()

    def _add(self, stored: StoredBatch, rows: range) -> None:
        """Add rows of a stored batch: those that the neighbour has itself, then the others."""
        batch = self.cursor.batch_of(stored, self._keeping.numbers)
        wanted = self.cursor.wanted(batch, rows, stored, self._keeping.leads_to(self.cursor.name))
        theirs = min(max(self.cursor.acknowledged + 1 - stored.first, rows.start), rows.stop)
        for part, is_beyond in ((range(rows.start, theirs), True), (range(theirs, rows.stop), False)):
            if not part:
                continue
            found = [row for row in wanted if row in part]
            size = sum(batch.offsets[row + 1] - batch.offsets[row] for row in found)
            piece = self._piece(is_beyond, size, stored.stored_us)
            piece.last = stored.first + part[-1]
            if found:
                self.size += size
                self.count += len(found)
                numbers = batch.numbers
                types = {batch[row].type for row in found}
                piece.add(
                    MissedRange(
                        batch.first.node,
                        batch.first.epoch,
                        numbers[found[0]],
                        numbers[found[-1]],
                        len(found),
                        tuple(sorted(types)) if len(types) <= TYPES_MAX else (),
                        self._keeping.name_of(batch.first.node),
                    ),
                    size,
                )

    def _piece(self, is_beyond: bool, size: int, stored_us: int) -> KeptPiece:
        """Return the piece to which so many bytes go that were stored at that time."""
        last, settings = self.pieces[-1] if self.pieces else None, self._keeping.settings
        if (
            last is None
            or last.is_beyond is not is_beyond
            or last.size + size > settings.away_bytes / PIECES
            or not 0 <= stored_us - last.since_us <= settings.away_s * 1e6 / PIECES
        ):
            last = KeptPiece(is_beyond, stored_us)
            self.pieces.append(last)
        last.until_us = max(last.until_us, stored_us)
        return last


class Keeping:
    """What is kept for the neighbours of a node while they are away, and gaps in what comes from others.

    `dropped` is called with the first position of events of this node that were given up for a neighbour.
    """

    def __init__(
        self,
        broker: Broker,
        neighbours: KnownNeighbours,
        topology: Topology,
        numbers: Numbers,
        settings: OverlaySettings,
        log: Log,
        dropped: Callable[[int, str], None],
    ) -> None:
        self._broker = broker
        self._neighbours = neighbours
        self._topology = topology
        self._log = log
        self._dropped = dropped
        self.numbers = numbers
        self.settings = settings
        self._readers: dict[LinkCursor, AwayReader] = {}
        self._reporting: dict[LinkCursor, NeighbourLink] = {}  # on which link gaps are being reported
        self._owing: dict[LinkCursor, tuple[int, float]] = {}  # what was confirmed last, and since when

    def leads_to(self, neighbour: str) -> Callable[[str], bool]:
        """Return what tells whether a neighbour is the way to a node."""
        return lambda node: self._topology.way(node) == neighbour

    def name_of(self, node: str) -> str:
        """Return the name of a node, empty if it is not known."""
        return self._topology.name_of(node) or ""

    def status(self, cursor: LinkCursor | None) -> dict[str, int]:
        """How much is stored for a neighbour that is away, and how many gaps are to be reported to it."""
        reader = None if cursor is None else self._readers.get(cursor)
        return {
            "stored_events": 0 if reader is None else reader.count,
            "stored_bytes": 0 if reader is None else reader.size,
            "gaps": 0 if cursor is None else len(cursor.gaps.due),
        }

    @property
    def stored(self) -> tuple[int, int]:
        """How many events are stored for all neighbours that are away, and their bytes."""
        readers = self._readers.values()
        return sum(one.count for one in readers), sum(one.size for one in readers)

    # Neighbours that are away

    def work(self) -> None:
        """Look soon at what is kept for those that are away, and report gaps to those that are there."""
        for neighbour in self._neighbours:
            cursor = neighbour.cursor
            if cursor is None:
                continue
            if cursor.consumer is None:
                if cursor.released < self._broker.position:
                    self._broker.timers.by(self._broker.now + LOOK_S, self._look)
                continue
            if isinstance(cursor.consumer, LinkConsumer) and cursor.consumer.is_owed:
                self._broker.timers.by(self._broker.now + LOOK_S, self._look)
            if len(cursor.gaps):
                self._report(neighbour, cursor)

    def _look(self, now: float) -> None:
        self._look_for_stalled(now)
        away = [one for one in self._neighbours.cursors if one.consumer is None]
        self._readers = {one: self._readers.get(one) or AwayReader(self, one) for one in away}
        for reader in self._readers.values():
            self.enforce(reader)
            reader.read_on()
        if any(reader.pieces for reader in self._readers.values()):
            self._broker.timers.by(now + LOOK_S, self._look)

    def _look_for_stalled(self, now: float) -> None:
        """Take those for away that take events and confirm none: the limits hold for them, too."""
        owing = {}
        for cursor in self._neighbours.cursors:
            consumer = cursor.consumer
            if not (isinstance(consumer, LinkConsumer) and consumer.is_owed):
                continue
            position, since = self._owing.get(cursor, (cursor.acknowledged, now))
            owing[cursor] = (
                (position, since) if position == cursor.acknowledged else (cursor.acknowledged, now)
            )
            if now - owing[cursor][1] >= CONFIRM_S:
                del owing[cursor]
                cursor.stalled_until = now + STALLED_S
                self._broker.count("neighbours_stalled")
                self._log("error", "a neighbour confirms nothing of what it is sent", node=cursor.name)
                consumer.part("nothing was confirmed")
        self._owing = owing
        if owing:
            self._broker.timers.by(now + LOOK_S, self._look)

    def enforce(self, reader: AwayReader) -> None:
        """Give up the oldest of what is kept for a neighbour, as far as it is too much or too old."""
        cursor, pieces = reader.cursor, reader.pieces
        oldest_us = (self._broker.wall - self.settings.away_s) * 1e6
        dropped = 0
        while pieces and (reader.size > self.settings.away_bytes or pieces[0].until_us < oldest_us):
            piece = pieces.popleft()
            reader.size -= piece.size
            reader.count -= piece.count
            dropped += piece.count
            cursor.give_up(piece.last)
            for missed in piece.missed.values():
                cursor.gaps.add(missed, piece.is_beyond)
                if missed.node == self._broker.node:
                    self._dropped(missed.first, cursor.name)
        if dropped:
            self._broker.count("away_dropped", dropped)
            if not reader.has_dropped:
                reader.has_dropped = True
                self._log("error", "too much is kept for a node that is away", node=cursor.name)

    # Gaps

    def _report(self, neighbour: Neighbour, cursor: LinkCursor) -> None:
        """Report to a neighbour what was not kept for it, unless that is under way."""
        link = neighbour.link
        if link is None or not link.is_up or self._reporting.get(cursor) is link:
            return
        leads_to = self.leads_to(neighbour.node)
        due = cursor.gaps.due
        from_there = [one for one in due if leads_to(one.node)]
        due = [one for one in due if one not in from_there][:REPORTED_AT_ONCE]
        if not due:
            cursor.gaps_reported(from_there)
            return
        self._reporting[cursor] = link

        def told(_none: object) -> None:
            if self._reporting.pop(cursor, None) is link:
                cursor.gaps_reported([*due, *from_there])

        def failed(error: TidingsError) -> None:
            if isinstance(error, Refused) and neighbour.link is link:
                self._log("warning", "a neighbour takes no gaps", node=neighbour.node, problem=str(error))
                told(None)
            else:
                self._reporting.pop(cursor, None)

        link.send("link.gap", {"missed": due}).then(told, failed)

    def hear(self, neighbour: Neighbour, request: GapRequest) -> None:
        """A neighbour has not kept all that was to come over its link: note that, and pass it on."""
        for missed in request.missed:
            way = self._topology.way(missed.node)
            is_own = missed.node == self._broker.node
            if is_own or way not in (None, neighbour.node) or not 0 < missed.first <= missed.last:
                self._broker.count("relays_refused", reason="gap")
                continue
            self._broker.missed.note(missed)
            for other in self._neighbours.others(neighbour):
                if other.cursor is not None and other.node != way and _may_want(other.table, missed):
                    other.cursor.miss(missed)


def _may_want(table: NeighbourTable | None, missed: MissedRange) -> bool:
    """Whether any filter of a table may match what is missed."""
    if table is None or len(table) > FILTERS_MAX or not missed.types:
        return True
    wanted = missed.filter
    entries: Iterable[Filter] = (entry.granted for entry in table.entries.values())
    return any(one.overlaps(wanted) for one in entries)
