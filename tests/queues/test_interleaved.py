"""Requests that take several steps, interleaved at random with each other and with all that others do.

Whatever happens in between, no message is lost or in two hands; a search misses nothing that was there from
its beginning to its end, and hands nothing out before that; nobody waits for what is on the shelf; and one
that is not wanted any more leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Rig, pass_time
from queues.stepping import begin, make_steps_small
from tidings.event import Event
from tidings.filters import Filter
from tidings.protocol.messages import Bye
from tidings.protocol.service import LATER
from tidings.queues import MessageQueue, QueuedMessage
from tidings.queues.inflight import RESUME_S
from tidings.queues.message import sight
from tidings.queues.service import QueueService
from tidings.steps import Steps, finish

NAMES = ("a", "b", "c", "d")
CONDITIONS = ("", "s LIKE '%x%'", "n > 5", "k = 1", "k = 1 AND s LIKE '%x%'", "n > 900")


@dataclass
class Running:
    """A request that is not at its end."""

    number: int
    steps: Steps[Any]
    constant: set[int]  # what it may find, and is there from its beginning on
    count: int
    takes: bool
    waits: bool


class Interleaved(RuleBasedStateMachine):
    """One queue with priorities, and four clients."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        make_steps_small(self.patch)
        self.rig = Rig()
        self.clients = {name: Client(self.rig, name, name) for name in NAMES}
        self.clients["a"].create("jobs", priorities=True, redelivery_s=None, deliveries_max=None)
        self.running: dict[str, Running] = {}
        self.made = 0
        self.live: set[int] = set()  # the attributes n of what is in the queue
        for _ in range(12):
            self._put(self.clients["a"], 4)

    def teardown(self) -> None:
        for running in list(self.running.values()):
            finish(running.steps)
        self.rig.run()
        self.nothing_is_lost()
        self.patch.undo()

    @property
    def queue(self) -> MessageQueue:
        return self.rig.queues.find("jobs")

    def _idle(self, choice: int) -> str | None:
        idle = [name for name in NAMES if name not in self.running]
        return idle[choice % len(idle)] if idle else None

    def _look(self) -> None:
        """Note who is not there any more."""
        there = set(self.queue.shelf)
        for running in self.running.values():
            running.constant &= there

    def _put(self, client: Client, priority: int) -> None:
        self.made += 1
        self.live.add(self.made)
        text = "x" if self.made % 3 == 0 else "y"
        event = Event("job", {"n": self.made, "k": self.made % 4, "s": text}, priority=priority)
        client.put("jobs", event)

    # What is done at once

    @rule(choice=st.integers(0, 3), priorities=st.lists(st.integers(0, 9), min_size=1, max_size=6))
    def put(self, choice: int, priorities: list[int]) -> None:
        if (name := self._idle(choice)) is not None:
            for priority in priorities:
                self._put(self.clients[name], priority)
            self.rig.run()
            self._look()

    @rule(choice=st.integers(0, 3), outcome=st.sampled_from([DONE, GIVE_BACK, UNOPENED]))
    def settle(self, choice: int, outcome: int) -> None:
        name = self._idle(choice)
        hands = {} if name is None else dict(self.rig.queues.in_flight.holders.get((name, 1), {}))
        if name is not None and hands:
            held = next(iter(hands.values()))
            client = self.clients[name]
            handed = [one for n in range(1, client._asked + 1) for one in client.got(n) or ()]
            (hand,) = [
                one for one in handed if (one.number, one.delivery) == (held.message.number, held.delivery)
            ]
            client.settle(outcome, hand)
            self.rig.run()
            if outcome == DONE:
                self.live.discard(hand.n)
            self._look()

    @rule(choice=st.integers(0, 3), is_clean=st.booleans(), closes_first=st.booleans())
    def lose(self, choice: int, is_clean: bool, closes_first: bool) -> None:
        """A connection ends, whatever its client has asked for; it comes again when it is given up."""
        name = NAMES[choice]
        client, running = self.clients[name], self.running.pop(name, None)
        if running is not None and closes_first:
            running.steps.close()
        if is_clean:
            client.peer.send(Bye())
        client.peer.lose()
        if running is not None:
            running.steps.close()
        self.rig.run()
        self._look()
        pass_time(self.rig, RESUME_S + 0.1)
        assert (name, 1) not in self.rig.queues.in_flight.holders
        self._look()
        client.come()

    # What is done in steps

    @rule(
        choice=st.integers(0, 3),
        where=st.sampled_from(CONDITIONS),
        count=st.integers(1, 3),
        waits=st.booleans(),
        takes=st.booleans(),
    )
    def get(self, choice: int, where: str, count: int, waits: bool, takes: bool) -> None:
        name = self._idle(choice)
        if name is None:
            return
        client, queue = self.clients[name], self.queue
        constant = {one for one in queue.shelf if _is(queue, one, where)}
        action = "take" if takes else "read"
        wanted = {"queue": "jobs", "where": where, "count": count, "action": action}
        number, steps = begin(client, "get", **wanted, wait_s=None if waits else 0.0)
        if steps is None:
            self._look()
            self.rig.run()
        else:
            self.running[name] = Running(number, steps, constant, count, takes, waits)
            self._look()

    @rule(choice=st.integers(0, 3), where=st.sampled_from(CONDITIONS))
    def purge(self, choice: int, where: str) -> None:
        name = self._idle(choice)
        if name is not None:
            number, steps = begin(self.clients[name], "queue.purge", queue="jobs", where=where)
            assert steps is not None
            constant = {one for one in self.queue.shelf if _is(self.queue, one, where)}
            self.running[name] = Running(number, self._purging(steps), constant, 0, False, False)

    def _purging(self, steps: Steps[Any]) -> Steps[None]:
        """Purge, and note what has gone in each step."""
        while True:
            before = self._there()
            is_over = next(steps, LATER) is LATER
            self.live -= before - self._there()
            if is_over:
                return
            yield

    def _there(self) -> set[int]:
        return {self.queue.shelf[number].event.values["n"] for number in self.queue.shelf}

    @precondition(lambda self: self.running)
    @rule(choice=st.integers(0, 3), steps=st.integers(1, 4))
    def go_on(self, choice: int, steps: int) -> None:
        name = sorted(self.running)[choice % len(self.running)]
        running = self.running[name]
        for _ in range(steps):
            constant = set(running.constant)
            if next(running.steps, LATER) is LATER:
                del self.running[name]
                self._look()
                self.rig.run()
                self._check(self.clients[name], running, constant)
                return
            self._look()

    def _check(self, client: Client, running: Running, constant: set[int]) -> None:
        """See what a request that has ended has found; these were there until its last step."""
        if not running.count:
            assert not constant & set(self.queue.shelf)
            return
        hands = client.got(running.number)
        if hands is None:
            assert running.waits
            assert not constant
            return
        place = self.queue.kind.place
        places = [place(QueuedMessage(hand.number, hand.raw, None)) for hand in hands]
        assert places == sorted(set(places))
        left = constant - {hand.number for hand in hands}
        if len(hands) < running.count:
            assert not left
        assert all(place(self.queue.shelf[number]) > places[-1] for number in left & set(self.queue.shelf))

    @rule()
    def tick(self) -> None:
        self.rig.run()
        self._look()

    # What must hold

    @invariant()
    def nothing_is_lost(self) -> None:
        there, held = self._there(), {one.message.event.values["n"] for one in self.queue.held.values()}
        assert not there & held
        assert there | held == self.live

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for reader in self.queue.waiting.everyone():
            if not reader.is_searching and not reader.taken:
                wants = reader.filter.matches if reader.filter is not None else lambda _event: True
                assert not any(wants(sight(self.queue.shelf[number])) for number in self.queue.shelf)

    @invariant()
    def only_those_search_who_have_not_ended(self) -> None:
        (readers,) = (one._readers for one in self.rig.broker.services if isinstance(one, QueueService))
        assert len(readers._searches) <= len(self.running)


def _is(queue: MessageQueue, number: int, where: str) -> bool:
    return Filter(where).matches(sight(queue.shelf[number]))


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(stateful_step_count=40, max_examples=often(80))


def test_what_comes_behind_others_between_two_steps_is_not_handed_out_before_them() -> None:
    machine = Interleaved()
    machine.get(choice=0, where="", count=3, waits=False, takes=True)
    machine.put(choice=0, priorities=[0])
    machine.go_on(choice=0, steps=1)
    machine.teardown()


def test_who_loses_some_of_what_it_has_read_between_two_steps_gets_others_instead() -> None:
    machine = Interleaved()
    machine.purge(choice=0, where="")
    machine.get(choice=0, where="", count=3, waits=False, takes=False)
    machine.go_on(choice=0, steps=1)
    machine.lose(choice=0, is_clean=False, closes_first=False)
    while machine.running:
        machine.go_on(choice=0, steps=1)
    machine.teardown()
