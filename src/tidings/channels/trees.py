"""The part of a node in the trees of its channels: restricted broadcast over the links of the network's tree.

A node *takes part* in a channel if it has members, or lies between nodes that have. It has a record of the
channel then, with the neighbours that take part: these form a tree, as they are a connected part of the
network's tree. An event goes to all of them save the one it came from; other nodes know nothing of the
channel.

| message | what it does |
| --- | --- |
| join | the sender takes part over this link; a node that did not goes on towards the one that was found |
| leave | the sender does not any more |
| renew | the channel has a new reference |

A node that has no members and one neighbour leaves. Two neighbours may do so at once: then the one with the
smaller id stays, as a channel lives until it is deleted, with no members too. A node that leaves, or has left
since it was found, refuses a join, and the joining node searches again.

When the network's tree loses a link, the channel is torn. Both ends of that link search for all nodes that
take part, and join towards each of them, and so does a node that reaches any nodes over another link than
before. Until that is done, events that are stored for nodes which are reached over other links now wait,
nothing that was announced is taken back, and events of the channel are stored for the lost neighbour too, for
as long as the overlay keeps anything for it: what goes to it now will go the new way. Nodes that can't be
asked may take part, so they join towards these too: the last node that is reached stores events for what is
behind it *on loan*, until it can ask. A node that starts again does not know what has happened meanwhile, so
it does the same. If the tree has only grown, all that take part join towards the one with the smallest id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from tidings.channels.description import (
    ChannelDescription,
    ChannelPlace,
    ChannelQuery,
    FoundChannels,
    StoredChannel,
)
from tidings.channels.participation import ChannelLinks, Participation, Participations
from tidings.errors import Refused, TidingsError
from tidings.replies import Deferred, all_of, failed, ignore, resolved

AGAIN_S = 0.2
"""How long to wait before a channel is joined again, or left, that could not be."""
LATER_S = 2.0
"""The same where nodes can't be asked, which may last long."""
ATTEMPTS_MAX = 10
"""How often a channel is joined again before events that go other ways now wait no longer for it."""


