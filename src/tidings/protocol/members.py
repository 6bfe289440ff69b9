"""Members of channels as consumers: an update that waits gives way to a newer one of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.protocol.consumer import DroppingConsumer
from tidings.protocol.updates import NewestUpdates

if TYPE_CHECKING:
    from tidings.protocol.session import Session


class MemberConsumer(DroppingConsumer):
    """Lets go of updates that wait when newer ones come."""

    def __init__(self, session: Session, number: int, credit: int) -> None:
        super().__init__(session, number, credit)
        self._newest = NewestUpdates()
        self._put = self._taken = 0  # events that have ever waited, and those that do no more

    def _wait(self, part: Batch) -> None:
        super()._wait(part)
        self._newest.note(part, ((row, self._put + row + 1) for row in range(len(part))))
        self._put += len(part)

    def _next(self, most: int) -> tuple[Batch, range]:
        part, rows = super()._next(most)
        self._taken += len(rows)
        return part, rows

    def _send_next(self) -> None:
        part, rows = self._next(self.credit)
        before = self._taken - len(rows) + 1
        places = [(row, before + number) for number, row in enumerate(rows)]
        kept = self._newest.without_older(part, places)
        if len(kept) < len(rows):
            self.session.broker.count("channel_superseded", len(rows) - len(kept))
        if kept:
            self.send(part, kept)
        if not self.waiting:
            self._newest.clear()
