"""Ids made of system, epoch and counter, for many events at once: see `tidings.ids`.

Ids of one system and epoch whose counters have equally many digits differ in these digits only, so they are
laid out as a table of bytes, a row for each id.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidings.ids import make_id

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS_MAX = 16


def made_ids(systems: Any, epochs: Any, counters: Any) -> Any:
    """Return the text of each id; null without a system or a number."""
    numbers = counters.to_numpy(zero_copy_only=False)
    groups, group_of = _groups(systems, epochs, numbers)
    pieces, rows = [], []
    for group, (system, epoch, digits) in enumerate(groups):
        places = np.flatnonzero(group_of == group)
        rows.append(places)
        if system is None or digits == 0:
            pieces.append(pa.nulls(len(places), pa.string()))
        else:
            pieces.append(_alike(system, epoch, digits, numbers[places]))
    if len(pieces) == 1:
        return pieces[0]
    order = np.empty(len(numbers), np.int64)
    order[np.concatenate([*rows, np.empty(0, np.int64)])] = np.arange(len(numbers))
    return pa.concat_arrays([*pieces, pa.nulls(0, pa.string())]).take(pa.array(order))


def _groups(systems: Any, epochs: Any, numbers: Any) -> tuple[list[tuple[str | None, int, int]], Any]:
    """Return the distinct (system, epoch, digits of the counter), and the index of each row's."""
    whose, when = systems.dictionary_encode(null_encoding="encode"), epochs.dictionary_encode()
    codes = whose.indices.to_numpy().astype(np.int64) * max(len(when.dictionary), 1)
    codes = (codes + when.indices.to_numpy(zero_copy_only=False)) * (_DIGITS_MAX + 1) + _digits(numbers)
    if len(codes) and codes.min() == codes.max():  # the usual case, in which nothing need be sorted
        different, group_of = codes[:1], np.zeros(len(codes), np.int64)
    else:
        different, group_of = np.unique(codes, return_inverse=True)
    groups = []
    for code in different.tolist():
        pair, digits = divmod(code, _DIGITS_MAX + 1)
        system, epoch = divmod(pair, max(len(when.dictionary), 1))
        groups.append((whose.dictionary[system].as_py(), when.dictionary[epoch].as_py(), digits))
    return groups, group_of


def _digits(numbers: Any) -> Any:
    """Return the number of hexadecimal digits of each number; none for 0, which is no number."""
    digits = (numbers > 0).astype(np.int64)
    most = int(numbers.max(initial=0))
    for size in range(1, _DIGITS_MAX):
        if most < 16**size:
            break
        digits += numbers >= 16**size
    return digits


def _alike(system: str, epoch: int, digits: int, numbers: Any) -> Any:
    head = make_id(system, epoch, 16 ** (digits - 1))[:-digits].encode()
    width = len(head) + digits
    text: npt.NDArray[np.uint8] = np.empty((len(numbers), width), np.uint8)
    text[:, : len(head)] = np.frombuffer(head, np.uint8)
    for place in range(digits):
        text[:, len(head) + place] = _HEX[(numbers >> 4 * (digits - 1 - place)) & 15]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1)))
