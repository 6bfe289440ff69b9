"""All messages of a queue that match, page by page: had when the last page has come, or not at all.

They are held until then. What the node takes back meanwhile is not had: after a cut it is asked for again,
and when there are more than can be got in the time for which one may be held, that is an error.
"""

from __future__ import annotations

from math import inf

from tidings.client.arrival import acknowledge
from tidings.client.fetching import LATE, Handed, give_up
from tidings.client.message import Holder, Message
from tidings.client.unit import Unit
from tidings.errors import MessageNotHeld
from tidings.protocol.messages import UNOPENED


class Gathering:
    """The messages so far, in the hands of the holder or of a transaction."""

    def __init__(self, holder: Holder, transaction: Unit | None) -> None:
        self._holder = holder
        self._link = holder.link
        self._transaction = transaction
        self._messages: list[Message] = []
        self._requests: list[int] = []
        self._hands = holder.link.core.hands
        self._late_at = inf

    def expects(self, handed: Handed) -> bool:
        """Whether a page that has come has messages; MessageNotHeld if those before are held for too long."""
        if self._hands != self._link.core.hands:  # those before are in the queue again, and may come again
            self._hands, self._messages, self._late_at = self._link.core.hands, [], inf
        if self._link.now >= self._late_at:
            give_up(self._link, handed.request)
            problem = f"there are too many to be got within redelivery_s={handed.held_s}; none was taken"
            raise MessageNotHeld(self._holder.queue, problem)
        return bool(handed.messages)

    def add(self, handed: Handed, messages: list[Message]) -> None:
        """Add a page; what a transaction has taken it may hold until it ends."""
        if not self._messages and self._transaction is None and handed.held_s is not None:
            self._late_at = self._link.now + LATE * handed.held_s
        self._messages += messages
        self._requests.append(handed.request)

    def give_back(self) -> None:
        """Let it be as if none had been taken."""
        if self._transaction is None:
            self._holder.say_all(self._messages, UNOPENED)
            return
        for request in self._requests:
            give_up(self._link, request)

    async def finish(self) -> list[Message]:
        """All have come: acknowledge them, unless a transaction has them; those that were held until then."""
        if self._transaction is not None or not self._messages:
            return self._messages
        had = await acknowledge(self._holder, self._messages)
        if not had:
            raise MessageNotHeld(self._holder.queue, "all went back before they were acknowledged")
        return had
