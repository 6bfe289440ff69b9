"""The watch over queues: sees what clients say to a node and what leaves it, and finds any broken rule.

The rules: a message is in one hand at a time; what is handed out is on disk, was put once, and is marked if
it left the node before; nothing leaves that was settled for good; and a put, a settlement or a commit is
accepted only when the disk has all of it. It knows nothing of the node but its frames, its clock, who comes
and goes, and what was synced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from msgspec import Struct

from tidings.event import Batch
from tidings.event.wire import decode_event
from tidings.ids import Origin
from tidings.protocol.broker import Broker
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.protocol.messages import (
    DONE,
    HANDLE,
    REJECT,
    UNOPENED,
    Accepted,
    Bye,
    Commit,
    Hello,
    ProtocolMessage,
    Put,
    Refusal,
    Reply,
    Request,
    Settle,
    Welcome,
)
from tidings.protocol.service import Service
from tidings.protocol.session import Session
from tidings.queues import Description
from tidings.queues.transactions import TRANSACTION_S
from tidings.simulator.account import EventIdentity
from tidings.simulator.hands import Client, HeldMessage, HeldMessages, OpenUnit
from tidings.simulator.watch import DiskWatch
from tidings.simulator.world import Clock
from tidings.store.interface import Dequeue, Enqueue, Operation, StoredMessage, StoreState


class AskedMessages(Struct, eq=False):
    """A request for messages."""

    queue: str
    unit: OpenUnit | None
    at: float
    is_reading: bool
    is_cancelled: bool = False


class SaidOutcome(Struct):
    """What follows if something that a client has said was done."""

    stores: Sequence[EventIdentity] = ()  # events that are on disk
    removes: Sequence[int] = ()  # messages that are not any more
    was_last: Mapping[int, int] = {}  # the delivery in which the client has had these


class QueueDiskWatch(Service, DiskWatch):
    """Watch over the queues of a node; `queues` are all of them, except the dead letters."""

    def __init__(self, queues: Iterable[Description], clock: Clock) -> None:
        super().__init__()
        self._clock = clock  # that of the world, which nobody sets
        self.marked = 0
        self.stale = 0  # handed out so late that they had been given up
        self._queues = {one.name: one for one in queues}
        self._dead = Description(name="tidings.dead", persistent=True, redelivery_s=60.0)
        self._put_at: dict[EventIdentity, float] = {}
        self._stored: dict[EventIdentity, None] = {}
        self._numbers_stored: set[int] = set()
        self._dequeued: set[int] = set()
        self._settled: dict[int, Client] = {}
        self._shown: set[int] = set()
        self._deliveries: dict[int, int] = {}  # the last one that has left
        self._numbers: dict[tuple[EventIdentity, str], int] = {}
        self._said: dict[tuple[Client, int], SaidOutcome] = {}
        self._begin()

    def _begin(self) -> None:
        """Forget what ends with a life of the node."""
        self._hands = HeldMessages()
        self._readers: dict[Session, FrameReader] = {}
        self._clients: dict[Session, Client] = {}
        self._asked: dict[tuple[Session, int], AskedMessages] = {}
        self._first_asked: dict[tuple[Client, int], float] = {}  # on whatever connection
        self._units: dict[tuple[Session, int], OpenUnit] = {}
        self._refused: dict[Session, set[int]] = {}
        self._told: dict[Session, int] = {}
        self._started_at = self._clock.now
        self._wall = 0.0  # what the clock of the node showed then

    def _queue(self, name: str) -> Description:
        return self._queues.get(name, self._dead)

    # The disk

    def started(self, state: StoreState) -> None:
        """A node has started: what was not synced may have been lost."""
        super().started(state)
        self._begin()
        self._settled = {one: who for one, who in self._settled.items() if one in self._dequeued}
        self._shown &= self._numbers_stored  # the numbers of what was not stored may be given again
        self._deliveries = {
            one: last for one, last in self._deliveries.items() if one in self._numbers_stored
        }
        volatile = {name for name, one in self._queues.items() if not one.persistent}
        self._numbers = {key: number for key, number in self._numbers.items() if key[1] not in volatile}

    def found(self, messages: Iterable[StoredMessage]) -> None:
        """These were on the disk when a node was started, and no others; what a crash has left is safe."""
        found = {message.number: message for message in messages}
        for message in found.values():
            assert message.number not in self._settled, f"{message.number} was settled, and is there again"
            self._note(message)
        self._dequeued |= self._numbers_stored - found.keys()

    def synced(self, commits: Iterable[Sequence[Operation]]) -> None:
        """The disk has these."""
        super().synced(commits)
        for operation in (one for operations in commits for one in operations):
            match operation:
                case Enqueue(message):
                    self._note(message)
                case Dequeue(number):
                    self._dequeued.add(number)

    def _note(self, message: StoredMessage) -> None:
        self._numbers_stored.add(message.number)
        if not message.part_of:
            self._stored[_identity(message.system, message.epoch, message.raw)] = None

    # Clients come and go; as a service of the broker the watch hears of it when the queues do

    def join(self, broker: Broker) -> None:
        """The node's broker is there."""
        self._wall = broker.wall
        broker.add(self)

    def greeted(self, session: Session) -> bool:
        """A client is there, maybe again."""
        self._hands.come(self._clients[session], session, self._clock.now)
        return False

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended, and its transactions with it."""
        for key in [key for key in self._units if key[0] is session]:
            self._hands.end(self._units.pop(key))
        self._hands.go(self._clients.pop(session), session, is_clean, self._clock.now)

    # What clients say

    def arriving(self, session: Session, data: bytes, now: float) -> None:
        """These bytes are about to be received."""
        if session.is_closed:
            return
        reader = self._readers.setdefault(session, FrameReader(FRAME_MAX))
        counted = 0
        for message, events in reader.feed(data):
            if isinstance(message, Hello):
                self._clients[session] = message.system, message.epoch
                self._told[session], self._refused[session] = message.seen, set()
            if isinstance(message, Bye):
                return  # nothing is heard behind it
            counted = max(counted, self._highest(session))
            counted = self._hear(session, message, events, counted, now)

    def _highest(self, session: Session) -> int:
        return session.broker.ledger.counter_of(Origin(*self._clients[session]))

    def _hear(
        self, session: Session, message: ProtocolMessage, events: bytes, counted: int, now: float
    ) -> int:
        """Take in what a client says; how far it has counted with that."""
        match message:
            case Put():
                counters = [event.counter for event in Batch(events)]
                self._hear_put(session, message, [one for one in counters if one > counted], now)
                return max(counted, *counters)
            case Settle():
                handles = HANDLE.iter_unpack(message.handles)
                for counter, (number, delivery) in enumerate(handles, start=message.first):
                    if counter > counted:
                        self._hear_settle(session, counter, message.outcome, number, delivery, now)
                return max(counted, counter)
            case Commit() if message.counter > counted:
                self._hear_commit(session, message)
                return message.counter
            case Request():
                self._hear_request(session, message, now)
        return counted

    def _hear_put(self, session: Session, message: Put, counters: Sequence[int], now: float) -> None:
        client = self._clients[session]
        unit = self._units.get((session, message.transaction))
        is_kept = not message.is_part and (not message.queue or self._queue(message.queue).persistent)
        for counter in counters:
            identity = (*client, counter)
            self._put_at[identity] = now
            self._said[client, counter] = SaidOutcome(
                (identity,) if is_kept and not message.transaction else ()
            )
            if unit is not None and is_kept:
                unit.puts.append(identity)

    def _hear_settle(
        self, session: Session, counter: int, outcome: int, number: int, delivery: int, now: float
    ) -> None:
        client, hand = self._clients[session], self._hands.get(number)
        self._said[client, counter] = SaidOutcome()
        if hand is None or not hand.is_with(client, delivery):
            return
        self._hands.remove(hand)
        if outcome in (DONE, REJECT):
            if not self._hands.is_over(hand, now):  # otherwise it may be refused
                self._settled[number] = client
            is_kept = number in self._numbers_stored
            self._said[client, counter] = SaidOutcome((), (number,) if is_kept else (), {number: delivery})
        elif outcome == UNOPENED:
            self._unsee(hand)

    def _unsee(self, hand: HeldMessage) -> None:
        if not hand.was_shown:
            self._shown.discard(hand.number)

    def _hear_commit(self, session: Session, message: Commit) -> None:
        client = self._clients[session]
        unit = self._units.pop((session, message.transaction), None)
        if unit is None:
            self._said[client, message.counter] = SaidOutcome()
            return
        last = {hand.number: hand.delivery for hand in self._hands.end(unit)}
        self._said[client, message.counter] = SaidOutcome(unit.puts, list(last), last)

    def _hear_request(self, session: Session, message: Request, now: float) -> None:
        client, wanted, number = self._clients[session], message.arguments, message.number
        match message.operation:
            case "get":
                unit = self._units.get((session, wanted.get("transaction", 0)))
                is_reading = wanted.get("action") == "read"
                first = self._first_asked.setdefault((client, number), now)
                self._asked[session, number] = AskedMessages(wanted["queue"], unit, first, is_reading)
            case "get.cancel":
                self._cancel(session, client, wanted["number"])
            case "begin" if (session, wanted["transaction"]) not in self._units:
                ends_at = now + (wanted.get("timeout_s") or TRANSACTION_S)
                self._units[session, wanted["transaction"]] = OpenUnit(ends_at, [], [])
            case "rollback":
                unit = self._units.pop((session, wanted["transaction"]), None)
                if unit is not None:
                    self._hands.end(unit)

    def _cancel(self, session: Session, client: Client, number: int) -> None:
        asked = self._asked.get((session, number))
        if asked is not None:
            asked.is_cancelled = True  # its answer may be about to leave
        units = [unit for (one, _), unit in self._units.items() if one is session]
        for hand in [*self._hands.of(client), *(hand for unit in units for hand in unit.hands)]:
            if hand.request == number and self._hands.remove(hand):
                self._unsee(hand)

    # What leaves

    def leaving(self, session: Session, frames: Sequence[bytes]) -> None:
        """These frames leave the node."""
        super().leaving(session, frames)
        for message, _ in FrameReader(FRAME_MAX).feed(b"".join(frames)):
            match message:
                case Welcome():
                    for refusal in message.refused:
                        self._refuse(session, refusal)
                    self._check_promise(session, message.counter)
                case Refusal():
                    self._refuse(session, message)
                case Accepted(counter):
                    self._check_promise(session, counter)
                case Reply(number, result) if (session, number) in self._asked:
                    asked = self._asked.pop((session, number))
                    if result is not None and not asked.is_cancelled:
                        for hand in result["messages"]:
                            self._hand(session, number, asked, hand)

    def _refuse(self, session: Session, refusal: Refusal) -> None:
        self._refused[session].update(range(refusal.first, refusal.last + 1))

    def _check_promise(self, session: Session, counter: int) -> None:
        assert session.origin is not None
        client = session.origin.system or "", session.origin.epoch
        first, self._told[session] = self._told[session] + 1, counter
        for one in range(first, counter + 1):
            said = self._said.pop((client, one), None)
            if said is None or one in self._refused[session]:
                continue
            for identity in said.stores:
                assert identity in self._stored, f"{client}: {identity} is accepted, and not on disk"
            for number in said.removes:
                assert number in self._dequeued, f"{client}: {number} is settled, and still on disk"
                last = said.was_last.get(number)
                assert last is None or self._deliveries[number] == last, f"{number} left though it was taken"
                self._settled[number] = client

    def _hand(self, session: Session, request: int, asked: AskedMessages, handed: Sequence[Any]) -> None:
        number, delivery, redelivered, system, epoch, _, _, raw = handed
        identity = _identity(system, epoch, raw)
        self._check_message(asked, number, identity)
        if asked.is_reading or delivery == 0:
            return
        assert session.origin is not None
        client = session.origin.system or "", session.origin.epoch
        held = self._hands.get(number)
        is_known = held is not None and held.is_with(client, delivery) and held.request == request
        if is_known or self._is_stale(asked, number, delivery, session):
            return
        self._check_life(asked, number, raw, identity)
        now = self._clock.now
        assert held is None or self._hands.is_over(held, now), f"{number} is in two hands: {held}, {client}"
        is_again = self._settled.get(number) == client and redelivered  # it settled what it held of old
        assert number not in self._settled or is_again, f"{number} was settled, and left again to {client}"
        was_shown = number in self._shown
        assert redelivered or not was_shown, f"{number} left again for {client}, and is not marked"
        self.marked += redelivered
        self._shown.add(number)
        self._deliveries[number] = delivery
        wait_s = self._queue(asked.queue).redelivery_s
        due = inf if wait_s is None else max(asked.at, self._put_at.get(identity, 0.0)) + wait_s
        self._hands.add(HeldMessage(number, delivery, client, request, asked.unit, due, was_shown))

    def _check_message(self, asked: AskedMessages, number: int, identity: EventIdentity) -> None:
        queue = self._queue(asked.queue)
        is_own = asked.unit is not None and identity in asked.unit.puts
        if queue.persistent and not is_own:
            assert number in self._numbers_stored, f"{number} is handed out, and not on disk"
        first = self._numbers.setdefault((identity, asked.queue), number)
        assert first == number, f"{identity} is in {asked.queue} twice: {first} and {number}"

    def _check_life(self, asked: AskedMessages, number: int, raw: bytes, identity: EventIdentity) -> None:
        queue, ttl_s = self._queue(asked.queue), decode_event(raw).ttl_s
        if queue.expiry and ttl_s is not None:
            ends_at = self._ends_at(number, ttl_s, self._put_at[identity])
            assert asked.at <= ends_at, f"{number} was handed out after its time"
        if queue.deliveries_max is not None:
            assert self._deliveries.get(number, 0) <= queue.deliveries_max, f"{number} came too often"

    def _ends_at(self, number: int, ttl_s: float, put_at: float) -> float:
        """Until when a message may be handed out: a node that was started since goes by its wall clock."""
        if put_at >= self._started_at:
            return put_at + ttl_s
        return self._started_at + min(number / 1e6 + ttl_s - self._wall, ttl_s)

    def _is_stale(self, asked: AskedMessages, number: int, delivery: int, session: Session) -> bool:
        """Whether a message has waited so long to leave that its hand is over; its reader will be told."""
        is_over = asked.unit is not None and asked.unit not in self._units.values()
        is_stale = is_over or session.is_closed or delivery < self._deliveries.get(number, 0)
        self.stale += is_stale
        return is_stale


def _identity(system: str | None, epoch: int, raw: bytes) -> EventIdentity:
    return system or "", epoch, decode_event(raw).counter
