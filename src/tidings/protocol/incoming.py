"""The receiving end of a numbered stream: how far a session has come on it, and what of that is accepted.

Each session is such a stream itself, that of its client. A node that forwards for several of its queues opens
further ones on its connection (`peers/forwarded.py`); each of them counts, and is accepted and refused, by
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.ids import Origin
from tidings.protocol.frames import encode
from tidings.protocol.messages import Accepted

if TYPE_CHECKING:
    from tidings.protocol.consumer import BlockingConsumer
    from tidings.protocol.session import Session


class IncomingStream:
    """A numbered stream of a session; `stream` is its number there, 0 for that of the client itself."""

    session: Session
    stream = 0

    def __init__(self, origin: Origin) -> None:
        self.origin = origin  # who counts
        self.last = 0  # the number of the last item that came on this connection
        self.counter = 0  # the highest one known, on whatever connection it came
        self.before = 0  # what that was before the last thing that came
        self.accept_mark = 0  # the commit that its acceptance waits for
        self.accepted = 0
        self._held: dict[BlockingConsumer, tuple[int, int]] = {}  # numbers of events that wait, by where

    def resume(self, origin: Origin, seen: int) -> None:
        """Go on where the stream of this origin was, whose sender has had the answers up to `seen`."""
        ledger = self.session.broker.ledger
        self.origin = origin
        self.counter = ledger.counter_of(origin)
        self.accepted = ledger.safe_of(origin, self.counter)
        ledger.see(origin, seen)

    def send_accepted(self) -> None:
        """Accept what came and is as safe as it asked to be, once for each tick in which more is known."""
        session = self.session
        safe = session.broker.ledger.safe_of(self.origin, self._unheld if self._held else self.counter)
        if safe > self.accepted:
            self.accepted = safe
            session.post(encode(Accepted(safe, self.stream)), self.accept_mark, is_patient=True)

    def hold(self, consumer: BlockingConsumer, first: int, last: int, goes_on: bool) -> None:
        """A slow subscription wants no more for now: what has these numbers is not accepted yet.

        `goes_on`: if what it held before came just before this, that is held on.
        """
        held = self._held.get(consumer)
        if goes_on and held is not None and held[1] == self.before:
            first = held[0]
        self._held[consumer] = first, last

    def let_go(self, consumer: BlockingConsumer) -> None:
        """Release the hold of a blocking consumer."""
        self._held.pop(consumer, None)
        self.session.broker.owe(self.session)

    @property
    def _unheld(self) -> int:
        """Up to where nothing is held; whatever came after held events is accepted, and they with it."""
        counter = self.counter
        firsts = [first for first, last in self._held.values() if last == counter]
        return min(firsts, default=counter + 1) - 1
