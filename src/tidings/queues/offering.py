"""Messages that find their readers: those that are new, come back or have become due, and those who wait.

The other way round, a reader that comes and searches what is there, is in `serving.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.event.wire import array_head
from tidings.queues import serving
from tidings.queues.message import event_bytes
from tidings.queues.transactions import OpenTransaction
from tidings.steps import Steps, finish

if TYPE_CHECKING:
    from tidings.queues.message import QueuedMessage
    from tidings.queues.queue import MessageQueue
    from tidings.queues.waiting import QueueReader


def offer(queue: MessageQueue, message: QueuedMessage, is_behind: bool = False) -> bool:
    """Let those who wait have a message; whether one has taken it.

    `is_behind`: others of its group come first, so it can be read, but not taken.
    """
    for reader in queue.waiting.readers(message):
        if is_behind and not reader.is_copier:
            continue
        if reader.is_searching and not _is_for(queue, reader, message):
            continue
        if not reader.fits(message):
            queue.waiting.remove(reader)
            continue
        if reader.is_copier:
            queue.copy(message, reader)
        elif queue.locks.allow(message.number, reader.transaction):
            queue.hand(message, reader)
        else:
            continue
        if reader.is_content:
            queue.waiting.remove(reader)
        if not reader.is_searching:  # otherwise it is answered when the search ends
            queue.answer(reader)
        if not reader.is_copier:
            return True
    return False


def _is_for(queue: MessageQueue, reader: QueueReader, message: QueuedMessage) -> bool:
    """Whether a message is for a reader while a search is made for it, which will not come to it."""
    place = queue.kind.place(message)
    return reader.wants(message, place) and not reader.may_meet(place)


def offer_shelf(queue: MessageQueue) -> Steps[None]:
    """Offer what is on the shelf to those who wait, as far as the rate allows."""
    shelf = queue.shelf
    for number in shelf.search(None, is_bounded=True):
        if queue.is_closed or not len(queue.waiting) or not queue.has_token():
            break
        if number is None:
            yield
        elif number in shelf and not queue.deadlines.is_expired(number) and offer(queue, shelf[number]):
            shelf.remove(number)


def offer_to(queue: MessageQueue, owner: Hashable) -> None:
    """Let a transaction that waits have what has come to the groups that it owns."""
    groups = queue.schedule.groups
    waiting = owner.waiting.values() if isinstance(owner, OpenTransaction) else ()
    for reader in [one for one in waiting if one.queue is queue and not one.is_searching]:
        if groups is not None and not reader.is_copier:
            finish(serving.follow(queue, reader, groups))
            if reader.taken:
                queue.answer(reader)


def notify_watchers(queue: MessageQueue, message: QueuedMessage) -> None:
    """Deliver a message that is new to those who watch the queue."""
    watchers = queue.waiting.watchers(message)
    if watchers:
        batch = Batch(array_head(1) + event_bytes(message.shown), message.origin)
        for watcher in watchers:
            watcher.sink.deliver(batch, (0,), (None,))
