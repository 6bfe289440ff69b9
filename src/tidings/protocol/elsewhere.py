"""What other nodes have, for the clients of this one; `overlay/reading.py` asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

from tidings.event import Batch
from tidings.event.relayed import RelayedBatch
from tidings.protocol.stored_pages import StoredPage
from tidings.replies import Deferred

if TYPE_CHECKING:
    from tidings.filters import Filter


class UpTo(Struct, frozen=True, array_like=True):
    """The numbers up to which a node has taken events in: see `event/relayed.py`."""

    epoch: int
    number: int
    volatile: int

    def includes(self, batch: RelayedBatch, row: int) -> bool:
        """Whether they include that of an event of that node."""
        number = self.volatile if batch.first.is_volatile else self.number
        return (batch.first.epoch, batch.numbers[row]) <= (self.epoch, number)


class NodeValues(Struct, frozen=True):
    """Some of the last values of a node, at a moment."""

    node: str
    up_to: UpTo
    batches: Sequence[Batch]


class NodePage(NamedTuple):
    """Some of what a node has stored, and up to which numbers it had taken events in at the first page."""

    up_to: UpTo
    page: StoredPage


class TakesValues(Protocol):
    """Takes the last values of other nodes, piece by piece."""

    def __call__(self, values: NodeValues) -> bool:
        """Take some; return whether more is wanted."""


class Elsewhere(Protocol):
    """The other nodes that can be asked. Those that could not be are named in the replies."""

    @property
    def others(self) -> Mapping[str, str]:
        """The names of the other nodes, or their ids, by their ids."""

    def last_values(self, filter: Filter, take: TakesValues) -> Deferred[list[str]]:
        """Have the last values of all other nodes taken, and return the names of those that are missing.

        The subscription for which they are wanted is there already: it gets what a node takes in after the
        moment at which its values were read.
        """

    def stored(self, node: str, filter: Filter, since_us: int, start: int, end: int) -> Deferred[NodePage]:
        """Return a page of what a node has stored of its own events.

        With `start` 0 it is the first one, from a time on, and `end` does not count: that of the stream then
        is named in the answer. The subscription for which it is wanted is there already, as for last values.
        """

    def advertisements(self, node: str, filter: Filter, after: int) -> Deferred[Any]:
        """Return a page of what is advertised at another node, as `advertisements.list` does."""

    @property
    def offers_changed(self) -> int:
        """Number that grows when what is advertised at another node changes, while somebody waits here."""
