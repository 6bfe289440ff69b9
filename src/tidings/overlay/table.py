"""The table of a neighbour: the filters of what it wants from this node.

A change of the table is stored with the tick in which it comes, and confirmed after that commit: so events
that are published from then on are judged by it, also after a restart. A filter that the neighbour was not
granted matches nothing, or as much of it as was granted, and is still in the table as it was sent.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.overlay.covering import digest_of, number_of_text
from tidings.overlay.relaying import LinkCursor
from tidings.protocol.access import Principal
from tidings.protocol.broker import Broker
from tidings.store.interface import RecordKind

ENTRIES_MAX = 1_000_000
"""Filters in the table of one neighbour."""


class TableEntry(Struct, frozen=True, omit_defaults=True):
    """The stored record of one filter of a neighbour."""

    filter: str
    passive: bool = False


TABLE: RecordKind[tuple[str, str], TableEntry] = RecordKind("neighbour-filter", TableEntry)


class Entry(NamedTuple):
    """A filter of a table: as it was sent, and as far as it was granted."""

    passive: bool
    granted: Filter


class NeighbourTable:
    """Filters that one neighbour wants; its cursor matches them."""

    def __init__(self, broker: Broker, node: str, cursor: LinkCursor) -> None:
        self._broker = broker
        self._node = node
        self._cursor = cursor
        self._sum = 0  # of the numbers of all entries
        self._granted: dict[Filter, int] = {}  # how many entries match this
        self._reach: Filter | None = None  # what was granted of everything, with the first filter
        self.entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def digest(self) -> str:
        """Digest of the table, equal for equal tables."""
        return f"{digest_of(self._sum):x}"

    def restore(self, text: str, passive: bool, principal: Principal) -> None:
        """Enter a filter that is stored already."""
        if self._reach is None:
            self._reach = principal.reach(Filter())
        self._enter(text, Entry(passive, principal.reach(Filter(text))))
        self._sum += number_of_text(text, passive)

    def add(self, text: str, passive: bool, principal: Principal) -> bool:
        """Enter a filter, unless it is there; whether it was not. FilterError for what is no filter."""
        known = self.entries.get(text)
        if known is not None:
            if known.passive is passive:
                return False
            self.remove(text)
        elif len(self.entries) >= ENTRIES_MAX:
            raise Refused("limit", f"a neighbour has at most {ENTRIES_MAX} filters")
        self.restore(text, passive, principal)
        self._broker.store(TABLE.set(self._key(text), TableEntry(text, passive)))
        return True

    def remove(self, text: str) -> bool:
        """Remove a filter; whether it was there."""
        if text not in self.entries:
            return False
        entry = self._leave(text)
        self._sum -= number_of_text(text, entry.passive)
        self._broker.store(TABLE.drop(self._key(text)))
        return True

    def _enter(self, text: str, entry: Entry) -> None:
        """Match what was granted of a filter."""
        self.entries[text] = entry
        self.match(entry.granted)
        if not entry.passive:
            self._broker.exchange.demand(self._cursor.subscription, entry.granted)

    def match(self, granted: Filter) -> None:
        """Have the cursor match a filter, be it in the table or not."""
        count = self._granted[granted] = self._granted.get(granted, 0) + 1
        if count == 1:
            self._broker.exchange.extend(self._cursor.subscription, granted)

    def unmatch(self, granted: Filter) -> None:
        """Match it once less."""
        count = self._granted.pop(granted) - 1
        if count:
            self._granted[granted] = count
        else:
            self._broker.exchange.retract(self._cursor.subscription, granted)

    def _leave(self, text: str) -> Entry:
        entry = self.entries.pop(text)
        self.unmatch(entry.granted)
        if not entry.passive:
            self._broker.exchange.release(self._cursor.subscription, entry.granted)
        return entry

    def _key(self, text: str) -> tuple[str, str]:
        """The key of the record: a digest, as a filter may be longer than keys are."""
        return self._node, blake2b(text.encode(), digest_size=16).hexdigest()

    def is_due(self, principal: Principal) -> bool:
        """Whether other things are granted by the current rules: then all filters are to be reviewed."""
        before, self._reach = self._reach, principal.reach(Filter())
        return bool(self.entries) and before != self._reach

    def review(self, text: str, principal: Principal) -> bool:
        """Grant what may be had of a filter by the current rules; whether that has changed."""
        entry = self.entries.get(text)
        granted = principal.reach(Filter(text))
        if entry is None or granted == entry.granted:
            return False
        self._leave(text)
        self._enter(text, Entry(entry.passive, granted))
        return True
