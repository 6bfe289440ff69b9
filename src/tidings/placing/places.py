"""All placements of a node, and what is stored of them.

A phase is stored before the node acts on it (`when_stored`). If a commit fails, placements go back to what
they were before it, as the partial matches themselves do.
"""

from __future__ import annotations

from base64 import b32encode
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.patterns.key_records import key_changes
from tidings.patterns.pattern import Pattern
from tidings.patterns.service import PatternService
from tidings.patterns.stored_watch import StoredWatch
from tidings.patterns.watching import PatternWatch
from tidings.placing.placement import (
    HELD,
    OWNER,
    PLACES,
    RESULTS,
    HeldRecord,
    Phase,
    PlacedWatch,
    Placement,
    PlacementRecord,
)
from tidings.protocol.broker import Broker
from tidings.store.interface import DropRecord, Operation

HELD_AT_ONCE = 100
"""Held events in one record."""
ID_SIZE = 15
"""Random bytes in the id of a placement: none can be guessed."""


class _Kept(Struct, frozen=True):
    """What a placement was when it was stored last."""

    phase: Phase
    at: str
    moves: int
    had: int
    next: int


class Placements:
    """Placements of a node; `on_found` is called with each that has found something for another node."""

    def __init__(
        self,
        broker: Broker,
        patterns: PatternService,
        entropy: Callable[[int], bytes],
        on_found: Callable[[Placement], None],
    ) -> None:
        self._broker = broker
        self._patterns = patterns
        self._entropy = entropy
        self._on_found = on_found
        self.by_id: dict[str, Placement] = {}
        self.of: dict[PatternWatch, Placement] = {}
        self._kept: dict[Placement, _Kept] = {}
        self._before: deque[tuple[int, Placement, _Kept]] = deque()
        self._awaiting: deque[tuple[int, Callable[[], None]]] = deque()  # by mark, what follows its commit
        self.due: dict[Placement, None] = {}  # to be handed on, or back, when the tick ends
        self.busy: dict[Placement, None] = {}  # with enough events to compare from where they come
        self.is_due = False  # to look where all should be

    def __iter__(self) -> Iterator[Placement]:
        return iter(list(self.by_id.values()))

    def begun(self, watch: PatternWatch) -> None:
        """A client has a pattern, or still has it after a restart."""
        id = b32encode(self._entropy(ID_SIZE)).decode().lower()
        self.enter(Placement(id, watch, lasting=isinstance(watch, StoredWatch)))
        self.is_due = True

    # After a start

    def restore(self) -> None:
        state = self._broker.state
        held, results = HELD.taken(state), RESULTS.taken(state)
        for (id,), record in PLACES.known(state).items():
            placement = self._reopened(id, record)
            if placement is None:
                self._broker.store(PLACES.drop((id,)))
                continue
            placement.phase, placement.at, placement.moves = record.phase, record.at, record.moves
            placement.had, placement.next = record.had, record.next
            placement.gives_all = record.gives_all
            for key in sorted((key for key in held if key[0] == id), key=lambda key: int(key[1])):
                placement.watch.held += held.pop(key).rows
                placement.held_records = int(key[1]) + 1
            for key in sorted((key for key in results if key[0] == id), key=lambda key: int(key[1])):
                placement.outbox[int(key[1])] = results.pop(key).result
            self.arrange(placement)
            self._kept[placement] = self._now(placement)
        for key in held:
            self._broker.store(HELD.drop(key))
        for key in results:
            self._broker.store(RESULTS.drop(key))
        for pattern, states in self._patterns.foreign_keys.items():
            for of_key, stored in states.items():
                for gone in key_changes(pattern, of_key, stored, None):
                    self._broker.store(gone)
        self._patterns.foreign_keys = {}
        for watch in self._patterns.watches:
            if watch not in self.of:
                self.begun(watch)
        self._patterns.look_again()

    def _reopened(self, id: str, record: PlacementRecord) -> Placement | None:
        """Return a placement of the last life; None if its pattern is not there any more."""
        if record.asker is not None:
            standing = self._patterns.standing(record.asker)
            return None if standing is None else self.enter(Placement(id, standing, lasting=True))
        granted = [Filter(step) for step in record.steps]
        about = Pattern(record.pattern), record.steps, granted, record.watermark_us
        watch = PlacedWatch(self._patterns, id, *about)
        placed = self.placed(id, record.delegator, True, record.takes_all, watch)
        watch.seen = dict(record.seen)
        watch.subscription.passive = record.passive
        for key, state in self._patterns.foreign_keys.pop((OWNER, id), {}).items():
            watch.reopen(key, state)
        return placed

    def enter(self, placement: Placement) -> Placement:
        self.by_id[placement.id] = self.of[placement.watch] = placement
        self._kept[placement] = self._now(placement)
        return placement

    def placed(
        self, id: str, delegator: str, lasting: bool, takes_all: bool, watch: PlacedWatch
    ) -> Placement:
        """Enter a pattern of another node, from whose side it takes events as well, or none."""
        subscription = watch.subscription
        subscription.but_from = "" if takes_all else delegator
        subscription.user = subscription.owner = f"{OWNER}/{delegator}"
        self._patterns.enter(watch)
        placement = watch.placement = Placement(id, watch, delegator, lasting)
        placement.takes_all = takes_all
        watch.on_found = partial(self._on_found, placement)
        watch.on_keep = partial(self.keep, placement)
        return self.enter(placement)

    # What is stored

    def _now(self, placement: Placement) -> _Kept:
        return _Kept(placement.phase, placement.at, placement.moves, placement.had, placement.next)

    def keep(self, placement: Placement) -> None:
        """Have a placement stored as it is now, if its pattern stands."""
        now = self._now(placement)
        if placement.lasting:
            self._before.append((self._broker.mark, placement, self._kept[placement]))
            self._broker.store(PLACES.set((placement.id,), placement.record))
        self._kept[placement] = now

    def turn(self, placement: Placement, phase: Phase, at: str) -> None:
        placement.phase, placement.at = phase, at
        placement.cut_at = 0.0
        self.keep(placement)
        self.is_due = True

    def arrange(self, placement: Placement) -> None:
        """Let the watch of a placement do what its phase says."""
        watch, phase = placement.watch, placement.phase
        watch.is_frozen = phase in ("handing", "away", "returning")
        watch.is_holding = phase in ("fetching", "gathering")
        if watch.is_frozen:
            watch.turn_away()
        else:
            watch.listen()
            self._patterns.note(watch)

    def when_stored(self, placement: Placement, act: Callable[[], None]) -> None:
        """Go on when what was kept is on disk."""
        if placement.lasting:
            self._awaiting.append((self._broker.mark, act))
        else:
            act()

    def held(self, watch: PatternWatch, before: int) -> None:
        """Store the events that a watch holds, or that it holds none."""
        placement = self.of.get(watch)
        if placement is None:
            return
        if not watch.held:
            for number in range(placement.held_records):
                self._broker.store(HELD.drop((placement.id, str(number))))
            placement.held_records = 0
        for at in range(before, len(watch.held), HELD_AT_ONCE):
            rows = tuple(watch.held[at : at + HELD_AT_ONCE])
            self._broker.store(HELD.set((placement.id, str(placement.held_records)), HeldRecord(rows)))
            placement.held_records += 1

    def forget(self, placement: Placement) -> None:
        """Keep nothing of a placement; its watch is gone, or goes."""
        self.by_id.pop(placement.id, None)
        self.of.pop(placement.watch, None)
        self._kept.pop(placement, None)
        self.due.pop(placement, None)
        self.busy.pop(placement, None)
        self._before = deque(one for one in self._before if one[1] is not placement)
        watch = placement.watch
        if placement.lasting:
            self._broker.store(PLACES.drop((placement.id,)))
            for number in placement.outbox:
                self._broker.store(RESULTS.drop((placement.id, str(number))))
            for number in range(placement.held_records):
                self._broker.store(HELD.drop((placement.id, str(number))))
            placement.held_records = 0
        if isinstance(watch, PlacedWatch):
            self._patterns.leave(watch)
            for operation in watch.dropped():
                self._broker.store(operation)
        if placement.ready is not None:
            placement.ready.fail(Refused("not-found", "the pattern is not wanted any more"))

    # Results

    def store_result(self, placement: Placement, number: int, raw: bytes) -> None:
        watch = placement.watch
        if placement.lasting and isinstance(watch, PlacedWatch):
            watch.keep_result(number, raw)

    def drop_results(self, placement: Placement, until: int) -> None:
        """Forget results below a number."""
        for number in [number for number in placement.outbox if number < until]:
            del placement.outbox[number]
            if placement.lasting:
                self._broker.store(RESULTS.drop((placement.id, str(number))))

    # Commits

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        while self._before and self._before[0][0] <= mark:
            self._before.popleft()
        while self._awaiting and self._awaiting[0][0] <= mark:
            self._awaiting.popleft()[1]()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made: go back to what is stored. All links begin anew, too."""
        self._awaiting.clear()
        self.due.clear()
        changed: dict[Placement, None] = {}
        while self._before:
            _, placement, kept = self._before.pop()
            placement.phase, placement.at, placement.moves = kept.phase, kept.at, kept.moves
            placement.had, placement.next = kept.had, kept.next
            for number in [number for number in placement.outbox if number >= kept.next]:
                del placement.outbox[number]
            self._kept[placement] = kept
            changed[placement] = None
        for placement in changed:
            if placement.phase == "away":
                placement.watch.let_go()
                self._patterns.note(placement.watch)
            self.arrange(placement)
        self.is_due = True
        kept_operations = [one for one in lost if self._is_of_others(one)]
        lasting = [one for one in self.by_id.values() if one.lasting and one in changed]
        return [*kept_operations, *(PLACES.set((one.id,), one.record) for one in lasting)]

    def _is_of_others(self, operation: Operation) -> bool:
        """Whether an operation of a commit that was not made is to be stored nonetheless."""
        for kind in (PLACES, RESULTS, HELD):
            key = kind.key_of(operation)
            if key is not None:
                return isinstance(operation, DropRecord) and key[0] not in self.by_id
        return True
