"""An index as bytes, and the index that reads them in place, without building anything.

The arrays of the engine are saved as they are: blocks in one section, with the words that compiled code
reads, whose addresses count from the beginning of that section. Filters that must be evaluated are texts,
parsed when an event first needs them; clues become tables when the first event is matched. No object is
pickled.

| section | contents |
| --- | --- |
| `apart` | filters that match everything or nothing, plain ones as texts, the keys of unindexed ones |
| `patterns` | keys with their clues, and the text of a filter that a clue does not decide |
| `keys`, `rough` | keys by slot, as numbers if all are; texts of filters by slot |
| `leads` | by slot: the slot that stands for its key in results; only if a key has several filters |
| `words`, `blocks` | blocks of the engine |
| `strings…`, `cuts…`, `ranks`, `grid…` | texts and bounds of the lanes |
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

import msgspec

from tidings.errors import MissingExtra, UserError
from tidings.filters import Filter
from tidings.matching.clues import Clue, ClueTable, Path
from tidings.matching.equalities import Equalities
from tidings.matching.index import Index
from tidings.matching.parts import FilterPart, owner_of
from tidings.matching.patterns import Patterns

if TYPE_CHECKING:
    from tidings.event import Event
    from tidings.matching.sections import Sections
    from tidings.matching.tiles import Evaluated

KEY_MAX: Final = 1 << 63
"""Keys that are numbers lie below, and not below its negative."""

Key = TypeVar("Key", bound=Hashable)
_READ_ONLY: Final = "a saved index is read-only; build a new one with tidings.Index and save that"

SavedKey = int | str
SavedClue = tuple[str, str, str | tuple[list[str | None], int, bool]]


class IndexFacts(msgspec.Struct, frozen=True):
    """Numbers of a saved index."""

    seed: int
    count: int
    has_engine: bool
    engine: msgspec.Raw  # see `saved_engine`
    extended: list[SavedKey] = []  # keys with several filters


class Apart(msgspec.Struct, frozen=True):
    """Filters outside of the engine."""

    everything: list[SavedKey]
    nothing: list[SavedKey]
    unindexed: list[SavedKey]
    plain: list[tuple[SavedKey, str]]


class LazyFilter:
    """Filter as text, parsed when it is first evaluated."""

    __slots__ = ("_filter", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._filter: Filter | None = None

    def __str__(self) -> str:
        return self._text

    def matches(self, event: Event) -> bool:
        """Whether the condition is true for the event."""
        if self._filter is None:
            self._filter = Filter(self._text)
        return self._filter.matches(event)


def _require(package: str, what: str) -> None:
    if find_spec(package) is None:
        raise MissingExtra(what, "node")


# Saving


def saved(index: Index[Any]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an index; UserError for a key that is neither an int nor a text."""
    _require("numpy", "a saved index")
    from tidings.matching.sections import VERSION, VERSION_PARTS, pack

    parts = index.parts()
    sections: dict[str, Any] = {
        "apart": _packed(
            Apart(
                _checked(parts.everything),
                _checked(parts.nothing),
                _checked(parts.unindexed),
                [(_checked_key(key), str(wanted)) for key, wanted in parts.plain],
            )
        ),
        "patterns": _packed(
            [
                (_checked_key(key), list(map(_saved_clue, clues)), None if asked is None else str(asked))
                for key, clues, asked in parts.patterns.saved()
            ]
        ),
    }
    facts: Any = None
    if parts.engine is not None:
        from tidings.matching.saved_engine import engine_sections

        facts, more = engine_sections(parts.engine.saved(), _checked)
        sections |= more
    has_engine = parts.engine is not None
    extended = _checked(parts.extended)
    whole = IndexFacts(parts.seed, len(index), has_engine, msgspec.Raw(_packed(facts)), extended)
    return pack(whole, sections, VERSION_PARTS if extended else VERSION)


def _packed(content: Any) -> bytes:
    return msgspec.msgpack.encode(content)


def _checked(keys: Iterable[Any]) -> list[SavedKey]:
    return [_checked_key(key) for key in keys]


