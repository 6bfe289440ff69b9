"""Limits on messages: to a connection anything is sent, to an address only what can do no harm.

The sender's address of a datagram can be forged, and then a reply floods someone else. So until an address
has sent back the cookie it was given, its host is sent at most FACTOR times as many bytes as came from there,
over all its datagrams. Two parts of the bytes that came may be spent on starting sensors only: a network that
was stopped is silent, and brings in no bytes that would pay for starting it again. So a stop is sent when the
next start is paid for too. A network that gets no command for want of bytes goes on sending, and each reading
of it pays for more.

The cookie is computed from the address and a secret, so nothing is stored for addresses that never reply.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from hmac import compare_digest

from msgspec import Struct
from msgspec.structs import replace

from tidings.gateway.effects import GatewayEffect, SendMessage
from tidings.gateway.messages import Ack, Error, GatewayMessage, SubscribeSensors, encode
from tidings.gateway.networks import DatagramAddress, Key

ADDRESSES_MAX = 100_000
"""Confirmed addresses that are remembered; the one that was silent longest has to confirm anew."""
HOSTS_MAX = 100_000
"""Hosts whose bytes are counted; of those without a stopped sensor the one silent longest is forgotten."""
PASSED_OVER_MAX = 16
"""Hosts with a stopped sensor that are skipped before one of them is forgotten."""
STARTS_FACTOR = 2
"""Bytes for each byte that came, with which sensors may be started."""
SPARE_FACTOR = 3
"""Bytes for each byte that came, with which anything may be sent."""
FACTOR = STARTS_FACTOR + SPARE_FACTOR
"""Most bytes to a host that has not confirmed its address, for each byte that came from there."""
BUDGET_MAX = 1 << 20
"""Most bytes of either kind that may be saved up."""
COOKIE_SIZE = 8
"""Bytes of a cookie, which is written in hexadecimal."""


class Budget(Struct, eq=False):
    """Bytes that may go to one host: for starting sensors, for anything, and for errors in a datagram."""

    starts: int = 0
    spare: int = 0
    answer: int = 0
    kept_back: int = 0  # of those for starts, for stopped sensors

    def heard(self, size: int) -> None:
        """Add the allowance for so many received bytes."""
        self.starts = min(BUDGET_MAX, self.starts + STARTS_FACTOR * size)
        self.spare = min(BUDGET_MAX, self.spare + SPARE_FACTOR * size)
        self.answer = SPARE_FACTOR * size

    def start(self, size: int) -> bool:
        """Spend bytes on starting sensors; return whether there are so many."""
        if size > self.starts + self.spare:
            return False
        first = min(self.starts, size)
        self.starts -= first
        self.kept_back = max(0, self.kept_back - size)
        self.spare -= size - first
        return True

    def say(self, size: int, restart: int) -> bool:
        """Spend bytes on anything else, and reserve some for a start; return whether there are so many."""
        if size + restart > self.spare:
            return False
        self.spare -= size + restart
        self.starts += restart
        self.kept_back += restart
        return True

    def reply(self, size: int) -> bool:
        """Spend bytes on an error in the last datagram, as far as that has brought them itself."""
        if size > self.answer or not self.say(size, 0):
            return False
        self.answer -= size
        return True


class AmplificationGuard:
    """Decides how much may be sent to an address. `secret` makes the cookies, and must not be known."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._confirmed: OrderedDict[DatagramAddress, None] = OrderedDict()
        self._budgets: OrderedDict[str, Budget] = OrderedDict()  # by host

    def heard(self, address: DatagramAddress, size: int) -> None:
        """Note a datagram of that many bytes."""
        if address in self._confirmed:
            self._confirmed.move_to_end(address)
            return
        budget = self._budgets.get(address.host)
        if budget is None:
            budget = self._budgets[address.host] = Budget()
            if len(self._budgets) > HOSTS_MAX:
                self._forget_one()
        else:
            self._budgets.move_to_end(address.host)
        budget.heard(size)

    def _forget_one(self) -> None:
        """Forget a host; one with a stopped sensor is silent because of that, and needs its bytes later."""
        for _ in range(PASSED_OVER_MAX):
            host, budget = self._budgets.popitem(last=False)
            if not budget.kept_back:
                return
            self._budgets[host] = budget
        self._budgets.popitem(last=False)

    def confirm(self, key: Key, cookie: str | None) -> bool:
        """Check the cookie of an address; return whether it is confirmed, now or before."""
        if not isinstance(key, DatagramAddress) or self.is_confirmed(key):
            return True
        if cookie is None or not compare_digest(cookie.encode(), self.cookie(key).encode()):
            return False
        self.trust(key)
        return True

    def trust(self, address: DatagramAddress) -> None:
        """Confirm an address, by its cookie or because the configuration names it."""
        self._confirmed[address] = None
        self._confirmed.move_to_end(address)
        if len(self._confirmed) > ADDRESSES_MAX:
            self._confirmed.popitem(last=False)

    def is_confirmed(self, key: Key) -> bool:
        """Whether anything may be sent there."""
        return not isinstance(key, DatagramAddress) or key in self._confirmed

    def cookie(self, address: DatagramAddress) -> str:
        """Return the cookie of an address."""
        text = f"{address.host} {address.port}".encode()
        return blake2b(text, key=self._secret, digest_size=COOKIE_SIZE).hexdigest()

    def say(
        self,
        key: Key,
        message: GatewayMessage,
        effects: list[GatewayEffect],
        restart: int = 0,
        is_start: bool = False,
    ) -> bool:
        """Add the message to the effects, unless it must not be sent there; return whether it was added.

        `restart`: it stops sensors, and so many bytes must be left to start them again; `is_start`: it starts
        some.
        """
        if isinstance(key, DatagramAddress) and key not in self._confirmed:
            if isinstance(message, SubscribeSensors | Ack):
                message = replace(message, cookie=self.cookie(key))
            if not self._pay(key.host, message, restart, is_start):
                return False
        effects.append(SendMessage(key, message))
        return True

    def _pay(self, host: str, message: GatewayMessage, restart: int, is_start: bool) -> bool:
        budget = self._budgets.get(host)
        if budget is None:
            return False
        size = len(encode(message))
        if is_start:
            return budget.start(size)
        if isinstance(message, Error):
            return budget.reply(size)
        return budget.say(size, restart)
