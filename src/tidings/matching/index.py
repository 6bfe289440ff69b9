"""The index: finds those of many filters that an event matches.

Up to PLAIN_MAX filters are evaluated in plain Python, those that demand one value only for events that have
it (`equalities.py`); beyond that, where numba is installed, a compiled engine takes over (`engine.py`). Once
it is ready it gets whole batches even if there are few filters, as it need not decode them. Filters by the
levels of a topic or by a piece of text are found by clues (`patterns.py`). Filters that match everything, or
nothing, are kept apart. The rest must be evaluated on every event, and is counted.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from tidings.errors import UserError
from tidings.event import Batch, Event
from tidings.event.wire import encode_events
from tidings.matching.clues import Way, demands_value, way_of
from tidings.matching.equalities import Equalities
from tidings.matching.parts import FilterPart, once, once_each
from tidings.matching.patterns import Patterns

if TYPE_CHECKING:
    from tidings.event.texts import Ints
    from tidings.filters import Filter
    from tidings.matching.engine import Engine
    from tidings.matching.tiles import Fill, ScanLanes

PLAIN_MAX = 32
"""Filters up to which plain evaluation is used."""

Key = TypeVar("Key", bound=Hashable)


def prepare() -> None:
    """Let numba compile the engine, or load the compiled code from disk; without numba, do nothing.

    The first index to outgrow PLAIN_MAX does so anyway, and then its caller waits some ten seconds for it; a
    `patient` index waits for this call instead, which may be made in another thread.
    """
    global _is_prepared
    from tidings.filters import Filter

    index: Index[int] = Index(plain_max=0, capacity=16, pending_max=8)
    for key in range(100):
        index.add(key, Filter("x > :x AND s = 'a' AND t LIKE 'b%' OR y IN (1, 3)", x=key))
        index.extend(100, Filter("x > :x", x=key))
    event = Event("t", x=5, s="a", t="bc")
    index.match(event)
    index.match_batch([event])
    for key in range(0, 100, 2):
        index.remove(key)
    index.match_rows(Batch.of([event]))
    _is_prepared = True


_is_prepared = False


CROWD_MAX = 16
"""Filters with one clue, beyond which those that also demand a value are found by the value."""
ROWS_COMPILED = 16
"""Rows of a batch from which on the engine is faster, however few filters there are."""
ROWS_MANY = 64
"""Rows of a key from which on an array is better than a list."""


class Matches(NamedTuple, Generic[Key]):
    """Rows of a batch by key: those of `keys[n]` are `rows[offsets[n]:offsets[n + 1]]`, ascending."""

    keys: list[Key]
    offsets: array[int] | Ints
    rows: array[int] | Ints

    def items(self) -> Iterator[tuple[Key, Sequence[int] | Ints]]:
        """Each key with its rows."""
        offsets: list[int] = self.offsets.tolist()
        rows: array[int] | list[int] | Ints = self.rows
        if len(rows) < ROWS_MANY * len(self.keys):
            rows = self.rows.tolist()  # at once: small arrays, and numbers out of them, cost more than lists
        for key, start, end in zip(self.keys, offsets, offsets[1:], strict=False):
            yield key, rows[start:end]


class EventColumns(Protocol):
    """Events in columns, which are matched without being made; `tidings.log.arrow.table_events` has some."""

    is_decoded: bool
    """True: texts are read by `columns`, not by a scan of bytes."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Event]: ...
    def __getitem__(self, row: int) -> Event: ...

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the texts of each attribute or header field; anything that is no text may be None."""

    def filler(self, lanes: ScanLanes) -> Fill:
        """Return a function that writes the values of events for these lanes."""


class IndexParts(NamedTuple, Generic[Key]):
    """Filters of an index, by the way it finds them."""

    seed: int
    everything: Iterable[Key]
    nothing: Iterable[Key]
    unindexed: Iterable[Key]
    extended: Iterable[Key]
    plain: Iterable[tuple[Key, Filter]]
    patterns: Patterns[Key]
    engine: Engine | None


class Index(Generic[Key]):
    """Filters under keys, matched against events; each key comes once, in no promised order.

    A key has the one filter that `add` gave it, or all that `extend` gave it; then it matches if any does.

    A `patient` index uses plain evaluation until `prepare` has been run: for a loop that must not wait for a
    compiler. `capacity` and `pending_max` size the engine's blocks; set them only in tests. `seed` is the
    secret under which names are hashed; by default it is random.
    """

    def __init__(
        self,
        *,
        plain_max: int = PLAIN_MAX,
        patient: bool = False,
        capacity: int | None = None,
        pending_max: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._demanding: Equalities[Key] = Equalities()
        self._plain: dict[Key, Filter] = {}
        self._everything: dict[Key, None] = {}
        self._nothing: set[Key] = set()
        self._unindexed: set[Key] = set()
        self._parts: dict[Key, dict[Filter, FilterPart]] = {}  # of keys with several filters
        self._parts_count = 0
        self._engine: Engine | None = None
        self._twin: Engine | None = None  # has the same filters as the plain ones, for whole batches
        has_numba = find_spec("numba") is not None
        self._plain_max = plain_max if has_numba else None
        self._is_patient = patient
        sizes = {"capacity": capacity, "pending_max": pending_max}
        self._sizes = {name: size for name, size in sizes.items() if size is not None}
        self._seed = int.from_bytes(os.urandom(7), "big") if seed is None else seed
        self._patterns: Patterns[Key] = Patterns(self._seed)

    def add(self, key: Key, wanted: Filter) -> None:
        """Add a filter under a key, replacing the filters that the key had."""
        if key in self:
            self.remove(key)
        self._put(key, wanted)

    def extend(self, key: Key, wanted: Filter) -> None:
        """Add one more filter under a key; if the key has the same one already, do nothing.

        UserError for a key whose filter came by `add`: that one stands alone.
        """
        parts = self._parts.get(key)
        if parts is None:
            if key in self:
                raise UserError(f"{key!r} has a filter that was added; remove it to extend the key by others")
            parts = self._parts[key] = {}
        if wanted not in parts:
            part = parts[wanted] = FilterPart(key)
            self._parts_count += 1
            self._put(part, wanted)  # type: ignore[arg-type]  # a part is put where a key is

    def retract(self, key: Key, wanted: Filter) -> None:
        """Remove one of the filters by which a key was extended; KeyError if it does not have it."""
        parts = self._parts[key]
        self._take(parts.pop(wanted))  # type: ignore[arg-type]
        self._parts_count -= 1
        if not parts:
            del self._parts[key]

    def _put(self, key: Key, wanted: Filter) -> None:
        normal = wanted.normal
        if not normal:
            self._nothing.add(key)
        elif any(not one.constraints and not one.residues for one in normal):
            self._everything[key] = None
        elif self._add_by_clues(key, wanted):
            return
        elif self._engine is not None:
            self._add_to_engine(key, wanted)
        else:
            if not self._demanding.add(key, wanted):
                self._plain[key] = wanted
            if self._twin is not None:
                self._twin.add(key, wanted)
            self._outgrow()

    def _add_by_clues(self, key: Key, wanted: Filter) -> bool:
        """Add a filter that has clues, unless too many have the same and a value finds it better."""
        way, clues = way_of(wanted)
        if way is Way.UNINDEXED:
            self._unindexed.add(key)
        if clues is None or (self._patterns.crowd(clues) >= CROWD_MAX and demands_value(wanted)):
            return False
        self._patterns.add(key, wanted, clues)
        return True

    def remove(self, key: Key) -> None:
        """Remove all filters of a key; KeyError if there is none."""
        parts = self._parts.pop(key, None)
        if parts is None:
            self._take(key)
            return
        self._parts_count -= len(parts)
        for part in parts.values():
            self._take(part)  # type: ignore[arg-type]

    def _take(self, key: Key) -> None:
        self._unindexed.discard(key)
        if key in self._patterns:
            self._patterns.remove(key)
            return
        if self._twin is not None and key in self._twin:
            self._twin.remove(key)
        if key in self._plain:
            del self._plain[key]
        elif key in self._demanding:
            self._demanding.remove(key)
        elif key in self._everything:
            del self._everything[key]
        elif key in self._nothing:
            self._nothing.remove(key)
        elif self._engine is not None:
            self._engine.remove(key)
        else:
            raise KeyError(key)

    def _outgrow(self) -> None:
        """Let the engine take over if there are many filters and it is ready."""
        if self._plain_max is None or len(self._plain) + len(self._demanding) <= self._plain_max:
            return
        if self._is_patient and not _is_prepared:
            return
        twin, self._twin = self._twin, None
        self._engine = self._make_engine() if twin is None else twin
        for key, wanted in chain(self._plain.items(), self._demanding.items()):
            if key not in self._engine:  # a twin has all, except filters that can't match
                self._add_to_engine(key, wanted)
        self._plain, self._demanding = {}, Equalities()

    def parts(self) -> IndexParts[Key]:
        """Return what `tidings.matching.saved` writes."""
        plain = chain(self._plain.items(), self._demanding.items())
        return IndexParts(
            self._seed,
            self._everything,
            self._nothing,
            self._unindexed,
            self._parts,
            plain,
            self._patterns,
            self._engine,
        )

    def settle(self) -> None:
        """Prepare added filters for the next batch, so that its caller does not wait for that."""
        engine = self._engine or self._twin
        if engine is not None:
            engine.settle()

    def _make_engine(self) -> Engine:
        from tidings.matching.engine import Engine

        return Engine(self._seed, **self._sizes)

    def _engine_for(self, rows: int) -> Engine | None:
        """Return the engine for a batch of so many rows, None for plain evaluation."""
        if self._engine is None:
            self._outgrow()
        if self._engine is not None or rows < ROWS_COMPILED or not _is_prepared:
            return self._engine
        if self._twin is None and (self._plain or len(self._demanding)):
            self._twin = self._make_engine()
            for key, wanted in chain(self._plain.items(), self._demanding.items()):
                self._twin.add(key, wanted)
        return self._twin

    def _add_to_engine(self, key: Key, wanted: Filter) -> None:
        assert self._engine is not None
        if not self._engine.add(key, wanted):
            self._nothing.add(key)

    def __len__(self) -> int:
        held = len(self._plain) + len(self._demanding) + len(self._everything) + len(self._nothing)
        held += len(self._patterns) + (0 if self._engine is None else len(self._engine))
        return held - self._parts_count + len(self._parts)

    def __contains__(self, key: object) -> bool:
        if key in self._plain or key in self._demanding or key in self._everything or key in self._nothing:
            return True
        if key in self._patterns or key in self._parts:
            return True
        return self._engine is not None and key in self._engine

    @property
    def unindexed(self) -> int:
        """Filters that must be evaluated on every event, because no index narrows them down."""
        return len(self._unindexed)

    @property
    def tried(self) -> int:
        """Filters that are evaluated one by one on each event of a batch, for lack of compiled code."""
        return 0 if self._engine is not None or _is_prepared else len(self._plain)

    @property
    def asked(self) -> int:
        """Filters that may have to be evaluated on one event, in the worst case."""
        engine = self._engine or self._twin
        plain = len(self._plain) + len(self._demanding) if engine is None else engine.rough
        return len(self._patterns) + plain

    def is_unindexed(self, key: Key) -> bool:
        """Whether a filter of the key is one of the `unindexed`."""
        parts: Iterable[Any] = self._parts.get(key, {}).values()
        return key in self._unindexed or not self._unindexed.isdisjoint(parts)

    def match(self, event: Event) -> list[Key]:
        """Return the keys whose filters match the event."""
        if self._engine is None:
            found = [key for key, wanted in self._plain.items() if wanted.matches(event)]
            found += self._demanding.match(event)
        else:
            found = self._engine.match_one(encode_events((event,)), event)
        if self._patterns.clues:
            found += self._patterns.match(event)
        found += self._everything
        return once(found) if self._parts else found

    def match_batch(self, events: Sequence[Event]) -> list[list[Key]]:
        """Return the keys for each event."""
        if self._engine is None:
            return [self.match(event) for event in events]
        runs = groupby(events, key=attrgetter("origin"))  # one batch has one origin
        return list(chain.from_iterable(self._match_run(list(run)) for _, run in runs))

    def _match_run(self, events: list[Event]) -> list[list[Key]]:
        assert self._engine is not None
        rows, slots = self._engine.match(encode_events(events), events[0].source, events.__getitem__)
        keys: list[list[Key]] = self._engine.by_row(rows, slots, len(events))
        if self._patterns.clues:
            for matched, event in zip(keys, events, strict=True):
                matched += self._patterns.match(event)
        if self._everything:
            for matched in keys:
                matched += self._everything
        return [once(matched) for matched in keys] if self._parts else keys

    def match_rows(self, batch: Batch | EventColumns) -> Matches[Key]:
        """Return the rows of a batch that each key's filter matches; CodecError if not all are events."""
        engine = self._engine_for(len(batch))
        if engine is not None:
            return self._match_compiled(engine, batch)
        by_key = self._rows_plainly(batch)
        matches: Matches[Key] = Matches(list(by_key), *_laid_out(by_key))
        return matches

    def match_items(self, batch: Batch | EventColumns) -> Iterable[tuple[Key, Sequence[int] | Ints]]:
        """Return the same as pairs; faster with few filters, or with only filters that match everything."""
        engine = self._engine_for(len(batch))
        if engine is not None:
            return self._match_compiled(engine, batch).items()
        return self._rows_plainly(batch).items()

    def _match_compiled(self, engine: Engine, batch: Batch | EventColumns) -> Matches[Key]:
        if isinstance(batch, Batch):
            source = None if batch.origin is None else batch.origin.source
            found = engine.match(batch.raw, source, batch.__getitem__)
        else:
            found = engine.match_values(len(batch), batch.filler(engine.scan_lanes()), batch.__getitem__)
        hit = engine.by_key(*found)
        more = self._patterns.match_rows(batch, is_compiled=True) if self._patterns.clues else None
        if self._parts and (more or self._everything):  # a key may also be among the engine's
            return self._rejoined(Matches(*hit), more or {}, len(batch))
        if more is not None:
            hit = _joined(*hit, more)
        return self._with_everything(*hit, len(batch)) if self._everything and len(batch) else Matches(*hit)

    def _rows_plainly(self, batch: Batch | EventColumns) -> dict[Key, Sequence[int]]:
        by_key: dict[Key, Sequence[int]] = {}
        for key, wanted in self._plain.items():
            rows = [row for row, event in enumerate(batch) if wanted.matches(event)]
            if rows:
                by_key[key] = rows
        for row, event in enumerate(batch if len(self._demanding) else ()):
            for key in self._demanding.match(event):
                by_key.setdefault(key, []).append(row)  # type: ignore[attr-defined]  # these are lists
        if self._patterns.clues:
            is_compiled = _is_prepared and len(batch) >= ROWS_COMPILED
            by_key.update(self._patterns.match_rows(batch, is_compiled))
        if len(batch):
            by_key.update(dict.fromkeys(self._everything, range(len(batch))))
        return once_each(by_key.items()) if self._parts else by_key

    def _rejoined(self, found: Matches[Key], more: dict[Key, list[int]], count: int) -> Matches[Key]:
        """Join results where a key may have rows in several of them."""
        everything = ((key, range(count)) for key in self._everything if count)
        by_key = once_each(chain(found.items(), more.items(), everything))
        return Matches(list(by_key), *_laid_out(by_key))

    def _with_everything(self, keys: list[Key], offsets: Ints, rows: Ints, count: int) -> Matches[Key]:
        import numpy as np

        more = len(self._everything)
        ends = np.arange(1, more + 1, dtype=np.int32) * np.int32(count) + np.int32(offsets[-1])
        all_rows = np.tile(np.arange(count, dtype=np.int32), more)
        joined = np.concatenate([offsets, ends]), np.concatenate([rows, all_rows])
        return Matches([*keys, *self._everything], *joined)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that the engine holds, by part: Python objects are estimated, filters are not counted."""
        engine = self._engine or self._twin
        return {} if engine is None else engine.memory


def _laid_out(by_key: Mapping[Any, Sequence[int]]) -> tuple[array[int], array[int]]:
    """Return the offsets of each key's rows (and the end), and the rows."""
    ends = accumulate(map(len, by_key.values()), initial=0)
    return array("i", ends), array("i", chain.from_iterable(by_key.values()))


def _joined(
    keys: list[Key], offsets: Ints, rows: Ints, more: dict[Key, list[int]]
) -> tuple[list[Key], Ints, Ints]:
    """Join the engine's result with rows of other keys."""
    import numpy as np

    ends, found = (np.frombuffer(part, np.int32) for part in _laid_out(more))
    return [*keys, *more], np.concatenate([offsets[:-1], ends + offsets[-1]]), np.concatenate([rows, found])
