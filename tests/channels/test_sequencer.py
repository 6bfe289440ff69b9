"""The agreed order of a channel: voters that lose messages, crash, are cut off, join and leave."""

from __future__ import annotations

import random
from collections import deque

import pytest
from effort import SEED, often

from tidings.channels.sequence_messages import (
    AppendEntries,
    BeginSequence,
    Join,
    LeaveVoters,
    SequenceEntry,
    SequencerMessage,
    SequencerState,
    Vote,
)
from tidings.channels.sequencer import LOG_MAX, PART_S, PATIENCE_S, Sequencer

NODES = "abcde"


class Voter:
    """A node with its disk, and the events that it knows and that were agreed there."""

    def __init__(self, voters: Voters, name: str) -> None:
        self.voters = voters
        self.name = name
        self.disk = SequencerState()
        self.known: list[tuple[int, int]] = []
        self.got: list[SequenceEntry] = []
        self.start()

    def start(self) -> None:
        self._outgoing: list[tuple[str, SequencerMessage]] = []
        chance = self.voters.chance.random
        self.core = Sequencer(self.name, lambda *told: self._outgoing.append(told), chance, self.disk)

    def work(self) -> None:
        """List what is known, deliver what is agreed, store, and only then send."""
        core, now = self.core, self.voters.now
        core.list_events(self.known, now)
        while core.passed < core.agreed:
            entry = core.entry(core.passed + 1)
            if entry.mark >= 0:
                self.got.append(entry)
            core.pass_to(core.passed + 1)
        self.disk = core.state
        for node, message in self._outgoing:
            self.voters.send(self.name, node, message)
        self._outgoing.clear()

    @property
    def is_waiting(self) -> bool:
        core = self.core
        return core.last > core.agreed or any(last > core.listed.get(mark, 0) for mark, last in self.known)


class Voters:
    """Some nodes, between which messages may be lost; the first creates the channel, the others join."""

    def __init__(self, seed: int = 0, names: str = NODES) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.loss = 0.0
        self.parts: list[set[str]] = []
        self.sent: deque[tuple[str, str, SequencerMessage]] = deque()
        self.nodes = {name: Voter(self, name) for name in names}
        first = self.nodes[names[0]]
        first.core.create(self.now)
        first.work()
        for name in names[1:]:
            self.send(name, names[0], Join(name))
            self.run(3.0)
        assert {one.core.voters for one in self.nodes.values()} == {tuple(names)}

    def __getitem__(self, name: str) -> Voter:
        return self.nodes[name]

    def send(self, near: str, far: str, message: SequencerMessage) -> None:
        self.sent.append((near, far, message))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            for one in self.nodes.values():
                one.core.wake(self.now, one.is_waiting)
                one.work()
            for _ in range(len(self.sent) * 4):
                if not self.sent:
                    break
                near, far, message = self.sent.popleft()
                apart = any((near in part) is not (far in part) for part in self.parts)
                if not apart and self.chance.random() >= self.loss:
                    self[far].core.hear(near, message, self.now)
                    self[far].work()

    def publish(self, mark: int, last: int, *names: str) -> None:
        """Let nodes know of an event."""
        for name in names or self.nodes:
            self[name].known.append((mark, last))

    @property
    def leaders(self) -> set[str]:
        return {name for name, one in self.nodes.items() if one.core.is_leader}

    def check(self) -> list[SequenceEntry]:
        """The longest agreed order, of which all others are a part from its beginning."""
        longest = max((one.got for one in self.nodes.values()), key=len)
        for one in self.nodes.values():
            pairs = [(entry.mark, entry.last) for entry in one.got]
            assert pairs == [(entry.mark, entry.last) for entry in longest[: len(pairs)]]
            for mark in {entry.mark for entry in one.got}:
                numbers = [entry.last for entry in one.got if entry.mark == mark]
                assert numbers == sorted(set(numbers))
        return longest