class ChannelTrees:
    """All channels in which a node takes part; `keep` stores what has changed of one, None if it is gone."""

    def __init__(
        self, node: str, links: ChannelLinks, keep: Callable[[str, StoredChannel | None], None]
    ) -> None:
        self._node = node
        self._links = links
        self._keep = keep
        self._parts = Participations()
        self.find = self._parts.find

    def __iter__(self) -> Iterator[Participation]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def get(self, channel: str) -> Participation | None:
        """Return a channel in which this node takes part."""
        return self._parts.get(channel)

    def restore(self, stored: StoredChannel) -> None:
        """Go on with a channel of the last life."""
        part = Participation(stored.channel, stored.neighbours)
        part.is_begun = True
        self._parts.add(part)
        self._parts.tear(part)  # what has happened meanwhile is not known
        part.attempts = 1
        part.loans.update(stored.neighbours)

    @property
    def is_awaited(self) -> bool:
        """Whether channels are being joined again, so that it is not known yet which ways their events go."""
        return any(
            part.attempts <= ATTEMPTS_MAX and (part.attempts > 0 or self._can_ask(part))
            for part in self._parts.torn
        )

    def _can_ask(self, part: Participation) -> bool:
        """Whether a neighbour can be asked now that could not be before."""
        return any(map(self._links.is_up, part.unasked))

    # Members

    def create(self, channel: ChannelDescription) -> None:
        """Begin a channel, which no other node knows."""
        part = self._begin(channel)
        part.is_begun = True
        self._store(part)
        if set(part.homes) - {self._node}:
            self._parts.tear(part)
            self._mend(part)

    def _begin(self, channel: ChannelDescription) -> Participation:
        part = Participation(channel)
        self._parts.add(part)
        part.homes = self._links.homes(channel.id)
        return part

    def enter(self, channel: ChannelDescription, places: list[ChannelPlace]) -> Deferred[None]:
        """Have events of a channel come here, for a member that will be; `places` take part in it."""
        part = self._parts.get(channel.id)
        if part is not None and part.leaving:
            return failed(Refused("busy", "the channel is being left; join it again"))
        if part is None:
            part = self._begin(channel)
            nearest = min(places, key=lambda place: (place.distance, place.node))
            part.joining = self._join(part, [nearest.node], is_through=False)
        part.arriving += 1
        part.joining.then(partial(self._begun, part), lambda _error: self._arrived(part))
        return part.joining

    def _begun(self, part: Participation, _none: object) -> None:
        part.is_begun = True

    def entered(self, channel: str) -> None:
        """A member that was to come is here."""
        if (part := self._parts.get(channel)) is not None:
            part.members += 1
            part.meter.joins += 1

    def arrived(self, channel: str) -> None:
        """A member that was to come has, or won't."""
        if (part := self._parts.get(channel)) is not None:
            self._arrived(part)

    def _arrived(self, part: Participation) -> None:
        part.arriving -= 1
        self._prune(part)

    def left(self, channel: str) -> None:
        """A member is gone."""
        if (part := self._parts.get(channel)) is not None:
            part.members -= 1
            part.meter.leaves += 1
            self._prune(part)

    def drop(self, part: Participation) -> None:
        """Forget a channel that was deleted, or never joined."""
        for node in part.neighbours:
            self._links.unwant(node, part.channel)
        self._forget(part)

    def _forget(self, part: Participation) -> None:
        self._parts.remove(part)
        self._keep(part.channel.id, None)

    # References

    def renew(self, channel: ChannelDescription, told_by: str = "") -> None:
        """Take a newer reference of a channel, and tell the others that take part."""
        part = self._parts.get(channel.id)
        if part is not None and channel.is_newer(part.channel):
            part.channel = channel
            self._store(part)
            for node in part.neighbours:
                if node != told_by:
                    self._tell_renewed(part, node)

    def _tell_renewed(self, part: Participation, node: str) -> None:
        """Tell a neighbour the reference of a channel, until it has it or takes part no longer."""

        def again(error: TidingsError) -> None:
            if not isinstance(error, Refused):  # then it has an earlier release
                self._links.later(LATER_S, partial(self._tell_renewed, part, node))

        if node in part.neighbours and part in self._parts:
            self._links.ask(node, "link.channel.renew", {"channel": part.channel}).then(ignore, again)

    # Joining

    def joined_by(
        self, node: str, channel: ChannelDescription, towards: Sequence[str], is_through: bool
    ) -> Deferred[None]:
        """A neighbour takes part; the reply comes when events come to it, and its own are wanted."""
        part = self._parts.get(channel.id)
        if part is not None and part.leaving:
            return failed(Refused("busy", "the channel is being left; join it again"))
        is_new = part is None
        further = [one for one in towards if one != self._node] if is_new or is_through else []
        if is_new and not further and not is_through:  # it was found here, and has been left meanwhile
            return failed(Refused("busy", "the channel was left; join it again"))
        if part is None:
            part = self._begin(channel)
        beyond = part.joining
        if further:
            if any(self._links.way(one) in (node, None) for one in further):
                if is_new:
                    self._parts.remove(part)
                return failed(Refused("no-way", "the tree has another shape here, for now"))
            beyond = self._join(part, further, is_through)
            if is_new:
                part.joining = beyond
        undo = ignore if node in part.neighbours else lambda _error: self._give_up(part, node)
        part.tentative.discard(node)
        wanted = self._take_part(part, node)
        self.renew(channel, node)
        if part.channel.is_newer(channel):
            self._tell_renewed(part, node)
        beyond.then(partial(self._begun, part), undo)
        joined = all_of([beyond, wanted])
        joined.then(lambda _none: self._prune(part), ignore)  # it may have been the last one, without members
        return joined

    def _join(self, part: Participation, towards: Sequence[str], is_through: bool) -> Deferred[None]:
        """Join over the links that lead to some nodes."""
        steps: dict[str, list[str]] = {}
        for node in towards:
            step = self._links.way(node)
            if step is None:
                self._prune(part)
                return failed(Refused("no-way", "no way leads to a node that has the channel"))
            steps.setdefault(step, []).append(node)
        return all_of([self._join_over(part, step, nodes, is_through) for step, nodes in steps.items()])

    def _join_over(
        self, part: Participation, step: str, towards: list[str], is_through: bool
    ) -> Deferred[None]:
        """Join over the link to a neighbour; `is_through`: as far as the last node, though it takes part."""
        if step in part.neighbours and not is_through:
            return part.joining
        if is_through and not self._links.is_up(step):
            self._lend(part, step)
            return resolved(None)
        is_new = step not in part.neighbours
        wanted = self._take_part(part, step)
        arguments = {"channel": part.channel, "towards": towards, "through": is_through}
        arguments |= self._links.marks(part.channel.id)
        asked = self._links.ask(step, "link.channel.join", arguments)
        if not part.is_begun:
            asked.then(partial(self._links.learn, part.channel.id), ignore)
        if is_new:
            part.tentative.add(step)
        asked.then(partial(self._was_asked, part, step), partial(self._was_refused, part, step))
        return all_of([asked, wanted])

    def _was_asked(self, part: Participation, step: str, _told: object) -> None:
        part.unasked.discard(step)
        part.tentative.discard(step)

    def _was_refused(self, part: Participation, step: str, _error: TidingsError) -> None:
        """Exchange no events with a neighbour that could not join, unless it has done so by itself."""
        if step in part.tentative:
            part.tentative.discard(step)
            self._give_up(part, step)

    def _lend(self, part: Participation, step: str) -> None:
        """Store events for a neighbour, and ask it later whether it takes part."""
        if part.is_torn or step not in part.neighbours:
            part.unasked.add(step)
        if step not in part.neighbours:
            part.neighbours[step] = None
            part.loans.add(step)
            self._links.lend(step, part.channel)
            self._links.want(step, part.channel)  # it learns that with what else is wanted, when it is back
            self._store(part)
            if not part.is_torn:
                self._parts.tear(part)
                self._mend_later(part, part.mending, None)

    def _take_part(self, part: Participation, node: str) -> Deferred[None]:
        """Exchange the events of a channel with a neighbour."""
        part.neighbours[node] = None
        part.leaves_behind = None
        self._store(part)
        return self._links.want(node, part.channel)

    def _give_up(self, part: Participation, node: str) -> None:
        """Exchange them no longer."""
        if node in part.neighbours and part in self._parts:
            del part.neighbours[node]
            self._links.unwant(node, part.channel)
            self._store(part)
            self._prune(part)

    # Leaving

    def left_by(self, node: str, channel: str) -> None:
        """A neighbour takes part no longer; Refused if it has to stay, as this node leaves too."""
        part = self._parts.get(channel)
        if part is None or node not in part.neighbours:
            return
        if part.leaving == node and self._node > node:
            raise Refused("exists", "both nodes leave the channel: the one with the smaller id stays")
        self._give_up(part, node)

    def review(self, channel: str) -> None:
        """Leave a channel that this node is not needed for any more."""
        if (part := self._parts.get(channel)) is not None:
            self._prune(part)

    def _prune(self, part: Participation) -> None:
        """Leave a channel that this node is not needed for, if another has it."""
        channel = part.channel
        if part.is_needed or part.leaving or part.is_torn or part not in self._parts:
            return
        if self._links.is_bound(channel.id):
            return
        if not part.joining.is_over:
            part.joining.then(lambda _none: self._prune(part), lambda _error: self._prune(part))
            return
        if not part.neighbours and not part.is_begun:
            self.drop(part)
        elif part.neighbours:
            (node,) = part.neighbours
            part.former = {one for one in part.former if self._links.is_kept(one)}
            if part.leaves_behind is None:
                part.leaves_behind = self._links.position
            if part.former or self._links.confirmed(node) < part.leaves_behind:
                self._prune_later(part, node)
                return
            part.leaving, part.leaves_behind = node, None
            asked = self._links.ask(node, "link.channel.leave", {"channel": channel.id})
            asked.then(partial(self._has_left, part), partial(self._has_stayed, part))

    def _prune_later(self, part: Participation, node: str) -> None:
        """Leave when what is kept here for a neighbour is confirmed."""
        if part.is_waiting:
            return
        part.is_waiting = True

        def again() -> None:
            part.is_waiting = False
            self._prune(part)

        self._links.later(AGAIN_S if self._links.is_up(node) else LATER_S, again)

    def _has_left(self, part: Participation, _told: object) -> None:
        node, part.leaving = part.leaving, ""
        if part not in self._parts:
            return
        part.neighbours.pop(node, None)
        self._links.unwant(node, part.channel)
        if not part.members and not part.arriving and not part.neighbours:
            self._forget(part)
        else:
            self._store(part)
            part.joining = self._join(part, [node], is_through=False)

    def _has_stayed(self, part: Participation, error: TidingsError) -> None:
        part.leaving = ""
        if not isinstance(error, Refused):  # the link was lost
            self._links.later(LATER_S, partial(self._prune, part))

    # When the network's tree changes

    def follow_tree(self, has_grown: bool, left: Collection[str] = ()) -> None:
        """Go on over the links that there are; `has_grown`: nodes are reached that were not.

        `left` has the neighbours behind which there were nodes that are behind others now.
        """
        for part in self:
            have_moved = any(map(part.is_shared_with, left))
            lost = [one for one in part.neighbours if not self._links.is_near(one)]
            back = [one for one in part.former if self._links.is_near(one)]
            part.former = {one for one in [*part.former, *lost] if self._links.is_kept(one)}
            part.former.difference_update(back)
            for node in lost:
                del part.neighbours[node]
                self._links.unwant(node, part.channel)
            part.neighbours.update(dict.fromkeys(back))
            part.loans.update(back)
            for node in part.neighbours:
                self._links.want(node, part.channel)
            if lost or back or has_grown or have_moved or part.homes != self._links.homes(part.channel.id):
                self._parts.tear(part)
                part.attempts = 1 if lost or back or have_moved or part.former else part.attempts
            if part.is_torn:
                self._store(part)
                self._mend(part)

    def _mend(self, part: Participation) -> None:
        """Join the other parts into which a channel was torn; what became of former attempts is of no use."""
        if part in self._parts and part.is_torn:
            part.mending += 1
            found = self._links.find(ChannelQuery(id=part.channel.id))
            number = part.mending
            found.then(partial(self._mended, part, number), partial(self._mend_later, part, number))

    def _mended(self, part: Participation, number: int, found: FoundChannels) -> None:
        if number != part.mending:
            return
        others = {place.node for place in found.places} - {self._node}
        if not part.attempts and self._can_ask(part):
            part.attempts = 1
        if part.attempts:
            others.update(found.missing)
        else:
            others = {one for one in others if one == min(others) < self._node}
        part.homes = self._links.homes(part.channel.id)
        others.update(set(part.homes) - {self._node})
        joined = self._join(part, sorted(others), is_through=True)
        joined.then(partial(self._is_whole, part, number, found), partial(self._mend_later, part, number))

    def _is_whole(self, part: Participation, number: int, found: FoundChannels, _none: object) -> None:
        if number != part.mending:
            return
        part.attempts = 0
        part.unasked = {one for one in part.unasked if not self._links.is_up(one)}
        part.former = {one for one in part.former if not self._links.is_near(one)}
        if found.missing:  # others may take part that were not asked
            self._mend_later(part, number, None)
        else:
            self._parts.mend(part)
            ways = {self._links.way(place.node) for place in found.places}
            for node in part.loans - ways:
                self._give_up(part, node)
            part.loans.clear()
            part.unasked.clear()
            self._prune(part)

    def _mend_later(self, part: Participation, number: int, _error: TidingsError | None) -> None:
        if number != part.mending:
            return
        part.attempts += bool(part.attempts)
        is_soon = 0 < part.attempts <= ATTEMPTS_MAX

        def again() -> None:
            if number == part.mending:
                self._mend(part)

        self._links.later(AGAIN_S if is_soon else LATER_S, again)

    def _store(self, part: Participation) -> None:
        self._keep(part.channel.id, StoredChannel(part.channel, (*part.neighbours, *part.former)))
