"""Other ends of a gateway: connections, the hosts of datagrams, and their users.

With users, a network belongs to the user of a certificate, or of a token. A token comes in the first line of
a connection, `{"login": {"token": …}}`, or as a member of `register`. Passwords are not accepted: small
devices have none, and checking them takes long.

Input of a connection is processed at once, for as long as it has not used up its slice and the turn of the
loop is not over. The rest then waits in line, and the connection is paused: nothing more is read from it
until all its input is processed. So a connection holds no more than was read from it in one go, and one that
sends little is served next, however much others have sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from inspect import GEN_RUNNING, getgeneratorstate

import msgspec
from msgspec import Struct

from tidings.errors import NotAllowed
from tidings.filters import Filter
from tidings.gateway.intake import NetworkReader
from tidings.gateway.networks import DatagramAddress
from tidings.gateway.uplink import Log
from tidings.protocol.access import Denied, LoginCredentials, PeerInfo, Principal
from tidings.security.authenticator import WRONG, UserAuthenticator
from tidings.security.passwords import is_token
from tidings.steps import Steps
from tidings.turns import TURN_S, Share, Turns

Act = Callable[[], None]


class WorkClient:
    """Client with work to be done in order."""

    __slots__ = ("share", "steps")

    def __init__(self, share: Share | None = None) -> None:
        self.share = Share() if share is None else share
        self.steps: deque[Steps[None]] = deque()

    def hold(self, is_held: bool) -> None:
        """Called when work has to wait, and whenever all of it is done."""

    def fail(self) -> None:
        """Called when work failed, and all the rest is forgotten."""

    @property
    def is_idle(self) -> bool:
        """Whether all work is done."""
        return not self.steps


class GatewayWork:
    """All work to be done. `soon` calls a function in the next turn of the loop.

    `clock` must advance within a turn, which that of a loop need not do.
    """

    def __init__(self, clock: Callable[[], float], soon: Callable[[Act], object], log: Log) -> None:
        self._log = log
        self._clock = clock
        self._soon = soon
        self._turns: Turns[WorkClient] = Turns(clock, self._work)
        self._ends_at: float | None = None  # the turn, if it has begun: not all that is done is work in line
        self._is_due = False

    @property
    def is_busy(self) -> bool:
        """Whether new work has to wait, because others do or because the turn is over."""
        if self._turns.is_busy:
            return True
        now = self._clock()
        if self._ends_at is None:
            self._ends_at = now + TURN_S
        return now >= self._ends_at

    def do(self, client: WorkClient, steps: Steps[None]) -> None:
        """Run steps, at once if there is time, and after the earlier work of the client."""
        if client.steps or self.is_busy:
            self.queue(client, steps)
            return
        client.steps.append(steps)
        self._turns.offer(client, client.share)
        if client in self._turns:
            self._wait(client)

    def queue(self, client: WorkClient, steps: Steps[None]) -> None:
        """Queue steps for the client's turn."""
        client.steps.append(steps)
        if len(client.steps) == 1:
            self._turns.add(client, client.share)
            self._wait(client)

    def drop(self, client: WorkClient) -> None:
        """Forget the work of a client; called also by one of its own steps."""
        steps, client.steps = client.steps, deque()
        self._turns.discard(client)
        for one in steps:
            if getgeneratorstate(one) != GEN_RUNNING:
                one.close()

    def end_turn(self) -> None:
        """Begin another turn of the loop with the next work."""
        self._ends_at = None
        if not self._turns:
            self._turns.run()

    def finish(self, most_s: float) -> None:
        """Do the rest of the work, for so long at most."""
        self._turns.run(most_s)

    def _wait(self, client: WorkClient) -> None:
        client.hold(True)
        self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._turns.run()
        self._ends_at = None
        if self._turns:
            self._run_soon()

    def _work(self, client: WorkClient, until: float) -> bool:
        """Do work of a client until that moment; return whether some is left."""
        try:
            return self._advance(client, until)
        except Exception as error:  # the one place: one client's error must not end the others' turns
            self._log("error", "what a sensor connection sent could not be dealt with", problem=repr(error))
            self.drop(client)
            client.fail()
            return False

    def _advance(self, client: WorkClient, until: float) -> bool:
        while client.steps:
            steps = client.steps[0]
            for _ in steps:
                if not client.steps:  # it was dropped by this very step
                    steps.close()
                    return False
                if self._clock() >= until:
                    return True
            if client.steps:
                client.steps.popleft()
        client.hold(False)
        return False


LOGIN_SIZE_MAX = 4_096
"""Bytes of the login line."""
HELD_SIZE_MAX = 8 << 20
"""Bytes of datagrams that wait for their turn; further ones are dropped."""

_BEGINNING = b'{"login"'
_BLANKS = b" \t\r\n"

Send = Callable[[bytes], None]
PauseReading = Callable[[bool], None]
"""Pauses reading from a connection, or resumes it."""


class NetworkRights(Struct, frozen=True):
    """User, and the readings that it may publish; None is everything."""

    user: str = ""
    grant: Filter | None = None
    principal: Principal | None = None


