"""Placing of patterns: each is evaluated at the node nearest to its sources that sees all of them.

A node that has a pattern looks where the offers lie that its steps overlap (`overlay/pruning.py`). While all
of them lie behind one link, it hands the pattern to the neighbour there, which does the same: so it comes to
the last node that sees all sources. From there only matches travel, hop by hop, to the node of the client.

**Handing on.** The neighbour holds the events of all steps from a position of its stream on, and answers when
this node has stored all before that. Then this node stops, and sends its state with the number of the last
event that it has used of each first node. The neighbour uses what it holds beyond these.

**Taking back.** If something is offered elsewhere, the node holds the events of all steps in the same tick,
asks the neighbour once that has its filters, and gets the state with such numbers. So each reliable event is
used once. A neighbour takes no events for the pattern from the side of the node that has handed it on.

State and results are numbered and stored, if the pattern stands, before they are confirmed: a cut or a
restart on either side delays them. If a node with partial matches is lost, its delegator begins anew after
LOST_S, and the client has a gap with the reason `moved`.
"""

from __future__ import annotations

from base64 import b32encode
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidings.errors import Disconnected, NotAllowed, Refused, TidingsError
from tidings.filters import Filter
from tidings.overlay.neighbours import Neighbour, rights_of
from tidings.overlay.service import Overlay
from tidings.patterns.matcher import KEYS_MAX
from tidings.patterns.pattern import Pattern
from tidings.patterns.runs import Row
from tidings.patterns.service import PatternService
from tidings.patterns.watching import KEYS, PatternWatch, Seen, StoredWatch
from tidings.placing.placement import (
    HELD,
    MOVED,
    OUTBOX_MAX,
    OWNER,
    PLACES,
    RESULTS,
    TOO_MANY_MATCHES,
    HeldRecord,
    Phase,
    PlacedWatch,
    Placement,
    PlaceRecord,
    check_state,
)
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest, Service
from tidings.replies import Deferred, failed
from tidings.store.interface import DropRecord, Operation

SETTLE_S = 1.0
"""How long offers must stay the same before a pattern is handed on; it is taken back at once."""
AGAIN_S = 1.0
"""How long to wait before results that were not taken are sent again."""
REFUSED_S = 30.0
"""How long a neighbour that has refused a pattern is not asked again."""
LOST_S = 10.0
"""How long a node that has to give back a pattern may be out of reach before that begins anew."""
PLACED_MAX = 500
"""Patterns that all other nodes together may hand to this one."""
PIECE_SIZE = 256 << 10
"""Bytes of state, or of results, in one request."""
HELD_AT_ONCE = 100
"""Held events in one record."""
ID_SIZE = 15
"""Random bytes in the id of a placement: none can be guessed."""


class ComputeRequest(Struct, frozen=True):
    """The arguments of `link.compute`: a pattern to be evaluated, with the filters that its steps may have.

    `is_there`: it was handed over; the question is whether it is still there, and these are its filters now.
    """

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    pattern: str
    steps: tuple[str, ...]
    passive: bool = False
    lasting: bool = False
    is_there: bool = False


class MovedState(Struct, frozen=True):
    """The arguments of `link.compute.state`: a piece of the state of a pattern, the last one if `done`."""

    id: str
    moves: int
    first: bool
    done: bool
    keys: list[tuple[bytes, bytes]] = []
    results: list[tuple[int, bytes]] = []
    watermark_us: int | None = None
    seen: Seen = {}
    next: int = 1


class FoundResults(Struct, frozen=True):
    """The arguments of `link.compute.found`: results by number, none to ask if the pattern is wanted."""

    id: str
    results: list[tuple[int, bytes]] = []


class NamedPlacement(Struct, frozen=True):
    """The arguments of `link.compute.recall` and `link.compute.end`."""

    id: str


class _Kept(Struct, frozen=True):
    """What a placement was when it was stored last."""

    phase: Phase
    at: str
    moves: int
    had: int
    next: int


