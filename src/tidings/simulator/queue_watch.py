"""Watch over queues: sees the frames that clients send to a node and that leave it, and checks the rules.

The rules: a message is in flight at one client at a time, and so is a group; a message that is delivered is
on disk, was put once, and is marked if it left the node before; a message settled for good never leaves
again; and a put, a settlement or a commit is accepted only when the disk has all of it. The watch knows
nothing of the node but its frames, its clock, its sessions, and the commits that were synced.
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
from tidings.simulator.watch import Client, DiskWatch, HeldMessage, HeldMessages, OpenUnit
from tidings.simulator.world import Clock
from tidings.store.interface import Dequeue, Enqueue, Operation, StoredMessage, StoreState


class WatchedGet(Struct, eq=False):
    """Request for messages."""

    queue: str
    unit: OpenUnit | None
    at: float
    is_reading: bool
    is_cancelled: bool = False


class PromisedState(Struct):
    """State of the disk that follows if a put, a settlement or a commit was done."""

    stores: Sequence[EventIdentity] = ()  # events that must be on disk
    removes: Sequence[int] = ()  # messages that must be gone from it
    was_last: Mapping[int, int] = {}  # the delivery in which the client had these


class QueueDiskWatch(Service, DiskWatch):
    """Watch over the queues of a node; `queues` are all of them, except the dead letters."""

    def __init__(self, queues: Iterable[Description], clock: Clock) -> None:
        super().__init__()
        self._clock = clock  # that of the world, which is never set
        self.marked = 0
        self.stale = 0  # delivered so late that the node had given them up
        self._queues = {one.name: one for one in queues}
        self._dead = Description(name="tidings.dead", persistent=True, redelivery_s=60.0)
        self._put_at: dict[EventIdentity, float] = {}
        self._stored: dict[EventIdentity, None] = {}
        self._numbers_stored: set[int] = set()
        self._dequeued: set[int] = set()
        self._settled: dict[int, Client] = {}
        self._shown: set[int] = set()
        self._deliveries: dict[int, int] = {}  # the last delivery that has left
        self._numbers: dict[tuple[EventIdentity, str], int] = {}
        self._pending: dict[tuple[Client, int], PromisedState] = {}
        self._begin()

    def _begin(self) -> None:
        """Forget the state that ends with a life of the node."""
        self._hands = HeldMessages()
        self._readers: dict[Session, FrameReader] = {}
        self._clients: dict[Session, Client] = {}
        self._asked: dict[tuple[Session, int], WatchedGet] = {}
        self._first_asked: dict[tuple[Client, int], float] = {}  # on whatever connection
        self._units: dict[tuple[Session, int], OpenUnit] = {}
        self._in_turn: dict[tuple[str, str], int] = {}  # the last message of each group that has left
        self._refused: dict[Session, set[int]] = {}
        self._accepted: dict[Session, int] = {}
        self._started_at = self._clock.now
        self._wall = 0.0  # the clock of the node at that time

    def _queue(self, name: str) -> Description:
        return self._queues.get(name, self._dead)

    # The disk

    def started(self, state: StoreState) -> None:
        """Begin a life of the node: state that was not synced may be lost."""
        super().started(state)
        self._begin()
        self._settled = {one: who for one, who in self._settled.items() if one in self._dequeued}
        self._shown &= self._numbers_stored  # the numbers of messages that were not stored may be used again
        self._deliveries = {
            one: last for one, last in self._deliveries.items() if one in self._numbers_stored
        }
        volatile = {name for name, one in self._queues.items() if not one.persistent}
        self._numbers = {key: number for key, number in self._numbers.items() if key[1] not in volatile}

    def found(self, messages: Iterable[StoredMessage]) -> None:
        """Note that these, and no others, were on disk when the node started: they are safe."""
        found = {message.number: message for message in messages}
        for message in found.values():
            assert message.number not in self._settled, f"{message.number} was settled, and is there again"
            self._note(message)
        self._dequeued |= self._numbers_stored - found.keys()

    def synced(self, commits: Iterable[Sequence[Operation]]) -> None:
        """Note that the disk has these."""
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

    # Sessions begin and end: as a service of the broker, the watch learns it when the queues do

    def join(self, broker: Broker) -> None:
        """Become a service of the node's broker."""
        self._wall = broker.wall
        broker.add(self)

    def greeted(self, session: Session) -> bool:
        """Note that a client is connected, maybe again."""
        self._hands.come(self._clients[session], session, self._clock.now)
        return False

    def parted(self, session: Session, is_clean: bool) -> None:
        """Note that a session has ended, and its transactions with it."""
        for key in [key for key in self._units if key[0] is session]:
            self._hands.end(self._units.pop(key))
        self._hands.go(self._clients.pop(session), session, is_clean, self._clock.now)

    # Input of clients

    def arriving(self, session: Session, data: bytes, now: float) -> None:
        """Read the messages in bytes that the session is about to receive."""
        if session.is_closed:
            return
        reader = self._readers.setdefault(session, FrameReader(FRAME_MAX))
        counted = 0
        for message, events in reader.feed(data):
            if isinstance(message, Hello):
                self._clients[session] = message.system, message.epoch
                self._accepted[session], self._refused[session] = message.seen, set()
            if isinstance(message, Bye):
                return  # the node ignores all that follows
            highest = session.broker.ledger.counter_of(Origin(*self._clients[session]))
            counted = max(counted, highest)
            counted = self._hear(session, message, events, counted, now)

    def _hear(
        self, session: Session, message: ProtocolMessage, events: bytes, counted: int, now: float
    ) -> int:
        """Note a message of a client; return the highest counter up to it."""
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
            self._pending[client, counter] = PromisedState(
                (identity,) if is_kept and not message.transaction else ()
            )
            if unit is not None and is_kept:
                unit.puts.append(identity)

    def _hear_settle(
        self, session: Session, counter: int, outcome: int, number: int, delivery: int, now: float
    ) -> None:
        client, hand = self._clients[session], self._hands.get(number)
        self._pending[client, counter] = PromisedState()
        if hand is None or not hand.is_with(client, delivery):
            return
        self._hands.remove(hand)
        if outcome in (DONE, REJECT):
            if not self._hands.is_over(hand, now):  # otherwise the node may refuse it
                self._settled[number] = client
            is_kept = number in self._numbers_stored
            self._pending[client, counter] = PromisedState(
                (), (number,) if is_kept else (), {number: delivery}
            )
        elif outcome == UNOPENED:
            self._unsee(hand)

    def _unsee(self, hand: HeldMessage) -> None:
        if not hand.was_shown:
            self._shown.discard(hand.number)

    def _hear_commit(self, session: Session, message: Commit) -> None:
        client = self._clients[session]
        unit = self._units.pop((session, message.transaction), None)
        if unit is None:
            self._pending[client, message.counter] = PromisedState()
            return
        last = {hand.number: hand.delivery for hand in self._hands.end(unit)}
        self._pending[client, message.counter] = PromisedState(unit.puts, list(last), last)

    def _hear_request(self, session: Session, message: Request, now: float) -> None:
        client, wanted, number = self._clients[session], message.arguments, message.number
        match message.operation:
            case "get":
                unit = self._units.get((session, wanted.get("transaction", 0)))
                is_reading = wanted.get("action") == "read"
                first = self._first_asked.setdefault((client, number), now)
                self._asked[session, number] = WatchedGet(wanted["queue"], unit, first, is_reading)
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
            asked.is_cancelled = True  # its reply may be about to leave
        units = [unit for (one, _), unit in self._units.items() if one is session]
        for hand in [*self._hands.of(client), *(hand for unit in units for hand in unit.hands)]:
            if hand.request == number and self._hands.remove(hand):
                self._unsee(hand)

    # Output of the node

    def _left(self, session: Session, message: ProtocolMessage, events: bytes) -> None:
        """Check the promises and the messages in a frame that leaves the node."""
        super()._left(session, message, events)
        match message:
            case Welcome():
                for refusal in message.refused:
                    self._refuse(session, refusal)
                self._check_promise(session, message.counter)
            case Refusal(stream=0):
                self._refuse(session, message)
            case Accepted(counter, 0):
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
        first, self._accepted[session] = self._accepted[session] + 1, counter
        for one in range(first, counter + 1):
            promised = self._pending.pop((client, one), None)
            if promised is None or one in self._refused[session]:
                continue
            for identity in promised.stores:
                assert identity in self._stored, f"{client}: {identity} is accepted, and not on disk"
            for number in promised.removes:
                assert number in self._dequeued, f"{client}: {number} is settled, and still on disk"
                last = promised.was_last.get(number)
                assert last is None or self._deliveries[number] == last, f"{number} left though it was taken"
                self._settled[number] = client

    def _hand(self, session: Session, request: int, asked: WatchedGet, handed: Sequence[Any]) -> None:
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
        is_again = self._settled.get(number) == client and redelivered  # it settled an earlier delivery
        assert number not in self._settled or is_again, f"{number} was settled, and left again to {client}"
        self._check_group(asked, number, raw)
        was_shown = number in self._shown
        assert redelivered or not was_shown, f"{number} left again for {client}, and is not marked"
        self.marked += redelivered
        self._shown.add(number)
        self._deliveries[number] = delivery
        wait_s = self._queue(asked.queue).redelivery_s
        due = inf if wait_s is None else max(asked.at, self._put_at.get(identity, 0.0)) + wait_s
        self._hands.add(HeldMessage(number, delivery, client, request, asked.unit, due, was_shown))

    def _check_group(self, asked: WatchedGet, number: int, raw: bytes) -> None:
        """See that no other message of a group is in anyone's hands; dead letters are in none."""
        group = decode_event(raw).group
        if group is not None and asked.queue in self._queues:
            other = self._hands.get(self._in_turn.get((asked.queue, group), number))
            is_free = other is None or other.number == number or self._hands.is_over(other, self._clock.now)
            assert is_free, f"{number} of group {group} is handed out, and {other} is not settled"
            self._in_turn[asked.queue, group] = number

    def _check_message(self, asked: WatchedGet, number: int, identity: EventIdentity) -> None:
        queue = self._queue(asked.queue)
        is_own = asked.unit is not None and identity in asked.unit.puts
        if queue.persistent and not is_own:
            assert number in self._numbers_stored, f"{number} is handed out, and not on disk"
        first = self._numbers.setdefault((identity, asked.queue), number)
        assert first == number, f"{identity} is in {asked.queue} twice: {first} and {number}"

    def _check_life(self, asked: WatchedGet, number: int, raw: bytes, identity: EventIdentity) -> None:
        queue, ttl_s = self._queue(asked.queue), decode_event(raw).ttl_s
        if queue.expiry and ttl_s is not None:
            ends_at = self._ends_at(number, ttl_s, self._put_at[identity])
            assert asked.at <= ends_at, f"{number} was handed out after its time"
        if queue.deliveries_max is not None:
            assert self._deliveries.get(number, 0) <= queue.deliveries_max, f"{number} came too often"

    def _ends_at(self, number: int, ttl_s: float, put_at: float) -> float:
        """Return when a message expires: a node that has restarted since goes by its wall clock."""
        if put_at >= self._started_at:
            return put_at + ttl_s
        return self._started_at + min(number / 1e6 + ttl_s - self._wall, ttl_s)

    def _is_stale(self, asked: WatchedGet, number: int, delivery: int, session: Session) -> bool:
        """Whether its hand was over before the message left; the node will refuse to settle it."""
        is_over = asked.unit is not None and asked.unit not in self._units.values()
        is_stale = is_over or session.is_closed or delivery < self._deliveries.get(number, 0)
        self.stale += is_stale
        return is_stale


def _identity(system: str | None, epoch: int, raw: bytes) -> EventIdentity:
    return system or "", epoch, decode_event(raw).counter
