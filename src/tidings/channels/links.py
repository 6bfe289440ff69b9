"""The links of a node, as the trees of its channels use them."""

from __future__ import annotations

from contextlib import suppress

from tidings.channels.calls import ChannelCalls
from tidings.channels.description import ChannelDescription
from tidings.channels.ordering import Ordering
from tidings.channels.protocols import ChannelProtocols
from tidings.errors import Disconnected, Refused
from tidings.overlay.service import Overlay
from tidings.protocol.broker import Broker
from tidings.protocol.channels import MARK
from tidings.replies import Deferred, failed


class OverlayLinks:
    """The links of a node, as its channels use them."""

    def __init__(
        self,
        broker: Broker,
        overlay: Overlay,
        calls: ChannelCalls,
        ordering: Ordering,
        protocols: ChannelProtocols,
    ) -> None:
        self._overlay = overlay
        self._broker = broker
        self.find = calls.find
        self.ask = calls.ask
        self.later = overlay.later
        self.learn = ordering.learn
        self.marks = ordering.marks
        self.homes = protocols.homes
        self._ordering = ordering

    def is_bound(self, channel: str) -> bool:
        """Whether this node must take part for the order of a channel, or its protocol, without members."""
        return self._broker.node in self.homes(channel) or self._ordering.is_bound(channel)

    def way(self, node: str) -> str | None:
        """Return the neighbour through which a node is reached."""
        return self._overlay.topology.way(node)

    def is_near(self, node: str) -> bool:
        """Whether events go over the link to a neighbour, now or when it is there again."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_in_tree

    def is_kept(self, node: str) -> bool:
        """Whether events are stored for a neighbour, whose link may be lost."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_active

    @property
    def position(self) -> int:
        """The position of the last event that is stored here."""
        return self._broker.position

    def confirmed(self, node: str) -> int:
        """Return the position up to which a neighbour has stored all that it wants."""
        neighbour = self._overlay.neighbours.get(node)
        cursor = None if neighbour is None else neighbour.cursor
        return self._broker.position if cursor is None else cursor.confirmed(0)

    def is_up(self, node: str) -> bool:
        """Whether a neighbour can be asked."""
        neighbour = self._overlay.neighbours.get(node)
        return neighbour is not None and neighbour.is_up

    def lend(self, node: str, channel: ChannelDescription) -> None:
        """Have the events of a channel stored for a neighbour that can't be asked."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is not None:
            self._overlay.routing.tables.lend(neighbour, str(channel.filter), passive=True)

    def want(self, node: str, channel: ChannelDescription) -> Deferred[None]:
        """Want the events of a channel from a neighbour; the reply comes when it knows that."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is None or not neighbour.is_in_tree:
            return failed(Refused("no-way", "the link stands by"))
        neighbour.announcer.add((MARK, channel.id), channel.filter, passive=True)
        if neighbour.announcer.state == "down":
            return failed(Disconnected("the link is lost"))
        return neighbour.announcer.barrier()

    def unwant(self, node: str, channel: ChannelDescription) -> None:
        """Want them no longer."""
        neighbour = self._overlay.neighbours.get(node)
        if neighbour is not None:
            with suppress(KeyError):  # all is forgotten of a neighbour whose link is not in the tree any more
                neighbour.announcer.remove((MARK, channel.id))