ANYONE = NetworkRights()
"""Rights of all connections without users."""


class Entrance:
    """Decides by users and rules. `strangers`: readings of unknown senders are accepted too."""

    def __init__(
        self,
        authenticator: UserAuthenticator,
        clock: Callable[[], float],
        wall: Callable[[], float],
        strangers: bool = False,
    ) -> None:
        self.strangers = strangers
        self._authenticator = authenticator
        self._clock = clock
        self._wall = wall

    def by_certificate(self, caller: PeerInfo) -> NetworkRights | None:
        """Return the user of a certificate, None if it names no user that may log in."""
        if caller.certificate is None:
            return None
        try:
            return self._admitted(LoginCredentials(caller))
        except NotAllowed:
            return None

    def by_token(self, caller: PeerInfo, token: str) -> NetworkRights:
        """Return the user of a token; NotAllowed if it is invalid, or its user may publish nothing."""
        if not is_token(token):
            raise Denied("token", WRONG)
        return self._admitted(LoginCredentials(caller, secret=token))

    def renewed(self, standing: NetworkRights | None) -> NetworkRights | None:
        """Return the rights by the current rules; None if the user may not log in any more."""
        if standing is None or standing.principal is None:
            return None
        principal = self._authenticator.renew(standing.principal)
        try:
            return None if principal is None else _rights(principal)
        except NotAllowed:
            return None

    def _admitted(self, credentials: LoginCredentials) -> NetworkRights:
        principal = self._authenticator.admit(credentials, self._clock(), self._wall())
        assert isinstance(principal, Principal), "only passwords have to be checked first"
        return _rights(principal)


def _rights(principal: Principal) -> NetworkRights:
    return NetworkRights(principal.user, principal.grant("publish"), principal)


class LoginLine:
    """First line of a connection, if it is a login."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> tuple[str | None, bytes | None]:
        """Return the token, if the line is a login, and the rest, or None while the line is not whole."""
        held = self._held = (self._held + data).lstrip(_BLANKS)
        if not held.startswith(_BEGINNING[: len(held)]):
            return None, held
        line, newline, rest = held.partition(b"\n")
        if not newline and len(held) <= LOGIN_SIZE_MAX:
            return None, None
        try:
            return msgspec.json.decode(line, type=dict[str, _Login])["login"].token, rest
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None, held  # whatever it is, the decoder reports the mistake


class _Login(Struct):
    token: str


class NetworkConnection(WorkClient):
    """Connection of a network. `released` is called when it need not be paused any more for its own sake."""

    __slots__ = ("caller", "close", "intake", "is_held", "login", "pause", "released", "send", "standing")

    def __init__(
        self,
        caller: PeerInfo,
        send: Send,
        close: Act,
        pause: PauseReading | None,
        released: Callable[[NetworkConnection], None],
    ) -> None:
        super().__init__()
        self.caller = caller
        self.send = send
        self.close = close
        self.pause = pause
        self.released = released
        self.is_held = False
        self.intake = NetworkReader()
        self.login: LoginLine | None = None  # until its first line has come
        self.standing: NetworkRights | None = ANYONE  # None: its user is unknown

    def hold(self, is_held: bool) -> None:
        """Pause or resume the connection; called by the work."""
        if is_held and not self.is_held:
            self.stop()
        elif self.is_held and not is_held:
            self.released(self)

    def stop(self) -> None:
        """Read nothing more."""
        self.is_held = True
        if self.pause is not None:
            self.pause(True)

    def go_on(self) -> None:
        """Read on."""
        self.is_held = False
        if self.pause is not None:
            self.pause(False)

    def fail(self) -> None:
        """Close the connection; called by the work, after an error in its input."""
        self.close()


class DatagramSender(WorkClient):
    """Host whose datagrams wait in line; `idle` is called when none does any more."""

    __slots__ = ("idle",)

    def __init__(self, idle: Callable[[], object]) -> None:
        super().__init__()
        self.idle = idle

    def hold(self, is_held: bool) -> None:
        """Note the last datagram, as none can be held up; called by the work."""
        if not is_held:
            self.idle()

    def fail(self) -> None:
        """Note that no datagram waits any more; called by the work, after an error."""
        self.idle()


class DatagramSenders:
    """Hosts whose datagrams wait in line."""

    def __init__(self, work: GatewayWork) -> None:
        self._work = work
        self._senders: dict[str, DatagramSender] = {}
        self._size = 0

    def __contains__(self, address: DatagramAddress) -> bool:
        return address.host in self._senders

    def hold(self, address: DatagramAddress, steps: Steps[None], size: int) -> bool:
        """Queue a datagram of that many bytes for its turn; return False if too much waits already."""
        if self._size + size > HELD_SIZE_MAX:
            return False
        self._size += size
        sender = self._senders.get(address.host)
        if sender is None:
            sender = self._senders[address.host] = DatagramSender(partial(self._senders.pop, address.host))
        self._work.queue(sender, self._counted(steps, size))
        return True

    def _counted(self, steps: Steps[None], size: int) -> Steps[None]:
        try:
            yield from steps
        finally:
            self._size -= size
