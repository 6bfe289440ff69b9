"""Patterns at work: what comes for each is offered to its matcher, which goes on in the turn of the pattern.

A pattern of a session (`session_watch.py`) ends with it, and its matches go to its consumer. One with a name
*stands*: it is stored, its partial matches are there after a restart, and its matches are published.
`placing/` has a third kind: a pattern that another node has handed to this one.

What is stored with the commit of its events takes them when they come, in the time of their publisher.
Finding matches in them is the work of the pattern, in the share of the user whose it is: what a slice has
found is reported when the tick ends, and the rest is found in later ones.

A watch knows how far it has used the events of each first node (`seen`). A node to which the pattern moves
*holds* events until it has the state, and then uses those that the state has not seen: so an event is used
once, whichever of the two has had it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from tidings.event import Batch, Event
from tidings.event.relayed import FirstNode, RelayedBatch
from tidings.exchange import ROWS_AT_ONCE, EventSink, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.patterns.matcher import Matcher, decode_key, encode_key
from tidings.patterns.pattern import Pattern
from tidings.patterns.reporting import MatchSummary, match_event, summary_of
from tidings.patterns.runs import Row, RunOutcome
from tidings.patterns.traffic import Traffic
from tidings.protocol.backlog import ROWS_AT_FIRST
from tidings.turns import SLICE_S, Share, adapted

if TYPE_CHECKING:
    from tidings.patterns.service import PatternService
    from tidings.patterns.stored_watch import Before

UNUSED = "patterns_unused"
"""Counter of events that were a step and could not be used, by reason."""
HELD_MAX = 100_000
"""Events that wait for the state of a pattern that moves here; further ones are refused."""
TOO_MANY_HELD = "too many events wait"

Seen = dict[str, tuple[int, int]]
"""By first node, or with ~ for what it has not stored: the epoch and number of the last event used."""
FoundMatch = tuple[bytes, MatchSummary]
"""A key, and a match or time-out of it."""
UnusedRow = tuple[Row, str]
"""An event that was not used, and the reason."""


class HeldRow(Struct, frozen=True, array_like=True, gc=False):
    """An event of a pattern: its key, its epoch, and why it has no key, if that is so."""

    key: bytes
    row: Row
    epoch: int
    problem: str = ""


class Arrival(Struct, frozen=True, gc=False):
    """Rows of a batch that came for a pattern, when, and the volatile number of its first row if any."""

    batch: Batch
    rows: Rows
    positions: Positions
    now: float
    volatile: tuple[FirstNode, int] | None


class NodeNumbers(Protocol):
    """Numbers of the events that this node takes in, as other nodes know them."""

    def stored(self, position: int) -> FirstNode:
        """Return this node with the epoch in which the position was stored."""

    def volatile(self, batch: Batch) -> tuple[FirstNode, int]:
        """Return this node, and the volatile number of the first row of a batch that is being published."""


class PatternPlacer(Protocol):
    """Service that lets other nodes do the work of patterns."""

    def begun(self, watch: PatternWatch) -> None:
        """A client has a pattern, or still has it after a restart."""

    def ended(self, watch: PatternWatch) -> None:
        """It has it no longer."""

    def changed(self, watch: PatternWatch) -> None:
        """Other events are granted to it than before."""

    def held(self, watch: PatternWatch, before: int) -> None:
        """Store the events that a watch holds, or none; so many were held before."""

    def weigh(self, watch: PatternWatch) -> None:
        """It has used enough events to compare from where they come."""


class PatternWatch(EventSink):
    """A pattern at work."""

    def __init__(
        self, service: PatternService, pattern: Pattern, granted: list[Filter], matcher: Matcher
    ) -> None:
        self.pattern, self.matcher = pattern, matcher
        self.subscription = NodeSubscription(pattern.filter, self)
        self.allow(granted)
        self._service = service
        self._found: list[FoundMatch] = []
        self._unused: list[UnusedRow] = []
        self._at_once = ROWS_AT_FIRST
        self.share = Share()  # of the time that there is
        self.changed: dict[bytes, None] = {}
        self.more: dict[str, Any] = {}  # further attributes of its matches
        self.delivery = "transient"
        self.seen: Seen = {}
        self.held: list[HeldRow] = []
        self.is_holding = False  # its state is elsewhere, and will come
        self.is_frozen = False  # its state goes elsewhere: what comes is used there
        self.is_listening = False
        self.traffic = Traffic()

    def allow(self, granted: list[Filter]) -> None:
        """Let each step have the events of its filter; each is indexed by itself."""
        whole = granted[0]
        for filter in granted[1:]:
            whole = whole | filter
        self.granted = granted
        self.subscription.filter, self.subscription.parts = whole, tuple(granted)

    @property
    def is_waiting(self) -> bool:
        """Whether time makes no difference to it here: its state is elsewhere, or on its way."""
        return self.is_frozen or self.is_holding

    def listen(self) -> None:
        """Have the events of all steps from now on."""
        if not self.is_listening:
            self.is_listening = True
            self._service.broker.exchange.subscribe(self.subscription)

    def turn_away(self) -> None:
        """Have them no longer."""
        if self.is_listening:
            self.is_listening = False
            self._service.broker.exchange.unsubscribe(self.subscription)

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Take what is some step, unless the state is elsewhere."""
        if self.is_frozen or (isinstance(batch, RelayedBatch) and batch.via == self.subscription.but_from):
            return
        numbers, volatile = self._service.numbers, None
        is_relayed = isinstance(batch, RelayedBatch)
        is_stored = positions is not None and all(positions[row] is not None for row in rows)
        if numbers is not None and not (is_relayed or is_stored):
            volatile = numbers.volatile(batch)
        self.arrive(Arrival(batch, rows, positions, self._service.broker.now, volatile))
        self._service.note(self)

    def arrive(self, arrival: Arrival) -> None:
        """Use what has come."""
        self.use(arrival, arrival.rows)

    @abstractmethod
    def report(self, matches: list[Event], unused: list[UnusedRow]) -> None:
        """Deliver what a tick has brought."""

    def store(self) -> Iterable[Before]:
        """Have the keys stored that have changed; yields what they were. Only some patterns are stored."""
        return ()

    def revert(self) -> None:
        """Go back to what is stored, if anything is: the events since then are lost, and come again."""

    def close(self) -> None:
        """Drop what has come, as the pattern has ended."""

    def tell(self, found: list[FoundMatch], unused: list[UnusedRow]) -> None:
        """Make events of what was found, and deliver them."""
        rules = self.more, self.delivery
        self.report([match_event(self.pattern, decode_key(key), one, *rules) for key, one in found], unused)

    # Its turn

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left. Called when it is its turn."""
        clock = self._service.broker.turns.clock
        begun = clock()
        while is_left := self.step(self._at_once):
            now = clock()
            self._at_once = adapted(self._at_once, now - begun, SLICE_S / 4, SLICE_S / 2, ROWS_AT_ONCE)
            if now >= until:
                break
            begun = now
        self._service.worked(self)
        return is_left

    def give_up(self) -> bool:
        """Go on with nothing, as the work has failed by a fault of the node; nothing is left."""
        return False

    def step(self, most: int) -> bool:
        """Find what is to be found by about so many steps of the matcher; whether there is more to do."""
        return self.advance(self._service.broker.now, most)

    def advance(self, now: float, most: float) -> bool:
        """Use events that have come in time, and deadlines, by so many steps; whether there are more."""
        if self.is_waiting:
            return False
        for key, outcomes in self.matcher.advance(now, most):
            self.changed[key] = None
            for one in outcomes:
                if isinstance(one, RunOutcome):
                    self._found.append((key, summary_of(one)))
                else:
                    self._unused.append(one)
        return self.matcher.is_due(now)

    def catch_up(self) -> None:
        """Use what has come so far, and report it: the state is about to move."""
        self.finish()

    def finish(self) -> None:
        """Report what was found, and see where the pattern should be."""
        if self._found or self._unused:
            found, self._found = self._found, []
            unused, self._unused = self._unused, []
            found.sort(key=lambda one: one[1].end_us)
            self.traffic.find(len(found))
            self.tell(found, unused)
        if self.traffic.is_due and self._service.placer is not None:
            self._service.placer.weigh(self)

    # What has come

    def use(self, arrival: Arrival, rows: Rows) -> None:
        """Offer some rows of what has come to the matcher, or hold them while the state is elsewhere."""
        batch = arrival.batch
        for row in rows:
            lifted = self._lift(arrival, int(row))
            if self.is_holding:
                self._hold(lifted)
            elif batch.is_late or self._is_new(lifted):
                self._offer(lifted, arrival.now)
        self.traffic.note(batch.via if isinstance(batch, RelayedBatch) else "", len(rows), arrival.now)

    def _lift(self, arrival: Arrival, row: int) -> HeldRow:
        batch, pattern, positions = arrival.batch, self.pattern, arrival.positions
        event, epoch, own = batch[row], 0, self._service.broker.node
        numbers = self._service.numbers
        if isinstance(batch, RelayedBatch):
            first = batch.first
            node, number = f"{first.node}~" if first.is_volatile else first.node, int(batch.numbers[row])
            epoch = first.epoch
        elif positions is None or (stored := positions[row]) is None:
            node = f"{own}~"
            if arrival.volatile is None:
                number = self._service.arrived()
            else:
                first, base = arrival.volatile
                epoch, number = first.epoch, base + row
        else:
            node, number = own, stored
            epoch = 0 if numbers is None else numbers.stored(stored).epoch
        taken = Row(event.time_us, node, number, pattern.mask(event), pattern.values(event))
        key = pattern.key(event)
        if isinstance(key, str):
            return HeldRow(b"", taken, epoch, key)
        return HeldRow(encode_key(key), taken, epoch)

    def _is_new(self, lifted: HeldRow) -> bool:
        """Whether an event was not used, here or where the state was before.

        A neighbour that wants more than it did may be sent what the state has seen at another node.
        """
        if not lifted.epoch:  # a node without neighbours numbers nothing
            return True
        return (lifted.epoch, lifted.row.number) > self.seen.get(lifted.row.node, (-1, -1))

    def _offer(self, lifted: HeldRow, now: float) -> None:
        key, row, epoch = lifted.key, lifted.row, lifted.epoch
        if epoch:
            self.seen[row.node] = (epoch, row.number)
        reason = lifted.problem or self.matcher.offer(key, row, now)
        if reason:
            self._unused.append((row, reason))
        else:
            self.changed[key] = None

    # When its state moves

    def _hold(self, lifted: HeldRow) -> None:
        if len(self.held) >= HELD_MAX:
            self._unused.append((lifted.row, TOO_MANY_HELD))
        else:
            self.held.append(lifted)

    def hold(self) -> None:
        """Keep what comes until the state is here."""
        self.is_holding, self.is_frozen = True, False
        self.listen()
        self.traffic.clear()

    def let_go(self) -> None:
        """Forget the state, which is elsewhere now; what comes is no concern of this node."""
        for key in self.matcher.all_keys():
            self.matcher.restore(key, None)
            self.changed[key] = None
        self.matcher.reset(None, self._service.broker.now)
        self.held.clear()
        self.seen = {}

    def go_on(self, watermark_us: int | None, seen: Seen) -> None:
        """Use what was held and not used elsewhere: the keys are here, and this is what they have seen."""
        broker = self._service.broker
        self.is_holding = self.is_frozen = False
        self.matcher.reset(watermark_us, broker.now)
        self.seen = dict(seen)
        self.traffic.clear()
        held, self.held = self.held, []
        for one in held:
            if self._is_new(one):
                self._offer(one, broker.now)
        self._service.note(self)
