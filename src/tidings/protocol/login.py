"""The login of a client: from its HELLO, over what the authenticator says, to the WELCOME.

A password is checked in a thread. Until then nothing else is heard of the client but that it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from tidings.errors import EventError, MoveRefused, Refused
from tidings.ids import NUMBER_MAX, Origin, check_system
from tidings.protocol.access import Check, Denied, LoginCredentials, Principal
from tidings.protocol.arguments import NAME_LENGTH_MAX, check_readable
from tidings.protocol.frames import encode
from tidings.protocol.inboxes import inboxes_at
from tidings.protocol.messages import VERSION, Hello, Welcome
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.protocol.session import Session

WINDOW = 4 << 20
"""Bytes of events that a client may have on their way unaccepted."""


class Login:
    """The login of the client of one session."""

    def __init__(self, session: Session) -> None:
        self.denied = ""
        """Why it was denied, until the driver has logged that."""
        self._session = session
        self._hello: Hello | None = None  # while the authenticator looks at it

    @property
    def is_under_way(self) -> bool:
        """Whether the authenticator looks at a HELLO."""
        return self._hello is not None

    def greet(self, hello: Hello) -> None:
        """Take a HELLO; what else is said before the WELCOME is refused."""
        session, broker = self._session, self._session.broker
        if session.is_let_in:
            raise Refused("protocol", "Hello twice")
        if VERSION not in hello.versions:
            session.close("version", f"this node speaks version {VERSION}, not {hello.versions[:10]}")
            return
        try:
            check_system(hello.system)
        except EventError as error:
            raise Refused("protocol", str(error)) from None
        if not 0 <= hello.epoch <= NUMBER_MAX or len(hello.name) > NAME_LENGTH_MAX:
            raise Refused("protocol", "an epoch or a name that can't be")
        check_readable(hello.name, "the name of a client")
        claim = LoginCredentials(session.caller, hello.user, hello.secret, hello.name)
        self._hello = structs.replace(hello, secret="")
        self._let_in(partial(broker.authenticator.admit, claim, broker.now, broker.wall))

    def _let_in(self, decide: Callable[[], Principal | Check]) -> None:
        """Welcome the client if the authenticator says so, now or when it has checked more."""
        assert self._hello is not None
        try:
            answer = decide()
            if isinstance(answer, Principal):
                self._welcome(self._hello, answer)
            else:
                self._check(answer)
        except Denied as error:
            self.denied = error.reason
            self._session.broker.count("logins_denied", reason=error.reason)
            self._session.close(error.code, str(error))

    def _check(self, check: Check) -> None:
        """Have the authenticator's question answered in a thread, and go on in a turn of the session."""
        session, broker = self._session, self._session.broker

        def conclude(passed: bool) -> Steps[None]:
            if not session.is_closed:
                self._let_in(partial(broker.authenticator.conclude, check, passed, broker.now))
            yield

        checked = broker.offload(check.run, "password")
        checked.then(lambda passed: session.do(conclude(passed)), lambda _error: session.do(conclude(False)))

    def _welcome(self, hello: Hello, principal: Principal) -> None:
        session, broker = self._session, self._session.broker
        origin = Origin(hello.system, hello.epoch, source_of(hello.name, principal) or None)
        if hello.cookie:
            try:
                session.arrival = broker.arrivals.redeem(hello.cookie, origin, principal.user)
            except MoveRefused as error:
                broker.count("cookies_refused")
                session.close("move", error.problem)
                return
        self._hello = None
        session.let_in(principal)
        if hello.resume is not None:
            broker.sessions.supersede(hello.resume, origin)
        session.resume(origin, hello.seen)
        if hello.node not in ("", broker.node) and hello.sent > hello.seen:
            session.repeated = hello.sent
        refused = broker.ledger.refused(origin)
        broker.sessions.greet(session)
        kept = [service.greeted(session) for service in broker.services]
        welcome = Welcome(
            VERSION,
            broker.node,
            broker.life,
            session.name,
            session.accepted,
            WINDOW,
            refused,
            any(kept),
            broker.name,
            principal.user,
            self._is_ahead(hello),
            f"{inboxes_at(broker.node, principal.user)}{broker.epoch}.",
            broker.departed.find(origin),
            broker.refuges(),
        )
        # A counter accepts what another connection brought.
        session.post(encode(welcome), broker.promise if session.counter else 0)

    def _is_ahead(self, hello: Hello) -> bool:
        """Whether a client knows of something that this store never had: then it is an older copy."""
        broker = self._session.broker
        is_ahead = hello.node == broker.node and (
            hello.boot > broker.life or hello.position > broker.position
        )
        if is_ahead:
            broker.count("clients_ahead")
        return is_ahead


def source_of(name: str, principal: Principal) -> str:
    """Return the client's name: the one it gives, if that is its user's name or begins with it."""
    if principal.rules is None or name == principal.user or name.startswith(f"{principal.user}/"):
        return name
    if name:
        raise Denied("source", f"the name must be {principal.user!r}, or begin with {principal.user + '/'!r}")
    return principal.user
