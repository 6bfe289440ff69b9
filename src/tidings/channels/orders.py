"""What the order of channels asks of its node: who has members, how events are numbered, who is told."""

from __future__ import annotations

from collections.abc import Callable

from tidings.channels.description import ChannelOrder
from tidings.channels.participation import Participation
from tidings.channels.requests import TellChannel
from tidings.channels.trees import ChannelTrees
from tidings.event import Batch
from tidings.event.relayed import FirstNode
from tidings.overlay.service import Overlay
from tidings.protocol.broker import Broker
from tidings.protocol.consumer import Consumer


class NodeOrders:
    """The channels of a node, as their order is kept."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        chance: Callable[[], float],
        tell: Callable[[TellChannel], None],
    ) -> None:
        """`chance` returns a number from 0 to 1, `tell` sends a message on its way to another node."""
        self._broker = broker
        self._overlay = overlay
        self._tell = tell
        self.chance = chance
        self.trees: ChannelTrees | None = None
        self.later = overlay.later

    def order_of(self, channel: str) -> ChannelOrder:
        """Return the order of a channel in which this node takes part."""
        part = self._part(channel)
        return "fifo" if part is None else part.channel.order

    def is_persistent(self, channel: str) -> bool:
        """Whether its events are kept in the log."""
        part = self._part(channel)
        return part is not None and part.channel.delivery == "persistent"

    def has_members(self, channel: str) -> bool:
        """Whether it has members here, or will have."""
        part = self._part(channel)
        return part is not None and part.members + part.arriving > 0

    def own_numbers(self, batch: Batch, position: int) -> tuple[FirstNode, int]:
        """Return this node, and the number of the first event of a batch; a volatile one without position."""
        numbers = self._overlay.numbers
        return (numbers.stored(position), position) if position else numbers.volatile(batch)

    def tell(self, channel: str, node: str, body: bytes) -> None:
        """Send a message to another node that takes part, which may be lost."""
        message = TellChannel(channel, self._broker.node, node, body)
        self._overlay.later(0.0, lambda: self._tell(message))

    def unbound(self, channel: str) -> None:
        """This node need not take part any more for the order of a channel."""
        if self.trees is not None:
            self.trees.review(channel)

    def is_whole(self, channel: str) -> bool:
        """Whether all nodes that may take part in it can be reached."""
        part = self._part(channel)
        return part is None or not part.is_torn

    def own_epochs(self) -> list[tuple[str, int]]:
        """Return this node with each epoch of its numbers."""
        return [(self._broker.node, epoch) for epoch in self._overlay.numbers.epochs]

    def report_gap(self, channel: str, count: int) -> None:
        """Report to its members that events were not waited for."""
        for member in self._broker.exchange.members:
            if member.channel == channel and isinstance(member.sink, Consumer):
                member.sink.lose(count, "order")
                member.sink.report_gap()

    def _part(self, channel: str) -> Participation | None:
        return None if self.trees is None else self.trees.get(channel)
