"""The account of queues that lie at several nodes, and of what the logs of these nodes have to hold.

Beside what the account of queues checks: a message is in its queue once, however it came there; at most one
application is told that it has dealt with a message; and what was published, or committed as a batch of a
sink, is in the log of its node once and whole.

A settlement that is answered with 'the node is away' may have been done or not: it counts as neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from msgspec import Struct

from tidings.event import Event
from tidings.simulator.account import Identity
from tidings.simulator.queue_account import Answer, Put, QueueAccount

LATE_S = 10.0
"""How late a message may come, at most, that its node has handed out."""

BatchKey = tuple[str, str, int]
"""Node, sink and number of a batch."""


class StagedBatch(Struct, eq=False):
    """A batch of a sink."""

    rows: int
    answer: Answer = Answer.OPEN


class PeerAccount(QueueAccount):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[Identity, tuple[str, Put]] = {}  # with the node whose log is to have it
        self.batches: dict[BatchKey, StagedBatch] = {}
        self.homes: dict[Identity, str] = {}  # the node in whose queue a message is
        self._numbers: dict[Identity, int] = {}  # in the queue where it is
        self._met_at: dict[Identity, float] = {}
        self._ended: dict[Identity, str] = {}  # by which application, in which of its lives

    # What applications do

    def met(self, who: str, identity: Identity, number: int, now: float) -> None:
        """A message has come that has this number in its queue."""
        self._met_at.setdefault(identity, now)
        first = self._numbers.setdefault(identity, number)
        assert first == number, f"{who}: {identity} is in its queue twice: {first} and {number}"

    def ended(self, who: str, identity: Identity, started_at: float) -> None:
        """An application was told that it has dealt with a message, of a node that was last started then.

        What was in someone's hands when a node was killed comes again, and whoever held it is not told that.
        """
        first = self._ended.setdefault(identity, who)
        may_be_both = started_at > self._met_at[identity] - LATE_S
        assert first == who or may_be_both, f"{first} and {who} were told that they have ended {identity}"

    def publish(self, node: str, identity: Identity, event: Event) -> Put:
        """Something is on its way into the log of a node."""
        put = Put(event, None, 0, inf)
        self.published[identity] = node, put
        return put

    def stage(self, node: str, sink: str, batch: int, rows: int) -> None:
        """A batch is on its way to a node."""
        self.batches[node, sink, batch] = StagedBatch(rows)

    def commit(self, node: str, sink: str, batch: int) -> None:
        """It was told that a batch is done."""
        self.batches[node, sink, batch].answer = Answer.DONE

    # The reckoning

    def check_log(self, node: str, logged: Iterable[Event]) -> None:
        """See that the log of a node has what it must have."""
        news: Counter[Identity] = Counter()
        rows: Counter[tuple[str, int]] = Counter()
        for event in logged:
            if event.type == "row":
                rows[event["sink"], event["batch"]] += 1
            elif event.type == "news":
                assert event.origin is not None
                news[event.origin.system or "", event.origin.epoch, event.counter] += 1
        self._check_news(node, news)
        self._check_batches(node, rows)

    def _check_news(self, node: str, news: Counter[Identity]) -> None:
        for identity, (where, put) in self.published.items():
            if where == node:
                is_done, count = put.answer is Answer.DONE, news[identity]
                assert is_done <= count <= 1, f"{identity} is {count} times in the log of {node}"

    def _check_batches(self, node: str, rows: Counter[tuple[str, int]]) -> None:
        for (where, sink, batch), staged in self.batches.items():
            if where == node:
                found = rows[sink, batch]
                allowed = {staged.rows} if staged.answer is Answer.DONE else {0, staged.rows}
                assert found in allowed, f"{found} of {staged.rows} rows of {sink}, batch {batch}, are logged"
