"""Updates in channels: of those of one key that a member has not got yet it gets the newest alone.

Only members leave older updates out, and only when these would be sent: neighbours get all events, as others
may name them. So the order of a channel stays as it is, with gaps where something was superseded. What waits
in memory has a place in the line, what is stored a position; of each key the last one is known. After a
restart the stored events that a member has not acknowledged are looked through once before it gets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidings.event import Batch
from tidings.exchange import Positions, Rows
from tidings.protocol.channels import MARK_BYTES, key_of_update

KEYS_MAX = 100_000
"""Keys of which a member's newest update is known; older ones of those forgotten are not superseded."""


class NewestUpdates:
    """The place of the newest update of each key."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def note(self, batch: Batch, places: Iterable[tuple[int, int]]) -> None:
        """Note the rows of a batch that are updates, each with its place."""
        if MARK_BYTES not in batch.raw:
            return
        for row, place in places:
            key = key_of_update(batch[row])
            if key is not None and place > self._places.pop(key, 0):
                self._places[key] = place
                if len(self._places) > KEYS_MAX:
                    del self._places[next(iter(self._places))]

    def note_stored(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        """Note those that are stored."""
        if positions is not None:
            found = ((int(row), positions[row]) for row in rows)
            self.note(batch, ((row, place) for row, place in found if place is not None))

    def without_older(self, batch: Batch, places: Sequence[tuple[int, int]]) -> list[int]:
        """Return the rows that are no updates, or the newest of their keys."""
        if not self._places:
            return [row for row, _ in places]
        return [row for row, place in places if place >= self._newest(batch, row)]

    def _newest(self, batch: Batch, row: int) -> int:
        key = key_of_update(batch[row])
        return 0 if key is None else self._places.get(key, 0)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._places.clear()
