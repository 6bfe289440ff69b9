"""A group and all groups below it, kept by several nodes: what more than half of them have is agreed.

One of these nodes is the *home*, which decides; the others are *deputies*. The home sends them its events, in
their order, each of which has an index. What more than half of the nodes have stored is *agreed*, and is not
lost whichever nodes die. The home answers nobody before: so nothing is spent at a home that is cut off.

If the home is gone, a deputy stands for home in the next *generation*, a number that only grows. More than
half of the nodes must grant it that. A node grants each generation once, and only to a node that has all that
it has itself. So there are never two homes of one generation, none lacks what was agreed, and what an earlier
home decides is not agreed any more. It steps back when it hears of the later generation.

Which nodes these are changes by an event, too: one node joins or goes at a time, so more than half of those
before and more than half of those after have a node in common. It counts for a node from when it has that
event, agreed or not. One that joins is a *learner* before: it gets all, and does not count.

These are the rules of Raft (Ongaro, Ousterhout 2014). But the state is small and the events are not kept: a
deputy gets a copy of the whole state when a generation begins, and whenever it lacks events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tidings.agents.arguments import Id
from tidings.agents.events import AnyHappening, Deputed, Ended, Entered, Granted, Opened, decode_happening
from tidings.agents.ledger import GroupLedger
from tidings.agents.records import AgentRecord, GroupRecord
from tidings.errors import AgentError
from tidings.protocol.arguments import Name

VOTERS_MAX = 7
"""Nodes that keep a group, its home among them."""
EVENTS_AT_ONCE = 64
"""Events in one message."""
BEHIND_MAX = 1_000
"""Events that are held for a deputy that lacks them; then it gets a copy."""
COPIED_AT_ONCE = 128
"""Members of a group in one message of a copy; each has a result, maybe."""

Number = Annotated[int, Meta(ge=0)]


class KeepGroups(Struct, frozen=True):
    """The arguments of `agent.keep`: events behind an index, or a part of a copy as of that."""

    tree: Id
    home: Name
    voters: Annotated[dict[Name, Name], Meta(max_length=VOTERS_MAX)]
    generation: Number
    before: Number
    events: Annotated[list[tuple[Id, bytes]], Meta(max_length=EVENTS_AT_ONCE)] = []
    copy: bytes = b""
    part: Number = 0
    parts: Number = 0


class Kept(Struct, frozen=True):
    """The answer: the generation that the deputy knows, and up to where it has all events of that.

    An index of -1 asks for a copy, of which it has so many parts.
    """

    generation: int
    index: int = -1
    parts: int = 0


class StandForHome(Struct, frozen=True):
    """The arguments of `agent.vote`: a node wants to be the home, and has all up to an index.

    A probe asks what would be answered, and changes nothing.
    """

    tree: Id
    node: Name
    generation: Number
    of_generation: Number
    index: Number
    is_probe: bool = False


class HomeVote(Struct, frozen=True):
    """The answer: whether it is granted, the generation that is known, and the home of that, if any is."""

    granted: bool
    generation: int
    home: str = ""


class KeptRecord(Struct, kw_only=True):
    """What is stored of a tree beside its groups."""

    voters: dict[str, str]  # names by id
    home: str  # the last one that is known
    promised: int = 0  # the highest generation that is known
    generation: int = 0  # the one in which `index` was reached
    index: int = 0
    groups: list[str] = []
    is_out: bool = False  # this node keeps it no more, and knows who does
    is_over: bool = False  # all have ended, and all deputies know


class _Deputy:
    """What the home knows of a deputy."""

    def __init__(self) -> None:
        self.has: int | None = None  # None: it needs a copy
        self.heard = 0  # the last question that it has answered
        self.copy: list[bytes] = []
        self.copied = self.part = 0


class KeptTree:
    """What one node has of a tree of groups; `changed` are the members that are to be stored."""

    def __init__(
        self, node: str, tree: str, record: KeptRecord, ledgers: dict[str, GroupLedger] | None = None
    ) -> None:
        self.tree = tree
        self.record = record
        self.ledgers = ledgers or {}
        self.is_home = False
        self.learners: dict[str, None] = {}
        self.changed: dict[tuple[str, str], None] = {}
        self._node = node
        self._deputies: dict[str, _Deputy] = {}
        self._events: deque[tuple[str, bytes]] = deque()  # those before `index`
        self._asked = 0  # questions to the deputies
        self._parts: list[CopiedGroup] = []
        self._parts_of: tuple[int, int] | None = None

    @property
    def others(self) -> list[str]:
        """The other nodes that keep it."""
        return [one for one in self.record.voters if one != self._node]

    @property
    def followers(self) -> list[str]:
        """The other nodes that get all that the home decides."""
        return [*self.others, *self.learners]

    @property
    def is_voter(self) -> bool:
        """Whether this node is one of those of which more than half must agree."""
        return self._node in self.record.voters

    @property
    def has_ended(self) -> bool:
        """Whether its first group has, and with it all others."""
        root = self.ledgers.get(self.tree)
        return root is not None and root.group.phase == "ended"

    def is_open_as(self, name: str) -> bool:
        """Whether a group of this name has not ended."""
        groups = (one.group for one in self.ledgers.values())
        return any(one.name == name and one.phase != "ended" for one in groups)

    def is_majority(self, count: int) -> bool:
        """Whether so many of the nodes are more than half."""
        return 2 * count > len(self.record.voters)

    # The home

    def begin(self, generation: int) -> None:
        """Be the home of a generation."""
        record = self.record
        record.home, record.promised, record.generation = self._node, generation, generation
        self.is_home, self.learners = True, {}
        self._deputies = {one: _Deputy() for one in self.others}
        self._events.clear()

    def learn(self, node: str) -> None:
        """Have a node get all, though it does not count."""
        self.learners[node] = None
        self._deputies.setdefault(node, _Deputy())

    def unlearn(self, node: str) -> None:
        """Have it get nothing more, unless it counts."""
        self.learners.pop(node, None)
        if node not in self.record.voters:
            self._deputies.pop(node, None)

    def step_back(self) -> None:
        """Be the home no longer; what was not agreed may be overruled by a copy."""
        self.is_home = False
        self._events.clear()
        self.ledgers = joined(map(read_part, parts_of(self.ledgers)))  # nobody else changes these

    def propose(self, group: str, events: Iterable[AnyHappening]) -> int:
        """Have the deputies store events, which the ledgers have applied; return the index of the last."""
        for event in events:
            self._events.append((group, msgspec.json.encode(event)))
            self.record.index += 1
            if isinstance(event, Deputed):
                self.record.voters = event.voters
                self.learners = {one: None for one in self.learners if one not in event.voters}
                for node in self.others:
                    self._deputies.setdefault(node, _Deputy())
        while len(self._events) > BEHIND_MAX:
            self._events.popleft()
        return self.record.index

    def ask(self) -> int:
        """Return the number of a question: whether more than half still know this home."""
        self._asked += 1
        return self._asked

    @property
    def answered(self) -> int:
        """The last question that more than half have answered."""
        return self._reached(self._asked, lambda one: one.heard)

    @property
    def agreed(self) -> int:
        """The index up to which more than half have all, in this generation."""
        return self._reached(self.record.index, lambda one: one.has or 0)

    def _reached(self, own: int, of: Callable[[_Deputy], int]) -> int:
        values = sorted([own, *(of(self._deputies[one]) for one in self.others)])
        return values[(len(values) - 1) // 2]

    def has(self, node: str, index: int) -> bool:
        """Whether a deputy, or a learner, has got all up to an index."""
        deputy = self._deputies.get(node)
        return deputy is not None and deputy.has is not None and deputy.has >= index

    def lacks(self, node: str) -> bool:
        """Whether a deputy has not got all, or was not asked the last question."""
        deputy = self._deputies[node]
        return deputy.has != self.record.index or deputy.heard < self._asked

    def message(self, node: str) -> tuple[int, KeepGroups]:
        """Return the next message to a deputy, with the number of the last question."""
        deputy, record = self._deputies[node], self.record
        about = self.tree, self._node, record.voters, record.generation
        first = record.index - len(self._events)
        if deputy.has is None or deputy.has < first:
            if not deputy.copy:
                deputy.copy, deputy.copied, deputy.part = parts_of(self.ledgers), record.index, 0
            part = deputy.copy[deputy.part]
            size = len(deputy.copy)
            copying = KeepGroups(*about, deputy.copied, copy=part, part=deputy.part, parts=size)
            return self._asked, copying
        start = deputy.has - first
        events = [self._events[at] for at in range(start, min(len(self._events), start + EVENTS_AT_ONCE))]
        return self._asked, KeepGroups(*about, deputy.has, events)

    def hear_answer(self, node: str, question: int, answer: Kept) -> bool:
        """Take the answer of a deputy; False if there is a later generation."""
        deputy = self._deputies.get(node)
        if deputy is None:
            return True  # it has gone meanwhile
        if answer.generation > self.record.promised:
            self.record.promised = answer.generation
            return False
        if answer.generation < self.record.generation:
            return True  # none of this generation
        deputy.heard = max(deputy.heard, question)
        if deputy.copy and answer.index != deputy.copied:
            deputy.part = answer.parts if answer.parts < len(deputy.copy) else 0
        elif answer.index < 0:
            deputy.has = None
        else:
            deputy.copy, deputy.has = [], max(answer.index, deputy.has or 0)
        return True

    # A deputy

    def hear(self, message: KeepGroups) -> Kept:
        """Take a message of the home; stored before it is answered. AgentError for what can't follow."""
        record = self.record
        if message.generation < record.promised:
            return Kept(record.promised)
        record.promised, record.home = message.generation, message.home
        if message.parts:
            return self._hear_part(message)
        if message.generation != record.generation or message.before > record.index:
            return Kept(record.promised)
        for group, body in message.events[record.index - message.before :]:
            self._apply(group, body)
            record.index += 1
        return Kept(record.promised, record.index)

    def _hear_part(self, message: KeepGroups) -> Kept:
        record, copy = self.record, (message.generation, message.before)
        if copy == (record.generation, record.index):
            return Kept(record.promised, record.index)
        if self._parts_of != copy or message.part == 0:
            self._parts, self._parts_of = [], copy
        if message.part == len(self._parts):
            self._parts.append(read_part(message.copy))
        if len(self._parts) < message.parts:
            return Kept(record.promised, parts=len(self._parts))
        before, self.ledgers = self.ledgers, joined(self._parts)
        self._parts, self._parts_of = [], None
        record.generation, record.index = copy
        record.groups = list(self.ledgers)
        self._adopt(message.voters)
        for group, ledger in [*before.items(), *self.ledgers.items()]:
            self.changed[group, ""] = None
            self.changed |= dict.fromkeys((group, agent) for agent in ledger.members)
        return Kept(record.promised, record.index)

    def _apply(self, group: str, body: bytes) -> None:
        try:
            event = decode_happening(body)
            if isinstance(event, Opened):
                self.ledgers[group] = GroupLedger.opened(event)
                self.record.groups.append(group)
            else:
                self.ledgers[group].apply(event)
        except (msgspec.DecodeError, KeyError, AssertionError) as error:
            raise AgentError(group, f"an event does not follow from those before it: {error!r}") from None
        self.changed |= dict.fromkeys((group, one) for one in changed_by(self.ledgers[group], event))
        if isinstance(event, Deputed):
            self._adopt(event.voters)

    def _adopt(self, voters: dict[str, str]) -> None:
        self.record.is_out = self.is_voter and self._node not in voters
        self.record.voters = voters

    def part(self) -> None:
        """Keep it no more, but who its home is; one that joins again needs a copy."""
        self.record.generation = self.record.index = 0
        self.record.is_out, self.ledgers = True, {}

    # Standing for home

    def standing(self, is_probe: bool) -> StandForHome:
        """Return what the others are asked; but for a probe this node grants it to itself."""
        record = self.record
        generation = record.promised + 1
        if not is_probe:
            record.promised = generation
        return StandForHome(self.tree, self._node, generation, record.generation, record.index, is_probe)

    def vote(self, request: StandForHome, is_home_there: bool) -> HomeVote:
        """Answer a node that wants to be the home; to be stored before it is answered."""
        record = self.record
        has_all = (request.of_generation, request.index) >= (record.generation, record.index)
        is_there = self.is_home or (is_home_there and request.node != record.home)
        granted = request.generation > record.promised and has_all and not is_there
        granted &= request.node in record.voters
        if granted and not request.is_probe:
            record.promised = request.generation
        return HomeVote(granted, record.promised, record.home if is_there else "")


