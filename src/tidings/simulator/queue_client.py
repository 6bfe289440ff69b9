"""Simulated applications that use queues: the connection's core in virtual time, with random actions.

Each puts, gets, settles and runs transactions at random, on all queues; in the end all of them empty the
queues. The replies that they receive go into the account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any

from msgspec.structs import replace

from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.event.wire import decode_event
from tidings.ids import Origin
from tidings.protocol.messages import DONE, GIVE_BACK, REJECT, UNOPENED
from tidings.queues import Description
from tidings.queues.description import DEAD
from tidings.replies import Deferred, ignore
from tidings.simulator.account import (
    EventIdentity,
    Outcome,
    PutRecord,
    QueueAccount,
    SettledRecord,
    TransactionRecord,
)
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode
from tidings.simulator.world import World

QUEUES = (
    Description(name="jobs", persistent=True, keep=True, priorities=True, deliveries_max=3),
    Description(name="left", persistent=True, keep=True, redelivery_s=3.0),
    Description(name="right", persistent=True, keep=True, redelivery_s=None, deliveries_max=None),
    Description(name="small", persistent=True, keep=True, max_messages=5, redelivery_s=5.0),
    Description(name="brief", persistent=True, keep=True, expiry=True, priorities=True, ageing_s=1.0),
    Description(name="fast", persistent=False, keep=True, priorities=True, redelivery_s=5.0),
    Description(name="turns", persistent=True, keep=True, redelivery_s=3.0, retry_s=(0.2, 0.5)),
    Description(name="bound", persistent=True, keep=True, bind="type = 'news'"),
)
"""All queues: every option of a queue differs somewhere."""
DEAD_LETTERS = Description(name=DEAD, deliveries_max=None)
WHERE = ("", "", "", "third = 1", "third = 2", "n > 20 AND third <> 1")
WAITS_S = (0.0, 0.0, 0.5, 3.0, None)
OUTCOMES = (DONE,) * 6 + (GIVE_BACK, REJECT, UNOPENED)
SIZES = (0, 10, 300, 20_000)
TTL_S_LONG = 100.0
"""Longer than a storm and the calm after it."""

Hands = list[list[Any]]


class QueueClient(SimulatedClient):
    """Simulated application that uses queues."""

    outcomes: Sequence[int] = OUTCOMES
    created: Sequence[Description] = (*QUEUES, DEAD_LETTERS)

    def __init__(self, world: World, name: str, node: SimulatedNode, account: QueueAccount) -> None:
        self.account = account
        self.is_emptying = False
        self._made = 0
        super().__init__(world, name, node)

    def start(self) -> None:
        """Start with nothing pending."""
        self._noted = 0
        self._pending: dict[int, PutRecord | SettledRecord | TransactionRecord] = {}  # by counter
        self._gets: dict[int, Callable[[Hands], None]] = {}  # by request number
        self._units = 0
        self._is_in_unit = False
        super().start()
        if self.is_emptying:
            self.empty()

    def create(self) -> None:
        """Create its queues."""
        for one in self.created:
            wish = {name: value for name, value in one.wish.items() if value is not None}
            open_ = {"redelivery_s": one.redelivery_s, "deliveries_max": one.deliveries_max}
            must(self.connection.request("queue.create", {**wish, **open_}, "again"))
        self.pump()

    @property
    def queues(self) -> Sequence[Description]:
        """Queues that it uses."""
        return QUEUES

    @property
    def acts(self) -> list[Callable[[], None]]:
        """Actions to choose from, each as often as it is listed."""
        return [self.put, self.put, self.get, self.get, self._look, self._transact, self._cancel]

    def act(self) -> None:
        """Do a random action."""
        if self.is_up and not self.connection.publications.is_full:
            is_leaving = self.world.random.random() < 0.005
            (self._leave if is_leaving else self.world.random.choice(self.acts))()
            self.pump()

    def _leave(self) -> None:
        """Disconnect cleanly and begin another life; the node gives back its messages at once."""
        if self._end is not None:
            self.connection.close()
            self._end.send(b"".join(self.connection.output()))
            self._end.close()
            self._end = None
            self.crash()
            self.start()

    # Putting

    def put(self, queue: Description | None = None) -> None:
        """Put an event into some queue."""
        queue = queue or self.world.random.choice([one for one in self.queues if one.bind is None])
        event = self._event("job")
        if queue.retry_s:
            event = self._planned(event)
        counter = self.connection.put(queue.name, event)
        lasts_until = self._lasts_until(queue, event)
        self._pending[counter] = self.account.put(self._identity(counter), event, lasts_until)

    def _lasts_until(self, queue: Description, event: Event) -> float:
        """Return the latest time at which a node may start without losing this event."""
        if queue.expiry and event.ttl_s is not None:
            return self.world.clock.now if event.ttl_s >= TTL_S_LONG else 0.0
        return inf if queue.persistent else self.world.clock.now

    def _event(self, kind: str, **more: Any) -> Event:
        random = self.world.random
        self._made += 1
        values = {"n": self._made, "third": self._made % 3, "text": "x" * random.choice(SIZES), **more}
        return Event(
            kind,
            values,
            time=datetime.fromtimestamp(self.world.clock.now, UTC),
            priority=random.randint(3, 5),
            ttl_s=random.choice((None, 0.2, 2.0, TTL_S_LONG)),
        )

    def _planned(self, event: Event) -> Event:
        """Let an event be in a group, or come later, or both."""
        random, header = self.world.random, event.header or EMPTY_HEADER
        group, delay_s = random.choice((None, "x", "y", "z")), random.choice((None, None, 0.3, 1.5))
        return replace(event, header=replace(header, queue_group=group, queue_delay_s=delay_s))

    def _identity(self, counter: int) -> EventIdentity:
        return self.name, self._epoch, counter

    # Getting

    def get(self) -> None:
        """Get messages of some queue, and settle them one way or another."""
        random = self.world.random
        queue, where = random.choice(self.queues).name, random.choice(WHERE)
        asked = {"count": random.choice((1, 1, 3)), "wait_s": random.choice(WAITS_S)}
        self._ask(queue, where, partial(self._got, where), **asked)

    def _look(self) -> None:
        random = self.world.random
        queue, where = random.choice(QUEUES).name, random.choice(WHERE)
        self._ask(queue, where, partial(self._seen, where), action="read", count=3)

    def _ask(self, queue: str, where: str, take: Callable[[Hands], None], **more: Any) -> None:
        """Request messages; `take` is called with them, or with none after an error."""
        call = self.connection.request("get", {"queue": queue, "where": where, **more}, "again")

        def got(hands: Hands) -> None:
            self._gets.pop(call.number, None)
            if self.connection.failure is None:
                take(hands)

        self._gets[call.number] = take
        call.then(lambda result: got(result["messages"]), lambda _error: got([]))

    def _cancel(self) -> None:
        """Cancel a `get`."""
        if self._gets:
            number = self.world.random.choice(list(self._gets))
            take = self._gets.pop(number)
            self.connection.cancel_get(number)
            take([])

    def _got(self, where: str, hands: Hands) -> None:
        life = self._life
        for hand in hands:
            identity = self._take(where, hand)
            pause_s = self.world.random.uniform(0, self.pace_s)
            settle = partial(self._settle, life, self.connection.held_epoch, identity, hand)
            self.world.clock.after(pause_s, settle)

    def _take(self, where: str, hand: list[Any]) -> EventIdentity:
        number, delivery, redelivered, system, epoch, source, parts, raw = hand[:8]
        event = decode_event(raw, Origin(system, epoch, source))
        identity = system or "", epoch, event.counter
        self.world.note(self.name, "got", number, delivery, redelivered)
        self.account.got(self.name, identity, event, where, parts)
        return identity

    def _seen(self, where: str, hands: Hands) -> None:
        for hand in hands:
            self._take(where, hand)

    def _settle(self, life: int, held_epoch: int, identity: EventIdentity, hand: list[Any]) -> None:
        """Settle a message, unless the connection knows that the node has taken it back."""
        if (self._life, self.connection.held_epoch) == (life, held_epoch):
            outcome = DONE if self.is_emptying else self.world.random.choice(self.outcomes)
            counter = self.connection.settle(hand[0], hand[1], outcome)
            if outcome == DONE:
                self._pending[counter] = self.account.finish(identity)
            self.pump()

    # Transactions: one at a time, so that publications stay in order

    def _transact(self) -> None:
        """Take a message and put two, into two queues, or publish one: all of that or nothing."""
        if self._is_in_unit:
            return
        self._is_in_unit = True
        self._units += 1
        unit, number = self.account.begin(), self._units
        asked = {"transaction": number, "timeout_s": self.world.random.choice((1.0, 5.0, 20.0))}
        call = self.connection.request("begin", asked, "again")
        call.then(partial(self._begun, unit, number), partial(self._not_done, unit))

    def _begun(self, unit: TransactionRecord, number: int, _result: Any) -> None:
        random = self.world.random
        queue, where = random.choice(QUEUES[:3]).name, random.choice(WHERE)
        action = random.choice(("take", "take", "read"))
        wait_s = random.choice((0.0, 0.0, 0.5))
        take = partial(self._taken, unit, number, where, action == "take")
        self._ask(queue, where, take, transaction=number, wait_s=wait_s, action=action)

    def _taken(self, unit: TransactionRecord, number: int, where: str, is_taking: bool, hands: Hands) -> None:
        taken = [self._take(where, hand) for hand in hands]
        if is_taking:
            unit.takes += taken
        self._put_pair(unit, number)
        pause_s, life = self.world.random.uniform(0, 2 * self.pace_s), self._life
        self.world.clock.after(pause_s, partial(self._conclude, life, unit, number))

    def _put_pair(self, unit: TransactionRecord, number: int) -> None:
        """Put an event into each of two queues, and sometimes into a third one or as a publication."""
        third: str | None = self.world.random.choice((None, "small", "fast", "bound"))
        for queue in (one for one in QUEUES if one.name in ("left", "right", third)):
            is_published = queue.bind is not None
            event = self._event("news" if is_published else "job")
            parts = 0 if is_published else self.world.random.choice((0, 0, 2))
            for _ in range(parts):
                self.connection.put(queue.name, Event("part", {}, time=event.time, body=b"p"), number, True)
            counter = self.connection.put("" if is_published else queue.name, event, number)
            lasts_until = self._lasts_until(queue, event)
            self.account.put(self._identity(counter), event, lasts_until, unit, parts)

    def _conclude(self, life: int, unit: TransactionRecord, number: int) -> None:
        """Commit a transaction, roll it back, or let it time out."""
        if self._life != life:
            return
        match self.world.random.randrange(8):
            case 0:
                not_done = partial(self._not_done, unit)
                call = self.connection.request("rollback", {"transaction": number}, "again")
                call.then(not_done, not_done)
            case 1:
                self._close_unit(unit, Outcome.REFUSED)
            case _:
                self._pending[self.connection.commit(number)] = unit
        self.pump()

    def _not_done(self, unit: TransactionRecord, _why: Any) -> None:
        self._close_unit(unit, Outcome.REFUSED)

    def _close_unit(self, unit: TransactionRecord, answer: Outcome) -> None:
        unit.answer = answer
        self._is_in_unit = False

    # Replies

    def arrived(self) -> None:
        """Note which puts, settlements and commits were accepted, and which refused."""
        publications = self.connection.publications
        accepted = min(publications.accepted, publications.last)
        while self._noted < accepted:
            self._noted += 1
            failure = publications.refusal(self._noted)
            answer = Outcome.DONE if failure is None else Outcome.REFUSED
            match self._pending.pop(self._noted, None):
                case PutRecord() as put:
                    put.own_answer = answer
                case SettledRecord() as settled:
                    self._answered(settled, "" if failure is None else failure.code)
                case TransactionRecord() as unit:
                    self._close_unit(unit, answer)

    def _answered(self, settled: SettledRecord, code: str) -> None:
        """Note that a settlement was done, or refused with this code."""
        settled.answer = Outcome.REFUSED if code else Outcome.DONE

    # Final emptying

    def empty(self) -> None:
        """From now on take and acknowledge all messages of all queues."""
        self.is_emptying = True
        if self.is_up:
            while self._gets:
                self._cancel()
            for name in self.drained:
                self._drain(name, [])
            self.pump()

    @property
    def drained(self) -> Sequence[str]:
        """Queues that are emptied in the end."""
        return [queue.name for queue in self.created]

    def _drain(self, queue: str, hands: Hands) -> None:
        self._got("", hands)
        self._ask(queue, "", partial(self._drain, queue), wait_s=None, count=3)


def must(call: Deferred[Any]) -> None:
    """Fail on an error."""
    call.then(ignore, must_not)
