"""Which messages of a queue are kept off its shelf for now: delayed ones, and those behind others of a group.

A message has one place: on the shelf, in someone's hands, or here. The queue says what comes, comes back and
goes; the schedule puts on the shelf what may be handed out, then and when a moment has come or a group moves
on. Where no message has a plan, all of this is one check for None and one for an empty dict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from tidings.queues.delayed import MARK, Delayed, Plan, check_plan, plan_of, put_off
from tidings.queues.description import DEAD, TRANSMISSION
from tidings.queues.groups import Groups
from tidings.queues.message import QueuedMessage

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker
    from tidings.queues.queue import MessageQueue


class Schedule:
    """The messages of one queue that it has, and that nobody may have yet."""

    def __init__(self, queue: MessageQueue, broker: Broker) -> None:
        self.delayed = Delayed()
        self.groups: Groups | None = None  # made when a message of a group comes
        self._queue = queue
        self._broker = broker
        # Elsewhere messages are delayed where they go, or were before they died.
        self._is_used = not (queue.name.startswith(TRANSMISSION) or queue.name == DEAD)

    def __len__(self) -> int:
        return len(self.delayed) + self.behind

    def __contains__(self, number: int) -> bool:
        return number in self.delayed or self.is_behind(number)

    @property
    def behind(self) -> int:
        """How many messages wait for others of their groups."""
        return 0 if self.groups is None else len(self.groups.behind)

    def is_behind(self, number: int) -> bool:
        """Whether a message waits for others of its group."""
        return self.groups is not None and number in self.groups.behind

    def messages(self) -> list[QueuedMessage]:
        """Return all messages that are here."""
        behind = () if self.groups is None else [self.groups.behind[one] for one in self.groups.behind]
        return [*self.delayed.messages(), *behind]

    # Plans

    def plan(self, raw: bytes) -> Plan | None:
        """Return the plan of an event, if it has one; QueueError if that can't be."""
        plan = self._plan_of(raw)
        if plan is not None:
            check_plan(plan, self._queue.name, self._broker.wall)
        return plan

    def _plan_of(self, raw: bytes) -> Plan | None:
        return plan_of(raw) if self._is_used and MARK in raw else None

    def is_early(self, message: QueuedMessage) -> bool:
        """Whether a message that a transaction has put is not due yet."""
        plan = self._plan_of(message.raw)
        return plan is not None and plan.due(message.number) > self._broker.wall

    # What comes and goes

    def enter(self, message: QueuedMessage, plan: Plan, deliveries: int = 0) -> None:
        """Take a message that has come, or was restored after so many deliveries."""
        due = plan.due(message.number)
        if due <= self._broker.wall:
            self._place(message, plan)
            return
        self._delay(message, self._broker.deadline(due, plan.delay_s_most))
        if deliveries and plan.queue_group is not None:
            self._hold_up(message, plan.queue_group)

    def restore(self, message: QueuedMessage, deliveries: int) -> bool:
        """Take a message that was stored, if it has a plan; whether it has."""
        plan = self._plan_of(message.raw)
        if plan is not None:
            self.enter(message, plan, deliveries)
        return plan is not None

    def pause(self, message: QueuedMessage, delay_s: float) -> QueuedMessage:
        """Take a message that has come back, and waits for so long; as it is stored then."""
        later = put_off(message, self._broker.wall, delay_s)
        self._delay(later, self._broker.now + delay_s)
        return later

    def back(self, message: QueuedMessage) -> None:
        """Take a message that has come back, or whose pause is over."""
        if self.groups is not None and message.number in self.groups:
            self._make_way(message, self.groups.turn_with(message.number))
            self._advance(self.groups.back(message))
        else:
            self._queue.place(message)

    def rejoin(self, message: QueuedMessage) -> None:
        """A message that was gone is there again, and about to come back."""
        plan = self._plan_of(message.raw)
        if plan is not None and plan.queue_group is not None:
            self._grouped.hold(message.number, plan.queue_group)

    def leave(self, number: int) -> None:
        """A message is gone: another of its group may have its turn."""
        if self.groups is not None:
            self._advance(self.groups.leave(number))

    def pick(self, number: int) -> QueuedMessage:
        """Take out a message; in its group it still has its turn, or its place behind others."""
        if number in self.delayed:
            return self.delayed.remove(number)
        assert self.groups is not None
        return self.groups.behind.remove(number)

    def end_delays(self, most: int) -> None:
        """Put on the shelf what is due, of many messages some."""
        for message in self.delayed.due(self._broker.now, most):
            plan = plan_of(message.raw)
            is_new = self.groups is None or message.number not in self.groups
            if plan is not None and plan.queue_group is not None and is_new:
                self._place(message, plan)
            else:
                self.back(message)

    def clear(self) -> Iterator[QueuedMessage]:
        """Take out all of them."""
        return chain(self.delayed.clear(), () if self.groups is None else self.groups.clear())

    # The shelf

    def _delay(self, message: QueuedMessage, at: float) -> None:
        self.delayed.add(message, at)
        self._queue.wake_at(at)

    @property
    def _grouped(self) -> Groups:
        if self.groups is None:
            self.groups = Groups(self._queue.kind.place)
        return self.groups

    def _place(self, message: QueuedMessage, plan: Plan) -> None:
        """Place a message that is due, if it is its turn in its group."""
        name = plan.queue_group
        if name is not None:
            self._make_way(message, self._grouped.turn_of(name))
        if name is None or self._grouped.enter(message, name):
            self._queue.place(message)
        elif len(self._queue.waiting):
            self._queue.show(message)
            self._queue.offer_to(self._grouped.owner_of(name))

    def _hold_up(self, message: QueuedMessage, name: str) -> None:
        """Let the others of a group wait for a message that pauses, as they did before the node ended."""
        shelf = self._queue.shelf
        for number in [one for one in self._grouped.turn_of(name) if one in shelf]:
            self._grouped.put_behind(shelf.remove(number))
        self._grouped.hold(message.number, name)

    def _make_way(self, message: QueuedMessage, turn: Collection[int]) -> None:
        """Take its turn from a message on the shelf that comes after this one of its group."""
        shelf, locks, place = self._queue.shelf, self._queue.locks, self._queue.kind.place
        for number in [one for one in turn if one in shelf and one not in locks]:
            if place(message) < place(shelf[number]):
                self._grouped.put_behind(shelf.remove(number))

    def _advance(self, following: QueuedMessage | None) -> None:
        """Place the message whose turn it is in a group now, if there is one."""
        if following is None:
            return
        queue = self._queue
        if queue.is_expired(following.number):  # it is swept out there
            queue.shelf.add(following.number, following, queue.kind.place(following))
        else:
            queue.place(following)
