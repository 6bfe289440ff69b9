"""Net effect of a commit on the messages of queues.

Whatever the order of its operations, a commit writes each message once or not at all: it adds a few runs,
writes for each other run that it touches which messages are gone, and drops runs that have none left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import InternalError
from tidings.store.interface import Dequeue, Enqueue, Revise, StoredMessage
from tidings.store.records import RUN, SETTLED, SUM_MASK, Row, StoreHead, checksum_of
from tidings.store.runs import MessageRun, Stock, run_of, run_row, runs_of, settled_row

ADD = f"INSERT INTO run VALUES ({', '.join('?' * RUN.width)})"
SETTLE = SETTLED.put
DROP = "DELETE FROM run WHERE id = ?"
DROP_SETTLED = "DELETE FROM settled WHERE id = ?"
COUNTED = frozenset((DROP, DROP_SETTLED))  # each changes as many rows as it is given
# No run is sparse before four of its messages are gone: a commit that may rewrite one run for every four
# messages that it removes keeps up with the rate, and never works long for earlier commits.
TAKEN_PER_REWRITING = 4

Fetch = Callable[[MessageRun], list[StoredMessage]]  # reads the messages of a run, gone or not


class SettledRun(Struct, gc=False):
    """Run, the set of its messages that are gone, and the checksum of the row that says so."""

    run: MessageRun
    gone: int
    checksum: int


class MessageCommits:
    """Collects the operations on messages; speed is its contract, as every put and every get comes here.

    The stock does not change before `apply`.
    """

    def __init__(self, stock: Stock, fetch: Fetch) -> None:
        self.statements: list[tuple[str, list[Row]]] = []
        self._stock = stock
        self._fetch = fetch
        self._highest = stock.last
        self._written: dict[int, StoredMessage] = {}
        self._taken: set[int] = set()  # from existing runs; some may be in none
        self._added: list[MessageRun] = []
        self._settled: list[SettledRun] = []
        self._dropped: list[MessageRun] = []

    def enqueue(self, operation: Enqueue) -> None:
        """Add a message; InternalError if its number is in use."""
        message = operation.message
        number = message.number
        if number > self._highest:
            self._highest = number
        else:
            check_enqueue(message, self._has(number))
        self._written[number] = message

    def revise(self, operation: Revise) -> None:
        """Change a message, if it exists."""
        number = operation.message.number
        if self._has(number):
            self._taken.add(number)
            self._written[number] = operation.message

    def dequeue(self, operation: Dequeue) -> None:
        """Remove a message; one that was added in the same commit never gets to the disk."""
        number = operation.number
        if number in self._written:
            del self._written[number]
        self._taken.add(number)

    def conclude(self, head: StoreHead) -> StoreHead:
        """Make the rows and statements, and return the head that goes with them."""
        if not (self._written or self._taken):
            return head
        taken = self._stock.locate(sorted(self._taken))
        moved = self._move(taken)
        self._take(taken, head.commits)
        self._add(moved, head)
        runs = sum([run.checksum for run in self._added]) - sum([run.checksum for run in self._dropped])
        before = [self._stock.runs[key].settled or 0 for key in taken]
        settled = sum([one.checksum for one in self._settled]) - sum(before)
        return replace(
            head,
            run=head.run + len(self._added),
            runs=(head.runs + runs) & SUM_MASK,
            settled=(head.settled + settled) & SUM_MASK,
        )

    def apply(self) -> None:
        """Update the stock, now that the statements are committed."""
        for run in self._dropped:
            self._stock.remove(run)
        for one in self._settled:
            self._stock.settle(one.run, one.gone, one.checksum)
        for run in self._added:
            self._stock.add(run)

    def _has(self, number: int) -> bool:
        return number in self._written or (number not in self._taken and self._stock.has(number))

    def _move(self, taken: dict[int, int]) -> list[StoredMessage]:
        """Empty the sparse runs that are overdue; return the messages that remain, to be written again."""
        moved: list[StoredMessage] = []
        for run in self._stock.overdue(1 + len(self._taken) // TAKEN_PER_REWRITING):
            gone = run.gone | taken.get(run.key, 0)
            taken[run.key] = run.all & ~run.gone
            if gone != run.all:
                moved += (one for index, one in enumerate(self._fetch(run)) if not gone >> index & 1)
        return sorted(moved, key=attrgetter("number"))

    def _take(self, taken: dict[int, int], commit: int) -> None:
        rows: list[Row] = []
        for key, bits in taken.items():
            run = self._stock.runs[key]
            gone = run.gone | bits
            if gone == run.all:
                self._dropped.append(run)
            else:
                row = settled_row(key, commit, gone)
                rows.append(row)
                self._settled.append(SettledRun(run, gone, checksum_of(row)))
        self._run(DROP, [(run.key,) for run in self._dropped])
        self._run(DROP_SETTLED, [(run.key,) for run in self._dropped if run.settled is not None])
        self._run(SETTLE, rows)

    def _add(self, moved: list[StoredMessage], head: StoreHead) -> None:
        rows: list[Row] = []
        for key, messages in enumerate(self._runs(moved), start=head.run + 1):
            row = run_row(key, head.commits, messages)
            rows.append(row)
            self._added.append(run_of(row))
        self._run(ADD, rows)

    def _runs(self, moved: list[StoredMessage]) -> Iterator[list[StoredMessage]]:
        """Yield the new runs: messages among the old numbers stay apart from those above them all."""
        numbers = sorted(self._written)
        written = [self._written[number] for number in numbers]
        end = bisect_right(numbers, self._stock.last)
        for messages in filter(None, (moved, written[:end], written[end:])):
            compressed = [one for one in messages if one.compress]
            if compressed:
                yield from runs_of(compressed)
                messages = [one for one in messages if not one.compress]
            yield from runs_of(messages)

    def _run(self, statement: str, rows: list[Row]) -> None:
        if rows:
            self.statements.append((statement, rows))


def check_enqueue(message: StoredMessage, is_there: bool) -> None:
    """Refuse a message whose number is in use."""
    if is_there or message.number < 1:
        raise InternalError(f"message {message.number} can't be new")
