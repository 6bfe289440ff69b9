"""The channels in which a node takes part, and the links of the node as these use them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from tidings.channels.description import ChannelDescription, ChannelQuery, FoundChannels
from tidings.channels.measured import ChannelMeter
from tidings.replies import Deferred, resolved


class ChannelLinks(Protocol):
    """The links of a node, as its channels use them."""

    def way(self, node: str) -> str | None:
        """Return the neighbour through which a node is reached."""

    def is_near(self, node: str) -> bool:
        """Whether events go over the link to a neighbour, now or when it is there again."""

    def is_kept(self, node: str) -> bool:
        """Whether events are stored for a neighbour, whose link may be lost."""

    def ask(self, node: str, operation: str, arguments: dict[str, Any]) -> Deferred[Any]:
        """Send a request to a neighbour."""

    @property
    def position(self) -> int:
        """The position of the last event that is stored here."""

    def confirmed(self, node: str) -> int:
        """Return the position up to which a neighbour has stored all that it wants."""

    def is_up(self, node: str) -> bool:
        """Whether a neighbour can be asked."""

    def lend(self, node: str, channel: ChannelDescription) -> None:
        """Have the events of a channel stored for a neighbour that can't be asked."""

    def want(self, node: str, channel: ChannelDescription) -> Deferred[None]:
        """Want the events of a channel from a neighbour; the reply comes when it knows that."""

    def unwant(self, node: str, channel: ChannelDescription) -> None:
        """Want them no longer."""

    def marks(self, channel: str) -> dict[str, Any]:
        """Return how far an ordered channel has come here, as arguments of a join."""

    def learn(self, channel: str, told: object) -> None:
        """Begin behind what a neighbour has had of a channel, as it answers a join."""

    def is_bound(self, channel: str) -> bool:
        """Whether this node must take part for the order of a channel, or its protocol, without members."""

    def homes(self, channel: str) -> tuple[str, ...]:
        """Return the nodes that take part by the protocol of a channel, whether they have members or not."""

    def find(self, query: ChannelQuery) -> Deferred[FoundChannels]:
        """Search all nodes that can be reached."""

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call a function after a time."""


class Participation:
    """A channel in which this node takes part."""

    def __init__(self, channel: ChannelDescription, neighbours: tuple[str, ...] = ()) -> None:
        self.channel = channel
        self.neighbours: dict[str, None] = dict.fromkeys(neighbours)
        self.former: set[str] = set()  # neighbours whose links were lost, and for which events are kept
        self.loans: set[str] = set()  # neighbours that could not be asked whether they take part
        self.unasked: set[str] = set()  # neighbours that are to be asked when their links are back
        self.tentative: set[str] = set()  # neighbours that are being asked, and have not joined by themselves
        self.members = 0
        self.meter = ChannelMeter()
        self.arriving = 0  # members that wait until events come here
        self.joining: Deferred[None] = resolved(None)  # over when events come from all that take part
        self.leaves_behind: int | None = None  # position that the last neighbour has to confirm before
        self.is_waiting = False  # to leave
        self.leaving = ""  # the neighbour to which this node has said that it leaves, until it has answered
        self.is_begun = False  # it was created here, or has been joined
        self.is_torn = False  # to be joined again, as the network's tree has changed
        self.mending = 0  # the number of the last attempt to join it again
        self.homes: tuple[str, ...] = ()  # the nodes of its protocol that were joined
        self.attempts = 0  # to join it again; as long as these are few, events wait that go other ways now

    def is_shared_with(self, node: str) -> bool:
        """Whether events of the channel go to a neighbour, or are kept for it."""
        return node in self.neighbours or node in self.former

    @property
    def is_needed(self) -> bool:
        """Whether this node has members, or lies between others that have."""
        return bool(self.members or self.arriving) or len(self.neighbours) > 1


class Participations:
    """The channels in which a node takes part, by id and by name, and those that are torn."""

    def __init__(self) -> None:
        self._parts: dict[str, Participation] = {}
        self._by_name: dict[str, dict[str, Participation]] = {}
        self._torn: dict[str, Participation] = {}

    def __iter__(self) -> Iterator[Participation]:
        return iter(list(self._parts.values()))

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, part: Participation) -> bool:
        return self._parts.get(part.channel.id) is part

    def get(self, channel: str) -> Participation | None:
        """Return a channel by its id."""
        return self._parts.get(channel)

    @property
    def torn(self) -> Collection[Participation]:
        """Those that are to be joined again."""
        return self._torn.values()

    def find(self, query: ChannelQuery) -> list[Participation]:
        """Return those that have been joined, of which a search agrees with the description."""
        found: Iterable[Participation] = self._parts.values()
        if query.id:
            part = self._parts.get(query.id)
            found = [] if part is None else [part]
        elif query.name:
            found = self._by_name.get(query.name.partition("@")[0], {}).values()
        return [part for part in found if part.is_begun and query.agrees(part.channel)]

    def add(self, part: Participation) -> None:
        """Take part in a channel."""
        channel = part.channel
        self._parts[channel.id] = self._by_name.setdefault(channel.name, {})[channel.id] = part

    def remove(self, part: Participation) -> None:
        """Take part no longer."""
        channel = part.channel
        del self._parts[channel.id]
        self._torn.pop(channel.id, None)
        named = self._by_name[channel.name]
        del named[channel.id]
        if not named:
            del self._by_name[channel.name]

    def tear(self, part: Participation) -> None:
        """Note that a channel is to be joined again."""
        part.is_torn = True
        if part in self:
            self._torn[part.channel.id] = part

    def mend(self, part: Participation) -> None:
        """Note that it was joined again."""
        part.is_torn = False
        self._torn.pop(part.channel.id, None)
