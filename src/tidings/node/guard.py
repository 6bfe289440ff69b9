"""Access to a node with security: its users, rules and certificates, as they lie in a directory.

They are read at the start, where a mistake is the end of it; and again on SIGHUP and when a file has changed,
where a mistake is logged, once for each change, and all stays as it was.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from tidings.errors import ConfigError
from tidings.node import logs
from tidings.protocol.access import Denied, LoginCredentials, PeerInfo, Principal
from tidings.security.authenticator import UserAuthenticator
from tidings.security.directory import SecurityDirectory
from tidings.security.invitations import Invitations
from tidings.security.passwords import is_token
from tidings.security.rules import Rules
from tidings.security.users import User
from tidings.transport.tls import (
    NodeContext,
    common_name,
    expires_at,
    node_context,
    own_certificate,
    port_context,
)

HTTP = "127.0.0.1"
"""Host under which requests over HTTP with wrong tokens are counted."""
SOON_S = 30 * 86_400.0
"""Time before the node's certificate expires from which on a warning is logged once a day."""


class Guard:
    """The authenticator and the TLS of a node, from one directory; ConfigError if anything in it is wrong.

    `name` is that of the node in its certificate.
    """

    def __init__(self, directory: Path, now: float) -> None:
        self._files = SecurityDirectory(directory)
        self._seen = self._files.signature()
        self._day = _day(now)
        users, rules, invitations, self._context = self._read()
        self._known = users, rules
        self._invitations = invitations
        self._port: NodeContext | None = None
        self.authenticator = UserAuthenticator(users, rules)
        self.authenticator.reload(users, rules, now, invitations)
        self.name = self._look_at_certificate(now)

    def open(self, room: Callable[[], int], on_failure: Callable[[], None]) -> NodeContext:
        """Return the TLS context for the node's port; see `NodeContext`."""
        self._port = port_context(self._context, room, on_failure)
        return self._port

    def is_manager(self, authorization: str, now: float, wall: float) -> bool:
        """Whether a request over HTTP has the token of one who may manage; Denied if it has a wrong one."""
        if not authorization:
            return False
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not is_token(token.strip()):
            raise Denied("none", "this node takes tokens only, as `Authorization: Bearer TOKEN`")
        principal = self.authenticator.admit(
            LoginCredentials(PeerInfo(HTTP, HTTP), secret=token.strip()), now, wall
        )
        return isinstance(principal, Principal) and principal.manages

    def look(self, now: float) -> bool | None:
        """Read all again if a file has changed; whether that went well, None if there was nothing to read.

        Tokens end at the end of a day, so all is read again then, too.
        """
        is_changed = self._files.signature() != self._seen or _day(now) != self._day
        return self.reload(now) if is_changed else None

    def reload(self, now: float) -> bool:
        """Read all again, and go by it from now on; if that can't be, it is logged and nothing changes."""
        self._seen, self._day = self._files.signature(), _day(now)
        try:
            users, rules, invitations, context = self._read()
            self._look_at_certificate(now)
        except ConfigError as error:
            logs.error("security could not be read again", problem=str(error))
            # Tokens may have ended, whatever stands in the files.
            self.authenticator.reload(*self._known, now, self._invitations)
            return False
        self._known, self._invitations = (users, rules), invitations
        self.authenticator.reload(users, rules, now, invitations)
        if self._port is not None:
            self._port.current = context
        logs.info("security was read again", users=len(users))
        return True

    def _read(self) -> tuple[dict[str, User], Rules, Invitations, ssl.SSLContext]:
        files = self._files
        users, rules = files.load()
        context = node_context(files.ca, files.certificate, files.key)
        return users, rules, files.load_invitations(), context

    def _look_at_certificate(self, now: float) -> str:
        """Log if the node's certificate ends soon, or has ended; whom it names."""
        files = self._files
        certificate = own_certificate(files.certificate, files.key)
        left_s = expires_at(certificate) - now
        until = datetime.fromtimestamp(expires_at(certificate), UTC).date()
        if left_s < 0:
            logs.error("the node's certificate has expired", until=until, certificate=files.certificate)
        elif left_s < SOON_S:
            logs.warning("the node's certificate expires soon", until=until, certificate=files.certificate)
        return common_name(certificate) or ""


def _day(now: float) -> date:
    return datetime.fromtimestamp(now, UTC).date()
