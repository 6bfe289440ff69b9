"""Values of Arrow columns as the lanes of an index have them; needs numba, as its engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.event.scan import (
    BLOB,
    BLOB_ORDER,
    BOOLEAN,
    NUMBER,
    PRESENCE,
    STRING,
    STRING_ORDER,
    TEXT_PLACE,
    TIME,
)
from tidings.event.texts import coordinate_all, find_all

if TYPE_CHECKING:
    from tidings.event.scan import ScanPlan

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LETTERS_OF: Final = {
    NUMBER: "ifn",
    BOOLEAN: "b",
    TIME: "t",
    STRING: "s",
    STRING_ORDER: "s",
    BLOB: "x",
    BLOB_ORDER: "x",
    TEXT_PLACE: "",
    PRESENCE: "bifnstx",
}
"""Letters of the columns that have values for a lane of each kind."""
ABSENT: Final = {PRESENCE: 0.0}
"""Values of a lane in rows without any, if that is not NaN."""


def lane_values(column: Any, kind: int, lane: int, plan: ScanPlan) -> tuple[Floats, Mask]:
    """Return the values of a column for a lane of that kind, and a mask of the rows that have one."""
    is_there: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    if kind == PRESENCE:
        return np.ones(len(column)), is_there
    if kind in (NUMBER, BOOLEAN, TIME):
        return _numbers(column), is_there
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    found = _texts(encoded.dictionary, kind, lane, plan)
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return (found[codes] if len(found) else np.full(len(column), np.nan)), is_there


def _numbers(column: Any) -> Floats:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    numbers: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def _texts(texts: Any, kind: int, lane: int, plan: ScanPlan) -> Floats:
    """Return the number or the coordinate of each text in an array without nulls."""
    found: Floats = np.empty(len(texts))
    if not len(texts):
        return found
    _, places, content = texts.buffers()
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1].copy()
    data = 0 if content is None else content.address
    if kind in (STRING, BLOB):
        find_all(np.array(plan.strings.words(), np.int64), data, offsets, found)
    else:
        coordinate_all(np.array(plan.cuts.words(), np.int64), lane, data, offsets, found)
    return found
