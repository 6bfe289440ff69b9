"""What a commit does to the messages of queues, all in all.

Messages come and go in great numbers, so nothing is remembered of those that lie in the database: a commit
trusts that what it takes away is there and that what it adds is new. SQLite counts what each statement did,
so a mistake is seen before the commit is made; only then is looked at what is there (`Doubtful`, `possible`).

Whatever the order of its operations, a commit writes each message once or not at all, and runs one statement
for all it adds, one for all it changes and one for all it takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidings.errors import InternalError
from tidings.store.interface import Dequeue, Enqueue, Operation, Revise, StoredMessage
from tidings.store.records import MESSAGE, SUM_MASK, Row, is_sound, message_row, trace_of
from tidings.store.trouble import Broken

ADD = f"INSERT OR IGNORE INTO message VALUES ({', '.join('?' * MESSAGE.width)})"
CHANGE = "UPDATE message SET {} WHERE number = ?1".format(
    ", ".join(f"{name} = ?{index}" for index, name in enumerate(MESSAGE.names, start=1) if index > 1)
)
TAKE_AWAY = "DELETE FROM message WHERE number = ?"
COUNTED = frozenset((ADD, CHANGE, TAKE_AWAY))  # each changes as many rows as it is run for


class Doubtful(Broken):
    """The commit does not fit the messages that are there."""


class Turnover:
    """Collects the operations on messages; speed is its contract, as every put and every get comes here."""

    def __init__(self) -> None:
        self._added: dict[int, StoredMessage] = {}
        self._changed: dict[int, StoredMessage] = {}
        self._taken: set[int] = set()

    def enqueue(self, operation: Enqueue) -> None:
        """Add a message; one that was taken away before in the same commit is changed. Raises Doubtful."""
        message = operation.message
        number = message.number
        if number in self._taken:
            self._taken.remove(number)
            self._changed[number] = message
        elif number in self._added or number in self._changed or number < 1:
            raise Doubtful(f"message {number}: is not new")
        else:
            self._added[number] = message

    def revise(self, operation: Revise) -> None:
        """Change a message, unless the same commit has taken it away."""
        number = operation.message.number
        if number in self._added:
            self._added[number] = operation.message
        elif number not in self._taken:
            self._changed[number] = operation.message

    def dequeue(self, operation: Dequeue) -> None:
        """Take a message away; one that was added in the same commit never gets to the disk."""
        number = operation.number
        if self._added.pop(number, None) is None:
            self._changed.pop(number, None)
            self._taken.add(number)

    def statements(self, commit: int) -> Iterator[tuple[str, list[Row]]]:
        """What to run in the commit of that number; rows are made only now, of what is left to be written."""
        if self._taken:
            yield TAKE_AWAY, [(number,) for number in sorted(self._taken)]
        if self._changed:
            yield CHANGE, [message_row(commit, message) for message in self._changed.values()]
        if self._added:
            yield ADD, [message_row(commit, message) for message in self._added.values()]

    def total(self, before: int) -> int:
        """The sum of the traces of all messages after the commit, given that before it."""
        return (before + sum(map(trace_of, self._added)) - sum(map(trace_of, self._taken))) & SUM_MASK


def check_enqueue(message: StoredMessage, is_there: bool) -> None:
    """Refuse a message whose number another has."""
    if is_there or message.number < 1:
        raise InternalError(f"message {message.number} can't be new")


def possible(operations: Iterable[Operation], find: Callable[[int], Row | None]) -> list[Operation]:
    """These operations without those on messages that are not there; InternalError if a new one is.

    `find` gives the row of a message. A damaged one was never told of, so its number may be used again.
    """
    done: list[Operation] = []
    is_there: dict[int, bool] = {}
    for operation in operations:
        if not isinstance(operation, Enqueue | Revise | Dequeue):
            done.append(operation)
            continue
        number = operation.number if isinstance(operation, Dequeue) else operation.message.number
        if number not in is_there:
            row = find(number)
            is_there[number] = row is not None
            if row is not None and isinstance(operation, Enqueue) and not is_sound(MESSAGE, row):
                done.append(Dequeue(number))
                is_there[number] = False
        if isinstance(operation, Enqueue):
            check_enqueue(operation.message, is_there[number])
        if isinstance(operation, Enqueue) or is_there[number]:
            is_there[number] = not isinstance(operation, Dequeue)
            done.append(operation)
    return done
