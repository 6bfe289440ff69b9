"""Total order in a channel: a sequencer that numbers events, and what the others agree to.

The nodes that have members are the *voters* of a channel. One of them is the sequencer: it lists the events
that have come to it, in *entries* of a log that all voters keep, as Raft does (Ongaro, Ousterhout 2014).
Events themselves go the ways of the channel, and only their numbers are listed. An entry is *agreed* when
more than half of the voters have stored it; members get its events then, and not before: so no two of them
get events in different orders, whichever nodes die or are cut off.

| message | what it does |
| --- | --- |
| AppendEntries | the sequencer's entries behind one that the voter has, and up to where they are agreed |
| Appended | the voter has stored them; or has others, and asks again from an earlier one |
| Vote, Voted | a voter whose events were not listed for too long wants to be the sequencer of a new term |
| BeginSequence | where a new voter begins: behind which entry |
| Succeed | the sequencer is no voter any more: the voter that has most stands at once |
| Join, LeaveVoters | a node has members, or none any more; the sequencer lists new voters, one at a time |

Nothing is sent while nothing is to be agreed. Terms, not clocks, decide who is the sequencer. Entries are
kept until all voters have them, LOG_MAX at most; then nothing is listed until a voter that has not answered
for PART_S has been parted from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidings.channels.sequence_messages import (
    Appended,
    AppendEntries,
    BeginSequence,
    Join,
    LeaveVoters,
    SequenceEntry,
    SequencerMessage,
    SequencerState,
    Succeed,
    Vote,
    Voted,
)

LOG_MAX = 1_000
"""Entries that are kept for voters that lack them."""
SENT_MAX = 100
"""Entries in one message."""
AGAIN_S = 1.0
"""After how long what was not answered is sent again."""
PATIENCE_S = 3.0
"""How long events may wait for the sequencer before another is chosen; some wait up to twice as long."""
HOPS_MAX = 8
"""Nodes that pass on to the sequencer that another wants to be a voter."""
PART_S = 60.0
"""How long a voter may be silent while entries are kept for it; then it is parted from, if they are many."""


class _Follower:
    """How far a voter is known to have come."""

    def __init__(self, following: int, now: float) -> None:
        self.following = following  # the next entry to send
        self.has = 0
        self.asked_at = -AGAIN_S
        self.heard_at = now


class Sequencer:
    """One node's part in the order of a channel; `tell` sends a message to another, which may be lost.

    `chance` returns a number from 0 to 1. After each call `is_changed` says whether the state must be stored
    before what was told may leave.
    """

    def __init__(
        self,
        node: str,
        tell: Callable[[str, SequencerMessage], None],
        chance: Callable[[], float],
        state: SequencerState | None = None,
    ) -> None:
        self._node = node
        self._tell = tell
        self._chance = chance
        stored = state or SequencerState()
        self.term, self._voted = stored.term, stored.voted
        self._base, self._base_term = stored.base, stored.base_term
        self._base_voters, self._base_listed = stored.voters, dict(stored.listed)
        self._entries = list(stored.entries)
        self.passed = self.agreed = stored.passed
        self.leader = ""
        self._votes: set[str] | None = None  # those had, if this node wants to be the sequencer
        self._followers: dict[str, _Follower] = {}
        self._first = 0  # entry with which its term as the sequencer began
        self._wishes: dict[str, bool] = {}  # nodes that want to be voters, or no longer
        self._patience: float | None = None
        self._is_urged = False  # a voter that lacks entries wants to be the sequencer, and can't
        self._is_leaving = stored.leaving
        self.is_changed = False
        self._follow_log()

    @property
    def state(self) -> SequencerState:
        """What is to be stored."""
        base = self._base, self._base_term, self._base_voters, self._base_listed
        entries = tuple(self._entries)
        return SequencerState(self.term, self._voted, *base, entries, self.passed, self.is_leaving)

    # The log

    @property
    def last(self) -> int:
        """The index of the last entry."""
        return self._base + len(self._entries)

    def entry(self, index: int) -> SequenceEntry:
        """Return an entry that is kept."""
        return self._entries[index - self._base - 1]

    def _term_of(self, index: int) -> int:
        return self._base_term if index == self._base else self.entry(index).term

    def _follow_log(self) -> None:
        """Find the voters, and what is listed, by the whole log: agreed or not, the last voters count."""
        self.voters, self.listed, self._voted_in = self._base_voters, dict(self._base_listed), self._base
        for index, entry in enumerate(self._entries, self._base + 1):
            self._note(index, entry)
        self._is_leaving &= self.is_voter

    def _note(self, index: int, entry: SequenceEntry) -> None:
        if entry.mark < 0:
            self.voters, self._voted_in = entry.voters, index
        else:
            self.listed[entry.mark] = max(entry.last, self.listed.get(entry.mark, 0))

    def _add(self, entry: SequenceEntry) -> None:
        self._entries.append(entry)
        self._note(self.last, entry)
        self._is_leaving &= self.is_voter
        self.is_changed = True

    def _trim(self, index: int) -> None:
        """Keep nothing up to an entry that all voters have, and whose events members here have got."""
        index = min(index, self.passed)
        if index <= self._base:
            return
        term = self._term_of(index)
        for entry in self._entries[: index - self._base]:
            if entry.mark < 0:
                self._base_voters = entry.voters
            else:
                self._base_listed[entry.mark] = max(entry.last, self._base_listed.get(entry.mark, 0))
        del self._entries[: index - self._base]
        self._base, self._base_term = index, term
        self.is_changed = True

    # Who takes part

    @property
    def is_voter(self) -> bool:
        """Whether this node is one of the voters."""
        return self._node in self.voters

    @property
    def is_leaving(self) -> bool:
        """Whether this node has asked to be no voter: it may be none already, and not have heard that."""
        return self._is_leaving and not self._is_only

    @property
    def _is_only(self) -> bool:
        """Whether no other node is a voter."""
        return self.voters == (self._node,)

    def is_as_wanted(self, is_voter: bool) -> bool:
        """Whether this node is a voter for sure, or for sure none; the only one stays one."""
        return self._is_only or (self.is_voter is is_voter and not self.is_leaving)

    def leave(self, now: float) -> None:
        """Have this node be no voter any more."""
        if self.is_voter and not self.is_leaving:
            self._is_leaving = self.is_changed = True
        self.wish(self._node, False, now)

    @property
    def is_leader(self) -> bool:
        """Whether this node is the sequencer."""
        return self.leader == self._node

    @property
    def is_alone(self) -> bool:
        """Whether this node agrees with itself alone, and has no entries to agree to."""
        return self.is_leader and self._is_only and not self._entries

    def create(self, now: float) -> None:
        """BeginSequence a channel, of which this node is the first voter."""
        self._base_voters = (self._node,)
        self._follow_log()
        self._stand(now)

    def wish(self, node: str, is_voter: bool, now: float, hops: int = 0) -> None:
        """Make a node a voter or not: here if this is the sequencer, else it is asked."""
        if self.is_leader:
            if (node in self.voters) is not is_voter:
                self._wishes[node] = is_voter
                self._change_voters(now)
            elif node != self._node:
                self._again(node, now)  # it does not know that it is one already, or none any more
        elif self.leader and self.leader != node and hops < HOPS_MAX:
            self._tell(self.leader, (Join if is_voter else LeaveVoters)(node, hops + 1))
        elif not self.leader and self.is_voter and len(self._wishes) < LOG_MAX:
            self._wishes[node] = is_voter  # when there is a sequencer again

    @property
    def is_wanted(self) -> bool:
        """Whether a sequencer is needed: entries are not agreed, or lacked, or voters are to change."""
        return self.last > self.agreed or bool(self._wishes) or self._is_urged

    @property
    def base_listed(self) -> Mapping[int, int]:
        """What was listed before the entries that are kept."""
        return self._base_listed

    def _change_voters(self, now: float) -> None:
        """List the next change, once the last one, and an entry of this term, is agreed."""
        if not self.is_leader or max(self._voted_in, self._first) > self.agreed:
            return
        while self._wishes:
            node, is_voter = self._wishes.popitem()
            if (node in self.voters) is is_voter:
                continue
            others = [one for one in self.voters if one != node]
            voters = tuple(sorted([*others, node] if is_voter else others))
            if not voters:
                continue
            self._add(SequenceEntry(self.term, voters=voters))
            self._count(now)
            self._send_all(now)
            return

    # Listing events

    def list_events(self, events: Sequence[tuple[int, int]], now: float) -> None:
        """List events of which this node, the sequencer, knows: marks and numbers in their order."""
        if not self.is_leader:
            return
        merged: list[tuple[int, int]] = []
        for mark, last in events:
            if last > self.listed.get(mark, 0):
                if merged and merged[-1][0] == mark:
                    merged.pop()
                merged.append((mark, last))
        for mark, last in merged[: max(0, LOG_MAX - len(self._entries))]:
            self._add(SequenceEntry(self.term, mark, last))
        if merged:
            self._count(now)
            self._send_all(now)

    def list_alone(self, mark: int, last: int) -> None:
        """List events that are agreed at once, as this is the only voter; nobody needs the entry."""
        self._base += 1
        self._base_term = self.term
        self._base_listed[mark] = self.listed[mark] = max(last, self.listed.get(mark, 0))
        self.agreed = self.passed = self._base
        self.is_changed = True

    def pass_to(self, index: int) -> None:
        """Note that members have got the events of all entries up to one."""
        if index > self.passed:
            self.passed = index
            self.is_changed = True
            if self.is_leader:
                self._trim_common()

    def _trim_common(self) -> None:
        followers = [self._followers[one].has for one in self.voters if one in self._followers]
        self._trim(min([self.agreed, *followers]))

    # Being the sequencer

    def _send_all(self, now: float) -> None:
        for node in self.voters:
            if node != self._node:
                self._send(node, now)

    def _send(self, node: str, now: float) -> None:
        one = self._followers.setdefault(node, _Follower(self.last, now))
        if one.following <= self._base:
            self._tell(
                node,
                BeginSequence(self.term, self._base, self._base_term, self._base_voters, self._base_listed),
            )
            one.following = self._base + 1
        start = one.following - self._base - 1
        entries = tuple(self._entries[start : start + SENT_MAX])
        before = one.following - 1
        about = before, self._term_of(before), entries
        one.asked_at = now
        self._tell(node, AppendEntries(self.term, *about, self.agreed, self._base))

    def _count(self, now: float) -> None:
        """Find the last entry that more than half of the voters have; only one of this term is counted."""
        had = sorted(
            self.last if one == self._node else self._followers[one].has if one in self._followers else 0
            for one in self.voters
        )
        index = had[(len(had) - 1) // 2]
        if index > self.agreed and self._term_of(index) == self.term:
            self.agreed = index
            self._trim_common()
            self._change_voters(now)
            self._send_all(now)
            if self._node not in self.voters and self._voted_in <= self.agreed:
                self.leader = ""  # it has left
                heir = max(self.voters, key=lambda one: (self._followers[one].has, one))
                self._tell(heir, Succeed(self.term))

    # Choosing a sequencer

    def wake(self, now: float, is_waiting: bool) -> None:
        """Send again what was not answered; `is_waiting`: events here are not listed or agreed yet."""
        is_waiting |= self.is_wanted
        if self.leader and not self.is_leader and self._wishes:
            wishes, self._wishes = self._wishes, {}
            for node, is_voter in wishes.items():
                self.wish(node, is_voter, now)
        if self.is_leader:
            self._change_voters(now)
            for node in self.voters:
                if node != self._node and self._is_due(node, now, is_waiting):
                    self._again(node, now)
            self._part_silent(now)
            self._patience = None
        elif self._is_only:
            self._stand(now)
        elif not (is_waiting and self.is_voter):
            self._patience = None
        elif self._patience is None:
            self._patience = now + PATIENCE_S * (1 + self._chance())
        elif now >= self._patience:
            self._stand(now)

    def _is_due(self, node: str, now: float, is_waiting: bool) -> bool:
        """Whether a voter may lack something, and has had time to answer."""
        one = self._followers.get(node)
        return one is None or ((one.has < self.last or is_waiting) and now >= one.asked_at + AGAIN_S)

    def _again(self, node: str, now: float) -> None:
        one = self._followers.get(node)
        if one is not None:
            one.following = min(one.following, max(one.has + 1, self._base + 1))
        self._send(node, now)

    def _part_silent(self, now: float) -> None:
        if len(self._entries) < LOG_MAX:
            return
        for node, one in self._followers.items():
            if node in self.voters and now >= one.heard_at + PART_S:
                self._wishes[node] = False
        self._change_voters(now)

    def _stand(self, now: float) -> None:
        """Want to be the sequencer of the next term."""
        self.term += 1
        self._voted, self.leader, self._votes = self._node, "", {self._node}
        self._patience = now + PATIENCE_S * (1 + self._chance())
        self.is_changed = True
        for node in self.voters:
            if node != self._node:
                self._tell(node, Vote(self.term, self.last, self._term_of(self.last)))
        self._elect(now)

    def _elect(self, now: float) -> None:
        if self._votes is None or 2 * len(self._votes & set(self.voters)) <= len(self.voters):
            return
        self._votes, self.leader, self._patience, self._is_urged = None, self._node, None, False
        self._followers = {one: _Follower(self.last + 1, now) for one in self.voters if one != self._node}
        self._add(SequenceEntry(self.term, voters=self.voters))
        self._first = self.last
        self._count(now)
        self._send_all(now)

    # What others say

    def hear(self, node: str, message: SequencerMessage, now: float) -> None:
        """Take a message of another node."""
        if isinstance(message, Join | LeaveVoters):
            self.wish(message.node, isinstance(message, Join), now, message.hops)
            return
        if message.term > self.term:
            self.term, self._voted, self.leader, self._votes = message.term, "", "", None
            self.is_changed = True
        match message:
            case AppendEntries():
                self._hear_entries(node, message)
            case BeginSequence() if message.term == self.term:
                self._begin_behind(node, message)
            case Vote():
                self._hear_vote(node, message, now)
            case Voted(granted=True) if message.term == self.term and self._votes is not None:
                self._votes.add(node)
                self._elect(now)
            case Succeed() if message.term == self.term and node == self.leader and self.is_voter:
                self._stand(now)
            case Appended() if self.is_leader and message.term == self.term:
                self._hear_appended(node, message, now)
            case _:
                pass

    def _hear_vote(self, node: str, message: Vote, now: float) -> None:
        is_new = (message.last_term, message.last) >= (self._term_of(self.last), self.last)
        granted = message.term == self.term and is_new and self._voted in ("", node) and not self.is_leader
        if granted:
            self._voted = node
            self.is_changed = True
            self._patience = now + PATIENCE_S * (1 + self._chance())
        elif not is_new and not self.leader:
            self._is_urged = True
        self._tell(node, Voted(self.term, granted))

    def _hear_entries(self, node: str, message: AppendEntries) -> None:
        if message.term < self.term:
            self._tell(node, Appended(self.term, ok=False, last=self.last))
            return
        self.leader, self._votes, self._patience, self._is_urged = node, None, None, False
        before = message.before
        if before > self.last or (before >= self._base and self._term_of(before) != message.before_term):
            self._tell(node, Appended(self.term, ok=False, last=min(self.last, before - 1)))
            return
        for index, entry in enumerate(message.entries, before + 1):
            if index <= self._base or (index <= self.last and self._term_of(index) == entry.term):
                continue
            if index <= self.last:
                if index <= self.agreed:
                    return  # no sequencer that was chosen does that
                del self._entries[index - self._base - 1 :]
                self._follow_log()
            self._add(entry)
        last = before + len(message.entries)
        self.agreed = max(self.agreed, min(message.agreed, last))
        self._trim(message.trimmed)
        self._tell(node, Appended(self.term, ok=True, last=last))

    def _begin_behind(self, node: str, message: BeginSequence) -> None:
        """BeginSequence where the sequencer says, if this node has nothing that reaches so far."""
        self.leader = node
        if message.base <= self.last and self.is_voter:
            return
        if message.base < self.agreed:
            return
        self._entries.clear()
        self._base, self._base_term = message.base, message.base_term
        self._base_voters, self._base_listed = message.voters, dict(message.listed)
        self.agreed = self.passed = message.base
        self._follow_log()
        self.is_changed = True

    def _hear_appended(self, node: str, message: Appended, now: float) -> None:
        one = self._followers.setdefault(node, _Follower(self.last, now))
        one.heard_at = now
        if not message.ok:
            one.following = min(one.following, message.last + 1)
            self._send(node, now)
            return
        is_new = message.last > one.has
        one.has = max(one.has, min(message.last, self.last))
        one.following = max(one.following, one.has + 1)
        self._count(now)
        if one.following <= self.last and is_new:
            self._send(node, now)
