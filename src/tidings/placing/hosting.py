"""Patterns of other nodes: the side of the node to which a neighbour hands a pattern; and state that comes.

It holds the events of all steps until the state is here, and goes on from there. `handing.py` has the other
side, `service.py` says what each waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.overlay.neighbours import Neighbour, rights_of
from tidings.overlay.service import Overlay
from tidings.patterns.matcher import KEYS_MAX
from tidings.patterns.pattern import Pattern
from tidings.patterns.service import PatternService
from tidings.placing.handing import Handing
from tidings.placing.messages import ComputeRequest, MovedState, NamedPlacement
from tidings.placing.placement import OUTBOX_MAX, OWNER, PlacedWatch, Placement, check_state
from tidings.placing.places import Placements
from tidings.placing.results import Returning
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.replies import Deferred, ignore

PLACED_MAX = 500
"""Patterns that all other nodes together may hand to this one."""


class Hosting:
    """Patterns that other nodes have handed to this one; `gather` has one come back to this node."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        patterns: PatternService,
        places: Placements,
        handing: Handing,
        returning: Returning,
        gather: Callable[[Placement], None],
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._patterns = patterns
        self._places = places
        self._handing = handing
        self._returning = returning
        self._gather = gather

    def compute_all(self, asked: IncomingRequest, request: ComputeRequest) -> Deferred[None] | None:
        """A neighbour hands a pattern on, and gives the events of its side as well."""
        return self.compute(asked, request, takes_all=True)

    def compute(
        self, asked: IncomingRequest, request: ComputeRequest, takes_all: bool = False
    ) -> Deferred[None] | None:
        """A neighbour hands a pattern on, or asks whether it is still here."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._places.by_id.get(request.id)
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
            self._places.forget(placement)
        if sum(bool(one.delegator) for one in self._places) >= PLACED_MAX:
            raise Refused("limit", f"other nodes have at most {PLACED_MAX} patterns at this one")
        return self._begin(neighbour, pattern, request, takes_all)

    def _begin(
        self, neighbour: Neighbour, pattern: Pattern, request: ComputeRequest, takes_all: bool
    ) -> Deferred[None]:
        granted = self._reached(neighbour, request.steps)
        if takes_all and list(map(str, granted)) != list(request.steps):
            raise Refused("not-allowed", "a node that may not have all events gets none by a pattern")
        for filter in granted:
            self._broker.exchange.unindexed.check(f"{OWNER}/{neighbour.node}", filter)
        watch = PlacedWatch(self._patterns, request.id, pattern, request.steps, granted)
        watch.is_holding, watch.subscription.passive = True, request.passive
        about = request.id, neighbour.node, request.lasting, takes_all
        placement = self._places.placed(*about, watch)
        self._places.turn(placement, "gathering", "")
        placement.ready, placement.ready_at = Deferred(), self._broker.position
        if takes_all:
            self._announce(placement, neighbour)
        return placement.ready

    def _announce(self, placement: Placement, neighbour: Neighbour) -> None:
        """Have the delegator know what is wanted from its side."""
        placement.is_announcing = True

        def known(_none: None) -> None:
            placement.is_announcing = False
            self.look_ready()

        neighbour.announcer.barrier().then(known, ignore)
        self._overlay.finish_tick()  # the filters go at once

    def _reached(self, neighbour: Neighbour, steps: tuple[str, ...]) -> list[Filter]:
        """Return the filters of steps, as far as a neighbour may subscribe to them."""
        rights = rights_of(self._broker, neighbour)
        return [rights.reach(Filter(step)) for step in steps]

    def _change_steps(self, placement: Placement, steps: tuple[str, ...]) -> None:
        watch = placement.watch
        assert isinstance(watch, PlacedWatch)
        if len(steps) != len(watch.pattern.steps):
            raise Refused("protocol", "a pattern has a filter for each of its steps")
        if steps != watch.asked_steps:
            watch.asked_steps = steps
            self._places.keep(placement)
            self.allow(placement, watch, steps)

    def allow(self, placement: Placement, watch: PlacedWatch, steps: tuple[str, ...]) -> None:
        """Let a pattern of another node have what that may subscribe to by the current rules."""
        neighbour = self._overlay.neighbours.get(placement.delegator)
        if neighbour is not None:
            granted = self._reached(neighbour, steps)
            self._patterns.allow(watch, granted, watch.subscription.user)
            if placement.takes_all and list(map(str, granted)) != list(steps):
                self.give_back(placement)

    def look_ready(self) -> None:
        """Answer those that have all events from before this node began to hold them."""
        for placement in self._places:
            if placement.ready is not None:
                neighbour = self._overlay.neighbours.get(placement.delegator)
                cursor = None if neighbour is None else neighbour.cursor
                has_all = cursor is not None and cursor.confirmed(0) >= placement.ready_at
                if has_all and not placement.is_announcing:
                    placement.ready.resolve(None)
                    placement.ready = None

    # Giving back

    def give_back(self, placement: Placement) -> None:
        """Ask the delegator to take a pattern back."""
        named = NamedPlacement(placement.id)
        self._overlay.neighbours.ask(placement.delegator, "link.compute.back", named).then(ignore, ignore)

    def given_back(self, asked: IncomingRequest, named: NamedPlacement) -> None:
        """A neighbour gives back a pattern that was handed to it with the events of this side."""
        neighbour, placement = self._overlay.linking.caller(asked.session), self._places.by_id.get(named.id)
        if placement is None or placement.at != neighbour.node or not placement.gives_all:
            raise Refused("not-found", "this pattern is not wanted any more")
        self._gather(placement)

    def take_state(self, asked: IncomingRequest, moved: MovedState) -> None:
        """The state of a pattern comes, from the node that has handed it on or to which it was handed."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._places.by_id.get(moved.id)
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
                self._places.store_result(placement, number, raw)
            self._returning.tell_later(placement)
        self._places.turn(placement, "here", "")
        placement.target = ""
        watch.go_on(moved.watermark_us, moved.seen)
        if placement.is_wanted_back:
            self._places.due[placement] = None

    def recalled(self, asked: IncomingRequest, named: NamedPlacement) -> None:
        """The delegator wants a pattern back."""
        placement = self._known(asked, named.id)
        placement.is_wanted_back = True
        if placement.phase == "gathering":
            raise Refused("not-found", "its state has not come")
        if placement.phase == "returning":
            self._handing.send_state(placement)
        elif placement.phase in ("offered", "handing", "away"):
            self._gather(placement)
        self._places.is_due = True

    def ended_by(self, asked: IncomingRequest, named: NamedPlacement) -> None:
        """The delegator has no use for a pattern any more."""
        placement = self._known(asked, named.id)
        self._handing.end_there(placement)
        self._places.forget(placement)

    def _known(self, asked: IncomingRequest, id: str) -> Placement:
        neighbour, placement = self._overlay.linking.caller(asked.session), self._places.by_id.get(id)
        if placement is None or placement.delegator != neighbour.node:
            raise Refused("not-found", "there is no such pattern here")
        return placement
