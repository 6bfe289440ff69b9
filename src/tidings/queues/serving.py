"""Work that grows with a queue, in steps: readers served by a search, and messages purged.

Between two steps anything may happen to the queue. A message is taken in the step in which it was found, so
two readers never get the same one. While a search is made for a reader it waits too: a message that comes
where the search has passed is offered to it, and one that comes ahead of it is found. So nothing is missed,
and a reader gets its messages in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

from tidings.queues.message import sight
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.event import Event
    from tidings.filters import Filter
    from tidings.matching import Shelf
    from tidings.matching.search import Search
    from tidings.queues.groups import Groups
    from tidings.queues.message import QueuedMessage
    from tidings.queues.queue import MessageQueue
    from tidings.queues.waiting import QueueReader

AT_ONCE = 64
"""Messages that are dealt with in one step, at 5 to 15 µs each."""


def serve(queue: MessageQueue, reader: QueueReader, is_bounded: bool) -> Steps[None]:
    """Give a reader what it wants of what is there, in order; `is_bounded`: of what is there now."""
    own = yield from _own(queue, reader)
    search = reader.search = queue.shelf.search(reader.filter, reader.after, is_bounded)
    chosen: list[QueuedMessage] = []
    size = 0
    for message in _candidates(queue, reader, search, own):
        if message is None:
            _take(queue, reader, chosen)
            chosen, size = [], 0
            yield
            if reader.is_over or reader.is_content or queue.is_closed:
                break
        elif not reader.fits(message, len(chosen), size):
            break
        else:
            chosen.append(message)
            size += message.size
            if not reader.has_room(len(chosen), size):
                break
    _take(queue, reader, chosen)
    if queue.schedule.groups is not None and reader.group_owner is not None and not reader.is_copier:
        yield from follow(queue, reader, queue.schedule.groups)
    reader.search = None


def follow(queue: MessageQueue, reader: QueueReader, groups: Groups) -> Steps[None]:
    """Give a reader what follows in the groups of which it has messages, as far as it wants that."""
    count, had = 0, len(reader.taken)
    for message in groups.following(reader.group_owner):
        if reader.is_over or queue.is_closed or not _is_wanted(queue, reader, message):
            continue
        groups.advance(message)
        queue.hand(message, reader)
        count += 1
        if not count % AT_ONCE:
            yield
    if len(reader.taken) > had:
        reader.taken.sort(key=lambda one: queue.kind.place(one[0]))


def _is_wanted(queue: MessageQueue, reader: QueueReader, message: QueuedMessage) -> bool:
    """Whether a reader takes a message that is behind."""
    number = message.number
    if (
        reader.is_content
        or queue.deadlines.is_expired(number)
        or not queue.locks.allow(number, reader.transaction)
    ):
        return False
    if reader.filter is not None and not reader.filter.matches(sight(message)):
        return False
    return reader.wants(message, queue.kind.place(message)) and reader.fits(message)


class AtHead:
    """A reader that takes from the head: whatever comes to the shelf it may come to."""

    def has_passed(self, _order: int) -> bool:
        """Nothing is passed over."""
        return False


def serve_any(queue: MessageQueue, reader: QueueReader, is_bounded: bool) -> Steps[None]:
    """Serve a reader at the head, which takes whatever comes first and has got some of it."""
    while len(queue.shelf) and not (reader.is_over or reader.is_content or queue.is_closed):
        if not queue.is_plain:
            yield from serve(queue, reader, is_bounded)
            break
        queue.serve_first(reader)
        yield
    reader.search = None


def _own(queue: MessageQueue, reader: QueueReader) -> Steps[deque[QueuedMessage]]:
    """Return the own puts of a transaction that its reader may have, in order."""
    found: deque[QueuedMessage] = deque()
    shelf = None if reader.transaction is None else reader.transaction.shelf(queue)
    if shelf is not None:
        for number in shelf.search(reader.filter, reader.after):
            if number is None:
                yield
            elif not queue.schedule.is_early(shelf[number]):
                found.append(shelf[number])
                if len(found) >= reader.count:
                    break
    if reader.is_copier and queue.schedule.groups is not None:
        behind = yield from _behind(queue, reader, queue.schedule.groups.behind)
        found = deque(sorted([*found, *behind], key=queue.kind.place))
    return found


def _behind(
    queue: MessageQueue, reader: QueueReader, shelf: Shelf[int, QueuedMessage]
) -> Steps[list[QueuedMessage]]:
    """Return messages that wait for others of their group: they can't be taken yet, but read."""
    found: list[QueuedMessage] = []
    for number in shelf.search(reader.filter, reader.after, is_bounded=True):
        if number is None:
            yield
        elif number in shelf and not queue.deadlines.is_expired(number):
            if reader.wants(shelf[number], queue.kind.place(shelf[number])):
                found.append(shelf[number])
            if len(found) >= reader.count:
                break
    return found


