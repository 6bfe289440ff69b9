"""The columns of sealed files, and which columns of one's own can be made of the values of events.

| column | what it is |
| --- | --- |
| `position` | where the event stands in its node's log |
| `type`, `time`, `id`, `source` … | the header; `id` is the full one, also where the number makes it |
| `received` | what the header says, else when the event was stored |
| `stored` | when it was stored, where `received` does not say so: only then has the header a `received` |
| an attribute's name | the values of the kind that its column has in this folder; numbers are doubles |
| `attributes` | a map with all the rest: seldom attributes, and values of other kinds; null when empty |

A reader of files without tidings needs one column of numbers, of the same type in all files, whether the
sensor wrote 41 or 41.2. So a column of numbers is of doubles, and its field says if the whole ones among
them were integers: then they are again. Where whole numbers came as both, the integers stand in the map, too,
which is believed rather than the column. Integers that no double is the same as are in the map alone, or in a
column of integers if the first file that had a column for the attribute had no other numbers for it.

Spark, pandas and others read a folder as one table: a column that is a double in one file and a text in
another makes all of it unreadable for them, and so do two spellings of one name. So the first file that gives
a name a column decides, and in every later file values of other kinds stand in the map.

Each file says in its footer which kinds are known in its folder; the last file of a node knows all of them,
since only a file behind all others of its node gives new names a column. Files of earlier versions say
nothing: then all footers are read once, and for a name that has drifted the kind of most rows decides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct, field

from tidings.errors import StoreDamaged
from tidings.event import arrow
from tidings.event.values import JMS_ALIASES

if TYPE_CHECKING:
    from tidings.log.segment_file import OpenFile
    from tidings.log.segment_folder import FileInfo

TIME: Final = pa.timestamp("us", "UTC")
_events: Final = {field.name: field for field in arrow.schema()}
ATTRIBUTES: Final = _events["attributes"].type
VALUE: Final = ATTRIBUTES.item_type
TEXTS: Final = pa.map_(pa.string(), pa.string())

_FIRST = ("type", "time", "received", "stored", "id", "source", "system", "epoch", "counter")
_OTHERS = tuple(name for name in _events if name not in (*_FIRST, "attributes"))
HEADER_COLUMNS: Final = tuple(
    pa.field("stored", TIME) if name == "stored" else _events[name] for name in (*_FIRST, *_OTHERS)
)
"""The columns every file has after `position`, in this order."""
POSITION: Final = pa.field("position", pa.int64(), nullable=False)
FIXED: Final = (POSITION, *HEADER_COLUMNS)
HEADER_TYPES: Final = {field.name: field.type for field in HEADER_COLUMNS}

KIND_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in VALUE}
"""The type of a column for each kind of value, by its letter in the map."""
NUMBERS: Final = "n"
"""The letter of a column of doubles of which the whole ones are integers."""
COLUMN_TYPES: Final[dict[str, Any]] = {**KIND_TYPES, NUMBERS: pa.float64()}
"""The type of an attribute's own column, by its letter: that of the kind, or NUMBERS."""
_WHOLE_ARE_INTEGERS: Final = {b"tidings.whole": b"integer"}
KIND_WORDS: Final = {"b": "bool", "i": "int", "f": "float", "s": "str", "t": "time", "x": "bytes"}

FOLDER_COLUMNS_MAX: Final = 1_000
"""How many attributes may have columns of their own over all files of a folder; others stay in the map."""
DOUBLE: Final = "f"

FileColumns = tuple[tuple[str, str], ...]
"""The own columns of a file: the name and the kind of each."""

RESERVED_COLUMNS: Final = frozenset(
    {field.name for field in FIXED}
    | {"attributes", "mismatches", "node", "date"}
    | {alias.casefold() for alias in JMS_ALIASES}
)
"""Names, without regard to case, that no attribute's own column may have."""
# What Spark, DuckDB and pandas take as the name of a column without trouble; any other name is in the map.
_COLUMN_NAME = re.compile(r"\w[\w.:-]*")


def may_be_column(name: str) -> bool:
    """Whether an attribute of that name may have a column of its own."""
    plain = name.casefold()
    return (
        _COLUMN_NAME.fullmatch(name) is not None
        and plain not in RESERVED_COLUMNS
        and plain.partition(".")[0] not in RESERVED_COLUMNS
    )


def kind_of_type(kind: Any) -> str:
    """The letter of the kind of value that a column of a file holds."""
    return _LETTERS[kind.value_type if pa.types.is_dictionary(kind) else kind]


_LETTERS = {kind: letter for letter, kind in KIND_TYPES.items()}


