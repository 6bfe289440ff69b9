"""Sessions of a node: by their names, by their clients, and by when they have been silent for too long."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from tidings.errors import NotAllowed
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import PeerInfo, Principal
from tidings.protocol.ledger import ProducerKey, identity_of
from tidings.protocol.session import Session
from tidings.timers import Leases
from tidings.turns import Share

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker


class Sessions:
    """All sessions of a node, in the order in which they connected: so a run can be repeated."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: dict[str, Session] = {}
        self._silent: Leases[Session] = Leases(attrgetter("wake_at"))
        self._clients: dict[ProducerKey, set[Session]] = {}  # those that were let in
        self._shares: dict[str, Share] = {}  # by user
        self._made = 0

    def __iter__(self) -> Iterator[Session]:
        return iter(self._names.values())

    def __len__(self) -> int:
        return len(self._names)

    def open(self, now: float, caller: PeerInfo) -> Session:
        """Return the session of a peer that has connected."""
        self._made += 1
        session = Session(self._broker, f"{self._broker.boot}-{self._made}", now, caller)
        self._names[session.name] = session
        self._silent.watch(session)
        self._broker.count("connections")
        return session

    def forget(self, session: Session) -> None:
        """Forget a session whose connection is gone."""
        self._names.pop(session.name, None)
        self._silent.cancel(session)

    def named(self, name: str) -> Session | None:
        """Return the session of that name, if its connection is there."""
        return self._names.get(name)

    def of(self, client: ProducerKey) -> Collection[Session]:
        """Return the sessions of a client that was let in."""
        return self._clients.get(client, ())

    def supersede(self, name: str, origin: Origin) -> None:
        """Close the former session of a client that has come again: what is under way there is not taken."""
        before = self._names.get(name)
        if before is not None and before.origin == origin:
            before.close("exists", "the client has come again on another connection")

    def greet(self, session: Session) -> None:
        """Note that a client was let in."""
        self._clients.setdefault(identity_of(session.origin), set()).add(session)
        granted = _publishing(session.principal)
        if granted is not None:
            session.granted = self._broker.exchange.grant(granted)

    def part(self, session: Session) -> None:
        """Note that a client that was let in has gone."""
        identity = identity_of(session.origin)
        self._clients[identity].discard(session)
        if not self._clients[identity]:
            del self._clients[identity]
        if session.granted is not None:
            self._broker.exchange.revoke(session.granted)

    def share_of(self, user: str, own: Share) -> Share:
        """The share of time that a user has with all sessions; the owner has one in each."""
        return self._shares.setdefault(user, own) if user else own

    def weigh(self) -> None:
        """Weigh sessions for what they hold without a tick. To be called now and then."""
        for session in [one for one in self if one.is_swollen or one.outbox.size]:
            session.weigh()
        self._broker.memory.enforce()

    def late(self, now: float) -> Iterator[Session]:
        """Yield the sessions that have to be woken, which is to be done before the next is asked for."""
        for session in list(self._silent.ended(now)):
            yield session
            self._silent.watch(session)

    def review(self) -> None:
        """Close the sessions of clients that the rules let in no more, or for other things."""
        for session in [one for one in self if one.is_let_in]:
            renewed = self._broker.authenticator.renew(session.principal)
            if renewed is None:
                self._broker.count("logins_denied", reason="revoked")
                session.close("not-allowed", "user or secret is wrong")
            elif renewed != session.principal:
                session.close("changed", "the rules have changed: come again")


def _publishing(principal: Principal) -> Filter | None:
    """Return the filter of what a user may publish, None for everything."""
    try:
        return principal.grant("publish")
    except NotAllowed:
        return ~Filter()
