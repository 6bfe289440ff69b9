"""Placement of one pattern: where its state is, what is on its way there, and what waits to go back.

    here ──► offered ──► handing ──► away ──► fetching ──► here        at the node that hands it on
             gathering ──────────► here ───► returning ──► (gone)      at the node that is given it

Either node stores its phase before it acts on it, and the state is at exactly one of them in each phase:
`handing` and `returning` have it until the other one has stored it. `moves` counts how often the state has
moved; state that comes a second time is known by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from tidings.errors import Refused
from tidings.event import Event
from tidings.filters import Filter
from tidings.patterns.key_records import PatternKey
from tidings.patterns.matcher import Matcher, decode_key
from tidings.patterns.pattern import Pattern
from tidings.patterns.reporting import MatchSummary, match_event
from tidings.patterns.runs import Row
from tidings.patterns.service import PatternService
from tidings.patterns.stored_watch import Before, Marks, StoredWatch
from tidings.patterns.watching import FoundMatch, HeldRow, PatternWatch, Seen, UnusedRow
from tidings.replies import Deferred
from tidings.store.interface import RecordKind

OWNER = "\x1fplaced"
"""Owner of the keys of patterns of other nodes: no client can have this name."""
OUTBOX_MAX = 10_000
"""Matches that wait for the node that has asked for them; past that the oldest are dropped."""
MOVED = "moved"
"""Reason of a gap: partial matches were lost with the node that had them."""
TOO_MANY_MATCHES = "too many matches wait"

Phase = Literal["here", "offered", "handing", "away", "fetching", "gathering", "returning"]


class PlacementRecord(Struct, frozen=True):
    """The stored record of a placement; `asker` is the standing pattern of a client here, if it is one."""

    phase: Phase
    moves: int
    at: str = ""
    asker: PatternKey | None = None
    had: int = 0
    next: int = 1
    delegator: str = ""
    pattern: str = ""
    steps: tuple[str, ...] = ()
    passive: bool = False
    watermark_us: int | None = None
    seen: Seen = {}
    takes_all: bool = False
    gives_all: bool = False


class ResultRecord(Struct, frozen=True):
    """A match that waits for the node that has asked for it."""

    result: bytes


class HeldRecord(Struct, frozen=True):
    """Events that wait for the state of a pattern, in the order in which they came."""

    rows: tuple[HeldRow, ...]


PLACES: RecordKind[tuple[str], PlacementRecord] = RecordKind("place", PlacementRecord)
RESULTS: RecordKind[tuple[str, str], ResultRecord] = RecordKind("place-result", ResultRecord)
HELD: RecordKind[tuple[str, str], HeldRecord] = RecordKind("place-held", HeldRecord)


class PlacedResult(Struct, frozen=True, array_like=True):
    """A match with its key, or an event that was not used with its reason."""

    key: bytes = b""
    match: MatchSummary | None = None
    row: Row | None = None
    reason: str = ""


_encode_result = msgspec.msgpack.Encoder().encode
_decode_result = msgspec.msgpack.Decoder(PlacedResult).decode


class Placement:
    """One pattern of a client here, or that another node, the `delegator`, has handed to this one."""

    def __init__(self, id: str, watch: PatternWatch, delegator: str = "", lasting: bool = False) -> None:
        self.id = id
        self.watch = watch
        self.delegator = delegator
        self.lasting = lasting
        self.phase: Phase = "here"
        self.at = ""  # the node to which it is handed, or was offered
        self.takes_all = False  # here it has events from the side of the delegator, too
        self.gives_all = False  # there it has events from the side of this node, too
        self.moves = 0
        self.had = 0  # the last result that the client has got
        self.next = 1  # number of the next result
        self.outbox: dict[int, bytes] = {}
        self.lost = 0  # results that did not fit
        self.target, self.since = "", 0.0  # the node where it should be, and since when
        self.refused_until: dict[str, float] = {}
        self.sent: tuple[str, ...] = ()  # steps, as they were last sent
        self.asked = 0  # how often it was offered by the delegator
        self.ready: Deferred[None] | None = None  # when the delegator has all from before this position
        self.ready_at = 0
        self.is_announcing = False  # to the delegator what is wanted from its side, which is not in force yet
        self.is_settling = False  # its other node is to have all from before it is asked for the state
        self.is_wanted_back = False
        self.is_telling = self.is_sending = False
        self.cut_at = 0.0  # since when its other node can't be reached; 0: it can
        self.held_records = 0
        self.incoming: dict[bytes, bytes] = {}
        self.incoming_results: dict[int, bytes] = {}

    @property
    def record(self) -> PlacementRecord:
        """What is stored of it."""
        watch, about = self.watch, (self.phase, self.moves, self.at)
        if not isinstance(watch, PlacedWatch):
            asker = watch.key if isinstance(watch, StoredWatch) else None
            return PlacementRecord(*about, asker, self.had, self.next, gives_all=self.gives_all)
        return PlacementRecord(
            *about,
            had=self.had,
            next=self.next,
            delegator=self.delegator,
            pattern=str(watch.pattern),
            steps=watch.asked_steps,
            passive=watch.subscription.passive,
            watermark_us=watch.marks.watermark_us,
            seen=watch.marks.seen,
            takes_all=self.takes_all,
            gives_all=self.gives_all,
        )

    @property
    def has_state(self) -> bool:
        """Whether the partial matches are at this node."""
        return self.phase in ("here", "offered", "handing", "returning")

    # Results

    def add(self, found: list[FoundMatch], unused: list[UnusedRow]) -> list[int]:
        """Keep what was found until the delegator has it; the numbers of the results."""
        results = [PlacedResult(key, match) for key, match in found]
        results += [PlacedResult(row=row, reason=reason) for row, reason in unused]
        numbers = []
        for result in results:
            self.outbox[self.next] = _encode_result(result)
            numbers.append(self.next)
            self.next += 1
        return numbers

    def take(self, results: list[tuple[int, bytes]]) -> None:
        """Give the client results that it has not got; Refused for what no pattern can have found."""
        found: list[FoundMatch] = []
        unused: list[UnusedRow] = []
        had = self.had
        for number, raw in results:
            if number <= had:
                continue
            if number > had + 1:
                unused.append((self.lost_row(number - had - 1), TOO_MANY_MATCHES))
            had = number
            result = _checked(self.watch.pattern, raw)
            if result.match is not None:
                found.append((result.key, result.match))
            elif result.row is not None:
                unused.append((result.row, result.reason))
        self.had = had
        if found or unused:
            self.watch.tell(found, unused)

    def lost_row(self, number: int, time_us: int = 0) -> Row:
        """Return a row that stands for something lost, at the node to which the pattern was handed."""
        return Row(time_us, self.at, number, 0, (None,) * len(self.watch.pattern.columns))


def _checked(pattern: Pattern, raw: bytes) -> PlacedResult:
    """Return a result that this pattern may have; Refused if it can't."""
    try:
        result = _decode_result(raw)
        if result.match is not None:
            for step, _, row in result.match.steps:
                if not 0 <= step < len(pattern.steps) or len(row.values) != len(pattern.columns):
                    raise ValueError("a step that is none")
            match_event(pattern, decode_key(result.key), result.match, {}, "transient")
    except (msgspec.MsgspecError, ValueError, OverflowError, TypeError) as error:
        raise Refused("protocol", f"no result of this pattern: {error}") from None
    return result


