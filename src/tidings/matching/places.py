"""The texts of attributes in a batch, found by the scan and cut out of the bytes: no event is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tidings.errors import CodecError
from tidings.event import Batch
from tidings.event.scan import PLACE_ADDRESS_BITS, PLACE_SIZE_BITS, PLACE_SIZE_MAX, TEXT_PLACE, scan_rows
from tidings.event.texts import Floats, address
from tidings.event.wire import HEAD_SIZE
from tidings.matching.lanes import Lanes

_ADDRESS_MASK = (1 << PLACE_ADDRESS_BITS) - 1


class TextPlaces:
    """What reads these attributes, or header fields that are texts."""

    def __init__(self, names: Iterable[str], seed: int) -> None:
        self._names = list(names)
        self._lanes = Lanes(seed)
        for name in self._names:
            self._lanes.number((name, TEXT_PLACE))
        self._plan = self._lanes.refresh()  # keeps alive what its words point to
        self._words = self._plan.words()

    def read(self, batch: Batch) -> Iterator[tuple[str, list[bytes | None]]]:
        """Each name with its text in every event, None where there is none; CodecError as `Batch.events`."""
        values: Floats = np.empty((len(batch), max(1, len(self._names))))
        data = np.frombuffer(batch.raw, np.uint8)
        done, end = scan_rows(data, HEAD_SIZE, len(batch), self._words, values)
        if done < len(batch):
            raise CodecError(f"$[{done}]", "is cut short or no event")
        if end != len(batch.raw):
            raise CodecError("$", f"{len(batch.raw) - end} bytes follow the last event")
        for name in self._names:
            lane = self._lanes.numbers[name, TEXT_PLACE]
            yield name, _cut(batch, name, values[:, lane], address(data))


def _cut(batch: Batch, name: str, column: Floats, base: int) -> list[bytes | None]:
    """The texts at these places in the bytes of a batch, which lie at an address."""
    raw = batch.raw
    is_there = ~np.isnan(column)
    places = np.where(is_there, column, 0).astype(np.int64)
    sizes = places & PLACE_SIZE_MAX
    begins = np.where(is_there, ((places >> PLACE_SIZE_BITS) - base) & _ADDRESS_MASK, 0)
    spans = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
    texts = [raw[begin:end] if begin else None for begin, end in spans]  # before the first is the head
    for row in np.flatnonzero(sizes == PLACE_SIZE_MAX).tolist():
        texts[row] = str(batch[row].get(name)).encode()
    return texts