def test_events_are_agreed_in_one_order_at_all_voters() -> None:
    voters = Voters()
    for number in range(1, 20):
        voters.publish(number % 3, number)
        voters.run(0.5)
    voters.run(5.0)
    agreed = voters.check()
    assert all(len(one.got) == len(agreed) for one in voters.nodes.values())
    assert {entry.last for entry in agreed} == set(range(1, 20))


def test_nothing_is_sent_while_nothing_is_to_be_agreed() -> None:
    voters = Voters()
    voters.publish(0, 1)
    voters.run(10.0)
    before = voters.now
    voters.sent.clear()
    sent: list[object] = []
    voters.send = lambda *told: sent.append(told)  # type: ignore[method-assign]
    voters.run(60.0)
    assert voters.now > before
    assert not sent


def test_the_part_with_more_than_half_chooses_another_sequencer_and_the_other_part_waits() -> None:
    voters = Voters()
    (first,) = voters.leaders
    others = set(NODES) - {first}
    away = {first, min(others)}
    voters.parts = [away]
    voters.publish(1, 1)
    voters.run(PATIENCE_S * 6)
    assert voters.leaders - away
    assert all(voters[name].got for name in set(NODES) - away)
    assert not any(voters[name].got for name in away)
    voters.publish(2, 1, *away)
    voters.parts = []
    voters.run(PATIENCE_S * 8)
    voters.publish(2, 1)
    voters.run(PATIENCE_S * 4)
    assert [(entry.mark, entry.last) for entry in voters[first].got] == [(1, 1), (2, 1)]
    voters.check()


def test_a_voter_that_never_answers_is_parted_from_when_too_much_is_kept_for_it() -> None:
    voters = Voters(names="abc")
    voters.parts = [{"c"}]
    for number in range(1, LOG_MAX + 50):
        voters.publish(number % 2, number, "a", "b")
        voters.run(0.25)
    voters.run(PART_S * 2)
    assert voters["a"].core.voters == ("a", "b")
    assert len(voters["a"].core.state.entries) < LOG_MAX
    assert voters.check()[-1].last == LOG_MAX + 49


def test_a_voter_that_is_behind_gets_the_rest_though_nothing_waits_at_the_others() -> None:
    voters = Voters(names="abc")
    voters.parts = [{"c"}]
    voters.publish(1, 1)
    voters.run(PATIENCE_S * 4)
    assert voters["a"].got
    assert not voters["c"].got
    for name in "ab":
        voters[name].start()
    voters.parts = []
    voters.run(PATIENCE_S * 8)
    assert [entry.last for entry in voters["c"].got] == [1]
    voters.check()


def test_a_sequencer_of_a_term_long_past_is_not_believed() -> None:
    voters = Voters(names="abc")
    voters.publish(1, 1)
    voters.run(5.0)
    before = voters["b"].core.state
    for old in (
        AppendEntries(0, 0, 0, (SequenceEntry(0, 1, 99),), 1, 0),
        BeginSequence(0, 0, 0, ("x",), {}),
        Vote(0, 99, 99),
    ):
        voters["b"].core.hear("c", old, voters.now)
    assert voters["b"].core.state == before


def test_a_voter_that_leaves_is_not_asked_any_more_and_the_sequencer_can_leave() -> None:
    voters = Voters(names="abc")
    voters["a"].core.wish("a", is_voter=False, now=voters.now)
    voters["a"].work()
    voters.run(5.0)
    voters.publish(1, 1, "b", "c")
    voters.run(PATIENCE_S * 5)
    assert voters["b"].core.voters == ("b", "c")
    assert [entry.last for entry in voters["b"].got] == [entry.last for entry in voters["c"].got] == [1]


