"""Events of a node for everybody within an area, and the place of the node itself.

An event that is cast to an area is carried until its life ends, and published at each node that is within the
area meanwhile, with the rights that its first node has there. Nobody is waited for, so there are no reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tidings.adhoc.areas import check_area
from tidings.adhoc.carried_events import options_of, pack
from tidings.adhoc.messages import EVERYBODY
from tidings.adhoc.queued_buffer import check_carried
from tidings.errors import CodecError, NotAllowed, Refused
from tidings.event import Batch, Event
from tidings.event.wire import check
from tidings.ids import Origin
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.queues.message import event_bytes

if TYPE_CHECKING:
    from tidings.adhoc.service import AdhocService

AREA = "area:"
"""Destination of what is cast to an area."""


class CastRequest(Struct, frozen=True):
    """The arguments of `adhoc.cast`: an area in WKT, and an array of one event."""

    area: str
    raw: bytes


class MovePlaceRequest(Struct, frozen=True):
    """The arguments of `adhoc.move`: where the node is from now on; without them nobody knows."""

    x: float | None = None
    y: float | None = None


class AreaCasts:
    """Casts of one node."""

    def __init__(self, service: AdhocService, broker: Broker) -> None:
        self._service = service
        self._broker = broker
        self.operations: Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {
            "adhoc.cast": (CastRequest, self._cast),
            "adhoc.move": (MovePlaceRequest, self._move),
        }

    def _cast(self, asked: IncomingRequest, request: CastRequest) -> dict[str, Any]:
        """Have an event carried to all nodes within an area."""
        check_area(request.area)
        event = self._event(asked.session, request.raw)
        host, raw = self._service.host, pack(event_bytes(event), event.origin)
        message = host.compose((EVERYBODY,), raw, destination=AREA, area=request.area, **options_of(event))
        if check_carried(message):
            raise Refused("too-large", f"an event of {len(raw)} bytes can't be carried")
        self._service.do(host.send(message, self._broker.now))
        if message.id not in host.buffer:
            raise Refused("limit", f"the buffer of this host has no room for {message.size} bytes")
        return {"id": str(message.id)}

    def _event(self, session: Session, raw: bytes) -> Event:
        """Return the one event of a request, with an id and a source of this node."""
        try:
            count = len(check(raw).counters)
        except CodecError as error:
            raise Refused("protocol", f"there is no event to cast: {error}") from None
        if count != 1:
            raise Refused("protocol", f"{count} events are cast: one is at a time")
        batch = Batch(raw, session.origin)
        if (session.granted is not None or session.bound is not None) and not session.may_publish(batch, 0):
            raise NotAllowed(self._broker.refusal(session, batch, 0))
        own, host = self._broker.own(batch[0]), self._service.host.name
        assert session.origin is not None
        source = session.origin.source
        origin = Origin() if own.origin is None else own.origin
        return replace(own, origin=replace(origin, source=f"{source}@{host}" if source else host))

    def _move(self, asked: IncomingRequest, request: MovePlaceRequest) -> None:
        """Be at another place from now on."""
        asked.session.principal.check_manage()
        x, y = request.x, request.y
        if x is None or y is None:
            place = None
        elif isfinite(x) and isfinite(y):
            place = x, y
        else:
            raise Refused("protocol", "a place is two numbers")
        self._service.do(self._service.host.move(place, self._broker.now))