def changed_by(ledger: GroupLedger, event: AnyHappening) -> list[str]:
    """Return the members whose records an event has changed, with "" for that of the group itself."""
    agent = getattr(event, "agent", "")
    if not agent:
        return [""]
    if isinstance(event, Entered) and event.life == 1:
        return [agent, event.parent, ""]
    if isinstance(event, Granted | Ended):  # money has passed between it and its parent
        return [agent, ledger.living_parent(ledger.members[agent])]
    return [agent]


CopiedGroup = tuple[GroupRecord, list[AgentRecord]]
"""A group with some of its members: a part of a copy."""
_PART: msgspec.msgpack.Decoder[CopiedGroup] = msgspec.msgpack.Decoder(CopiedGroup)


def parts_of(ledgers: dict[str, GroupLedger]) -> list[bytes]:
    """Return groups with their members as the parts of a copy."""
    parts = []
    for ledger in ledgers.values():
        members = list(ledger.members.values())
        for start in range(0, max(1, len(members)), COPIED_AT_ONCE):
            part = ledger.group, members[start : start + COPIED_AT_ONCE]
            parts.append(msgspec.msgpack.encode(part))
    return parts


def read_part(part: bytes) -> CopiedGroup:
    """Return what a part of a copy has; AgentError if it is none."""
    try:
        return _PART.decode(part)
    except msgspec.DecodeError as error:
        raise AgentError("the group", f"its copy can't be read: {error}") from None


def joined(parts: Iterable[CopiedGroup]) -> dict[str, GroupLedger]:
    """Return the groups of a whole copy."""
    groups: dict[str, GroupRecord] = {}
    members: dict[str, list[AgentRecord]] = {}
    for group, some in parts:
        groups[group.group] = group
        members.setdefault(group.group, []).extend(some)
    return {name: GroupLedger(group, members[name]) for name, group in groups.items()}