def _candidates(
    queue: MessageQueue, reader: QueueReader, search: Search[int], own: deque[QueuedMessage]
) -> Iterator[QueuedMessage | None]:
    """Yield the messages that a reader may have, in order; None where a step ends."""
    place, shelf, locks = queue.kind.place, queue.shelf, queue.locks
    copied = {message.number for message, _ in reader.taken} if reader.is_copier else ()
    up_to = inf if reader.up_to is None else reader.up_to
    for number in search:
        while own and search.has_passed(place(own[0])):
            yield own.popleft()
        if number is None:
            yield None
        elif number in copied or number > up_to or queue.deadlines.is_expired(number):
            continue
        elif reader.is_copier or locks.allow(number, reader.transaction):
            yield shelf[number]
    yield from own


def _take(queue: MessageQueue, reader: QueueReader, chosen: list[QueuedMessage]) -> None:
    """Let a reader have what was found for it in this step."""
    transaction = reader.transaction
    for message in chosen:
        number = message.number
        if reader.is_copier:
            queue.copy(message, reader)
        elif transaction is not None and transaction.has_put(number):
            transaction.withdraw(queue, message, reader.asked.number)
            reader.take(message, None)
        else:
            queue.shelf.remove(number)
            queue.hand(message, reader)


def is_contested(queue: MessageQueue, reader: QueueReader) -> Steps[bool]:
    """Whether a message that the reader wants may come back from another's transaction."""
    wants = (lambda _event: True) if reader.filter is None else reader.filter.matches
    for count, number in enumerate([*queue.in_transactions, *queue.locks], 1):
        if _is_contested(queue, number, reader, wants):
            return True
        if not count % AT_ONCE:
            yield
    return False


def _is_contested(
    queue: MessageQueue, number: int, reader: QueueReader, wants: Callable[[Event], bool]
) -> bool:
    held = queue.in_transactions.get(number)
    if held is not None:
        return held.holder is not reader.transaction and wants(sight(held.message))
    is_locked = number in queue.shelf and number in queue.locks
    return is_locked and wants(sight(queue.shelf[number]))


# Throwing away


def purge(queue: MessageQueue, filter: Filter | None) -> Steps[int]:
    """Throw away all messages that match, that nobody holds and nobody's transaction has read; how many."""
    gone = yield from _purge_off_shelf(queue, filter)
    found: list[int] = []
    for number in queue.shelf.search(filter, is_bounded=True):
        if queue.is_closed:
            break
        if number is not None:
            if number not in queue.locks and not queue.deadlines.is_expired(number):
                found.append(number)
            continue
        gone += _drop(queue, found)
        yield
    return gone + _drop(queue, found)


def _purge_off_shelf(queue: MessageQueue, filter: Filter | None) -> Steps[int]:
    """Throw away what is delayed, or behind others of its group: before these, as it would follow them."""
    gone = 0
    found: list[int] = []
    for count, message in enumerate(queue.schedule.messages(), 1):
        if filter is None or filter.matches(sight(message)):
            found.append(message.number)
        if not count % AT_ONCE:
            gone += _drop(queue, [number for number in found if queue.is_loose(number)])
            found.clear()
            yield
    return gone + _drop(queue, [number for number in found if queue.is_loose(number)])


def _drop(queue: MessageQueue, numbers: list[int]) -> int:
    """Throw away what was found in this step."""
    count = 0 if queue.is_closed else len(numbers)
    for number in numbers[:count]:
        queue.drop(number)
    numbers.clear()
    return count
