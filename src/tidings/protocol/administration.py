"""What those who manage a node may do with its clients: list and end sessions, end durable subscriptions.

A client whose session was ended reconnects by itself, as after any lost connection. To keep it out, take away
its user or its rights. All of this takes the right to manage everything: some queues are not enough. Only the
list of the filters of subscriptions is for everybody: a user without that right is shown its own.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from tidings.errors import Refused
from tidings.protocol.arguments import NAME_LENGTH_MAX, Name
from tidings.protocol.service import IncomingRequest, Service
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.protocol.session import Session

LISTED_MAX = 1_000
"""Sessions in one answer; the rest is asked for behind the last of these."""
LOOKED_AT_ONCE = 100
"""Sessions that are described in one step."""
FILTERS_SIZE_MAX = 256 << 10
"""Characters of filters in one answer, save one filter that is longer."""
ENDED = "ended"
"""The code that a client gets whose session is ended."""


class SessionSearch(Struct, frozen=True):
    """Which sessions are meant: those behind the one of a number."""

    after: int = 0


class SubscriptionSearch(Struct, frozen=True):
    """Which subscriptions are meant: all but so many in the order in which they began."""

    after: Annotated[int, Meta(ge=0)] = 0


class SessionEnd(Struct, frozen=True):
    """The session that is to end, as it is listed."""

    session: Name


class DurableEnd(Struct, frozen=True):
    """The durable subscription that is to end, and its owner."""

    name: Name
    owner: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]


class Administration(Service):
    """A service of the broker for those who manage it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.operations = {
            "session.list": (SessionSearch, self._list),
            "session.end": (SessionEnd, self._end),
            "subscription.list": (SubscriptionSearch, self._list_subscriptions),
            "durable.end": (DurableEnd, self._end_durable),
        }

    def _list(self, asked: IncomingRequest, sought: SessionSearch) -> Steps[dict[str, Any]]:
        """List the sessions of clients in the order in which they connected."""
        asked.session.principal.check_manage_all("list sessions")
        behind = (one for one in list(self._broker.sessions) if one.number > sought.after)
        listed: list[dict[str, Any]] = []
        while some := list(islice(behind, LOOKED_AT_ONCE)):
            listed += (_described(one, self._broker.now) for one in some if one.is_greeted)
            if len(listed) >= LISTED_MAX:
                return {"sessions": listed, "next": some[-1].number}
            yield
        return {"sessions": listed, "next": None}

    def _list_subscriptions(
        self, asked: IncomingRequest, sought: SubscriptionSearch
    ) -> Steps[dict[str, Any]]:
        """List the filters that clients of this node demand events by, each with how many have it."""
        session = asked.session
        own = None if session.principal.manages_all else session.bound
        subscriptions = islice(list(self._broker.exchange.announced), sought.after, None)
        counts: dict[str, int] = {}
        after, size = sought.after, 0
        while some := list(islice(subscriptions, LOOKED_AT_ONCE)):
            for one in some:
                after += 1
                if one.passive or one.is_over or (own is not None and one.user != own):
                    continue
                text = str(one.asked)
                size += 0 if text in counts else len(text)
                counts[text] = counts.get(text, 0) + 1
                if len(counts) >= LISTED_MAX or size >= FILTERS_SIZE_MAX:
                    return {"filters": list(counts.items()), "next": after}
            yield
        return {"filters": list(counts.items()), "next": None}

    def _end(self, asked: IncomingRequest, unwanted: SessionEnd) -> None:
        asked.session.principal.check_manage_all("end sessions")
        session = self._broker.sessions.named(unwanted.session)
        if session is None:
            raise Refused("not-found", f"there is no session {unwanted.session!r}")
        if session is asked.session:
            raise Refused("protocol", f"{unwanted.session!r} is the session that asks; close it instead")
        session.close(ENDED, "the session was ended by an administrator")

    def _end_durable(self, asked: IncomingRequest, unwanted: DurableEnd) -> None:
        if unwanted.owner != asked.session.owner:
            asked.session.principal.check_manage_all("end what belongs to others")
        self._broker.cursors.end_durable(unwanted.owner, unwanted.name)


def _described(session: Session, now: float) -> dict[str, Any]:
    """Describe a session as a list shows it."""
    return {
        "session": session.name,
        "client": session.owner,
        "user": session.principal.user,
        "address": session.caller.peer,
        "for_s": round(now - session.connected_at, 3),
        "subscriptions": session.subscriptions.count,
        "waiting_bytes": session.outbox.size,
    }
