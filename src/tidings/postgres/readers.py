"""Readers of queues in the database: the messages each wants and has got, and their waiting lines."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from msgspec import Struct, field

from tidings.errors import TidingsError
from tidings.filters import Filter
from tidings.postgres.connection import Row
from tidings.postgres.putting import message_of
from tidings.queues.arguments import GetRequest
from tidings.queues.backend import Delivered, GetReply
from tidings.queues.message import BYTES_EACH, QueuedMessage, sight
from tidings.queues.waiting import ANSWER_SIZE_LIMIT, ANSWER_SIZE_MAX
from tidings.replies import Deferred
from tidings.timers import Timers

FIRST = -(2**63)
"""Place before all others."""


class CandidateRow(NamedTuple):
    """Available message; the columns of its event are there if a reader has a filter."""

    number: int
    place: int
    length: int
    is_in_turn: bool = True  # in its group
    columns: Row = ()
    follows: int | None = None  # the message before it in its group, if that is available too
    owner: str | None = None  # otherwise the client that holds all those before it

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return self.length + BYTES_EACH

    @property
    def message(self) -> QueuedMessage:
        """Return the message itself."""
        return message_of(self.number, *self.columns)


class PostgresReader(Struct, eq=False):
    """Reader that wants messages, and those it has got so far."""

    address: str
    wanted: GetRequest
    filter: Filter | None
    owner: str | None = None  # the client, if it may have several messages of a group
    reply: Deferred[GetReply] = field(default_factory=Deferred)
    deadline: float | None = None  # by then it fails, if the database is away
    due: float = inf  # by then it gets an empty reply
    is_cancelled: bool = False
    # Its search:
    taken: dict[int, tuple[CandidateRow, Delivered | None]] = {}
    size: int = 0
    is_cut: bool = False  # there was one more, which did not fit
    is_searching: bool = False  # it has searched up to its place only
    is_stale: bool = False  # a message has come back meanwhile, maybe before its place
    place: int = FIRST
    seen: int = 0  # it has seen everything up to this number

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start the search of a reader anew."""
        self.taken = {}
        self.size = self.seen = 0
        self.is_cut = self.is_searching = self.is_stale = False
        self.place = FIRST if self.wanted.after is None else self.wanted.after

    def fail(self, error: TidingsError) -> None:
        """Give it an error instead of messages."""
        self.reply.fail(error)

    def look_again(self, last: int) -> None:
        """Note that it has seen everything up to a number: it waits for more, or has to search once more."""
        self.place = FIRST if self.wanted.after is None else self.wanted.after
        self.is_searching, self.is_stale = self.is_stale and self.waits, False
        # A reader that takes any message finds the first at once, wherever it is.
        self.seen = last if self.is_choosy and not self.is_searching else 0

    @property
    def is_copier(self) -> bool:
        """Whether it leaves the messages where they are."""
        return self.wanted.action == "read"

    @property
    def is_choosy(self) -> bool:
        """Whether it does not simply take the first message."""
        return self.is_copier or self.filter is not None

    @property
    def is_content(self) -> bool:
        """Whether it wants no more."""
        return len(self.taken) >= self.wanted.count or self.size >= ANSWER_SIZE_MAX or self.is_cut

    @property
    def waits(self) -> bool:
        """Whether it waits if there is nothing; not for `exists`, as no transaction holds messages here."""
        wanted = self.wanted
        is_over = wanted.wait_s == 0 or wanted.up_to is not None or wanted.after is not None
        return not (is_over or wanted.if_exists)

    def wants(self, candidate: CandidateRow) -> bool:
        """Whether it wants a message, and has room for it in its reply."""
        if self.is_content or candidate.number <= self.seen or candidate.place <= self.place:
            return False
        if not (candidate.is_in_turn or self.is_copier or self._may_follow(candidate)):
            return False
        if self.wanted.up_to is not None and candidate.number > self.wanted.up_to:
            return False
        if self.filter is not None and not self.filter.matches(sight(candidate.message)):
            return False
        self.is_cut = bool(self.taken) and self.size + candidate.size > ANSWER_SIZE_LIMIT
        return not self.is_cut

    def _may_follow(self, candidate: CandidateRow) -> bool:
        """Whether it has all messages that come before one in its group."""
        if self.owner is None:
            return False
        return candidate.owner == self.owner if candidate.follows is None else candidate.follows in self.taken

    def take(self, candidate: CandidateRow, hand: Delivered | None = None) -> None:
        """Add a message to its reply; without a hand it is only promised."""
        self.taken[candidate.number] = candidate, hand
        self.size += candidate.size

    def lose(self, number: int) -> None:
        """Remove a promised message, which another reader has taken."""
        candidate, _ = self.taken.pop(number)
        self.size -= candidate.size
        self.is_cut = False


