"""Those at the other end: connections, and the hosts that datagrams come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidings.gateway.entrance import ANYONE, Login, Standing
from tidings.gateway.intake import Intake
from tidings.gateway.networks import Address
from tidings.gateway.work import Client, Work
from tidings.protocol.access import Caller
from tidings.steps import Steps

HELD_SIZE_MAX = 8 << 20
"""Bytes of datagrams that are held while others have their turn; those that come then are dropped."""

Send = Callable[[bytes], None]
Act = Callable[[], None]
Pause = Callable[[bool], None]
"""Stops to read from a connection, or goes on."""


class Peer(Client):
    """One connection. `released` is asked when it need not be held up any more for its own sake."""

    __slots__ = ("caller", "close", "intake", "is_held", "login", "pause", "released", "send", "standing")

    def __init__(
        self, caller: Caller, send: Send, close: Act, pause: Pause | None, released: Callable[[Peer], None]
    ) -> None:
        super().__init__()
        self.caller = caller
        self.send = send
        self.close = close
        self.pause = pause
        self.released = released
        self.is_held = False
        self.intake = Intake()
        self.login: Login | None = None  # while its first line has not come
        self.standing: Standing | None = ANYONE  # None: nobody knows who it is

    def hold(self, is_held: bool) -> None:
        """Called by the work."""
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
        """Called by the work, when what came over the connection could not be dealt with."""
        self.close()


class Sender(Client):
    """A host from which datagrams wait in line; `idle` is called when none does any more."""

    __slots__ = ("idle",)

    def __init__(self, idle: Callable[[], object]) -> None:
        super().__init__()
        self.idle = idle

    def hold(self, is_held: bool) -> None:
        """Called by the work: a datagram can't be held up, but it can be the last."""
        if not is_held:
            self.idle()

    def fail(self) -> None:
        """Called by the work."""
        self.idle()


class Senders:
    """The hosts from which datagrams wait in line."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._senders: dict[str, Sender] = {}
        self._size = 0

    def __contains__(self, address: Address) -> bool:
        return address.host in self._senders

    def hold(self, address: Address, steps: Steps[None], size: int) -> bool:
        """Have a datagram of that many bytes read when it is its turn; False if too much waits already."""
        if self._size + size > HELD_SIZE_MAX:
            return False
        self._size += size
        sender = self._senders.get(address.host)
        if sender is None:
            sender = self._senders[address.host] = Sender(partial(self._senders.pop, address.host))
        self._work.queue(sender, self._counted(steps, size))
        return True

    def _counted(self, steps: Steps[None], size: int) -> Steps[None]:
        try:
            yield from steps
        finally:
            self._size -= size
