"""Groups: messages that must be processed one after the other, in their order, by any readers.

Of each group one message at a time has its *turn*: it is on the shelf, in flight, or pauses before
it is delivered again. All others are *behind*, where no reader passes over them. When the message whose turn
it is has gone, the first of those behind takes its place on the shelf. So a group is with one reader at a
time, and with nobody as soon as nothing of it is in flight; a message that is given back is still the first.

A transaction, and a reader that takes all there is, may have several messages of a group: it *owns* the group
then, and those that it has got have their turn together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from heapq import heappop, heappush

from msgspec import Struct

from tidings.matching import Shelf
from tidings.queues.message import QueuedMessage, sight

Place = Callable[[QueuedMessage], int]


class Group(Struct, eq=False):
    """Messages of one group: whose turn it is, and a heap of the places and numbers of those behind."""

    name: str
    turn: set[int] = set()
    behind: list[tuple[int, int]] = []  # some may have gone since
    owner: Hashable = None


class Groups:
    """The groups of one queue."""

    def __init__(self, place: Place) -> None:
        self.behind: Shelf[int, QueuedMessage] = Shelf(sight, distinct=True)
        self._place = place
        self._groups: dict[str, Group] = {}
        self._of: dict[int, Group] = {}
        self._owned: dict[Hashable, dict[Group, None]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, number: int) -> bool:
        """Whether a message is in a group."""
        return number in self._of

    def turn_of(self, name: str) -> Collection[int]:
        """Return the messages of a group whose turn it is."""
        group = self._groups.get(name)
        return () if group is None else group.turn

    def turn_with(self, number: int) -> Collection[int]:
        """Return the messages of a message's group whose turn it is."""
        return self._of[number].turn

    def enter(self, message: QueuedMessage, name: str) -> bool:
        """Add a message to its group; whether it is its turn, otherwise it is behind."""
        group = self._join(message.number, name)
        if group.turn:
            self._put_behind(group, message)
            return False
        group.turn.add(message.number)
        return True

    def hold(self, number: int, name: str) -> None:
        """Add a message whose turn it is, beside others: it is with a reader, or pauses."""
        self._join(number, name).turn.add(number)

    def hold_again(self, number: int) -> None:
        """A message that was behind is with a reader."""
        group = self._of.get(number)
        if group is not None:
            group.turn.add(number)

    def _join(self, number: int, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        self._of[number] = group
        return group

    def put_behind(self, message: QueuedMessage) -> None:
        """Take its turn from a message that is on the shelf no longer: another comes before it."""
        group = self._of[message.number]
        group.turn.discard(message.number)
        self._put_behind(group, message)

    def _put_behind(self, group: Group, message: QueuedMessage) -> None:
        place = self._place(message)
        heappush(group.behind, (place, message.number))
        self.behind.add(message.number, message, place)

    def back(self, message: QueuedMessage) -> QueuedMessage | None:
        """Return the message to be on the shelf when one comes back: none if others are with a reader."""
        self.put_behind(message)
        return self._promote(self._of[message.number])

    def leave(self, number: int) -> QueuedMessage | None:
        """Remove a message that is gone; return the one whose turn it is now, if it was that one's."""
        group = self._of.pop(number, None)
        if group is None:
            return None
        group.turn.discard(number)
        if number in self.behind:
            self.behind.remove(number)
        return self._promote(group)

    def _promote(self, group: Group) -> QueuedMessage | None:
        """Give the first of those behind its turn, if it is nobody else's."""
        if group.turn:
            return None
        self._disown(group)
        first = self._first(group)
        if first is None:
            self._groups.pop(group.name, None)
            return None
        return self._advance(group)

    def _first(self, group: Group) -> QueuedMessage | None:
        behind = group.behind
        while behind and (behind[0][1] not in self.behind or self._of.get(behind[0][1]) is not group):
            heappop(behind)
        return self.behind[behind[0][1]] if behind else None

    def _advance(self, group: Group) -> QueuedMessage:
        _, number = heappop(group.behind)
        group.turn.add(number)
        return self.behind.remove(number)

    # Owners

    def own(self, number: int, owner: Hashable) -> None:
        """A message is handed to one who may have more of its group."""
        group = self._of.get(number)
        if group is not None and group.owner != owner:
            self._disown(group)
            group.owner = owner
            self._owned.setdefault(owner, {})[group] = None

    def owner_of(self, name: str) -> Hashable:
        """Return who owns a group; None if nobody does."""
        group = self._groups.get(name)
        return None if group is None else group.owner

    def _disown(self, group: Group) -> None:
        if group.owner is not None:
            owned = self._owned[group.owner]
            del owned[group]
            if not owned:
                del self._owned[group.owner]
            group.owner = None

    def following(self, owner: Hashable) -> Iterator[QueuedMessage]:
        """Yield the first of those behind in each group that one owns; the next, if that one is handed to it.

        The caller takes a message by `advance` before it asks for the next one, or is done with that group.
        """
        for group in list(self._owned.get(owner, ())):
            before = None
            while (message := self._first(group)) is not None and message is not before:
                before = message
                yield message

    def advance(self, message: QueuedMessage) -> None:
        """Take out a message that `following` has yielded: it has its turn too."""
        self._advance(self._of[message.number])

    def clear(self) -> Iterator[QueuedMessage]:
        """Take out all messages that are behind."""
        self._groups, self._of, self._owned = {}, {}, {}
        return self.behind.clear()