@pytest.mark.parametrize("seed", range(SEED, SEED + often(30)))
def test_no_two_voters_agree_to_different_orders_whatever_is_lost(seed: int) -> None:
    voters = Voters(seed)
    chance = voters.chance
    late: list[tuple[int, int, str]] = []
    for number in range(1, 60):
        match chance.choice(("part", "heal", "crash", "lose", "", "", "")):
            case "part":
                voters.parts = [set(chance.sample(NODES, chance.choice((1, 2))))]
            case "heal":
                voters.parts, voters.loss = [], 0.0
            case "crash":
                voters[chance.choice(NODES)].start()
            case "lose":
                voters.loss = 0.3
            case _:
                pass
        mark = chance.randrange(3)
        for name in NODES:
            if chance.random() < 0.7 and not any(one[2] == name and one[0] == mark for one in late):
                voters.publish(mark, number, name)
            else:
                late.append((mark, number, name))
        voters.run(chance.choice((0.25, 1.0, 5.0)))
        voters.check()
    voters.parts, voters.loss = [], 0.0
    for mark, number, name in late:
        voters.publish(mark, number, name)
    voters.run(PATIENCE_S * 20)
    agreed = voters.check()
    for mark in range(3):
        assert max(entry.last for entry in agreed if entry.mark == mark) == max(
            last for known, last in voters["a"].known if known == mark
        )
    assert all(len(one.got) == len(agreed) for one in voters.nodes.values())


def test_votes_that_are_counted_twice_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker sees what a sequencer does that is chosen by too few."""

    def elect(self: Sequencer, now: float) -> None:
        if self._votes is not None:
            self._votes = set(self.voters)
            plain(self, now)

    plain = Sequencer._elect
    monkeypatch.setattr(Sequencer, "_elect", elect)
    monkeypatch.setattr(Sequencer, "_count", _count_alone)
    found = 0
    for seed in range(10):
        try:
            test_no_two_voters_agree_to_different_orders_whatever_is_lost(seed)
        except AssertionError:
            found += 1
    assert found


def _count_alone(self: Sequencer, now: float) -> None:
    self.agreed = max(self.agreed, self.last)


def test_a_sequencer_that_leaves_is_succeeded_at_once() -> None:
    voters = Voters(names="abc")
    voters["a"].core.wish("a", is_voter=False, now=voters.now)
    voters["a"].work()
    voters.run(PATIENCE_S / 2)
    assert not voters["a"].core.is_leader
    assert [one.core.is_leader for one in voters.nodes.values()].count(True) == 1
    assert voters["b"].core.voters == ("b", "c")


def test_a_voter_that_has_asked_to_leave_is_unsure_until_it_knows_that_it_has_left() -> None:
    """It would wait without end for what is agreed without it, if it took itself for a voter again."""
    voters = Voters()
    voters["e"].core.leave(voters.now)
    voters["e"].work()
    voters.parts = [{"e"}]  # what the sequencer does with that is not heard
    voters["a"].core.hear("e", LeaveVoters("e"), voters.now)
    voters["a"].work()
    voters.run(2.0)
    gone = voters["e"].core
    assert "e" not in voters["a"].core.voters
    assert (gone.is_voter, gone.is_leaving) == (True, True)
    voters["e"].start()
    gone = voters["e"].core
    assert (gone.is_voter, gone.is_leaving) == (True, True)
    voters.parts = []
    gone.leave(voters.now)  # it is asked again, as long as it is not sure
    voters["e"].work()
    voters["a"].core.hear("e", LeaveVoters("e"), voters.now)
    voters["a"].work()
    voters.run(3.0)
    assert (gone.is_voter, gone.is_leaving) == (False, False)
    voters.send("e", "a", Join("e"))
    voters.run(3.0)
    assert (gone.is_voter, gone.is_leaving) == (True, False)


def test_the_only_voter_does_not_wait_to_be_none() -> None:
    voters = Voters(names="a")
    voters["a"].core.leave(voters.now)
    assert (voters["a"].core.is_voter, voters["a"].core.is_leaving) == (True, False)
