"""Who sensor networks belong to, where users are known: by a certificate, or by a token.

A token comes in the first line of a connection, `{"login": {"token": …}}`, or as a member of `register`.
Passwords are not taken: small devices have none, and checking them takes long.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from tidings.errors import NotAllowed
from tidings.filters import Filter
from tidings.protocol.access import Caller, Claim, Denied, Permit
from tidings.security.gate import WRONG, Watchman
from tidings.security.passwords import is_token

LOGIN_SIZE_MAX = 4_096
"""Bytes of the line that says who is there."""
_BEGINNING = b'{"login"'
_BLANKS = b" \t\r\n"


class Standing(Struct, frozen=True):
    """Who someone is, and what of readings that one may publish; None is everything."""

    user: str = ""
    grant: Filter | None = None
    permit: Permit | None = None


ANYONE = Standing()
"""Whoever comes where users are not known."""


class Entrance:
    """Decides by users and rules. `strangers`: readings are also taken of those whom nobody knows."""

    def __init__(
        self,
        gate: Watchman,
        clock: Callable[[], float],
        wall: Callable[[], float],
        strangers: bool = False,
    ) -> None:
        self.strangers = strangers
        self._gate = gate
        self._clock = clock
        self._wall = wall

    def by_certificate(self, caller: Caller) -> Standing | None:
        """Who has connected with a certificate, None if that says nothing or lets in nobody."""
        if caller.certificate is None:
            return None
        try:
            return self._standing(self._gate.admit(Claim(caller), self._clock(), self._wall()))
        except NotAllowed:
            return None

    def by_token(self, caller: Caller, token: str) -> Standing:
        """Who shows this token; NotAllowed if it is none, or its user may publish nothing."""
        if not is_token(token):
            raise Denied("token", WRONG)
        return self._standing(self._gate.admit(Claim(caller, secret=token), self._clock(), self._wall()))

    def renewed(self, standing: Standing | None) -> Standing | None:
        """What someone may do by the rules that hold now; None if that one is not let in any more."""
        permit = None if standing is None or standing.permit is None else self._gate.renew(standing.permit)
        try:
            return None if permit is None else self._standing(permit)
        except NotAllowed:
            return None

    def _standing(self, permit: object) -> Standing:
        assert isinstance(permit, Permit), "only passwords have to be checked first"
        return Standing(permit.user, permit.grant("publish"), permit)


class Login:
    """The first line of a connection, if it says who is there."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> tuple[str | None, bytes | None]:
        """(the token, if the line has come and is one; what follows, or None while the line is not whole)."""
        held = self._held = (self._held + data).lstrip(_BLANKS)
        if not held.startswith(_BEGINNING[: len(held)]):
            return None, held
        line, newline, rest = held.partition(b"\n")
        if not newline and len(held) <= LOGIN_SIZE_MAX:
            return None, None
        try:
            return msgspec.json.decode(line, type=dict[str, _Login])["login"].token, rest
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None, held  # whatever it is, the decoder says what is wrong with it


class _Login(Struct):
    token: str
