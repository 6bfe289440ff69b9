"""Authenticator of a node with security: certificate, invitation, token or password, in this order.

Certificates have been checked by the transport, and tokens are checked at once. A password takes scrypt, and
is left to a thread: `admit` returns a check, and `conclude` decides when it has run. The rules kept:

- A denied client gets the same reply, whether user, password or token is wrong, after the same work.
- An attempt counts as failed from the moment its check is returned until it has passed, so neither many at
    once nor disconnecting before the reply gets a host more of them than FAILURES_MAX allows.
- A password that has passed is remembered, as a hash under a key of this process, for the host it came from:
    logging in again costs nothing, and is not held up by others that fail there. After some wrong ones it is
    forgotten, or guessing against the memory would have no limit.

It opens no file and reads no clock: attempts are counted by `now`, which never jumps, tokens expire by
`wall`, the time in seconds since 1970, and randomness comes in.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Lock
from weakref import WeakSet

from tidings.protocol.access import OWNER, Check, Denied, LoginCredentials, Principal
from tidings.security.invitations import INVITED, Invitations, again
from tidings.security.passwords import Cost, Password, Random, Token, hash_token, is_token
from tidings.security.rules import Rules
from tidings.security.users import User, Users

CHECKS_MAX = 64
"""Passwords that are being checked, or wait for it."""
CHECKS_HOST_MAX = 32
"""The same from one host, which could else keep all others waiting with one password."""
KNOWN_MAX = 10_000
"""Passwords that are remembered, one for each user and host; the oldest is forgotten first."""
GUESSES_MAX = 100
"""Wrong passwords after which the right one is no longer remembered for that host."""
FAILURES_MAX = 5
"""Failed attempts of a host that are allowed at once."""
FAILURE_S = 2.0
"""Time after which one more is allowed."""
HOSTS_MAX = 10_000
"""Hosts that are remembered; the one unheard of for longest is forgotten first."""

JOIN = "security.join"
"""The operation for which a client with an invitation is let in, and no other."""
MEETING = "link.*"
"""The operations for which a node is let in that is no user here, and carries messages only."""

WRONG = "user or secret is wrong"
NOT_INVITED = f"this invitation is not known here: it was altered, removed or forgotten; {again()}"
BUSY = "too many passwords are being checked: come again"
CERTIFICATE = "certificate"
"""Credential of clients that logged in by a certificate."""
_KEY_SIZE = 32
_ROUNDING_S = 1e-5  # times since 1970 are exact to about a millionth of a second


class UserAuthenticator:
    """Decides which clients may log in, by users and rules that can be replaced."""

    def __init__(self, users: Users, rules: Rules, random: Random = os.urandom) -> None:
        self._random = random
        self._key = random(_KEY_SIZE)
        self._attempts = Attempts()
        self._under_way: WeakSet[PasswordCheck] = WeakSet()  # one that nobody holds any more is not
        self._wall = 0.0
        self.meets_strangers = False
        """Whether a certificate of the node's authority is enough to carry messages, and for nothing else."""
        self.reload(users, rules)

    def reload(
        self, users: Users, rules: Rules, wall: float | None = None, invitations: Invitations | None = None
    ) -> None:
        """Decide by these from now on; connected clients are to be checked with `renew`."""
        self._users, self._rules = users, rules
        self._invitations = invitations or {}
        self._tokens = {
            token.digest: (user, token)
            for user in users.values()
            if not user.is_locked
            for token in user.tokens
        }
        self._known: dict[tuple[str, str, str], _Known] = {}
        costs = [user.password.cost for user in users.values() if user.password is not None]
        self._nobody = Password(costs[0] if costs else Cost(), self._random(16), self._random(32))
        self._wall = self._wall if wall is None else wall

    # Called by a node

    def admit(self, claim: LoginCredentials, now: float, wall: float | None = None) -> Principal | Check:
        """Return the rights of a client, or a password to check first; Denied if it may not log in.

        Without `wall` both clocks show the same.
        """
        self._wall = now if wall is None else wall
        caller = claim.caller
        if caller.host is None:
            return OWNER
        if caller.certificate is not None:
            if claim.user not in ("", caller.certificate):
                raise Denied("proofs", WRONG)
            principal = self._principal_for(caller.certificate, CERTIFICATE)
            if principal is not None:
                return self._beside(principal, claim.secret)
            if not claim.secret and self.meets_strangers and caller.certificate not in self._users:
                return Principal(caller.certificate, CERTIFICATE, is_node=True, rules=(), only=MEETING)
            if not claim.secret:
                problem = f"the certificate is for {caller.certificate!r}, who may not log in here by one"
                raise Denied(CERTIFICATE, problem)
        user = claim.user or caller.certificate or ""
        if user.startswith(INVITED):
            return self._by_invitation(claim.secret, user, network_of(caller.host), now)
        if is_token(claim.secret):
            return self._by_token(claim.secret, user, network_of(caller.host), now)
        return self._by_password(claim.secret, user, network_of(caller.host), now)

    def conclude(self, check: Check, passed: bool, now: float) -> Principal:
        """Return the rights of a client whose password was checked; Denied if it is wrong."""
        assert isinstance(check, PasswordCheck)
        self._under_way.discard(check)
        attempt = check.attempt
        if not passed:
            raise Denied("password" if attempt.user in self._users else "user", WRONG)
        if not attempt.is_forgiven:
            attempt.is_forgiven = True
            self._attempts.forgive(attempt.host, now)
        principal = self._principal_for(attempt.user, attempt.credential)
        if principal is None:
            raise Denied("password", WRONG)  # it was changed while the old one was checked
        self._remember(attempt)
        return principal

    def renew(self, principal: Principal) -> Principal | None:
        """Return the current rights of this principal; None if its credential is not valid any more."""
        if principal.only == MEETING:
            is_stranger = self.meets_strangers and principal.user not in self._users
            return principal if is_stranger else None
        if principal.only is not None:
            found = self._invitations.get(principal.user.removeprefix(INVITED))
            return None if found is None or found.problem(self._wall) else principal
        return OWNER if principal.rules is None else self._principal_for(principal.user, principal.credential)

    def principal_of(self, user: str) -> Principal | None:
        """Return the rights of a user who need not be connected; None if there is none of that name."""
        found = self._users.get(user)
        return None if found is None else self._principal(found, "")

    # By credential

    def _beside(self, principal: Principal, secret: str) -> Principal:
        """Return a certificate's principal, ignoring a password; Denied if a token beside it is another's."""
        if is_token(secret):
            found = self._tokens.get(hash_token(secret))
            if found is None or found[0].name != principal.user or not found[1].is_good(self._wall):
                raise Denied("proofs", WRONG)
        return principal

    def _by_invitation(self, secret: str, user: str, host: str, now: float) -> Principal:
        """Return who may join by this invitation, and do nothing else.

        One that was used lets in too: the node that has joined by it may have lost the answer.
        """
        found = self._invitations.get(user.removeprefix(INVITED))
        if found is None or not found.is_of(secret):
            raise self._failed("invitation", host, now, NOT_INVITED)
        problem = found.problem(self._wall)
        if problem is not None:
            raise self._failed("expired", host, now, problem)
        return Principal(user, user, rules=(), only=JOIN)

    def _by_token(self, token: str, name: str, host: str, now: float) -> Principal:
        found = self._tokens.get(hash_token(token))
        if found is None or name not in ("", found[0].name):
            raise self._failed("token", host, now)
        user, kept = found
        if not kept.is_good(self._wall):
            raise self._failed("expired", host, now)
        return self._principal(user, _token_credential(kept))

    def _by_password(self, secret: str, name: str, host: str, now: float) -> Principal | Check:
        if not secret or not name:
            hint = (
                "the secret is no token; give its user" if secret else "give a user and password, or a token"
            )
            raise Denied("none", f"this node requires a login; {hint}")
        user = self._users.get(name)
        password = None if user is None or user.is_locked else user.password
        attempt = _Attempt(host, name, password or self._nobody, secret, self._key)
        if user is not None and password is not None and self._knows(attempt):
            return self._principal(user, attempt.credential)
        return self._check(attempt, now)

    def _check(self, attempt: _Attempt, now: float) -> PasswordCheck:
        """Return a check of a password; equal ones at the same time share the work."""
        mine = [check.attempt for check in self._under_way if check.attempt.host == attempt.host]
        if len(self._under_way) >= CHECKS_MAX or len(mine) >= CHECKS_HOST_MAX:
            raise Denied("busy", BUSY)
        same = [other for other in mine if other.key == attempt.key]
        if not same:
            self._count(attempt.host, now)
        check = PasswordCheck(same[0] if same else attempt)
        self._under_way.add(check)
        return check

    # Counting attempts

    def _failed(self, reason: str, host: str, now: float, text: str = WRONG) -> Denied:
        """Return the error for a failed attempt."""
        self._count(host, now)
        return Denied(reason, text)

    def _count(self, host: str, now: float) -> None:
        """Count an attempt as failed; Denied if there were too many, or may be when all checks are done."""
        wait_s = self._attempts.wait_s(host, now)
        if not wait_s:
            self._attempts.fail(host, now)
            return
        open_ones = {check.attempt for check in self._under_way if check.attempt.host == host}
        if self._attempts.wait_s(host, now, len(open_ones)) == 0:
            raise Denied("busy", BUSY)
        raise Denied("limit", f"too many failed attempts from your address: wait {wait_s} s")

    def _knows(self, attempt: _Attempt) -> bool:
        """Whether this password has passed before, from this host."""
        known = self._known.get(attempt.place)
        if known is None:
            return False
        if compare_digest(known.digest, attempt.digest):
            return True
        known.guesses += 1
        if known.guesses >= GUESSES_MAX:
            del self._known[attempt.place]
        return False

    def _remember(self, attempt: _Attempt) -> None:
        self._known.pop(attempt.place, None)
        self._known[attempt.place] = _Known(attempt.digest)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    # Rights

    def _principal_for(self, name: str, credential: str) -> Principal | None:
        """Return the principal of a user with this credential; None if that is not valid, or not any more."""
        user = self._users.get(name)
        if user is None or user.is_locked or credential not in _credentials(user, self._wall):
            return None
        return self._principal(user, credential)

    def _principal(self, user: User, credential: str) -> Principal:
        is_node = user.is_node and credential == CERTIFICATE
        return Principal(user.name, credential, is_node, self._rules.get(user.name, ()))


