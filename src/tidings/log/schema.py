"""Columns of sealed files, and the columns of their own that attributes of events can have.

| column | what it is |
| --- | --- |
| `position` | position of the event in its node's log |
| `type`, `time`, `id`, `source` … | the header; `id` is the full one, also where the number makes it |
| `received` | the header field, else when the event was stored |
| `stored` | when it was stored, unless `received` says so: only then has the header a `received` |
| an attribute's name | the values of the kind that its column has in this folder; numbers are doubles |
| `attributes` | a map with all the rest: seldom attributes, and values of other kinds; null when empty |

A reader of files without tidings needs one column of numbers, of the same type in all files, whether the
sensor wrote 41 or 41.2. So a column of numbers is of doubles, and its field says if the whole ones among
them were integers: then they are again. If whole numbers came as both, the integers stand in the map too,
which takes precedence. Integers that no double equals are in the map alone, or in a column of integers if
the first file that had a column for the attribute had no other numbers for it.

Spark, pandas and others read a folder as one table: a column that is a double in one file and a text in
another makes all of it unreadable for them, and so do two spellings of one name. So the first file that gives
a name a column decides, and in every later file values of other kinds stand in the map.

The footer of each file lists the kinds known in its folder; the last file of a node knows all of them, since
only a file after all others of its node gives new names a column. Files of earlier versions have no such
list: then all footers are read once, and for a name that has drifted the kind of most rows decides.
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
    from tidings.log.chunks import FileInfo
    from tidings.log.segment_file import OpenFile

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
"""Columns that every file has after `position`, in this order."""
POSITION: Final = pa.field("position", pa.int64(), nullable=False)
FIXED: Final = (POSITION, *HEADER_COLUMNS)
HEADER_TYPES: Final = {field.name: field.type for field in HEADER_COLUMNS}

KIND_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in VALUE}
"""Type of a column for each kind of value, by its letter in the map."""
NUMBERS: Final = "n"
"""Letter of a column of doubles of which the whole ones are integers."""
COLUMN_TYPES: Final[dict[str, Any]] = {**KIND_TYPES, NUMBERS: pa.float64()}
"""Type of an attribute's own column, by its letter: that of the kind, or NUMBERS."""
_WHOLE_ARE_INTEGERS: Final = {b"tidings.whole": b"integer"}
KIND_WORDS: Final = {"b": "bool", "i": "int", "f": "float", "s": "str", "t": "time", "x": "bytes"}

FOLDER_COLUMNS_MAX: Final = 1_000
"""Attributes with columns of their own over all files of a folder; others stay in the map."""
DOUBLE: Final = "f"

FileColumns = tuple[tuple[str, str], ...]
"""Own columns of a file: name and kind of each."""

RESERVED_COLUMNS: Final = frozenset(
    {field.name for field in FIXED}
    | {"attributes", "mismatches", "node", "date"}
    | {alias.casefold() for alias in JMS_ALIASES}
)
"""Names, without regard to case, that no attribute's own column may have."""
# Names of columns that Spark, DuckDB and pandas take without trouble; any other name is in the map.
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
    """Return the letter of the kind of value that a column of a file holds."""
    return _LETTERS[kind.value_type if pa.types.is_dictionary(kind) else kind]


_LETTERS = {kind: letter for letter, kind in KIND_TYPES.items()}


def file_schema(attributes: dict[str, str]) -> Any:
    """Return the columns of a file with own columns for these attributes (name to letter of the kind)."""
    own = [_own_field(name, letter) for name, letter in attributes.items()]
    return pa.schema([*FIXED, *own, pa.field("attributes", ATTRIBUTES)])


def _own_field(name: str, letter: str) -> Any:
    metadata = _WHOLE_ARE_INTEGERS if letter == NUMBERS else None
    return pa.field(name, COLUMN_TYPES[letter], metadata=metadata)


def _own_letter(field: Any) -> str:
    metadata = field.metadata or {}
    return NUMBERS if _WHOLE_ARE_INTEGERS.items() <= metadata.items() else kind_of_type(field.type)


def own_columns(schema: Any) -> dict[str, str]:
    """Return the attributes that have columns of their own in a file, with the letters of these."""
    taken = {field.name for field in FIXED} | {"attributes"}
    return {field.name: _own_letter(field) for field in schema if field.name not in taken}


# One kind for each name


class Kinds(Struct, frozen=True):
    """Kinds of the columns of a folder: the letter for each name, spelled as in its column."""

    known: Mapping[str, str] = field(default_factory=dict)
    may_grow: bool = True
    """Whether other names may get columns, too."""

    @property
    def room(self) -> int:
        """Return how many other names may get columns."""
        return max(0, FOLDER_COLUMNS_MAX - len(self.known)) if self.may_grow else 0

    def spellings(self) -> dict[str, str]:
        """Return the spelling of each known name, by the name without regard to case."""
        return {name.casefold(): name for name in self.known}

    def with_columns(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Return the kinds that are known after a file with these columns was written."""
        return {**plain(columns), **self.known}


def plain(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds of a file's own columns: both letters of doubles are one kind."""
    return {name: DOUBLE if letter == NUMBERS else letter for name, letter in columns.items()}


def united(several: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the kinds of all of these; if they differ, also in the spelling of a name, the first counts."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for kinds in several:
        for name, letter in kinds.items():
            if name.casefold() not in taken:
                taken.add(name.casefold())
                found[name] = letter
    return found


class KindRegistry:
    """Finds the kinds of a folder in the footers of its files, which `open` opens."""

    def __init__(self, open: Callable[[FileInfo], OpenFile]) -> None:
        self._open = open
        self._counted: dict[
            str, tuple[FileColumns, int]
        ] = {}  # the columns and rows of files, by their paths
        self._same: dict[FileColumns, FileColumns] = {}  # each once, as most files have the columns of others

    def known(self, files: Sequence[FileInfo]) -> dict[str, str]:
        """Return the kind of each name that has a column in one of these files, which are all there are.

        Read from the last file of each node; from all files if one of those has no list, or has a full one.
        """
        lasts = {file.claim.node: file for file in files}
        listed = [self._listed(file) for file in lasts.values()]
        known = united(kinds for kinds in listed if kinds is not None)
        if None not in listed and len(known) < FOLDER_COLUMNS_MAX:
            return known
        there = self._counts(files)
        if len(known) >= FOLDER_COLUMNS_MAX:  # some of them may be in no file any more
            known = {name: letter for name, letter in known.items() if name in there}
        return united([known, there])

    def _listed(self, file: FileInfo) -> dict[str, str] | None:
        """Return the kinds listed in a file; None if it can't be read any more, or lists unknown kinds.

        Footers have no checksum.
        """
        with suppress(FileNotFoundError, StoreDamaged), self._open(file) as opened:
            listed = opened.footer.kinds
            return listed if listed is not None and KIND_TYPES.keys() >= set(listed.values()) else None
        return None

    def _counts(self, files: Sequence[FileInfo]) -> dict[str, str]:
        """Return for each name the spelling and kind of most rows."""
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
        """Drop the counts of files that are gone."""
        if not self._counted.keys() <= there:
            self._counted = {path: found for path, found in self._counted.items() if path in there}
            self._same = {columns: columns for columns, _ in self._counted.values()}

    def _count(self, file: FileInfo) -> None:
        with self._open(file) as opened:
            columns = tuple(plain(own_columns(opened.schema)).items())
            self._counted[file.path] = self._same.setdefault(columns, columns), opened.footer.count
