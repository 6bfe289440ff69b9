"""Which messages were taken back from whom, so that a reader who settles one too late is told so.

After commits have failed, a client that is told nothing but that it does not hold a message takes that for
having settled it before: then the message is gone. So of what was taken back the queue is named.
"""

from __future__ import annotations

from tidings.queues.held import Identity

RETURNED_MAX = 10_000
"""Messages of which that is known, the last ones."""


class Returned(dict[tuple[int, Identity], tuple[int, str]]):
    """By the numbers of messages and who has held them: the last delivery to them, and where; see the module.

    A client of whom that is known, and who gets the message again and settles it, has settled it.
    """

    def note(self, number: int, delivery: int, holder: Identity, address: str) -> None:
        """A message was taken back from a client who was gone, or late."""
        self.pop((number, holder), None)
        self[number, holder] = delivery, address
        if len(self) > RETURNED_MAX:
            del self[next(iter(self))]

    def find(self, number: int, delivery: int, client: Identity) -> str:
        """Return the queue of a message that was taken back from a client in this delivery or a later one."""
        last, address = self.get((number, client), (0, ""))
        return address if delivery <= last else ""

    def settled(self, number: int, client: Identity) -> None:
        """A client has settled a message that it holds."""
        self.pop((number, client), None)