class PasswordCheck:
    """Client that waits for the check of a password."""

    def __init__(self, attempt: _Attempt) -> None:
        self.attempt = attempt

    def run(self) -> bool:
        """Whether the password is right; called in a thread, and takes as long as its cost says."""
        return self.attempt.is_right()


class _Attempt:
    """Password that is tried; clients that try the same one from the same host share it."""

    def __init__(self, host: str, user: str, password: Password, secret: str, key: bytes) -> None:
        self.host = host
        self.user = user
        self.credential = _password_credential(password)
        self.digest = blake2b(
            secret.encode(errors="surrogatepass"), key=key, salt=password.salt[:16]
        ).digest()
        self.is_forgiven = False
        self._password = password
        self._secret = secret
        self._lock = Lock()
        self._outcome: bool | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """The place where the password is remembered."""
        return self.user, self.credential, self.host

    @property
    def key(self) -> tuple[tuple[str, str, str], bytes]:
        """The key of the check, shared by equal attempts."""
        return self.place, self.digest

    def is_right(self) -> bool:
        """Whether it is right; a later caller waits for the result of the first."""
        with self._lock:
            if self._outcome is None:
                self._outcome = self._password.is_right(self._secret)
                self._secret = ""
            return self._outcome


class _Known:
    """Password that has passed, and the number of wrong ones since."""

    __slots__ = ("digest", "guesses")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.guesses = 0


