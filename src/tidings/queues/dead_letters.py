"""Dead letters: messages that could not be processed; and reports on what became of messages.

The dead letters are a queue like any other: a message there has three more attributes, which say why. A
message may request a report, in its attribute `report`, to the queue or the subject in its `reply_to`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tidings.errors import NotAllowed, QueueFull, QueueNotFound
from tidings.event import Event, Value
from tidings.event.values import ATTRIBUTES_MAX
from tidings.filters import Filter
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.arguments import INBOX
from tidings.protocol.inboxes import own_inboxes
from tidings.queues.description import DEAD, Description
from tidings.queues.message import QueuedMessage, event_bytes
from tidings.queues.queue import MessageQueue
from tidings.queues.schedule import MARK
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.queues.manager import QueueManager

MARKS = ("dead.queue", "dead.reason", "dead.deliveries")
"""The attributes that say why."""
DEAD_MAX = 100_000
"""Dead letters that are kept; the oldest are thrown away."""
REPORTS = ("delivered", "expired", "undeliverable")
"""Reports that a message may request, with blanks between."""


class DeadLetters:
    """Dead letters of a node, and the reports that messages request."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    def bury(
        self, queue: MessageQueue, message: QueuedMessage, reason: str, deliveries: int, undo: bool = False
    ) -> None:
        """Put a message among the dead letters; one that is there already is thrown away."""
        manager = self._manager
        manager.broker.count("buried")
        self.report(queue, message, "undeliverable", reason)
        if queue.name == DEAD:
            return
        letter = letter_of(message, queue.name, reason, deliveries)
        self._with_room().put(letter, message.origin, queue.parts.of(message.number), undo)

    def bury_alone(self, queue: str, message: QueuedMessage, reason: str) -> None:
        """Put a message among the dead letters that is in no queue, such as one for a queue that is gone."""
        self._manager.broker.count("buried")
        self._with_room().put(letter_of(message, queue, reason, 0), message.origin, undo=False)

    def _with_room(self) -> MessageQueue:
        """Return the queue of the dead letters, with room for one more."""
        manager = self._manager
        dead = manager.get(DEAD) or manager.create(Description(name=DEAD, deliveries_max=None))
        while dead.size >= DEAD_MAX and len(dead.shelf):
            dead.drop(next(iter(dead.shelf)))
        return dead

    def replay(
        self, filter: Filter | None, target: str | None, check: Callable[[MessageQueue], None]
    ) -> Steps[int]:
        """Put dead letters back where they came from, if that is there, or into another queue; how many.

        `check` raises for a queue that nothing may be put into.
        """
        dead = self._manager.get(DEAD)
        replayed, last = 0, self._manager.numbers.last
        found: list[int] = []
        for number in () if dead is None else dead.shelf.search(filter, is_bounded=True):
            assert dead is not None
            if number is None:
                replayed += self._put_back(dead, found, target, check)
                found.clear()
                yield
            elif number <= last:
                found.append(number)
        return replayed if dead is None else replayed + self._put_back(dead, found, target, check)

    def _put_back(
        self,
        dead: MessageQueue,
        numbers: list[int],
        target: str | None,
        check: Callable[[MessageQueue], None],
    ) -> int:
        """Put letters back that were found in this step; how many could be."""
        replayed = 0
        for number in numbers:
            letter = dead.shelf[number].event
            queue = self._target(letter, target)
            if queue is None:
                continue
            check(queue)
            values = {name: value for name, value in letter.values.items() if name not in MARKS}
            raw = event_bytes(replace(letter, values=values))
            queue.check_room_for(raw, dead.parts.of(number))
            queue.put(raw, letter.origin, dead.parts.of(number), undo=False, plan=queue.schedule.plan(raw))
            dead.drop(number)
            replayed += 1
        return replayed

    def _target(self, letter: Event, target: str | None) -> MessageQueue | None:
        """Return the queue of a letter; None if it does not exist any more, and no other was named."""
        if target is not None:
            return self._manager.find(target)
        try:
            return self._manager.find(str(letter.values.get(MARKS[0], "")))
        except QueueNotFound:
            return None

    def report(self, queue: MessageQueue, message: QueuedMessage, kind: str, reason: str = "") -> None:
        """Send the report on a message of a queue, if it requests one."""
        if message.raw.find(b"report") >= 0:  # most want none, and need not be decoded for that
            self.report_on(queue.name, message, kind, reason)

    def report_on(self, queue: str, message: QueuedMessage, kind: str, reason: str = "") -> None:
        """Send the report on a message for the queue of this name, here or elsewhere, if it requests one."""
        event = message.event
        wanted, address = event.values.get("report"), event.reply_to
        if not isinstance(wanted, str) or kind not in wanted.split() or address is None:
            return
        facts: dict[str, Any] = {"queue": queue}
        if reason:
            facts["reason"] = reason
        report = Event(f"report.{kind}", facts, correlation_id=event.id, subject=address)
        is_queue = not address.startswith(INBOX) and self._manager.knows(address)
        answers = self._manager.find(address) if is_queue else None
        if not self._may_answer(message.origin, address, answers):
            self._manager.broker.count("dropped", reason="report")
        elif answers is None:
            self._manager.broker.announce(report)
        elif answers.name != queue:
            self._put(answers, report)

    def _may_answer(self, origin: Origin | None, address: str, answers: MessageQueue | None) -> bool:
        """Whether a report may go there: into the inbox of who has sent the message, or where he may put.

        So nobody has the node say for him what he may not say himself.
        """
        user = ((origin and origin.source) or "").partition("/")[0]
        principal = self._manager.broker.authenticator.principal_of(user)
        if principal is None:  # a user of another node, or a client of this node's owner
            return address.startswith(INBOX) or not isinstance(origin, ForwardedOrigin)
        if principal.rules is None or address.startswith(own_inboxes(self._manager.broker.node, user)):
            return True
        try:
            return answers is not None and principal.queue_grant("put", answers.name) is None
        except NotAllowed:
            return False

    def _put(self, answers: MessageQueue, report: Event) -> None:
        broker = self._manager.broker
        own = broker.own(report)
        raw = event_bytes(own)
        try:
            answers.check_room_for(raw)
        except QueueFull:
            broker.count("dropped", reason="report")
        else:
            answers.put(raw, own.origin, undo=False)


def letter_of(message: QueuedMessage, queue: str, reason: str, deliveries: int) -> bytes:
    """A message as it is put among the dead letters: with the attributes that say why, as far as they fit.

    Its delay is over: it does not wait again when it is put back.
    """
    event = message.event
    header = event.header
    if header is not None and MARK in message.raw:
        event = replace(event, header=replace(header, queue_delay_s=None, queue_due_us=None))
    room = ATTRIBUTES_MAX - len(event.values)
    marks: dict[str, Value] = dict(zip(MARKS[:room], (queue, reason, deliveries), strict=False))
    return event_bytes(replace(event, values={**event.values, **marks}))
