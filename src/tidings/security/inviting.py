"""The service of a node by which others join it: its managers invite, and the invited ask for a certificate.

Inviting, listing and revoking take the right to manage everything. A client that has shown the secret of an
invitation may do one thing, join (`authenticator`). All work on files is done in threads, one join at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, to_builtins

from tidings.errors import NotAllowed, Refused
from tidings.protocol.service import IncomingRequest, Service
from tidings.replies import Deferred
from tidings.security.authenticator import JOIN
from tidings.security.directory import SecurityDirectory
from tidings.security.invitations import FOR_S, INVITED

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.security.joining import Admission

REQUEST_SIZE_MAX = 4_096
"""Characters of a certificate request."""
JOINS_MAX = 20
"""Attempts to join by one invitation, since the node started: each costs a signature."""
HOSTS_MAX = 20
"""Hosts of an invited node."""

Name = Annotated[str, Meta(min_length=1, max_length=64)]


class Listening(Struct, frozen=True):
    """Addresses at which a node listens with TLS."""

    host: str
    port: int


class InvitationRequest(Struct, frozen=True):
    """The node to invite, its hosts, and for how long."""

    name: Name
    hosts: Annotated[list[Annotated[str, Meta(max_length=253)]], Meta(max_length=HOSTS_MAX)] = []
    for_s: float = FOR_S


class RevocationRequest(Struct, frozen=True):
    """The node whose invitation is to be revoked."""

    name: Name


class JoinRequest(Struct, frozen=True):
    """A node that joins: its name, its certificate request, its clock, and the port at which it listens."""

    name: Name
    request: Annotated[str, Meta(max_length=REQUEST_SIZE_MAX)]
    time: float
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None


class InvitationSearch(Struct, frozen=True):
    """All invitations."""


class Inviting(Service):
    """Service by which nodes join. `home` is None for a node without security, which says so.

    `listening` returns where the node listens, `on_change` has the directory read again, and `on_join` is
    called with the name of a node that has joined and its address, if it can be dialled.
    """

    def __init__(
        self,
        broker: Broker,
        home: SecurityDirectory | None,
        listening: Callable[[], Listening | None],
        on_change: Callable[[], None],
        on_join: Callable[[str, str | None], None],
    ) -> None:
        self._broker = broker
        self._home = home
        self._listening = listening
        self._on_change = on_change
        self._on_join = on_join
        self._joins: dict[str, int] = {}  # attempts by invitation
        self._is_joining = False
        self.operations = {
            "invitation.make": (InvitationRequest, self._make),
            "invitation.list": (InvitationSearch, self._list),
            "invitation.revoke": (RevocationRequest, self._revoke),
            JOIN: (JoinRequest, self._join),
        }

    def _make(self, asked: IncomingRequest, wanted: InvitationRequest) -> Deferred[dict[str, Any]]:
        home = self._check(asked, "invite a node")
        listening, wall = self._listening(), self._broker.wall

        def make() -> dict[str, Any]:
            from tidings.security.joining import invite

            line = invite(home, wanted.name, wanted.hosts, wanted.for_s, listening, wall, os.urandom)
            return {"line": str(line), "name": line.name, "until": line.until, "addresses": line.addresses}

        return self._broker.offload(make).map(self._changed)

    def _list(self, asked: IncomingRequest, _sought: InvitationSearch) -> Deferred[list[dict[str, Any]]]:
        home, wall = self._check(asked, "list invitations"), self._broker.wall

        def listed() -> list[dict[str, Any]]:
            found = home.load_invitations().values()
            return [
                {"name": one.name, "state": one.state_at(wall), "until": one.until, "hosts": list(one.hosts)}
                for one in found
            ]

        return self._broker.offload(listed)

    def _revoke(self, asked: IncomingRequest, unwanted: RevocationRequest) -> Deferred[None]:
        home, wall = self._check(asked, "revoke an invitation"), self._broker.wall

        def revoke_it() -> None:
            from tidings.security.joining import revoke

            revoke(home, unwanted.name, wall)

        return self._broker.offload(revoke_it).map(self._changed)

    def _check(self, asked: IncomingRequest, what: str) -> SecurityDirectory:
        """Return the directory, for one who may manage everything."""
        asked.session.principal.check_manage_all(what)
        if self._home is None:
            raise Refused(
                "unsupported",
                "this node has no security, so no other can join it; make a security directory with"
                " 'tidings security init DIR', and start the node with --security DIR",
            )
        return self._home

    def _changed(self, result: Any) -> Any:
        self._on_change()
        return result

    # Joining

    def _join(self, asked: IncomingRequest, wanted: JoinRequest) -> Deferred[dict[str, Any]]:
        from tidings.security.joining import Asked, address_text, admit

        invitation = self._invitation(asked)
        home, caller = self._home, asked.session.caller
        assert home is not None, "only a node with security knows invitations"
        assert caller.host is not None, "the owner needs no invitation"
        address = None if wanted.port is None else address_text(caller.host.partition("%")[0], wanted.port)
        joining = Asked(wanted.name, wanted.request, wanted.time, address)
        listening, wall = self._listening(), self._broker.wall
        self._joins[invitation] = self._joins.get(invitation, 0) + 1
        self._is_joining = True

        def joined(admission: Admission) -> dict[str, Any]:
            self._over()
            self._on_change()
            self._on_join(wanted.name, address)
            self._broker.count("joins")
            found: dict[str, Any] = to_builtins(admission)
            return found

        running = self._broker.offload(lambda: admit(home, invitation, joining, listening, wall))
        running.then(lambda _: None, lambda _: self._over())
        return running.map(joined)

    def _over(self) -> None:
        self._is_joining = False

    def _invitation(self, asked: IncomingRequest) -> str:
        """Return the id of the invitation that a client has proved; one may join at a time."""
        principal = asked.session.principal
        if principal.only != JOIN:
            raise NotAllowed("joining takes an invitation of this node: tidings node --join LINE")
        invitation = principal.user.removeprefix(INVITED)
        if self._joins.get(invitation, 0) >= JOINS_MAX:
            raise Refused("limit", f"{JOINS_MAX} attempts to join by this invitation; make another one")
        if self._is_joining:
            raise Refused("limit", "another node is joining; join again in a moment")
        return invitation
