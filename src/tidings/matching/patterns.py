"""Filters with clues, each evaluated only for events that have one of its clues.

Filters by topic pattern, by LIKE, by an end or a part of a string can't be found by ranges of values, so the
engine would have to evaluate each of them for nearly every event. Here the clues (`clues.py`) that fit a
string are found by a walk through a tree of levels or by the texts that patterns need (`clue_tables.py`), in
plain Python and whatever is installed. A filter whose clue decides alone is not even evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidings.event import HEADER_READERS, Batch, Event
from tidings.filters.topics import DOTS, SLASHES
from tidings.matching.clue_tables import Ends, TextParts, TopicLevels
from tidings.matching.clues import TEXT_FIELDS, Clue, Clues, ClueTable, Keys

if TYPE_CHECKING:
    from tidings.filters import Filter
    from tidings.matching.index import EventColumns
    from tidings.matching.lanes import TextPlaces
    from tidings.matching.tiles import Evaluated

FEW_NAMES: Final = 16
"""Attributes with clues up to which each is looked up in an event; beyond that, those of the event are."""
SCANNED_NAMES_MAX: Final = 64
"""Attributes with clues up to which a batch is scanned for them; beyond that it is decoded."""

KNOWN_LENGTH_MAX: Final = 256
"""Longest text whose fitting clues are remembered, until clues come or go."""
KNOWN_CLUES_MAX: Final = 1 << 14
"""Texts, and clues that fit them, that are remembered for one attribute; then they are forgotten."""

Key = TypeVar("Key", bound=Hashable)
Text = str | bytes
Column = Sequence[Text | None]


class _Attribute(Generic[Key]):
    """The clues on one attribute."""

    def __init__(self) -> None:
        self._equal: dict[str, Keys[Key]] = {}
        self._tables: dict[ClueTable, Any] = {
            ClueTable.DOTS: TopicLevels(DOTS.separator, hides=False),
            ClueTable.SLASHES: TopicLevels(SLASHES.separator, hides=True),
            ClueTable.END: Ends(),
            ClueTable.PART: TextParts(),
        }
        self._used: tuple[Any, ...] = ()
        self.known: dict[Text, tuple[Keys[Key], ...]] = {}
        self._known_room = KNOWN_CLUES_MAX

    def __bool__(self) -> bool:
        return bool(self._equal or self._used)

    def add(self, clue: Clue, key: Key) -> None:
        """Add a clue of a key."""
        if clue.table is ClueTable.EQUAL:
            assert isinstance(clue.wanted, str)
            self._equal.setdefault(clue.wanted, {})[key] = None
        else:
            self._tables[clue.table].add(clue.wanted, key)
        self._look()

    def remove(self, clue: Clue, key: Key) -> None:
        """Remove a clue of a key."""
        if clue.table is ClueTable.EQUAL:
            assert isinstance(clue.wanted, str)
            keys = self._equal[clue.wanted]
            del keys[key]
            if not keys:
                del self._equal[clue.wanted]
        else:
            self._tables[clue.table].remove(clue.wanted, key)
        self._look()

    def _look(self) -> None:
        self._used = tuple(table for table in self._tables.values() if table)
        self._forget()

    def _forget(self) -> None:
        self.known.clear()
        self._known_room = KNOWN_CLUES_MAX

    def crowd(self, clue: Clue) -> int:
        """Number of keys with this clue."""
        if clue.table is ClueTable.EQUAL:
            assert isinstance(clue.wanted, str)
            return len(self._equal.get(clue.wanted, ()))
        crowd: int = self._tables[clue.table].crowd(clue.wanted)
        return crowd

    def find(self, text: Text) -> tuple[Keys[Key], ...]:
        """Return the keys of each clue that fits a text, remembered for later events with the same text.

        Hot callers look into `known` first.
        """
        # Decoding the event refuses invalid UTF-8.
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        fitting: list[Keys[Key]] = []
        if shown in self._equal:
            fitting.append(self._equal[shown])
        for table in self._used:
            table.find(shown, fitting)
        found = tuple(fitting)
        if len(text) <= KNOWN_LENGTH_MAX and len(found) < KNOWN_CLUES_MAX:
            self._known_room -= 1 + len(found)
            if self._known_room < 0:
                self._forget()
            self.known[text] = found
        return found


class Patterns(Generic[Key]):
    """Keys, their filters and the clues of these."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.clues: dict[Key, tuple[Clue, ...]] = {}  # the hot path checks whether there are any
        self._asked: dict[Key, Evaluated] = {}  # filters that a clue does not decide alone
        self._several: set[Key] = set()  # keys with several clues
        self._names: dict[str, _Attribute[Key]] = {}
        self._places: TextPlaces | None = None

    def __len__(self) -> int:
        return len(self.clues)

    def __contains__(self, key: object) -> bool:
        return key in self.clues

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the sources of the tables: trees may be deeper than copying can go."""
        return self._seed, self.clues, self._asked

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Patterns.__init__(self, state[0])
        for key, clues in state[1].items():
            self.put(key, clues, state[2].get(key))

    def crowd(self, clues: Clues) -> int:
        """Number of keys with the most common of these clues."""
        crowds = (self._names[clue.name].crowd(clue) for clue in clues.clues if clue.name in self._names)
        return max(crowds, default=0)

    def add(self, key: Key, wanted: Filter, clues: Clues) -> None:
        """Add a filter with its clues, under an unused key."""
        self.put(key, clues.clues, None if clues.is_exact else wanted)

    def saved(self) -> Iterator[tuple[Key, tuple[Clue, ...], Evaluated | None]]:
        """Yield each key with its clues, and its filter unless a clue decides alone; for `put`."""
        for key, clues in self.clues.items():
            yield key, clues, self._asked.get(key)

    def put(self, key: Key, clues: tuple[Clue, ...], asked: Evaluated | None) -> None:
        """Add a key with its clues, and the filter to evaluate if they do not decide alone."""
        self.clues[key] = clues
        if asked is not None:
            self._asked[key] = asked
        if len(clues) > 1:
            self._several.add(key)
        for clue in clues:
            if clue.name not in self._names:
                self._names[clue.name] = _Attribute()
                self._places = None
            self._names[clue.name].add(clue, key)

    def remove(self, key: Key) -> None:
        """Remove a filter; KeyError if it is not there."""
        for clue in self.clues.pop(key):
            self._names[clue.name].remove(clue, key)
            if not self._names[clue.name]:
                del self._names[clue.name]
                self._places = None
        self._asked.pop(key, None)
        self._several.discard(key)

    # Matching

    def match(self, event: Event) -> list[Key]:
        """Return the keys whose filters match an event."""
        found: list[Key] = []
        for attribute, value in self._values(event):
            if isinstance(value, str):
                known = attribute.known.get(value)
                for keys in attribute.find(value) if known is None else known:
                    found += keys
        if self._several:
            found = list(dict.fromkeys(found))
        if not self._asked:
            return found
        asked = self._asked
        return [key for key in found if key not in asked or asked[key].matches(event)]

    def _values(self, event: Event) -> Iterator[tuple[_Attribute[Key], Any]]:
        names: Iterable[str] = self._names
        if len(self._names) > FEW_NAMES:
            own = (*HEADER_READERS, *event.values)
            names = [name for name in own if name in self._names]
        for name in names:
            read = HEADER_READERS.get(name)
            yield self._names[name], event.values.get(name) if read is None else read(event)

    def match_rows(self, batch: Batch | EventColumns, is_compiled: bool) -> dict[Key, list[int]]:
        """Return the matching rows of a batch by key, ascending; CodecError if not all are events."""
        rows: dict[Key, list[int]] = {}
        event_at = _remembering(batch)
        for name, column in self._columns(batch, is_compiled):
            for keys, fitting in _fitting(self._names[name], column):
                for key in keys:
                    got, asked = fitting, self._asked.get(key)
                    if asked is not None:
                        got = [row for row in fitting if asked.matches(event_at(row))]
                    if got:
                        rows[key] = rows[key] + got if key in rows else got
        for key in self._several & rows.keys():
            rows[key] = sorted(set(rows[key]))
        return rows

    def _columns(self, batch: Batch | EventColumns, is_compiled: bool) -> Iterator[tuple[str, Column]]:
        """Yield the texts of each attribute, as bytes if they are read without decoding the events."""
        scanned = [name for name in self._names if name in TEXT_FIELDS or name not in HEADER_READERS]
        may_scan = is_compiled and not batch.is_decoded and len(self._names) <= SCANNED_NAMES_MAX
        if may_scan and isinstance(batch, Batch):
            yield from self._read_places(batch, scanned)
        else:
            scanned = []
        others = [name for name in self._names if name not in scanned]
        for name, values in batch.columns(others).items() if others else ():
            yield name, [value if isinstance(value, str) else None for value in values]

    def _read_places(self, batch: Batch, names: list[str]) -> Iterator[tuple[str, Column]]:
        if self._places is None:
            from tidings.matching.lanes import TextPlaces

            self._places = TextPlaces(names, self._seed)
        return self._places.read(batch)


def _fitting(attribute: _Attribute[Key], column: Column) -> Iterable[tuple[Keys[Key], list[int]]]:
    """Yield the keys of each clue that fits any text, with the rows of these texts: many may share a clue."""
    found: dict[int, tuple[Keys[Key], list[int]]] = {}
    known = attribute.known.get
    for row, text in enumerate(column):
        if text is not None:
            clues = known(text)
            for keys in attribute.find(text) if clues is None else clues:
                fitting = found.get(id(keys))
                if fitting is None:
                    found[id(keys)] = keys, [row]
                else:
                    fitting[1].append(row)
    return found.values()


def _remembering(batch: Batch | EventColumns) -> Callable[[int], Event]:
    """Return a function from rows to events of a batch, which decodes each once."""
    events: dict[int, Event] = {}

    def event_at(row: int) -> Event:
        event = events.get(row)
        if event is None:
            event = events[row] = batch[row]
        return event

    return event_at