class ReaderLines:
    """Waiting readers, in a line at each queue, and the queues that they must search."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[PostgresReader, None]] = {}
        self.woken: dict[int, None] = {}  # queues to be searched
        self._dues: Timers[tuple[int, PostgresReader]] = Timers()
        self._rests: Timers[int] = Timers()  # queues whose rate allows more by then

    def add(self, queue: int, reader: PostgresReader) -> None:
        """Add a reader at the end of the line; one that is there stays where it is."""
        line = self._lines.setdefault(queue, {})
        if reader not in line:
            line[reader] = None
            self._dues.at(reader.due, (queue, reader))

    def remove(self, queue: int, readers: Iterable[PostgresReader]) -> None:
        """Remove readers, as far as they wait."""
        line = self._lines.get(queue, {})
        for reader in readers:
            line.pop(reader, None)
            self._dues.cancel((queue, reader))
        if not line:
            self._lines.pop(queue, None)

    def at(self, queue: int) -> list[PostgresReader]:
        """Return the readers that wait at a queue, without cancelled ones."""
        line = self._lines.get(queue, {})
        self.remove(queue, [reader for reader in line if reader.is_cancelled])
        return list(line)

    def close(self, queue: int) -> list[PostgresReader]:
        """Remove the line of a deleted queue; return its readers."""
        self.woken.pop(queue, None)
        self._rests.cancel(queue)
        line = list(self._lines.get(queue, ()))
        self.remove(queue, line)
        return line

    def wake(self, queue: int) -> None:
        """Let the readers at a queue search."""
        if queue in self._lines:
            self.woken[queue] = None

    def rest(self, queue: int, until: float) -> None:
        """Let the readers at a queue search at a moment, when its rate allows more."""
        if queue in self._lines:
            self._rests.at(until, queue)

    def wake_rested(self, now: float) -> None:
        """Let readers search whose rest is over."""
        for queue in self._rests.due(now):
            self.wake(queue)

    def restart(self, queue: int) -> None:
        """Let them search everything, as a message came back; one that is about to do so goes on first."""
        for reader in self._lines.get(queue, ()):
            if reader.is_searching:
                reader.is_stale = True
            else:
                reader.begin()

    def wake_all(self) -> None:
        """Let all readers search everything: any message may have come back."""
        for queue in self._lines:
            self.wake(queue)
            self.restart(queue)

    def begin_all(self) -> None:
        """Let all readers begin anew, as their results were undone."""
        for queue, line in self._lines.items():
            self.wake(queue)
            for reader in line:
                reader.begin()

    def lengths(self) -> dict[int, int]:
        """Return the number of waiting readers at each queue."""
        return {queue: len(line) for queue, line in self._lines.items()}

    def take_woken(self) -> list[int]:
        """Return the queues to be searched, and clear them."""
        woken, self.woken = [queue for queue in self.woken if queue in self._lines], {}
        return woken

    @property
    def due_at(self) -> float:
        """Return when the next reader may have waited for long enough, or may search again."""
        return min(self._dues.wake_at, self._rests.wake_at)

    def take_due(self, now: float) -> list[PostgresReader]:
        """Remove and return the readers that have waited for long enough."""
        due = list(self._dues.due(now))
        for queue, reader in due:
            self.remove(queue, [reader])
        return [reader for _, reader in due]
