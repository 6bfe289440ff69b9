"""What may be said where: over a connection anything, to an address only what can do no harm.

The sender's address of a datagram can be forged, and then whoever answers it floods someone else. So until an
address has sent back the cookie it was given, what goes there is never more than what came from there last.
The cookie is worked out from the address and a secret, so nothing is kept for addresses that never answer.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from hmac import compare_digest

from msgspec.structs import replace

from tidings.gateway.effects import Effect, Say
from tidings.gateway.messages import Ack, Message, Subscribe, Unsubscribe, encode
from tidings.gateway.networks import Address, Key

ADDRESSES_MAX = 100_000
"""Addresses whose standing is kept; the one that was silent longest is forgotten, and has to confirm anew."""
COOKIE_SIZE = 8
"""Bytes of a cookie, which is written in hexadecimal."""


class Speaker:
    """Where may how much be said? `secret` makes the cookies; who knows it can confirm any address."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._credits: OrderedDict[Address, int | None] = OrderedDict()  # None: confirmed, no limit

    def heard(self, address: Address, size: int) -> None:
        """A datagram of that many bytes came: as much may be answered."""
        self._note(address, None if self.is_confirmed(address) else size)

    def lend(self, address: Address, to: Address) -> None:
        """Let an answer go to another address of the same host: what was not said yet may be said there."""
        credit = self._credits.get(address)
        if to not in self._credits and credit is not None:
            self._credits[address] = 0
            self._note(to, credit)

    def confirm(self, key: Key, cookie: str | None) -> bool:
        """Look at the cookie an address has sent; whether it is confirmed by it, now or before."""
        if not isinstance(key, Address) or self.is_confirmed(key):
            return True
        if cookie is None or not compare_digest(cookie.encode(), self.cookie(key).encode()):
            return False
        self._note(key, None)
        return True

    def trust(self, address: Address) -> None:
        """Have an address confirmed that the configuration names."""
        self._note(address, None)

    def is_confirmed(self, key: Key) -> bool:
        """Whether anything may be said there."""
        return not isinstance(key, Address) or self._credits.get(key, 0) is None

    def cookie(self, address: Address) -> str:
        """The cookie of an address."""
        text = f"{address.host} {address.port}".encode()
        return blake2b(text, key=self._secret, digest_size=COOKIE_SIZE).hexdigest()

    def say(self, key: Key, message: Message, effects: list[Effect]) -> bool:
        """Add the message to what is to be done, unless that must not be said there; whether it was."""
        if isinstance(key, Address) and (credit := self._credits.get(key, 0)) is not None:
            if isinstance(message, Subscribe | Unsubscribe | Ack):
                message = replace(message, cookie=self.cookie(key))
            size = len(encode(message))
            if size > credit:
                return False
            self._credits[key] = credit - size
        effects.append(Say(key, message))
        return True

    def _note(self, address: Address, credit: int | None) -> None:
        """Note how much may be said somewhere, as the one heard of last."""
        self._credits[address] = credit
        self._credits.move_to_end(address)
        if len(self._credits) > ADDRESSES_MAX:
            self._credits.popitem(last=False)
