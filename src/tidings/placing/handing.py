"""Handing patterns on and taking them back: the side of the node that hands them on, and sending of state.

`placement.py` has the phases, `service.py` says what each side waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tidings.errors import Disconnected, NotAllowed, TidingsError
from tidings.overlay.neighbours import Neighbour, rights_of
from tidings.overlay.service import Overlay
from tidings.patterns.service import PatternService
from tidings.patterns.watching import Seen
from tidings.placing.messages import (
    PIECE_SIZE,
    ComputeRequest,
    MovedState,
    NamedPlacement,
    is_unknown,
)
from tidings.placing.placement import MOVED, Placement
from tidings.placing.places import Placements
from tidings.placing.results import AGAIN_S
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, failed, ignore

REFUSED_S = 30.0
"""How long a neighbour that has refused a pattern is not asked again."""
LOST_S = 10.0
"""How long a node that has to give back a pattern may be out of reach before that begins anew."""


class Handing:
    """Patterns on their way from one node to another; `look_at` has all looked at, at a moment."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        patterns: PatternService,
        places: Placements,
        look_at: Callable[[float], None],
    ) -> None:
        self._broker = broker
        self._overlay = overlay
        self._patterns = patterns
        self._places = places
        self._look_at = look_at

    # Handing on

    def _steps(self, placement: Placement, neighbour: Neighbour) -> tuple[str, ...]:
        """The filters of all steps, as far as the neighbour may publish what they match."""
        granted = rights_of(self._broker, neighbour).grant("publish")
        steps = placement.watch.granted
        return tuple(str(step if granted is None else step & granted) for step in steps)

    def may_have_all(self, placement: Placement, neighbour: Neighbour) -> bool:
        """Whether a neighbour may have all events of the steps from here, and publish all from there."""
        rights = rights_of(self._broker, neighbour)
        try:
            grants = [rights.grant(kind) for kind in ("subscribe", "publish")]
        except NotAllowed:
            return False
        return all(one is None or one.covers(step) for one in grants for step in placement.watch.granted)

    def _ask(self, placement: Placement, neighbour: Neighbour, is_there: bool) -> Deferred[Any]:
        """Offer a pattern, or say once more what it is."""
        try:
            placement.sent = self._steps(placement, neighbour)
        except NotAllowed as error:
            return failed(error)
        passive = placement.watch.subscription.passive
        about = str(placement.watch.pattern), placement.sent, passive, placement.lasting, is_there
        operation = "link.compute.all" if placement.gives_all and not is_there else "link.compute"
        return neighbour.send(operation, ComputeRequest(placement.id, *about))

    def offer(self, placement: Placement, neighbour: Neighbour, gives_all: bool = False) -> None:
        """Offer a pattern to a neighbour; `gives_all`: it is to have the events of this side as well."""
        placement.phase, placement.at, placement.gives_all = "offered", neighbour.node, gives_all

        def ready(_none: Any) -> None:
            if placement.phase == "offered" and placement.at == neighbour.node:
                self._places.due[placement] = None
                self._look_at(self._broker.now)

        def refused(error: TidingsError) -> None:
            if placement.phase == "offered" and placement.at == neighbour.node:
                placement.phase, placement.at = "here", ""
                wait_s = AGAIN_S if isinstance(error, Disconnected) else REFUSED_S
                placement.refused_until[neighbour.node] = self._broker.now + wait_s
                self._places.is_due = True

        self._ask(placement, neighbour, is_there=False).then(ready, refused)

    def withdraw(self, placement: Placement) -> None:
        """Hand a pattern on no more."""
        self.end_there(placement)
        placement.phase, placement.at, placement.target = "here", "", ""
        self._places.due.pop(placement, None)
        self._places.is_due = True

    def end_there(self, placement: Placement) -> None:
        """Let the node forget a pattern to which it was handed, or offered."""
        if placement.at:
            ended = NamedPlacement(placement.id)
            self._overlay.neighbours.ask(placement.at, "link.compute.end", ended).then(ignore)

    def hand(self, placement: Placement) -> None:
        """Stop to evaluate a pattern, at the end of a tick, and let the other node go on."""
        if placement.phase == "offered":
            phase, at = "handing", placement.at
        elif placement.phase == "here" and placement.is_wanted_back:
            phase, at = "returning", ""
        else:
            return
        placement.watch.catch_up()
        placement.watch.is_frozen = True
        placement.moves += 1
        if not placement.delegator:
            placement.next = placement.had + 1
        self._places.turn(placement, phase, at)  # type: ignore[arg-type]  # it is a phase

        def sent() -> None:
            if placement.phase in ("handing", "returning"):
                if not placement.watch.is_holding:
                    placement.watch.turn_away()
                self.send_state(placement)

        self._places.when_stored(placement, sent)

    def send_state(self, placement: Placement) -> None:
        """Send the state of a pattern piece by piece, from the start if that was begun before."""
        node = placement.at or placement.delegator
        neighbour = self._overlay.neighbours.get(node)
        if placement.is_sending or neighbour is None:
            return
        placement.is_sending = True
        pieces = self._pieces(placement)

        def send_next(_taken: Any = None) -> None:
            piece = next(pieces, None)
            if piece is None:
                placement.is_sending = False
                self._sent(placement)
            else:
                neighbour.send("link.compute.state", piece).then(send_next, stopped)

        def stopped(error: TidingsError) -> None:
            placement.is_sending = False
            self._not_taken(placement, error)

        send_next()

    def _pieces(self, placement: Placement) -> Iterator[MovedState]:
        watch, matcher = placement.watch, placement.watch.matcher
        marks = watch.matcher.watermark_us(self._broker.now), dict(watch.seen), placement.next
        keys: list[tuple[bytes, bytes]] = []
        results: list[tuple[int, bytes]] = []
        size, first = 0, True
        parts: list[tuple[Any, bytes, list[Any]]] = [
            *((key, matcher.state(key) or b"", keys) for key in matcher.all_keys()),
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
            self._places.forget(placement)
            return
        if placement.phase != "handing":
            return
        watch = placement.watch
        held = watch.held
        watch.held = []
        watch.let_go()
        watch.held = held
        self._places.drop_results(placement, placement.next)
        self._patterns.note(watch)
        self._places.turn(placement, "away", placement.at)
        if watch.is_holding:
            self.fetch(placement)
        else:
            self._places.arrange(placement)
        if placement.watch.granted and placement.sent:
            self._check_steps(placement)

    def _not_taken(self, placement: Placement, error: TidingsError) -> None:
        if placement.phase not in ("handing", "returning") or isinstance(error, Disconnected):
            return  # it is sent again when the link is there
        if placement.phase == "returning":
            if is_unknown(error):
                self._places.forget(placement)
            return
        # The other node does not have it any more, nor what came since this one has stopped.
        placement.refused_until[placement.at] = self._broker.now + REFUSED_S
        watermark_us = placement.watch.matcher.watermark_us(self._broker.now)
        self._begin_again(placement, watermark_us, dict(placement.watch.seen))

    def _begin_again(self, placement: Placement, watermark_us: int | None, seen: Seen) -> None:
        """Evaluate a pattern here, though events or partial matches are lost: the client is to know."""
        watch, lost = placement.watch, placement.lost_row(0, int(self._broker.wall * 1e6))
        placement.moves += 1
        self._places.turn(placement, "here", "")
        watch.listen()
        watch.go_on(watermark_us, seen)
        self._broker.count("patterns_lost")
        watch.tell([], [(lost, MOVED)])

    # Taking back

    def fetch(self, placement: Placement) -> None:
        """Hold all events, and have the state come back."""
        placement.watch.hold()
        self._places.turn(placement, "fetching", placement.at)
        self._places.when_stored(placement, partial(self.ask_back, placement))

    def ask_back(self, placement: Placement) -> None:
        if placement.phase != "fetching":
            return
        neighbour = self._overlay.neighbours.get(placement.at)
        if neighbour is None or not neighbour.is_up:
            self._places.is_due = True
            return

        def recall(_none: Any = None) -> None:
            placement.is_settling = False
            if placement.phase == "fetching":
                call = neighbour.send("link.compute.recall", NamedPlacement(placement.id))
                call.then(ignore, partial(self._not_given, placement))

        def known(_none: Any = None) -> None:
            if placement.gives_all and neighbour.is_in_tree:
                placement.is_settling = True  # what came before this node held events is used there
                self._overlay.settled(neighbour).then(recall)
            else:
                recall()

        if neighbour.is_in_tree:
            neighbour.announcer.barrier().then(known)
            self._overlay.finish_tick()  # the filters go at once
        else:
            known()

    def _not_given(self, placement: Placement, error: TidingsError) -> None:
        if placement.phase == "fetching" and is_unknown(error):
            self._begin_again(placement, None, {})

    def give_up(self, placement: Placement, now: float) -> None:
        """Begin a pattern anew if the node that has it is out of reach for too long."""
        neighbour = self._overlay.neighbours.get(placement.at)
        if neighbour is not None and neighbour.is_up:
            placement.cut_at = 0.0
        elif not placement.cut_at:
            placement.cut_at = now
            self._look_at(now + LOST_S)
        elif now >= placement.cut_at + LOST_S:
            self._begin_again(placement, None, {})
        else:
            self._look_at(placement.cut_at + LOST_S)

    # What holds now

    def check(self, placement: Placement) -> None:
        """See whether the other node still has a pattern, and let it know the current filters."""
        neighbour = self._overlay.neighbours.get(placement.at)

        def unknown(error: TidingsError) -> None:
            if placement.phase == "away" and (is_unknown(error) or isinstance(error, NotAllowed)):
                placement.watch.hold()
                self._begin_again(placement, None, {})

        if neighbour is not None and neighbour.is_up:
            self._ask(placement, neighbour, is_there=True).then(ignore, unknown)

    def _check_steps(self, placement: Placement) -> None:
        """Rules may have changed while the state was under way."""
        neighbour = self._overlay.neighbours.get(placement.at)
        try:
            if neighbour is not None and self._steps(placement, neighbour) != placement.sent:
                self.check(placement)
        except NotAllowed:
            self.check(placement)