def _credentials(user: User, wall: float) -> set[str]:
    """Return all credentials by which a user may be logged in."""
    found = {_token_credential(token) for token in user.tokens if token.is_good(wall)}
    if user.password is not None:
        found.add(_password_credential(user.password))
    if user.has_certificate:
        found.add(CERTIFICATE)
    return found


def _password_credential(password: Password) -> str:
    return f"password:{password.key}"


def _token_credential(token: Token) -> str:
    return f"token:{token.label}:{token.digest}"


class Attempts:
    """Failed attempts of each host: a bucket, which fills by failing and leaks with time.

    `now` is in seconds, and may stand still or go back without harm.
    """

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}  # level, and its time

    def wait_s(self, host: str, now: float, forgiven: int = 0) -> int:
        """Return the seconds until the host may fail again, 0 for none; some attempts may be forgiven."""
        level = self._level(host, now) - forgiven
        return max(ceil((level - (FAILURES_MAX - 1)) * FAILURE_S - _ROUNDING_S), 0)

    def fail(self, host: str, now: float) -> None:
        """Count an attempt as failed, until it is forgiven."""
        self._set(host, self._level(host, now) + 1, now)

    def forgive(self, host: str, now: float) -> None:
        """Uncount an attempt that has not failed."""
        self._set(host, max(self._level(host, now) - 1, 0.0), now)

    def _level(self, host: str, now: float) -> float:
        level, at = self._levels.get(host, (0.0, now))
        return max(level - max(now - at, 0.0) / FAILURE_S, 0.0)

    def _set(self, host: str, level: float, now: float) -> None:
        self._levels.pop(host, None)
        if level > 0.0:
            self._levels[host] = level, now
        if len(self._levels) > HOSTS_MAX:
            del self._levels[next(iter(self._levels))]


def network_of(host: str) -> str:
    """Return the key under which a host is counted: its IPv4 address, or the /64 network of its IPv6 address.

    One machine may have any number of addresses in such a network. Any other text counts as itself.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, 64), strict=False))
