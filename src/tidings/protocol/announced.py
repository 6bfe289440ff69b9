"""What is said of a client that moves: who it is, its subscriptions, and what waits for them."""

from __future__ import annotations

from array import array

from msgspec import Struct

from tidings.errors import CodecError
from tidings.event.relayed import FirstNode, RelayedBatch
from tidings.event.wire import check
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.arguments import SubscribeRequest
from tidings.protocol.cursor import Cursor, options_in


class MovedBatch(Struct, array_like=True, frozen=True):
    """Events of one origin that move to another node, and how they are known there."""

    raw: bytes
    system: str | None
    epoch: int
    source: str | None
    node: str
    first_epoch: int
    numbers: bytes
    age_us: int
    was_handed: bool  # it may have been delivered already

    def batch(self, only: str) -> RelayedBatch:
        """Return the events, for one reader only; CodecError if there are none, or not as many as numbers."""
        checked, numbers = check(self.raw), array("Q")
        if not len(checked.counters) or len(self.numbers) != 8 * len(checked.counters):
            raise CodecError(
                "$.move.numbers", f"{len(self.numbers)} bytes for {len(checked.counters)} events"
            )
        numbers.frombytes(self.numbers)
        origin = ForwardedOrigin(self.system, self.epoch, self.source)
        first = FirstNode(self.node, self.first_epoch)
        return RelayedBatch(self.raw, origin, first, numbers, max(0, self.age_us), checked.offsets, only=only)


class MovedCursor(Struct, frozen=True):
    """A durable subscription that moves: its name, the filter it asks for, and its stored options.

    `home` is the node at which it was made, `moves` how often it has moved, this time included: so a node
    knows one that it had before, and that was left behind when a move was interrupted.
    """

    name: str
    filter: str
    options: bytes
    home: str
    moves: int

    @staticmethod
    def of(cursor: Cursor) -> MovedCursor:
        """Return what is said of a cursor that moves."""
        options = options_in(cursor.options)
        home = options.home or cursor.broker.node
        return MovedCursor(cursor.name, str(cursor.filter), cursor.options, home, options.moves + 1)

    def replaces(self, cursor: Cursor) -> bool:
        """Whether a cursor is what an interrupted move has left behind of the same subscription."""
        options = options_in(cursor.options)
        is_same = (options.home or cursor.broker.node) == self.home
        return is_same and options.moves <= self.moves and cursor.consumer is None


class ClientAnnouncement(Struct, frozen=True):
    """A client that is to come: who it is, how far it has counted, and its subscriptions."""

    token: str
    user: str
    system: str
    epoch: int
    source: str | None
    counter: int
    by: str  # the node that it leaves
    subscriptions: tuple[SubscribeRequest, ...] = ()
    cursors: tuple[MovedCursor, ...] = ()
    channels: tuple[str, ...] = ()  # of which it is a member there

    @property
    def origin(self) -> Origin:
        """The origin of its events."""
        return Origin(self.system, self.epoch, self.source)
