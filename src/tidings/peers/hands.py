"""What clients of this node hold of queues elsewhere, by numbers of this node, and give back when they go.

A message that was handed out elsewhere gets a number of this node, as the numbers of two nodes may be the
same. It is forgotten when the client says what becomes of it, and when the place that handed it out has taken
it back because its time was up. The rules are those of local queues: who comes back in time goes on holding,
and is told again what he was told before. All of it is forgotten when the node is killed; what becomes of a
message that was held then can't be said any more, nor whether it had been said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from tidings.errors import TidingsError
from tidings.peers.relay import Handed, Row
from tidings.protocol.messages import GIVE_BACK, UNOPENED
from tidings.protocol.session import Session
from tidings.queues.elsewhere import Way
from tidings.queues.getting import identity
from tidings.queues.held import Identity
from tidings.queues.manager import QueueManager
from tidings.queues.service import RESUME_S
from tidings.timers import Alarm

ELSEWHERE = 1 << 62
"""Added to the numbers of messages that are held elsewhere: no message of a queue here has such a number."""


class Lot:
    """Messages that came in one answer, and what forgets them when their time is up."""

    __slots__ = ("held_s", "left", "timer")

    def __init__(self, left: int, held_s: float | None) -> None:
        self.left = left
        self.held_s = held_s
        self.timer: Alarm | None = None


class Hand:
    """A message that is held elsewhere for a client of this node."""

    __slots__ = ("client", "delivery", "lot", "number", "request", "row", "theirs", "way")

    def __init__(self, way: Way, client: Identity, request: int, number: int, row: Row, lot: Lot) -> None:
        self.way = way
        self.client = client
        self.request = request
        self.lot = lot
        self.number = number  # here
        self.theirs = row.number  # there
        self.delivery = row.delivery
        self.row = replace(row, number=number, received=row.number)  # as the client is told

    def settle(self, outcome: int, text: str, done: Callable[[TidingsError | None], None]) -> None:
        """Say what becomes of it."""
        self.way.settle(self.theirs, self.delivery, outcome, text, done)


class Hands:
    """See the module."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._first = 2 * ELSEWHERE  # the first number that was given out since the node was started
        self._hands: dict[int, Hand] = {}
        self._holders: dict[Identity, dict[int, Hand]] = {}
        self._told: dict[Session, dict[int, list[Hand]]] = {}  # what an earlier connection was told
        self._present: dict[Identity, set[Session]] = {}
        self._missed: dict[Identity, Alarm] = {}

    def __len__(self) -> int:
        return len(self._hands)

    # Messages

    def take(self, way: Way, session: Session, request: int, handed: Handed) -> list[Hand]:
        """Messages that were handed out for a request of a client."""
        client, now = identity(session), self._manager.now
        lot = Lot(len(handed.messages), handed.held_s)
        taken = [Hand(way, client, request, self._next_number(), row, lot) for row in handed.messages]
        mine = self._holders.setdefault(client, {}) if taken else {}
        for hand in taken:
            self._hands[hand.number] = mine[hand.number] = hand
        if taken and handed.held_s is not None:
            lot.timer = self._manager.timers.at(now + handed.held_s, partial(self._expire, taken))
        return taken

    def _next_number(self) -> int:
        number = ELSEWHERE + self._manager.numbers.next(self._manager.wall)
        self._first = min(self._first, number)
        return number

    def is_forgotten(self, number: int) -> bool:
        """Whether a message was held elsewhere before the node was started: nothing is known of it."""
        return ELSEWHERE <= number < self._first

    def take_again(self, session: Session, request: int) -> list[Hand]:
        """What the client was told for this request on an earlier connection, as far as it still holds it."""
        told = self._told.get(session)
        hands = () if told is None else told.pop(request, ())
        return [hand for hand in hands if self._hands.get(hand.number) is hand]

    def pop(self, number: int, delivery: int, client: Identity) -> Hand | None:
        """A message in a client's hands, in this delivery, which are empty now; None if it is not there."""
        hand = self._hands.get(number)
        if hand is None or hand.client != client or hand.delivery != delivery:
            return None
        self._forget((hand,))
        return hand

    def get(self, number: int, delivery: int, client: Identity) -> Hand | None:
        """The same, and it stays there."""
        hand = self._hands.get(number)
        return hand if hand is not None and (hand.client, hand.delivery) == (client, delivery) else None

    def give_back(self, session: Session, request: int) -> None:
        """What was handed out for a request is not wanted: it goes back as if it had not been."""
        mine = self._holders.get(identity(session), {})
        self._give_back([hand for hand in mine.values() if hand.request == request], is_counted=False)

    def _give_back(self, hands: list[Hand], is_counted: bool) -> None:
        """What was got by one request is dealt with one by one: only the first was delivered for sure."""
        counted: set[int] = set()
        self._forget(hands)
        for hand in hands:
            is_first = is_counted and hand.request not in counted
            counted.add(hand.request)
            hand.settle(GIVE_BACK if is_first else UNOPENED, "", _pass_over)

    def _expire(self, hands: list[Hand], _now: float) -> None:
        """They are not held any more where they were handed out."""
        self._forget([hand for hand in hands if self._hands.get(hand.number) is hand])

    def _forget(self, hands: Iterable[Hand]) -> None:
        for hand in hands:
            del self._hands[hand.number]
            mine = self._holders[hand.client]
            del mine[hand.number]
            if not mine:
                del self._holders[hand.client]
            hand.lot.left -= 1
            if not hand.lot.left:
                self._manager.timers.cancel(hand.lot.timer)

    # Clients

    def greeted(self, session: Session) -> bool:
        """A client is there, maybe again; whether it holds what it held, having come in time."""
        client = identity(session)
        is_in_time = client in self._present or client in self._missed
        self._present.setdefault(client, set()).add(session)
        self._manager.timers.cancel(self._missed.pop(client, None))
        held = self._holders.get(client)
        if held:
            told = self._told[session] = {}
            for hand in held.values():
                told.setdefault(hand.request, []).append(hand)
        return is_in_time and bool(held)

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended."""
        self._told.pop(session, None)
        client = identity(session)
        sessions = self._present.get(client, set())
        sessions.discard(session)
        if not sessions:
            self._present.pop(client, None)
        if is_clean:
            self._take_back(client, 0.0)
        elif not sessions and client in self._holders:
            at = self._manager.now + RESUME_S
            self._missed[client] = self._manager.timers.at(at, partial(self._take_back, client))

    def _take_back(self, client: Identity, _now: float) -> None:
        self._missed.pop(client, None)
        self._give_back(list(self._holders.get(client, {}).values()), is_counted=True)


def _pass_over(_error: TidingsError | None) -> None:
    """For what nobody waits for."""
