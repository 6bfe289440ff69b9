"""Queues of a database and their descriptions: created, found and deleted.

A description never changes, and a queue that is created anew has another key, so a description that was read
holds until the queue is deleted. The thread keeps all of them; the loop has a copy that follows.

The tokens of a queue with a rate are in one row, from which all nodes take them. It is locked from the count
of the tokens until the turn is committed, so no token is taken twice. It is not the row of the queue: so a
put does not wait for readers. The clock is that of the server. Nothing else is locked after such a row but
messages that no other turn has locked, and the rows of several queues are locked in the order of their keys:
so no two nodes wait for each other. One that deletes a queue may wait for one that settles there, and the
server ends that: then one of the two turns is done anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from tidings.errors import QueueError, QueueExists, QueueNotFound
from tidings.ids import make_id
from tidings.postgres.connection import CREATED, DELETED, Row, UnitOfWork
from tidings.queues.description import DEAD, Description, checked, decode, encode
from tidings.queues.schedule import TokenBucket
from tidings.queues.types import Volatile

TYPE = "postgres"
QUEUES_MAX = 100_000
"""Queues of one database."""
REST_S_MIN = 0.02
"""Shortest pause of readers that wait for tokens: each look is a transaction, and a bucket holds more."""

_COLUMNS = "SELECT key, description FROM tidings.queues"


class Known:
    """Queue that is known to exist, or to have existed."""

    __slots__ = ("description", "key", "kind", "name")

    def __init__(self, key: int, description: Description) -> None:
        self.key = key
        self.name = description.name
        self.description = description
        self.kind = Volatile(key, description)  # for the places of messages, which are those of any queue


CatalogChange = Callable[[Sequence[Known], Sequence[Known]], None]
"""Called with the new queues and the deleted ones."""


class Catalog:
    """Known queues of the database. `on_change` is called with each change."""

    def __init__(self, node: str, on_change: CatalogChange) -> None:
        self._node = node
        self._on_change = on_change
        self._keys: dict[int, Known] = {}
        self._names: dict[str, Known] = {}  # by name and by id

    def __iter__(self) -> Iterator[Known]:
        return iter(list(self._keys.values()))

    def load(self, turn: UnitOfWork) -> list[Known]:
        """Read all queues; return those that are gone."""
        found = {row[0]: row for row in turn.rows(_COLUMNS)}
        gone = [known for key, known in self._keys.items() if key not in found]
        for known in gone:
            self._remove(known)
        come = [self._add(_known(row)) for key, row in found.items() if key not in self._keys]
        self._on_change(come, gone)
        return gone

    def learn(self, turn: UnitOfWork, key: int) -> None:
        """Add a queue that another node has created."""
        row = None if key in self._keys else turn.row(_COLUMNS + " WHERE key = %s", key)
        if row is not None:
            self._on_change([self._add(_known(row))], ())

    def adopt(self, known: Known) -> None:
        """Add a queue that we have created."""
        if known.key not in self._keys:
            self._on_change([self._add(known)], ())

    def forget(self, key: int) -> Known | None:
        """Forget a deleted queue; return it, if it was known."""
        known = self._keys.get(key)
        if known is not None:
            self._remove(known)
            self._on_change((), [known])
        return known

    def _add(self, known: Known) -> Known:
        self._keys[known.key] = self._names[known.name] = self._names[known.description.id] = known
        return known

    def _remove(self, known: Known) -> None:
        del self._keys[known.key]
        for name in (known.name, known.description.id):
            if self._names.get(name) is known:
                del self._names[name]

    def find(self, turn: UnitOfWork, address: str) -> Known:
        """Return the queue of this name or id, also one created just now; QueueNotFound if there is none."""
        known = self._names.get(address)
        if known is None:
            row = turn.row(_COLUMNS + " WHERE name = %s OR id = %s", address, address)
            if row is None:
                raise QueueNotFound(address, "there is no such queue")
            self.forget(row[0])
            known = self._add(_known(row))
            self._on_change([known], ())
        return known

    def get(self, key: int) -> Known | None:
        """Return the queue of this key, if it is known."""
        return self._keys.get(key)

    def of(self, turn: UnitOfWork, key: int) -> Known:
        """Return the queue of this key, which is in the database."""
        self.learn(turn, key)
        return self._keys[key]

    def create(self, turn: UnitOfWork, wanted: Description) -> Known:
        """Create a queue; return an existing one of the same description, QueueExists for another."""
        key = turn.value("SELECT nextval(pg_get_serial_sequence('tidings.queues', 'key'))")
        identity = make_id(self._node, turn.life, key)
        description = completed(replace(wanted, name=wanted.name or identity))
        stored = encode(replace(description, id=identity, alias_of=None))
        if turn.value("SELECT count(*) FROM tidings.queues") >= QUEUES_MAX and description.name != DEAD:
            raise QueueError(description.name, f"a database has at most {QUEUES_MAX} queues")
        made = turn.do(
            "INSERT INTO tidings.queues (key, name, id, description) OVERRIDING SYSTEM VALUE"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (name) DO NOTHING",
            key,
            description.name,
            identity,
            stored,
        )
        if made:
            if description.rate is not None:
                turn.do(
                    "INSERT INTO tidings.rates VALUES (%s, %s, tidings.now_us())",
                    key,
                    TokenBucket(description.rate, 0.0).tokens,
                )
            turn.notice(CREATED, key)
            turn.made.append(known := Known(key, decode(stored)))
            return known
        row = turn.row(_COLUMNS + " WHERE name = %s", description.name)
        if row is None:
            raise QueueNotFound(description.name, "it was deleted at the same time")
        known = _known(row)
        difference = known.description.difference(description)
        if difference:
            raise QueueExists(description.name, f"it exists already with another description: {difference}")
        return known

    def delete(self, turn: UnitOfWork, known: Known) -> None:
        """Delete a queue with all its messages."""
        if not turn.do("DELETE FROM tidings.queues WHERE key = %s", known.key):
            raise QueueNotFound(known.name, "it was deleted")
        turn.do("DELETE FROM tidings.messages WHERE queue = %s", known.key)
        turn.do("DELETE FROM tidings.counted WHERE queue = %s", known.key)
        turn.do("DELETE FROM tidings.copies WHERE queue = %s", known.key)
        turn.notice(DELETED, known.key)

    def dead(self, turn: UnitOfWork) -> Known:
        """Return the dead letter queue of this database, created when it is first needed."""
        known = self._names.get(DEAD)
        return known or self.create(turn, Description(name=DEAD, type=TYPE, deliveries_max=None))


def _known(row: Row) -> Known:
    return Known(row[0], decode(row[1]))


def completed(wanted: Description) -> Description:
    """Return the description with all defaults; QueueError for options that no database queue has."""
    description = checked(wanted, True, {TYPE: True})
    if description.bind is not None:
        raise QueueError(wanted.name, "a queue of several nodes can't be bound: bind one of a node")
    if description.max_bytes is not None:
        raise QueueError(wanted.name, "a queue in a database has no max_bytes: give max_messages")
    if not description.keep:
        raise QueueError(wanted.name, "a queue in a database is kept: keep=False")
    if description.compress:
        from tidings.store.packing import check_compression

        check_compression()
    return description


class SharedTokens:
    """Tokens of a queue with a rate, locked by a turn."""

    def __init__(self, turn: UnitOfWork, known: Known, rate: float) -> None:
        row = turn.row(
            "SELECT tokens, counted_us, tidings.now_us() FROM tidings.rates WHERE queue = %s FOR UPDATE",
            known.key,
        )
        if row is None:
            raise QueueNotFound(known.name, "it was deleted")
        tokens, counted_us, self._now_us = row
        self._turn = turn
        self._key = known.key
        self._elapsed_s: float = max(0.0, (self._now_us - counted_us) / 1e6)
        self._is_set_back = self._now_us < counted_us
        self._bucket = TokenBucket(rate, 0.0, tokens)
        self.available = self._bucket.available(self._elapsed_s)

    def spend(self, count: int) -> float:
        """Take tokens; return the seconds for which readers have to wait, 0 if tokens are left."""
        self._bucket.take(count)
        if count or self._is_set_back:
            self._turn.do(
                "UPDATE tidings.rates SET tokens = %s, counted_us = %s WHERE queue = %s",
                self._bucket.tokens,
                self._now_us,
                self._key,
            )
        if count < self.available:
            return 0.0
        return max(self._bucket.wake_at - self._elapsed_s, REST_S_MIN)