def check_state(pattern: Pattern, keys: dict[bytes, bytes], now: float) -> None:
    """Raise Refused for state that this pattern can't have."""
    matcher = Matcher(pattern, now)
    try:
        for key, state in keys.items():
            if len(decode_key(key)) != len(pattern.by):
                raise ValueError("a key of another pattern")
            matcher.restore(key, state)
            matcher.restore(key, None)
    except (msgspec.MsgspecError, ValueError, IndexError, TypeError) as error:
        raise Refused("protocol", f"no state of this pattern: {error}") from None


class PlacedWatch(StoredWatch):
    """A pattern that another node has handed to this one; its results wait in the outbox of its placement."""

    placement: Placement

    def __init__(
        self,
        service: PatternService,
        id: str,
        pattern: Pattern,
        steps: tuple[str, ...],
        granted: list[Filter],
        watermark_us: int | None = None,
    ) -> None:
        super().__init__(service, pattern, granted, watermark_us)
        self.key = (OWNER, id)
        self.asked_steps = steps  # as the delegator has asked for them
        self.on_found: Callable[[], None] = lambda: None
        self.on_keep: Callable[[], None] = lambda: None

    @property
    def marks(self) -> Marks:
        """The watermark and what was seen, as they are stored."""
        return self._marks

    def tell(self, found: list[FoundMatch], unused: list[UnusedRow]) -> None:
        """Keep what was found for the node that has asked."""
        for number in self.placement.add(found, unused):
            if self.placement.lasting:
                self.keep_result(number, self.placement.outbox[number])
        self.on_found()

    def keep_result(self, number: int, raw: bytes) -> None:
        """Store a result until it was taken."""
        self._broker.store(RESULTS.set((self.placement.id, str(number)), ResultRecord(raw)))

    def report(self, matches: list[Event], unused: list[UnusedRow]) -> None:
        """Nothing is reported here."""

    def store(self) -> Iterable[Before]:
        """Have the keys stored that have changed, if the pattern stands."""
        if self.placement.lasting:
            yield from super().store()
        self.changed.clear()

    def revert(self) -> None:
        """Go back to what is stored, if the pattern stands."""
        if self.placement.lasting:
            super().revert()

    def keep(self, marks: Marks) -> None:  # noqa: ARG002
        """Store the watermark with the placement."""
        self.on_keep()