class Placing(Service):
    """Patterns of this node's clients, and of other nodes; `entropy` returns random bytes."""

    def __init__(
        self, broker: Broker, overlay: Overlay, patterns: PatternService, entropy: Callable[[int], bytes]
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._patterns = patterns
        self._entropy = entropy
        self._placements: dict[str, Placement] = {}
        self._of: dict[PatternWatch, Placement] = {}
        self._kept: dict[Placement, _Kept] = {}
        self._before: deque[tuple[int, Placement, _Kept]] = deque()
        self._awaiting: deque[tuple[int, Callable[[], None]]] = deque()  # by mark, what follows its commit
        self._due: dict[Placement, None] = {}  # to be handed on, or back, when the tick ends
        self._is_due = False  # to look where all should be
        self._restore()
        patterns.placer = self
        self._number()
        overlay.routing.spreading.on_offer = self._offered
        overlay.on_link = self._linked
        follow = overlay.routing.on_tree

        def on_tree() -> None:
            follow()
            self._is_due = True

        overlay.routing.on_tree = on_tree
        self.operations = {
            "link.compute": (ComputeRequest, self._compute),
            "link.compute.state": (MovedState, self._take_state),
            "link.compute.recall": (NamedPlacement, self._recalled),
            "link.compute.found": (FoundResults, self._take_found),
            "link.compute.end": (NamedPlacement, self._ended_by),
        }

    @property
    def placements(self) -> list[Placement]:
        """All patterns of this node, and of others that are here."""
        return list(self._placements.values())

    # After a start

    def _restore(self) -> None:
        state = self._broker.state
        held, results = HELD.taken(state), RESULTS.taken(state)
        for (id,), record in PLACES.known(state).items():
            placement = self._reopened(id, record)
            if placement is None:
                self._broker.store(PLACES.drop((id,)))
                continue
            placement.phase, placement.at, placement.moves = record.phase, record.at, record.moves
            placement.had, placement.next = record.had, record.next
            for key in sorted((key for key in held if key[0] == id), key=lambda key: int(key[1])):
                placement.watch.held += held.pop(key).rows
                placement.held_records = int(key[1]) + 1
            for key in sorted((key for key in results if key[0] == id), key=lambda key: int(key[1])):
                placement.outbox[int(key[1])] = results.pop(key).result
            self._arrange(placement)
            self._kept[placement] = self._now(placement)
        for key in held:
            self._broker.store(HELD.drop(key))
        for key in results:
            self._broker.store(RESULTS.drop(key))
        for (owner, name), keys in self._patterns.foreign_keys.items():
            for key in keys:
                self._broker.store(KEYS.drop((owner, name, key.hex())))
        self._patterns.foreign_keys = {}
        for watch in self._patterns.watches:
            if watch not in self._of:
                self.begun(watch)
        self._patterns.set_alarm()

    def _reopened(self, id: str, record: PlaceRecord) -> Placement | None:
        """Return a placement of the last life; None if its pattern is not there any more."""
        if record.asker is not None:
            watch: PatternWatch | None = self._patterns.standing(record.asker)
            return None if watch is None else self._enter(Placement(id, watch, lasting=True))
        granted = [Filter(step) for step in record.steps]
        about = Pattern(record.pattern), record.steps, granted, record.watermark_us
        placed = self._placed(id, record.delegator, True, PlacedWatch(self._patterns, id, *about))
        watch = placed.watch
        watch.seen = dict(record.seen)
        watch.subscription.passive = record.passive
        for key, state in self._patterns.foreign_keys.pop((OWNER, id), {}).items():
            assert isinstance(watch, PlacedWatch)
            watch.reopen(key, state)
        return placed

    def _enter(self, placement: Placement) -> Placement:
        self._placements[placement.id] = self._of[placement.watch] = placement
        self._kept[placement] = self._now(placement)
        return placement

    def _placed(self, id: str, delegator: str, lasting: bool, watch: PlacedWatch) -> Placement:
        """Enter a pattern of another node."""
        subscription = watch.subscription
        subscription.but_from = delegator
        subscription.user = subscription.owner = f"{OWNER}/{delegator}"
        self._patterns.enter(watch)
        placement = watch.placement = Placement(id, watch, delegator, lasting)
        watch.on_found = partial(self._tell_later, placement)
        watch.on_keep = partial(self._keep, placement)
        return self._enter(placement)

    # What is stored

    def _now(self, placement: Placement) -> _Kept:
        return _Kept(placement.phase, placement.at, placement.moves, placement.had, placement.next)

    def _keep(self, placement: Placement) -> None:
        """Have a placement stored as it is now, if its pattern stands."""
        now = self._now(placement)
        if placement.lasting:
            self._before.append((self._broker.mark, placement, self._kept[placement]))
            self._broker.store(PLACES.set((placement.id,), placement.record))
        self._kept[placement] = now

    def _turn(self, placement: Placement, phase: Phase, at: str) -> None:
        placement.phase, placement.at = phase, at
        placement.cut_at = 0.0
        self._keep(placement)
        self._is_due = True

    def _arrange(self, placement: Placement) -> None:
        """Let the watch of a placement do what its phase says."""
        watch, phase = placement.watch, placement.phase
        watch.is_frozen = phase in ("handing", "away", "returning")
        watch.is_holding = phase in ("fetching", "gathering")
        if watch.is_frozen:
            watch.turn_away()
        else:
            watch.listen()

    def _when_stored(self, placement: Placement, act: Callable[[], None]) -> None:
        """Go on when what was kept is on disk."""
        if placement.lasting:
            self._awaiting.append((self._broker.mark, act))
        else:
            act()

    def held(self, watch: PatternWatch, before: int) -> None:
        """Store the events that a watch holds, or that it holds none."""
        placement = self._of.get(watch)
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

    # Patterns of clients

    def begun(self, watch: PatternWatch) -> None:
        """A client has a pattern, or still has it after a restart."""
        id = b32encode(self._entropy(ID_SIZE)).decode().lower()
        self._enter(Placement(id, watch, lasting=isinstance(watch, StoredWatch)))
        self._is_due = True

    def ended(self, watch: PatternWatch) -> None:
        """A client has it no longer."""
        placement = self._of.get(watch)
        if placement is not None:
            self._end_there(placement)
            self._forget(placement)

    def changed(self, watch: PatternWatch) -> None:
        """Other events are granted to a pattern: let the node have them that evaluates it."""
        placement = self._of.get(watch)
        if placement is not None and placement.phase in ("handing", "away", "fetching"):
            self._check(placement)

    def review(self) -> None:
        """The rules may have changed: those of clients were looked at; these are those of neighbours."""
        for placement in list(self._placements.values()):
            watch = placement.watch
            if isinstance(watch, PlacedWatch):
                self._allow(placement, watch, watch.asked_steps)
            elif placement.phase in ("handing", "away", "fetching"):
                self._check(placement)

    def _forget(self, placement: Placement) -> None:
        """Keep nothing of a placement; its watch is gone, or goes."""
        self._placements.pop(placement.id, None)
        self._of.pop(placement.watch, None)
        self._kept.pop(placement, None)
        self._due.pop(placement, None)
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

    # Where a pattern should be

    def _sides(self, placement: Placement) -> set[str]:
        """Return the neighbours behind which something is offered that a step may match; "" for this node."""
        steps = [step for step in placement.watch.granted if step.normal]
        sides = {
            one.node
            for one in self._overlay.neighbours.in_tree
            if one.node != placement.delegator and any(map(one.wants.is_offered, steps))
        }
        if self._overlay.offers_all or any(map(self._is_offered_here, steps)):
            sides.add("")
        return sides

    def _is_offered_here(self, step: Filter) -> bool:
        return any(one.filter.overlaps(step) for one, _ in self._broker.exchange.offers(step))

    def _offered(self, node: str, offer: Filter | None) -> None:
        """Something is offered, by a neighbour or here: hold it at once, if it is wanted and not known there.

        Its advertiser may publish as soon as all nodes have answered.
        """
        self._is_due = True
        if offer is None:
            return
        for placement in list(self._placements.values()):
            is_elsewhere = node not in (placement.delegator, placement.at) or not node
            if is_elsewhere and any(offer.overlaps(step) for step in placement.watch.granted):
                self._gather(placement)

    def _gather(self, placement: Placement) -> None:
        """Something is offered elsewhere than where the pattern is, or goes: it is to be here."""
        if placement.phase == "away":
            self._fetch(placement)
        elif placement.phase == "handing":
            placement.watch.hold()
        elif placement.phase == "offered":
            self._withdraw(placement)

    def _look(self) -> None:
        """Hand patterns on, or take them back, where that is due."""
        self._number()
        now = self._broker.now
        for placement in list(self._placements.values()):
            if placement.delegator and self._overlay.neighbours.get(placement.delegator) is None:
                self._end_there(placement)
                self._forget(placement)
                continue
            sides = self._sides(placement)
            if placement.phase in ("offered", "handing", "away"):
                if sides - {placement.at} or not self._leads_to(placement.at):
                    self._gather(placement)
                elif placement.phase == "handing" and placement.at not in sides:
                    pass
            elif placement.phase == "here":
                self._aim(placement, sides, now)
            if placement.phase == "fetching":
                self._give_up(placement, now)

    def _leads_to(self, node: str) -> bool:
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_in_tree

    def _aim(self, placement: Placement, sides: set[str], now: float) -> None:
        """Offer a pattern to the neighbour behind which all sources are, if that has been so for a while."""
        if placement.is_wanted_back:
            self._due[placement] = None
            return
        target = next(iter(sides)) if len(sides) == 1 else ""
        if target != placement.target:
            placement.target, placement.since = target, now
        neighbour = self._overlay.neighbours.get(target) if target else None
        if neighbour is None:
            return
        moment = max(placement.since + SETTLE_S, placement.refused_until.get(target, 0.0))
        if now < moment:
            self._wake_at(moment)
        elif neighbour.is_up and all(one.has_offered for one in self._overlay.neighbours.in_tree):
            self._offer(placement, neighbour)

    def _wake_at(self, moment: float) -> None:
        self._broker.timers.by(moment, self._wake)

    def _wake(self, _now: float) -> None:
        self._is_due = True

    def _number(self) -> None:
        """Number this node's events as others know them, once it has neighbours."""
        if self._patterns.numbers is None and self._overlay.neighbours:
            self._patterns.numbers = self._overlay.numbers

    # Handing on

    def _steps(self, placement: Placement, neighbour: Neighbour) -> tuple[str, ...]:
        """The filters of all steps, as far as the neighbour may publish what they match."""
        granted = rights_of(self._broker, neighbour).grant("publish")
        steps = placement.watch.granted
        return tuple(str(step if granted is None else step & granted) for step in steps)

    def _ask(self, placement: Placement, neighbour: Neighbour, is_there: bool) -> Deferred[Any]:
        """Offer a pattern, or say once more what it is."""
        try:
            placement.sent = self._steps(placement, neighbour)
        except NotAllowed as error:
            return failed(error)
        passive = placement.watch.subscription.passive
        about = str(placement.watch.pattern), placement.sent, passive, placement.lasting, is_there
        return self._request(neighbour, "link.compute", ComputeRequest(placement.id, *about))

    def _request(self, neighbour: Neighbour | None, operation: str, arguments: Any) -> Deferred[Any]:
        link = None if neighbour is None else neighbour.link
        if link is None or not link.is_up:
            return failed(Disconnected("the link is cut"))
        told = msgspec.to_builtins(arguments, builtin_types=(bytes,))
        call = link.connection.request(operation, told, "fail")
        link.flush()
        return call

    def _offer(self, placement: Placement, neighbour: Neighbour) -> None:
        placement.phase, placement.at = "offered", neighbour.node

        def ready(_none: Any) -> None:
            if placement.phase == "offered" and placement.at == neighbour.node:
                self._due[placement] = None
                self._broker.timers.by(self._broker.now, self._wake)

        def refused(error: TidingsError) -> None:
            if placement.phase == "offered" and placement.at == neighbour.node:
                placement.phase, placement.at = "here", ""
                wait_s = AGAIN_S if isinstance(error, Disconnected) else REFUSED_S
                placement.refused_until[neighbour.node] = self._broker.now + wait_s
                self._is_due = True

        self._ask(placement, neighbour, is_there=False).then(ready, refused)

    def _withdraw(self, placement: Placement) -> None:
        """Hand a pattern on no more."""
        self._end_there(placement)
        placement.phase, placement.at, placement.target = "here", "", ""
        self._due.pop(placement, None)
        self._is_due = True

    def _end_there(self, placement: Placement) -> None:
        """Let the node forget a pattern to which it was handed, or offered."""
        if placement.at:
            neighbour = self._overlay.neighbours.get(placement.at)
            self._request(neighbour, "link.compute.end", NamedPlacement(placement.id)).then(_nothing)

    def _hand(self, placement: Placement) -> None:
        """Stop to evaluate a pattern, at the end of a tick, and let the other node go on."""
        if placement.phase == "offered":
            phase, at = "handing", placement.at
        elif placement.phase == "here" and placement.is_wanted_back:
            phase, at = "returning", ""
        else:
            return
        placement.watch.is_frozen = True
        placement.moves += 1
        if not placement.delegator:
            placement.next = placement.had + 1
        self._turn(placement, phase, at)  # type: ignore[arg-type]  # it is a phase

        def sent() -> None:
            if placement.phase in ("handing", "returning"):
                if not placement.watch.is_holding:
                    placement.watch.turn_away()
                self._send_state(placement)

        self._when_stored(placement, sent)

    def _send_state(self, placement: Placement) -> None:
        """Send the state of a pattern piece by piece; what was lost on the way is sent again from the start."""
        node = placement.at or placement.delegator
        neighbour = self._overlay.neighbours.get(node)
        if placement.is_sending or neighbour is None:
            return
        placement.is_sending = True
        pieces = self._pieces(placement)

        def send(_taken: Any = None) -> None:
            piece = next(pieces, None)
            if piece is None:
                placement.is_sending = False
                self._sent(placement)
            else:
                self._request(neighbour, "link.compute.state", piece).then(send, stopped)

        def stopped(error: TidingsError) -> None:
            placement.is_sending = False
            self._not_taken(placement, error)

        send()

    def _pieces(self, placement: Placement) -> Iterator[MovedState]:
        watch, matcher = placement.watch, placement.watch.matcher
        marks = watch.matcher.watermark_us(self._broker.now), dict(watch.seen), placement.next
        keys: list[tuple[bytes, bytes]] = []
        results: list[tuple[int, bytes]] = []
        size, first = 0, True
        parts: list[tuple[Any, bytes, list[Any]]] = [
            *((key, matcher.state(key) or b"", keys) for key in matcher.keys()),
            *((number, raw, results) for number, raw in placement.outbox.items()),
        ]
        for name, data, where in parts:
            if size + len(data) > PIECE_SIZE and size:
                yield MovedState(placement.id, placement.moves, first, False, list(keys), list(results))
                keys.clear()
                results.clear()
                size, first = 0, False
            where.append((name, data))
            size += len(data) + 32
        yield MovedState(placement.id, placement.moves, first, True, keys, results, *marks)

    def _sent(self, placement: Placement) -> None:
        """The other node has stored the state."""
        if placement.phase == "returning":
            self._forget(placement)
            return
        if placement.phase != "handing":
            return
        watch = placement.watch
        held = watch.held
        watch.held = []
        watch.let_go()
        watch.held = held
        self._drop_results(placement, placement.next)
        self._patterns.note(watch)
        self._turn(placement, "away", placement.at)
        if watch.is_holding:
            self._fetch(placement)
        else:
            self._arrange(placement)
        if placement.watch.granted and placement.sent:
            self._check_steps(placement)

    def _not_taken(self, placement: Placement, error: TidingsError) -> None:
        if placement.phase not in ("handing", "returning") or isinstance(error, Disconnected):
            return  # it is sent again when the link is there
        if placement.phase == "returning":
            if _is_unknown(error):
                self._forget(placement)
            return
        # The other node does not have it any more, nor what came since this one has stopped.
        placement.refused_until[placement.at] = self._broker.now + REFUSED_S
        watermark_us = placement.watch.matcher.watermark_us(self._broker.now)
        self._begin_again(placement, watermark_us, dict(placement.watch.seen))

    def _begin_again(self, placement: Placement, watermark_us: int | None, seen: Seen) -> None:
        """Evaluate a pattern here, though events or partial matches are lost: the client is to know."""
        watch = placement.watch
        at = placement.at
        placement.moves += 1
        self._turn(placement, "here", "")
        watch.listen()
        watch.go_on(watermark_us, seen)
        time_us = watch.matcher.watermark_us(self._broker.now)
        lost = Row(time_us or int(self._broker.wall * 1e6), at, 0, 0, (None,) * len(watch.pattern.columns))
        self._broker.count("patterns_lost")
        watch.tell([], [(lost, MOVED)])

    # Patterns of other nodes

    def _compute(self, asked: IncomingRequest, request: ComputeRequest) -> Deferred[None] | None:
        """A neighbour hands a pattern on, or asks whether it is still here."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._placements.get(request.id)
        if placement is not None and placement.delegator != neighbour.node:
            raise Refused("exists", "this pattern is of another node")
        if request.is_there:
            if placement is None or placement.phase == "gathering":
                raise Refused("not-found", "there is no such pattern here")
            self._change_steps(placement, request.steps)
            return None
        pattern = Pattern(request.pattern)
        if len(request.steps) != len(pattern.steps):
            raise Refused("protocol", "a pattern has a filter for each of its steps")
        if placement is not None:
            if placement.phase != "gathering":
                raise Refused("exists", "this pattern was handed over before")
            self._forget(placement)
        if sum(bool(one.delegator) for one in self._placements.values()) >= PLACED_MAX:
            raise Refused("limit", f"other nodes have at most {PLACED_MAX} patterns at this one")
        return self._begin(neighbour, pattern, request)

    def _begin(self, neighbour: Neighbour, pattern: Pattern, request: ComputeRequest) -> Deferred[None]:
        rights = rights_of(self._broker, neighbour)
        granted = [rights.reach(Filter(step)) for step in request.steps]
        for filter in granted:
            self._broker.exchange.unindexed.check(f"{OWNER}/{neighbour.node}", filter)
        watch = PlacedWatch(self._patterns, request.id, pattern, request.steps, granted)
        watch.is_holding, watch.subscription.passive = True, request.passive
        placement = self._placed(request.id, neighbour.node, request.lasting, watch)
        self._turn(placement, "gathering", "")
        placement.ready, placement.ready_at = Deferred(), self._broker.position
        return placement.ready

    def _change_steps(self, placement: Placement, steps: tuple[str, ...]) -> None:
        watch = placement.watch
        assert isinstance(watch, PlacedWatch)
        if len(steps) != len(watch.pattern.steps):
            raise Refused("protocol", "a pattern has a filter for each of its steps")
        if steps != watch.asked_steps:
            watch.asked_steps = steps
            self._keep(placement)
            self._allow(placement, watch, steps)

    def _allow(self, placement: Placement, watch: PlacedWatch, steps: tuple[str, ...]) -> None:
        """Let a pattern of another node have what that may subscribe to by the current rules."""
        neighbour = self._overlay.neighbours.get(placement.delegator)
        if neighbour is not None:
            rights = rights_of(self._broker, neighbour)
            self._patterns.allow(watch, [rights.reach(Filter(one)) for one in steps], watch.subscription.user)

    def _look_ready(self) -> None:
        """Answer those that have all events from before this node began to hold them."""
        for placement in self._placements.values():
            if placement.ready is not None:
                neighbour = self._overlay.neighbours.get(placement.delegator)
                cursor = None if neighbour is None else neighbour.cursor
                if cursor is not None and cursor.confirmed(0) >= placement.ready_at:
                    placement.ready.resolve(None)
                    placement.ready = None

    def _take_state(self, asked: IncomingRequest, moved: MovedState) -> None:
        """The state of a pattern comes, from the node that has handed it on or to which it was handed."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._placements.get(moved.id)
        if placement is None:
            raise Refused("not-found", "there is no such pattern here")
        if placement.moves >= moved.moves:
            return
        is_due = (placement.phase == "gathering" and placement.delegator == neighbour.node) or (
            placement.phase == "fetching" and placement.at == neighbour.node
        )
        if not is_due:
            raise Refused("exists", "the state of this pattern is not awaited")
        if moved.first:
            placement.incoming, placement.incoming_results = {}, {}
        placement.incoming.update(moved.keys)
        placement.incoming_results.update(moved.results)
        if len(placement.incoming) > KEYS_MAX or len(placement.incoming_results) > OUTBOX_MAX:
            raise Refused("limit", f"a pattern has at most {KEYS_MAX} keys and {OUTBOX_MAX} results")
        if moved.done:
            self._apply(placement, moved)

    def _apply(self, placement: Placement, moved: MovedState) -> None:
        """Go on with the state that has come."""
        watch = placement.watch
        keys, results = placement.incoming, placement.incoming_results
        check_state(watch.pattern, keys, self._broker.now)
        placement.incoming, placement.incoming_results = {}, {}
        for key, state in keys.items():
            watch.matcher.restore(key, state)
            watch.changed[key] = None
        placement.moves, placement.next = moved.moves, moved.next
        if not placement.delegator:
            placement.take(sorted(results.items()))
            placement.had = max(placement.had, moved.next - 1)
        else:
            placement.outbox = dict(sorted(results.items()))
            for number, raw in placement.outbox.items():
                self._store_result(placement, number, raw)
            self._tell_later(placement)
        self._turn(placement, "here", "")
        placement.target = ""
        watch.go_on(moved.watermark_us, moved.seen)
        if placement.is_wanted_back:
            self._due[placement] = None

    def _recalled(self, asked: IncomingRequest, named: NamedPlacement) -> None:
        """The delegator wants a pattern back."""
        placement = self._known(asked, named.id)
        placement.is_wanted_back = True
        if placement.phase == "gathering":
            raise Refused("not-found", "its state has not come")
        if placement.phase == "returning":
            self._send_state(placement)
        elif placement.phase in ("offered", "handing", "away"):
            self._gather(placement)
        self._is_due = True

    def _ended_by(self, asked: IncomingRequest, named: NamedPlacement) -> None:
        """The delegator has no use for a pattern any more."""
        placement = self._known(asked, named.id)
        self._end_there(placement)
        self._forget(placement)

    def _known(self, asked: IncomingRequest, id: str) -> Placement:
        neighbour, placement = self._overlay.linking.caller(asked.session), self._placements.get(id)
        if placement is None or placement.delegator != neighbour.node:
            raise Refused("not-found", "there is no such pattern here")
        return placement

    # Taking back

    def _fetch(self, placement: Placement) -> None:
        """Hold all events, and have the state come back."""
        placement.watch.hold()
        self._turn(placement, "fetching", placement.at)
        self._when_stored(placement, partial(self._ask_back, placement))

    def _ask_back(self, placement: Placement) -> None:
        if placement.phase != "fetching":
            return
        neighbour = self._overlay.neighbours.get(placement.at)
        if neighbour is None or not neighbour.is_up:
            self._is_due = True
            return

        def known(_none: Any = None) -> None:
            if placement.phase == "fetching":
                call = self._request(neighbour, "link.compute.recall", NamedPlacement(placement.id))
                call.then(_ignore, partial(self._not_given, placement))

        if neighbour.is_in_tree:
            neighbour.announcer.barrier().then(known)
            self._overlay.finish_tick()  # the filters go at once
        else:
            known()

    def _not_given(self, placement: Placement, error: TidingsError) -> None:
        if placement.phase == "fetching" and _is_unknown(error):
            self._begin_again(placement, None, {})

    def _give_up(self, placement: Placement, now: float) -> None:
        """Begin a pattern anew if the node that has it is out of reach for too long."""
        neighbour = self._overlay.neighbours.get(placement.at)
        if neighbour is not None and neighbour.is_up:
            placement.cut_at = 0.0
        elif not placement.cut_at:
            placement.cut_at = now
            self._wake_at(now + LOST_S)
        elif now >= placement.cut_at + LOST_S:
            self._begin_again(placement, None, {})
        else:
            self._wake_at(placement.cut_at + LOST_S)

    # Results

    def _store_result(self, placement: Placement, number: int, raw: bytes) -> None:
        watch = placement.watch
        if placement.lasting and isinstance(watch, PlacedWatch):
            watch.keep_result(number, raw)

    def _drop_results(self, placement: Placement, until: int) -> None:
        """Forget results below a number."""
        for number in [number for number in placement.outbox if number < until]:
            del placement.outbox[number]
            if placement.lasting:
                self._broker.store(RESULTS.drop((placement.id, str(number))))

    def _tell_later(self, placement: Placement) -> None:
        """Something was found for another node."""
        if len(placement.outbox) > OUTBOX_MAX:
            self._broker.count("patterns_unused", len(placement.outbox) - OUTBOX_MAX, TOO_MANY_MATCHES)
            self._drop_results(placement, placement.next - OUTBOX_MAX)
        self._when_stored(placement, partial(self._tell, placement))

    def _tell(self, placement: Placement, is_question: bool = False) -> None:
        """Send what was found, if the delegator has taken what was sent before."""
        is_gone = self._placements.get(placement.id) is not placement
        if placement.is_telling or is_gone or not (placement.outbox or is_question):
            return
        results: list[tuple[int, bytes]] = []
        size = 0
        for number, raw in placement.outbox.items():
            if results and size + len(raw) > PIECE_SIZE:
                break
            results.append((number, raw))
            size += len(raw) + 16
        placement.is_telling = True
        neighbour, asked = self._overlay.neighbours.get(placement.delegator), placement.asked

        def taken(_none: Any) -> None:
            placement.is_telling = False
            if results:
                self._drop_results(placement, results[-1][0] + 1)
                self._tell(placement)

        def refused(error: TidingsError) -> None:
            placement.is_telling = False
            if _is_unknown(error) and asked == placement.asked:
                if self._placements.get(placement.id) is placement:
                    self._end_there(placement)
                    self._forget(placement)
            elif not isinstance(error, Disconnected):
                again = self._broker.now + AGAIN_S
                self._broker.timers.at(again, partial(self._tell_again, placement))

        self._request(neighbour, "link.compute.found", FoundResults(placement.id, results)).then(
            taken, refused
        )

    def _tell_again(self, placement: Placement, _now: float) -> None:
        self._tell(placement)

    def _take_found(self, asked: IncomingRequest, found: FoundResults) -> Deferred[Any] | None:
        """Results come from the node to which a pattern was handed: they go on to who has asked for it."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._placements.get(found.id)
        if placement is None or placement.at != neighbour.node:
            raise Refused("not-found", "this pattern is not wanted any more")
        if placement.delegator:
            above = self._overlay.neighbours.get(placement.delegator)
            reply: Deferred[Any] = Deferred()
            call = self._request(above, "link.compute.found", found)
            call.then(reply.resolve, lambda error: reply.fail(_passed(error)))
            return reply
        if found.results:
            placement.take(found.results)
            self._keep(placement)
        return None

    # Links, ticks

    def _linked(self, neighbour: Neighbour) -> None:
        """A link has come up, or gone down."""
        self._is_due = True
        for placement in list(self._placements.values()):
            if neighbour.node == placement.at:
                if neighbour.is_up:
                    self._go_on_there(placement)
                elif placement.phase == "offered":
                    placement.phase, placement.at = "here", ""
                    self._due.pop(placement, None)
            if neighbour.node == placement.delegator and neighbour.is_up:
                placement.is_telling = False
                if placement.phase == "returning":
                    self._send_state(placement)
                else:
                    self._tell(placement, is_question=True)

    def _go_on_there(self, placement: Placement) -> None:
        """The node to which a pattern was handed can be reached again."""
        if placement.phase == "handing":
            self._send_state(placement)
        elif placement.phase == "fetching":
            self._ask_back(placement)
        elif placement.phase == "away":
            self._check(placement)

    def _check(self, placement: Placement) -> None:
        """See whether the other node still has a pattern, and let it know the current filters."""
        neighbour = self._overlay.neighbours.get(placement.at)

        def unknown(error: TidingsError) -> None:
            if placement.phase == "away" and (_is_unknown(error) or isinstance(error, NotAllowed)):
                placement.watch.hold()
                self._begin_again(placement, None, {})

        if neighbour is not None and neighbour.is_up:
            self._ask(placement, neighbour, is_there=True).then(_ignore, unknown)

    def _check_steps(self, placement: Placement) -> None:
        """Rules may have changed while the state was under way."""
        neighbour = self._overlay.neighbours.get(placement.at)
        try:
            if neighbour is not None and self._steps(placement, neighbour) != placement.sent:
                self._check(placement)
        except NotAllowed:
            self._check(placement)

    def finish_tick(self) -> None:
        """Hand on what is ready to go, and look where all should be."""
        while self._is_due:
            self._is_due = False
            self._look()
        due, self._due = self._due, {}
        for placement in due:
            self._hand(placement)
        self._look_ready()

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        while self._before and self._before[0][0] <= mark:
            self._before.popleft()
        while self._awaiting and self._awaiting[0][0] <= mark:
            self._awaiting.popleft()[1]()
        self._look_ready()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made: go back to what is stored. All links begin anew, too."""
        self._awaiting.clear()
        self._due.clear()
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
            self._arrange(placement)
        self._is_due = True
        kept_operations = [one for one in lost if self._is_of_others(one)]
        lasting = [one for one in self._placements.values() if one.lasting and one in changed]
        return [*kept_operations, *(PLACES.set((one.id,), one.record) for one in lasting)]

    def _is_of_others(self, operation: Operation) -> bool:
        """Whether an operation of a commit that was not made is to be stored nonetheless."""
        for kind in (PLACES, RESULTS, HELD):
            key = kind.key_of(operation)
            if key is not None:
                return isinstance(operation, DropRecord) and key[0] not in self._placements
        return True

    def status(self) -> dict[str, Any]:
        """Return where patterns are: those of clients here, and those of other nodes."""
        name = self._overlay.topology.name_of
        away = [one for one in self._placements.values() if one.at and not one.has_state]
        placed = [one for one in self._placements.values() if one.delegator]
        return {
            "patterns_away": [
                {"pattern": str(one.watch.pattern), "at": name(one.at) or one.at} for one in away
            ],
            "patterns_placed": [
                {
                    "pattern": str(one.watch.pattern),
                    "of": name(one.delegator) or one.delegator,
                    "phase": one.phase,
                    "keys": one.watch.matcher.partial,
                }
                for one in placed
            ],
        }


def _is_unknown(error: TidingsError) -> bool:
    return isinstance(error, Refused) and error.code == "not-found"


def _passed(error: TidingsError) -> TidingsError:
    """Return the error of a node further on; one that can't be reached now is no reason to forget anything."""
    return (
        error
        if _is_unknown(error)
        else Refused("no-way", f"the node that has asked is out of reach: {error}")
    )


def _nothing(_outcome: Any) -> None:
    """For requests whose outcome changes nothing."""


_ignore = _nothing
