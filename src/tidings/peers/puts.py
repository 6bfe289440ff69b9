"""What clients say in their numbered streams about queues elsewhere: puts, and what becomes of messages.

Each is counted when it comes, and *pending* until it is done where the queue is: only then is it accepted,
and nothing behind it before. So an error of a node elsewhere is told to whoever has put, as one of this node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidings.errors import Disconnected, NotAllowed, TidingsError
from tidings.event import Batch
from tidings.peers.hands import Hands
from tidings.protocol.broker import Broker
from tidings.protocol.messages import Put
from tidings.protocol.session import Session
from tidings.queues.elsewhere import Forwarding, Way
from tidings.queues.getting import identity
from tidings.queues.message import Message
from tidings.queues.service import read_batch


class Puts:
    """See the module."""

    def __init__(self, broker: Broker, hands: Hands) -> None:
        self._broker = broker
        self._hands = hands

    def put(self, session: Session, message: Put, events: bytes, way: Way) -> None:
        """Put events on their way, less what was had before."""
        broker, origin = self._broker, session.origin
        assert origin is not None
        broker.ledger.see(origin, message.seen)
        batch, counters = read_batch(events, origin)
        had = broker.admit(session, counters) if len(batch) else 0
        rows = range(had, self._allowed(session, way, batch, counters, had))
        if not rows:
            return
        numbers = [int(counters[row]) for row in rows]
        for number in numbers:
            broker.ledger.pend(origin, number)
        way.put(session, batch.take(rows) if len(rows) < len(batch) else batch, self._done(session, numbers))
        broker.count("put", len(rows))

    def _allowed(self, session: Session, way: Way, batch: Batch, counters: Sequence[int], had: int) -> int:
        """Up to which row a client may put what it has sent; all from there on is refused."""
        try:
            granted = session.allow("put", way.address)
            is_checked = granted is not None or session.bound is not None
            for row in range(had, len(batch) if is_checked else had):
                had = row
                session.check_put(granted, batch, row)
        except NotAllowed as error:
            if had < len(batch):
                self._broker.refuse(session, int(counters[had]), session.last, error)
            return had
        return len(batch)

    def _done(self, session: Session, numbers: list[int]) -> Callable[[int, TidingsError | None], None]:
        def done(row: int, error: TidingsError | None) -> None:
            self._finish(session, numbers[row], error)

        return done

    def follow(self, session: Session, counter: int, way: Forwarding, message: Message) -> None:
        """A transaction has put a message on its way, and nothing else: it is done when that is there."""
        assert session.origin is not None
        if way.follow(session, message, partial(self._finish, session, counter)):
            self._broker.ledger.pend(session.origin, counter)

    def _finish(self, session: Session, counter: int, error: TidingsError | None) -> None:
        """Something is done elsewhere, or can't be."""
        assert session.origin is not None
        if error is not None:
            self._broker.refuse(session, counter, counter, error)
        self._broker.ledger.settle(session.origin, counter)

    def conclude(
        self, session: Session, counter: int, number: int, delivery: int, outcome: int, text: str
    ) -> bool:
        """Say elsewhere what becomes of a message; whether the client holds it there, or may have."""
        if self._hands.is_forgotten(number):
            # Not that it is not held: a client takes that, of a restarted node, for having been settled.
            problem = "the node was started anew: whether it was said what became of the message is not known"
            self._broker.refuse(session, counter, counter, Disconnected(problem))
            return True
        hand = self._hands.pop(number, delivery, identity(session))
        if hand is None:
            return False
        assert session.origin is not None
        self._broker.ledger.pend(session.origin, counter)
        hand.settle(outcome, text, partial(self._finish, session, counter))
        return True
