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

from collections.abc import Callable, Collection
from typing import Any

from tidings.filters import Filter
from tidings.overlay.neighbours import Neighbour
from tidings.overlay.service import Overlay
from tidings.patterns.service import PatternService
from tidings.patterns.watching import PatternWatch
from tidings.placing.handing import Handing
from tidings.placing.hosting import Hosting
from tidings.placing.messages import ComputeRequest, FoundResults, MovedState, NamedPlacement
from tidings.placing.placement import PlacedWatch, Placement
from tidings.placing.places import Placements
from tidings.placing.results import Returning
from tidings.protocol.broker import Broker
from tidings.protocol.service import Service
from tidings.store.interface import Operation

SETTLE_S = 1.0
"""How long offers must stay the same before a pattern is handed on; it is taken back at once."""


class Placing(Service):
    """Patterns of this node's clients, and of other nodes; `entropy` returns random bytes."""

    def __init__(
        self, broker: Broker, overlay: Overlay, patterns: PatternService, entropy: Callable[[int], bytes]
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._patterns = patterns
        self._returning = Returning(broker, overlay)
        self._places = places = Placements(broker, patterns, entropy, self._returning.tell_later)
        self._handing = Handing(broker, overlay, patterns, places, self._look_at)
        self._hosting = hosting = Hosting(
            broker, overlay, patterns, places, self._handing, self._returning, self._gather
        )
        self._returning.join(places, self._handing.end_there)
        places.restore()
        patterns.placer = self
        self._number()
        overlay.routing.spreading.on_offer = self._offered
        overlay.on_link = self._linked
        follow = overlay.routing.on_tree

        def on_tree(left: Collection[str]) -> None:
            follow(left)
            places.is_due = True

        overlay.routing.on_tree = on_tree
        self.operations = {
            "link.compute": (ComputeRequest, hosting.compute),
            "link.compute.all": (ComputeRequest, hosting.compute_all),
            "link.compute.back": (NamedPlacement, hosting.given_back),
            "link.compute.state": (MovedState, hosting.take_state),
            "link.compute.recall": (NamedPlacement, hosting.recalled),
            "link.compute.found": (FoundResults, self._returning.take),
            "link.compute.end": (NamedPlacement, hosting.ended_by),
        }

    @property
    def placements(self) -> list[Placement]:
        """All patterns of this node, and of others that are here."""
        return list(self._places)

    def begun(self, watch: PatternWatch) -> None:
        """A client has a pattern, or still has it after a restart."""
        self._places.begun(watch)

    def held(self, watch: PatternWatch, before: int) -> None:
        """Store the events that a watch holds, or that it holds none."""
        self._places.held(watch, before)

    # Patterns of clients

    def ended(self, watch: PatternWatch) -> None:
        """A client has it no longer."""
        placement = self._places.of.get(watch)
        if placement is not None:
            self._handing.end_there(placement)
            self._places.forget(placement)

    def changed(self, watch: PatternWatch) -> None:
        """Other events are granted to a pattern: let the node have them that evaluates it."""
        placement = self._places.of.get(watch)
        if placement is not None and placement.phase in ("handing", "away", "fetching"):
            self._handing.check(placement)

    def review(self) -> None:
        """The rules may have changed: those of clients were looked at; these are those of neighbours."""
        for placement in self._places:
            watch = placement.watch
            if isinstance(watch, PlacedWatch):
                self._hosting.allow(placement, watch, watch.asked_steps)
            elif placement.phase in ("handing", "away", "fetching"):
                self._handing.check(placement)
            if placement.gives_all and placement.phase in ("offered", "handing", "away"):
                neighbour = self._overlay.neighbours.get(placement.at)
                if neighbour is not None and not self._handing.may_have_all(placement, neighbour):
                    self._gather(placement)

    def weigh(self, watch: PatternWatch) -> None:
        """It has used enough events to compare from where they come."""
        placement = self._places.of.get(watch)
        if placement is not None:
            self._places.busy[placement] = None

    # Where a pattern should be

    def _sides(self, placement: Placement) -> set[str]:
        """Return the neighbours behind which something is offered that a step may match; "" for this node."""
        steps = [step for step in placement.watch.granted if step.normal]
        sides = {
            one.node
            for one in self._overlay.neighbours.in_tree
            if (one.node != placement.delegator or placement.takes_all)
            and any(map(one.wants.is_offered, steps))
        }
        if any(map(self._overlay.routing.spreading.is_offered, steps)):
            sides.add("")
        return sides

    def _offered(self, node: str, offer: Filter | None) -> None:
        """Something is offered, by a neighbour or here: hold it at once, if it is wanted and not known there.

        Its advertiser may publish as soon as all nodes have answered.
        """
        self._places.is_due = True
        if offer is None:
            return
        for placement in self._places:
            if placement.gives_all:
                continue  # it is heard there
            is_behind = node == placement.delegator and not placement.takes_all
            is_elsewhere = not node or not (is_behind or node == placement.at)
            if is_elsewhere and any(offer.overlaps(step) for step in placement.watch.granted):
                self._gather(placement)

    def _gather(self, placement: Placement) -> None:
        """Something is offered elsewhere than where the pattern is, or goes: it is to be here."""
        if placement.phase == "away":
            self._handing.fetch(placement)
        elif placement.phase == "handing":
            placement.watch.hold()
        elif placement.phase == "offered":
            self._handing.withdraw(placement)

    def _look(self) -> None:
        """Hand patterns on, or take them back, where that is due."""
        self._number()
        now = self._broker.now
        for placement in self._places:
            if placement.delegator and self._overlay.neighbours.get(placement.delegator) is None:
                self._handing.end_there(placement)
                self._places.forget(placement)
                continue
            if placement.phase in ("offered", "handing", "away"):
                if self._is_misplaced(placement):
                    self._gather(placement)
            elif placement.phase == "here":
                self._aim(placement, self._sides(placement), now)
            if placement.phase == "fetching":
                self._see_fetched(placement, now)

    def _is_misplaced(self, placement: Placement) -> bool:
        """Whether a pattern lacks events where it is, or goes, or its matches do not come from there."""
        if not self._leads_to(placement.at):
            return True
        return not placement.gives_all and bool(self._sides(placement) - {placement.at})

    def _see_fetched(self, placement: Placement, now: float) -> None:
        """Wait no longer for what can't come over a link that is not in the tree any more, or is cut."""
        if placement.is_settling and not self._leads_to(placement.at):
            placement.is_settling = False
            self._handing.ask_back(placement)
        self._handing.give_up(placement, now)

    def _leads_to(self, node: str) -> bool:
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_in_tree

    def _aim(self, placement: Placement, sides: set[str], now: float) -> None:
        """Offer a pattern to the neighbour behind which all sources are, if that has been so for a while."""
        if placement.is_wanted_back:
            self._places.due[placement] = None
            return
        target = next(iter(sides)) if len(sides) == 1 else ""
        if target != placement.target:
            placement.target, placement.since = target, now
        neighbour = self._overlay.neighbours.get(target) if target else None
        if neighbour is None or target == placement.delegator:
            return
        moment = max(placement.since + SETTLE_S, placement.refused_until.get(target, 0.0))
        if now < moment:
            self._look_at(moment)
        elif neighbour.is_up and all(one.has_offered for one in self._overlay.neighbours.in_tree):
            self._handing.offer(placement, neighbour)

    def _balance(self, placement: Placement) -> None:
        """Hand a pattern towards the side from which most of its events come, or back there."""
        watch, now = placement.watch, self._broker.now
        asker, keys = placement.delegator, watch.matcher.partial
        side = watch.traffic.heaviest(asker, keys, now) if placement.phase == "here" else None
        neighbour = self._overlay.neighbours.get(side) if side else None
        if neighbour is None or placement.is_wanted_back or not self._is_open(placement):
            return
        if neighbour.node == placement.delegator:
            self._hosting.give_back(placement)
        elif (
            self._leads_to(neighbour.node)
            and neighbour.is_up
            and now >= placement.refused_until.get(neighbour.node, 0.0)
            and self._handing.may_have_all(placement, neighbour)
        ):
            self._handing.offer(placement, neighbour, gives_all=True)

    def _is_open(self, placement: Placement) -> bool:
        """Whether a pattern has events from all sides here, so that another node can have them as well."""
        return not placement.delegator or placement.takes_all

    def _look_at(self, moment: float) -> None:
        self._broker.timers.by(moment, self._wake)

    def _wake(self, _now: float) -> None:
        self._places.is_due = True

    def _number(self) -> None:
        """Number this node's events as others know them, once it has neighbours."""
        if self._patterns.numbers is None and self._overlay.neighbours:
            self._patterns.numbers = self._overlay.numbers

    # Links, ticks

    def _linked(self, neighbour: Neighbour) -> None:
        """A link has come up, or gone down."""
        self._places.is_due = True
        for placement in self._places:
            if neighbour.node == placement.at:
                if neighbour.is_up:
                    self._go_on_there(placement)
                elif placement.phase == "offered":
                    placement.phase, placement.at = "here", ""
                    self._places.due.pop(placement, None)
            if neighbour.node == placement.delegator and neighbour.is_up:
                placement.is_telling = False
                if placement.phase == "returning":
                    self._handing.send_state(placement)
                else:
                    self._returning.tell(placement, is_question=True)

    def _go_on_there(self, placement: Placement) -> None:
        """The node to which a pattern was handed can be reached again."""
        if placement.phase == "handing":
            self._handing.send_state(placement)
        elif placement.phase == "fetching":
            self._handing.ask_back(placement)
        elif placement.phase == "away":
            self._handing.check(placement)

    def finish_tick(self) -> None:
        """Hand on what is ready to go, and look where all should be."""
        busy, self._places.busy = self._places.busy, {}
        for placement in busy:
            self._balance(placement)
        while self._places.is_due:
            self._places.is_due = False
            self._look()
        due, self._places.due = self._places.due, {}
        for placement in due:
            self._handing.hand(placement)
        self._hosting.look_ready()

    def status(self) -> dict[str, Any]:
        """Return where patterns are: those of clients here, and those of other nodes."""
        name = self._overlay.topology.name_of
        away = [one for one in self._places if one.at and not one.has_state]
        placed = [one for one in self._places if one.delegator]
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

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        self._places.durable(mark)
        self._hosting.look_ready()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Commits were not made: go back to what is stored. All links begin anew, too."""
        return self._places.failed(lost)
