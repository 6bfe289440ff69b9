"""Last values by key: the newest event of each source, type and subject, kept over restarts within a budget.

Only an event that has a subject and is reliable or persistent is kept by key: it is accepted when a commit
has it, and so its value is stored in the same commit. An answer to a request is not: its subject is an inbox.
A value is as good as gone when its `ttl_s` is over.

A *page* has values in the order in which they were published, and is one record of the store. New values go
to the newest page, which is written again until it is full; a value that is replaced leaves its page, which
is written again once half of it has left. So one record stands for many values, and a value is written a few
times at most. A record may still have a value that has left its page. The rules that make this safe: the
newest page that has a key has its value; past the budget values leave the oldest page, so that no older page
has a value of theirs; and a commit that fails is undone here, value by value.

`remember` is on the hot path of such events: it reads keys only, and decodes nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.ids import Origin
from tidings.protocol.arguments import INBOX
from tidings.protocol.service import Service
from tidings.store.interface import Operation, RecordKind

if TYPE_CHECKING:
    from tidings.protocol.broker import Broker

VALUES_MAX = 1_000_000
"""Last values that a node keeps, and that one subscription gets, the newest."""
VALUE_COST = 256
"""Bytes that a value counts for beside those of its event and of the name of its source."""
VALUE_SIZE_MAX = 32 << 10
"""Bytes that an event may count for that is kept as a last value."""
PAGE_SIZE = 16 << 10
"""Bytes of values in one page, except for a value that is larger."""
FULL, TOO_LARGE = "full", "too large"
"""Reasons for which a last value is dropped, in metrics."""

UNKNOWN = "?"
"""Stands for a node that took an event in, of which an earlier release has noted nothing."""

Key = tuple[str | None, str, str | None]
"""Source, type and subject."""


class KeptValue(Struct, frozen=True, gc=False):
    """Event that is the last of its key; `order` grows from one to the next, `size` is what it counts for.

    `node` is the one that took it in; empty for this node.
    """

    order: int
    origin: Origin | None
    raw: bytes
    size: int
    node: str = ""


class _Subject(Struct, frozen=True, gc=False):
    subject: str | None = None
    delivery: str = "transient"


class Keyed(Struct, frozen=True, gc=False, array_like=True):
    """Event on the wire of which only what makes its key was read."""

    counter: msgspec.Raw
    type: str
    time_us: msgspec.Raw
    attributes: msgspec.Raw
    header: _Subject | None

    @property
    def subject(self) -> str | None:
        """Subject of the event."""
        return None if self.header is None else self.header.subject

    @property
    def is_kept(self) -> bool:
        """Whether it is kept by key, if it is not too large."""
        header = self.header
        return (
            header is not None
            and header.delivery != "transient"
            and header.subject is not None
            and not header.subject.startswith(INBOX)
        )


class _Section(Struct, frozen=True, array_like=True):
    """Events of one origin, each as on the wire, and the node that took them in; empty for this node."""

    system: str | None
    epoch: int
    source: str | None
    raws: list[bytes]
    node: str | None = None  # not there in records of earlier releases

    @property
    def first_node(self) -> str:
        """The node that took them in, as far as that is known."""
        is_foreign = self.node is None and "@" in (self.source or "")
        return UNKNOWN if is_foreign else self.node or ""


class _PageRecord(Struct, frozen=True):
    sections: list[_Section]


_PAGES: RecordKind[tuple[str], _PageRecord] = RecordKind("last", _PageRecord)

_encode = msgspec.msgpack.Encoder().encode
_key_of = msgspec.msgpack.Decoder(Keyed).decode
keys_of = msgspec.msgpack.Decoder(list[Keyed]).decode
"""Return the keys of the events in an array."""
raws_of = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
"""Return the bytes of the events in an array, which stay part of it until they are copied."""


class _Page:
    """Values of one page by key, oldest first; `written` is the size of its record."""

    __slots__ = ("size", "types", "values", "written")

    def __init__(self) -> None:
        self.values: dict[Key, KeptValue] = {}
        self.types: set[str] = set()  # of the events that are or were in it
        self.size = self.written = 0


class LastPages(Service):
    """Last values of a node by key. `lasts`: the store survives a restart, so they are stored."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.lasts = True
        self.order = 0  # of the last value
        self.size = 0
        self._pages: dict[int, _Page] = {}  # by number, the oldest first
        self._page_of: dict[Key, int] = {}
        self._changed: set[int] = set()  # pages that are to be written with this tick
        # What was replaced and the commit that does so, until that is durable.
        self._undo: deque[tuple[int, Key, int, KeptValue | None]] = deque()
        self._load()

    def __len__(self) -> int:
        """Number of values."""
        return len(self._page_of)

    # Keeping

    def remember(self, batch: Batch) -> None:
        """Keep the events of a batch that are to be kept by key, which has some with a subject."""
        if not self._size_max:
            return
        origin, before = batch.origin, self.size
        source = None if origin is None else origin.source
        newest: dict[Key, msgspec.Raw] = {}
        for keyed, raw in zip(keys_of(batch.raw), raws_of(batch.raw), strict=True):
            if keyed.is_kept:
                key = source, keyed.type, keyed.subject
                newest.pop(key, None)  # so that it stands last
                newest[key] = raw
        self._put(newest, origin, first_node(batch))
        self._make_room()
        self._charge(before)

    def _put(self, newest: Mapping[Key, msgspec.Raw], origin: Origin | None, node: str) -> None:
        """Make these the last values of their keys, in the newest page."""
        mark, undo = self._broker.mark, self._undo
        for key, own in newest.items():
            raw = bytes(own)
            size = _size(key, raw)
            if size > VALUE_SIZE_MAX:
                self._broker.count("last_values_dropped", reason=TOO_LARGE)
                raw = _nothing(key)
                size = _size(key, raw)
                if size > VALUE_SIZE_MAX:
                    continue  # as was every event of this key before
            undo.append((mark, key, *self._take(key)))
            self.order += 1
            self._insert(self._with_room(size), key, KeptValue(self.order, origin, raw, size, node))

    def _with_room(self, size: int) -> int:
        """Return the number of the newest page, or of a new one if that has no room for so many bytes."""
        number = next(reversed(self._pages), 0)
        if not number or self._pages[number].size + size > PAGE_SIZE:
            number += 1
            self._pages[number] = _Page()
        self._changed.add(number)
        return number

    def _insert(self, number: int, key: Key, value: KeptValue) -> None:
        page, size = self._pages[number], value.size
        page.values[key] = value
        page.types.add(key[1])
        page.size += size
        self.size += size
        self._page_of[key] = number

    def _take(self, key: Key) -> tuple[int, KeptValue | None]:
        """Take a value out of its page; return the page's number and the value, None if there is none."""
        number = self._page_of.pop(key, 0)
        if not number:
            return 0, None
        page = self._pages[number]
        value = page.values.pop(key)
        page.size -= value.size
        self.size -= value.size
        if not page.values:
            del self._pages[number]
            self._changed.add(number)
        elif 2 * page.size < page.written:
            self._changed.add(number)
        return number, value

    def _make_room(self) -> None:
        """Drop the values that were updated least recently, as far as there are too many."""
        size_max, dropped = self._size_max, 0
        while self.size > size_max or len(self._page_of) > VALUES_MAX:
            self._take(self._oldest())
            dropped += 1
        self._broker.count("last_values_dropped", dropped, FULL)

    def _oldest(self) -> Key:
        return next(key for page in self._pages.values() for key in page.values)

    @property
    def _size_max(self) -> int:
        return self._broker.memory.last_values_max

    def _charge(self, before: int) -> None:
        self._broker.memory.node.used += self.size - before

    # Reading

    def numbers(self) -> list[int]:
        """Return the numbers of all pages, the newest first."""
        return list(reversed(self._pages))

    def types(self, number: int) -> Collection[str]:
        """Return types among which are those of all values of a page."""
        page = self._pages.get(number)
        return () if page is None else page.types

    def values(self, number: int) -> list[tuple[Key, KeptValue]]:
        """Return the values of a page, the newest first; none if the page is gone."""
        page = self._pages.get(number)
        return [] if page is None else list(reversed(page.values.items()))

    def all(self) -> Iterator[tuple[Key, KeptValue]]:
        """Yield all values, the newest first."""
        for number in self.numbers():
            yield from self.values(number)

    # The store

    def _load(self) -> None:
        """Read the values that were stored; the newest page that has a key has its value."""
        stored = _PAGES.taken(self._broker.state)
        for number in sorted(int(name) for (name,) in stored):
            page = self._pages[number] = _Page()
            for section in stored[str(number),].sections:
                origin = Origin(section.system, section.epoch, section.source)
                for raw in section.raws:
                    self._load_value(number, origin, raw, section.first_node)
            page.written = page.size
        self._make_room()
        self._charge(0)

    def _load_value(self, number: int, origin: Origin, raw: bytes, node: str) -> None:
        keyed = _key_of(raw)
        key = origin.source, keyed.type, keyed.subject
        self._take(key)
        self.order += 1
        self._insert(number, key, KeptValue(self.order, origin, raw, _size(key, raw), node))

    def finish_tick(self) -> None:
        """Have the changed pages stored with this tick."""
        if self._changed:
            for operation in self._operations():
                self._broker.store(operation)

    def _operations(self) -> Iterator[Operation]:
        changed, self._changed = sorted(self._changed), set()
        for number in changed if self.lasts else ():
            page = self._pages.get(number)
            if page is None:
                yield _PAGES.drop((str(number),))
            else:
                page.written = page.size
                yield _PAGES.set((str(number),), _recorded(page.values.values()))

    def durable(self, mark: int) -> None:
        """Undo nothing any more of what is on disk."""
        undo = self._undo
        while undo and undo[0][0] <= mark:
            undo.popleft()

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """Take back the values that were not stored, and write the pages they were in again."""
        before, reverted = self.size, set[int]()
        while self._undo:
            reverted.add(self._revert(*self._undo.pop()[1:]))
        self._pages = dict(sorted(self._pages.items()))
        for number in reverted & self._pages.keys():
            page = self._pages[number]
            page.values = dict(sorted(page.values.items(), key=_order_of))
        self._charge(before)
        numbers = [_PAGES.key_of(one) for one in lost]
        self._changed.update(int(key[0]) for key in numbers if key is not None)
        kept = [one for one, key in zip(lost, numbers, strict=True) if key is None]
        return kept + list(self._operations())

    def _revert(self, key: Key, number: int, value: KeptValue | None) -> int:
        """Give a key the value it had; return the number of the page of that."""
        self._take(key)
        if value is not None:
            self._pages.setdefault(number, _Page())
            self._insert(number, key, value)
        return number

    def status(self) -> dict[str, Any]:
        """Return the service's part of the node's status."""
        return {"last_values": {"values": len(self), "bytes": self.size}}


def first_node(batch: Batch) -> str:
    """Return the node that took the events of a batch in; empty for this node."""
    return batch.first.node if isinstance(batch, RelayedBatch) else ""


def _size(key: Key, raw: bytes) -> int:
    """Return what a value counts for: in memory about, and in a record at most."""
    return VALUE_COST + len(raw) + 4 * len(key[0] or "")


def _nothing(key: Key) -> bytes:
    """Return an event that says of a key that it has no value: its life is over at once."""
    header = {"subject": key[2], "ttl_s": 0.0, "delivery": "reliable"}
    return _encode((0, key[1], 0, {}, header, None))


def _recorded(values: Iterable[KeptValue]) -> _PageRecord:
    sections = []
    for (origin, node), run in groupby(values, key=attrgetter("origin", "node")):
        known = origin or Origin()
        about = known.system, known.epoch, known.source
        sections.append(_Section(*about, [value.raw for value in run], node))
    return _PageRecord(sections)


def _order_of(item: tuple[Key, KeptValue]) -> int:
    return item[1].order
