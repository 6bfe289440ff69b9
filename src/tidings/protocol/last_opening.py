"""How a subscription with last values begins: with those of its node, and then with those of other nodes.

What is published meanwhile waits, see `last_values.py`. Other nodes may take a while to answer, so the
session goes on with what else its client asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidings.errors import Refused
from tidings.event import Batch
from tidings.exchange import NodeSubscription
from tidings.protocol.consumer import WaitingConsumer
from tidings.protocol.elsewhere import NodeValues
from tidings.protocol.last_pages import UNKNOWN, VALUES_MAX
from tidings.protocol.last_values import FoundValues, LastValuesSink, last_values
from tidings.replies import Deferred
from tidings.steps import Steps, finish

if TYPE_CHECKING:
    from tidings.protocol.session import Session

Opened = dict[str, Any]
"""The answer to the client: where the stream stands, and the names of nodes that could not be asked."""


class LastOpening:
    """The beginning of one subscription. The sink of the subscription lets events wait from now on."""

    def __init__(self, session: Session, subscription: NodeSubscription, consumer: WaitingConsumer) -> None:
        self._session = session
        self._broker = session.broker
        self._subscription = subscription
        self._consumer = consumer
        self._copies: list[FoundValues] = []  # of what other nodes have taken in
        self._count = 0
        self._is_over = False
        self.sink = subscription.sink = LastValuesSink(consumer)

    def end(self) -> None:
        """The subscription has ended."""
        self._is_over = True
        self.sink.clear()

    def begin(self) -> Steps[Opened | Deferred[Opened]]:
        """Deliver last values; the answer comes when all are delivered, and what has waited."""
        # In the first step: what is published from here on is gathered, and not looked at.
        found = yield from last_values(self._broker, self._subscription.filter, self._session.bound)
        self._consumer.depend()
        elsewhere = self._broker.elsewhere
        if elsewhere is None or not elsewhere.others:
            return (yield from self._finish(found, []))
        self._copies = [one for one in found if one.node]
        yield from self._deliver([one.batch for one in found if not one.node])
        missing = elsewhere.last_values(self._subscription.filter, self._take)
        return missing.chain(self._finish_later)

    def _deliver(self, batches: Sequence[Batch]) -> Steps[None]:
        count, size = sum(map(len, batches)), sum(len(batch.raw) for batch in batches)
        self._count += count
        self._consumer.expect(count, size)
        for batch in batches:
            self._consumer.deliver(batch, range(len(batch)), None)
            yield

    def _take(self, values: NodeValues) -> bool:
        """Deliver some last values of another node; see `TakesValues`."""
        if self._is_over or self._session.is_closed or self._count >= VALUES_MAX:
            return False
        self.sink.read[values.node] = values.up_to
        finish(self._deliver(values.batches))
        return True

    def _finish_later(self, missing: list[str]) -> Deferred[Opened]:
        answer: Deferred[Opened] = Deferred()
        self._session.do(self._finishing(missing, answer))
        return answer

    def _finishing(self, missing: list[str], answer: Deferred[Opened]) -> Steps[None]:
        if self._is_over:
            answer.fail(Refused("ended", "the subscription has ended"))
        else:
            lacked = [one for one in self._copies if one.node not in (*self.sink.read, UNKNOWN)]
            answer.resolve((yield from self._finish(lacked, missing)))

    def _finish(self, found: Sequence[FoundValues], missing: list[str]) -> Steps[Opened]:
        """Deliver the values that are left, and what was published meanwhile."""
        yield from self._deliver([one.batch for one in found])
        yield from self.sink.pass_on()
        if not self.sink.read:
            self._subscription.sink = self._consumer
        self._copies.clear()
        opened: Opened = {"position": self._broker.position}
        return {**opened, "missing": missing} if missing else opened