def _checked_key(key: Any) -> SavedKey:
    """Return a key that can be saved, that of a part as its owner."""
    key = owner_of(key)
    if isinstance(key, str) or (type(key) is int and -KEY_MAX <= key < KEY_MAX):
        return key
    raise UserError(f"a key of a saved index is an int of 64 bits or a str, not {key!r}")


def _saved_clue(clue: Clue) -> SavedClue:
    wanted = clue.wanted
    return (
        clue.name,
        clue.table.value,
        wanted if isinstance(wanted, str) else (list(wanted.levels), wanted.fewest, wanted.is_open),
    )


# Reading


class SavedIndex(Index[Key], Generic[Key]):
    """Index in the bytes of `data`, which it reads in place and never changes.

    IndexFileError, which contains `name`, if the bytes are damaged or of another version. An index with
    compiled filters needs numba: MissingExtra without it. It is not copied or pickled: open the file again.
    """

    def __init__(self, data: Any, name: str) -> None:
        _require("numpy", "a saved index")
        from tidings.matching.sections import Sections

        self._sections: Sections = Sections(data, name)
        facts = self._sections.decode(self._sections.facts, IndexFacts, "header")
        super().__init__(seed=facts.seed)
        self._plain_max = None  # nothing is moved to another engine
        self._count = facts.count
        apart: Apart = self._sections.unpacked("apart", Apart)
        self._everything = dict.fromkeys(apart.everything)  # type: ignore[arg-type]  # as they were saved
        self._nothing = set(apart.nothing)  # type: ignore[arg-type]
        self._unindexed = set(apart.unindexed)  # type: ignore[arg-type]
        self._texts = apart.plain
        self._parts = {key: {} for key in facts.extended}  # their filters are elsewhere
        if facts.has_engine:
            self._engine = self._open_engine(facts)
        del self._patterns, self._plain, self._demanding  # made on first use, below

    def _open_engine(self, facts: IndexFacts) -> Any:
        _require("numba", "a saved index of compiled filters")
        from tidings.matching.saved_engine import SavedEngine

        return SavedEngine(self._sections, facts.engine, facts.seed)

    @cached_property
    def _patterns(self) -> Patterns[Key]:  # type: ignore[override]  # the same, made on first use
        patterns: Patterns[Key] = Patterns(self._seed)
        kind = list[tuple[SavedKey, list[SavedClue], str | None]]
        for key, clues, text in self._sections.unpacked("patterns", kind):
            asked: Evaluated | None = None if text is None else LazyFilter(text)
            patterns.put(self._part_of(key), tuple(_clue(*clue) for clue in clues), asked)
        return patterns

    @cached_property
    def _plain(self) -> dict[Key, Filter]:  # type: ignore[override]
        self._parse_plain()
        return self._plain

    @cached_property
    def _demanding(self) -> Equalities[Key]:  # type: ignore[override]
        self._parse_plain()
        return self._demanding

    def _parse_plain(self) -> None:
        plain: dict[Any, Filter] = {}
        demanding: Equalities[Any] = Equalities()
        for key, text in self._texts:
            key, wanted = self._part_of(key), Filter(text)
            if not demanding.add(key, wanted):
                plain[key] = wanted
        vars(self).update(_plain=plain, _demanding=demanding)

    def _part_of(self, key: Any) -> Any:
        """Return what a filter of a key is filed under: one of several has a part of the key."""
        return FilterPart(key) if key in self._parts else key

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UserError: a saved index does not change."""
        raise UserError(_READ_ONLY)

    add = extend = retract = remove = _refuse

    def __len__(self) -> int:
        count: int = self._count
        return count

    def __reduce__(self) -> Any:
        raise TypeError("a saved index is not copied or pickled; open its file again")


def _clue(name: str, table: str, wanted: str | tuple[list[str | None], int, bool]) -> Clue:
    if not isinstance(wanted, str):
        return Clue(name, ClueTable(table), Path(tuple(wanted[0]), wanted[1], wanted[2]))
    return Clue(name, ClueTable(table), wanted)
