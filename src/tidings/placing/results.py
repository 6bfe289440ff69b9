"""Results of patterns that are evaluated elsewhere than where they were asked for, on their way back.

A result is numbered, and kept where it was found until the node of the client has stored it: the nodes
between the two only pass it on, and pass back that it was taken.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tidings.errors import Disconnected, Refused, TidingsError
from tidings.overlay.service import Overlay
from tidings.placing.messages import PIECE_SIZE, FoundResults, is_unknown, passed_on
from tidings.placing.placement import OUTBOX_MAX, TOO_MANY_MATCHES, Placement
from tidings.placing.places import Placements
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.replies import Deferred

AGAIN_S = 1.0
"""How long to wait before results that were not taken are sent again."""


class Returning:
    """Results under way; `end_there` lets a node forget a pattern to which it was handed."""

    def __init__(self, broker: Broker, overlay: Overlay) -> None:
        self._broker = broker
        self._overlay = overlay
        self._places: Placements

    def join(self, places: Placements, end_there: Any) -> None:
        """Work for these placements."""
        self._places, self._end_there = places, end_there

    def tell_later(self, placement: Placement) -> None:
        """Something was found for another node."""
        if len(placement.outbox) > OUTBOX_MAX:
            self._broker.count("patterns_unused", len(placement.outbox) - OUTBOX_MAX, TOO_MANY_MATCHES)
            self._places.drop_results(placement, placement.next - OUTBOX_MAX)
        self._places.when_stored(placement, partial(self.tell, placement))

    def tell(self, placement: Placement, is_question: bool = False) -> None:
        """Send what was found, if the delegator has taken what was sent before."""
        is_gone = self._places.by_id.get(placement.id) is not placement
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
        asked = placement.asked

        def taken(_none: Any) -> None:
            placement.is_telling = False
            if results:
                self._places.drop_results(placement, results[-1][0] + 1)
                self.tell(placement)

        def refused(error: TidingsError) -> None:
            placement.is_telling = False
            if is_unknown(error) and asked == placement.asked:
                if self._places.by_id.get(placement.id) is placement:
                    self._end_there(placement)
                    self._places.forget(placement)
            elif not isinstance(error, Disconnected):
                again = self._broker.now + AGAIN_S
                self._broker.timers.at(again, partial(self._tell_again, placement))

        found = FoundResults(placement.id, results)
        self._overlay.neighbours.ask(placement.delegator, "link.compute.found", found).then(taken, refused)

    def _tell_again(self, placement: Placement, _now: float) -> None:
        self.tell(placement)

    def take(self, asked: IncomingRequest, found: FoundResults) -> Deferred[Any] | None:
        """Results come from the node to which a pattern was handed: they go on to who has asked for it."""
        neighbour = self._overlay.linking.caller(asked.session)
        placement = self._places.by_id.get(found.id)
        if placement is None or placement.at != neighbour.node:
            raise Refused("not-found", "this pattern is not wanted any more")
        if placement.delegator:
            reply: Deferred[Any] = Deferred()
            call = self._overlay.neighbours.ask(placement.delegator, "link.compute.found", found)
            call.then(reply.resolve, lambda error: reply.fail(passed_on(error)))
            return reply
        if found.results:
            placement.take(found.results)
            self._places.keep(placement)
        return None