def file_schema(attributes: dict[str, str]) -> Any:
    """The columns of a file with these attributes (name to letter of the kind) in columns of their own."""
    own = [_own_field(name, letter) for name, letter in attributes.items()]
    return pa.schema([*FIXED, *own, pa.field("attributes", ATTRIBUTES)])


def _own_field(name: str, letter: str) -> Any:
    metadata = _WHOLE_ARE_INTEGERS if letter == NUMBERS else None
    return pa.field(name, COLUMN_TYPES[letter], metadata=metadata)


def _own_letter(field: Any) -> str:
    said = field.metadata or {}
    return NUMBERS if _WHOLE_ARE_INTEGERS.items() <= said.items() else kind_of_type(field.type)


def own_columns(schema: Any) -> dict[str, str]:
    """The attributes that have columns of their own in a file, with the letters of these."""
    taken = {field.name for field in FIXED} | {"attributes"}
    return {field.name: _own_letter(field) for field in schema if field.name not in taken}


# One kind for each name


class Kinds(Struct, frozen=True):
    """The kinds that the columns of a folder have: the letter for each name, spelled as in its column."""

    known: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = True
    """Whether other names may get columns, too."""

    @property
    def room(self) -> int:
        """How many other names may get columns."""
        return max(0, FOLDER_COLUMNS_MAX - len(self.known)) if self.may_grow else 0

    def spellings(self) -> dict[str, str]:
        """How each known name is spelled, by the name without regard to case."""
        return {name.casefold(): name for name in self.known}

    def with_columns(self, columns: Mapping[str, str]) -> dict[str, str]:
        """The kinds that are known after a file with these columns was written."""
        return {**plain(columns), **self.known}


def plain(columns: Mapping[str, str]) -> dict[str, str]:
    """The kinds of a file's own columns: both letters of doubles are one kind."""
    return {name: DOUBLE if letter == NUMBERS else letter for name, letter in columns.items()}


def united(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The kinds of all of these; where they differ, also in the spelling of a name, the first one counts."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for kinds in several:
        for name, letter in kinds.items():
            if name.casefold() not in taken:
                taken.add(name.casefold())
                found[name] = letter
    return found


class KindRegistry:
    """Tells the kinds of a folder by the footers of its files, which `open` opens."""

    def __init__(self, open: Callable[[FileInfo], OpenFile]) -> None:
        self._open = open
        self._counted: dict[
            str, tuple[FileColumns, int]
        ] = {}  # the columns and rows of files, by their paths
        self._same: dict[FileColumns, FileColumns] = {}  # each once, as most files have the columns of others

    def known(self, files: Sequence[FileInfo]) -> dict[str, str]:
        """The kind of each name that has a column in one of these files, which are all there are.

        Read from the last file of each node; from all files if one of those does not say it, or says that no
        other name has room.
        """
        lasts = {file.claim.node: file for file in files}
        told = [self._told(file) for file in lasts.values()]
        known = united(kinds for kinds in told if kinds is not None)
        if None not in told and len(known) < FOLDER_COLUMNS_MAX:
            return known
        there = self._counts(files)
        if len(known) >= FOLDER_COLUMNS_MAX:  # some of them may be in no file any more
            known = {name: letter for name, letter in known.items() if name in there}
        return united([known, there])

    def _told(self, file: FileInfo) -> dict[str, str] | None:
        """What a file says of its folder; nothing if it can't be read any more, or names kinds there are not.

        What a footer says has no checksum.
        """
        with suppress(FileNotFoundError, StoreDamaged), self._open(file) as opened:
            told = opened.footer.kinds
            return told if told is not None and KIND_TYPES.keys() >= set(told.values()) else None
        return None

    def _counts(self, files: Sequence[FileInfo]) -> dict[str, str]:
        """For each name the spelling and kind that most rows have."""
        self._forget({file.path for file in files})
        for file in files:
            if file.path not in self._counted:
                with suppress(FileNotFoundError, StoreDamaged):
                    self._count(file)
        totals: Counter[int] = Counter()
        for columns, count in self._counted.values():
            totals[id(columns)] += count
        rows: Counter[tuple[str, str]] = Counter()
        for columns in self._same:
            rows.update(dict.fromkeys(columns, totals[id(columns)]))
        ordered = sorted(rows, key=lambda one: (-rows[one], one))
        return united(dict([one]) for one in ordered)

    def _forget(self, there: set[str]) -> None:
        """Count no file that is gone."""
        if not self._counted.keys() <= there:
            self._counted = {path: found for path, found in self._counted.items() if path in there}
            self._same = {columns: columns for columns, _ in self._counted.values()}

    def _count(self, file: FileInfo) -> None:
        with self._open(file) as opened:
            columns = tuple(plain(own_columns(opened.schema)).items())
            self._counted[file.path] = self._same.setdefault(columns, columns), opened.footer.count
