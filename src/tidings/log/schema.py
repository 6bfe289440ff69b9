"""The columns of sealed files, and which columns of one's own can be made of the values of events.

| column | what it is |
| --- | --- |
| `position` | where the event stands in its node's log |
| `type`, `time`, `id`, `source` … | the header; `id` is the full one, also where the number makes it |
| `received` | what the header says, else when the event was stored |
| `stored` | when it was stored, where `received` does not say so: only then has the header a `received` |
| an attribute's name | the values of the kind that its column has in this folder; numbers are doubles |
| `attributes` | a map with all the rest: seldom attributes, and values of other kinds; null when empty |

Whoever reads files without tidings wants one column of numbers, of the same type in all files, whether or not
the sensor wrote 41 or 41.2. So a column of numbers is of doubles, and its field says if the whole ones among
them were integers: then they are again. Where whole numbers came as both, the integers stand in the map, too,
which is believed rather than the column. Integers that no double is the same as are in the map alone, or in a
column of integers if the first file that had a column for the attribute had no other numbers for it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from tidings.event import arrow
from tidings.event.values import JMS_ALIASES

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
