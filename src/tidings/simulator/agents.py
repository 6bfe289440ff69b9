"""Groups of agents in virtual time: losses, partitions, killed locations, and what must hold all the same.

The home is the ledger of a group, a location has a `LeaseHolder` for each agent: the cores that a node and a
client run. Between them is a network that delays, loses and parts. What is checked, at every step:

- given = spent + refunded + held + written off, and nothing is negative;
- nobody useful ends: while the group is open, an agent ends only if its location was killed, or was cut off
for
  longer than its lease allows;
- nobody outlives its group by more than the bound: lease + grace after the last answer that its location got;
- the events of the group are its state.

`fault` builds a mistake in, which must be found: so it is known that these checks can see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from tidings.agents.amounts import MICRO
from tidings.agents.conditions import at_least
from tidings.agents.events import AnyHappening, Entered, Opened, Ordered, Spent
from tidings.agents.ledger import GroupLedger
from tidings.agents.orphans import (
    AliveTimes,
    DetectionWay,
    LeaseHolder,
    NoticeSender,
    costs,
    orphan_s_max,
)
from tidings.agents.records import AgentRecord
from tidings.errors import AgentError, InternalError

AgentFault = Literal["", "never-over", "late-entry", "impatient", "printing-money", "forgotten-event"]
FAULTS: tuple[AgentFault, ...] = get_args(AgentFault)
"""Mistakes that can be built in, and are found.

never-over: a location goes on when the lease is used up. late-entry: members are entered when the group has
ended. impatient: an agent ends when its location can't ask once. printing-money: what is returned stays with
who returns it. forgotten-event: an event of the group is not written down.
"""

LEASE_S, GRACE_S, DELAY_S_MAX = 30.0, 5.0, 2.0
LOSS = 0.1
"""Part of messages that are lost."""
STEPS_MAX = 100_000


class SwarmReport(Struct, frozen=True):
    """What came of a run: how many agents, ends by reason, and the longest life of an orphan."""

    seed: int
    agents: int
    ends: dict[str, int]
    lost: int
    orphan_s_max: float
    bound_s: float
    spent: float
    written_off: float


class SwarmFailure(InternalError):
    """Something that must hold did not; the seed repeats it."""

    def __init__(self, seed: int, problem: str) -> None:
        super().__init__(f"seed {seed}: {problem}")
        self.seed = seed
        self.problem = problem


class Located:
    """An agent at its location: alive or not, whatever the home thinks of it."""

    def __init__(self, agent: str, cookie: str, place: int, holder: LeaseHolder, now: float) -> None:
        self.agent, self.cookie, self.place, self.holder = agent, cookie, place, holder
        self.is_alive = True
        self.answered_at = now


class Swarm:
    """One group, its home and the locations of its members."""

    def __init__(self, seed: int, agents: int, locations: int, fault: AgentFault = "") -> None:
        self._seed, self._fault = seed, fault
        self._chance = random.Random(seed)
        self._locations, self._most = locations, agents
        self._now = 0.0
        self._line: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._cut: dict[int, float] = {}  # locations that are cut off, until when
        self._dead: set[int] = set()
        self._there: dict[str, Located] = {}
        budget = {"usd": 1_000 * MICRO}
        opened = Opened(
            group="g",
            name="swarm",
            user="",
            condition=at_least(max(1, agents // 3)),
            grace_s=GRACE_S,
            budget=budget,
        )
        self.ledger = GroupLedger.opened(opened)
        self._events: list[AnyHappening] = [opened]
        self._ended_at: float | None = None
        self._orphan_s = 0.0

    # Time and network

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._line, (self._now + delay_s, self._number, act))

    def _reaches(self, place: int) -> bool:
        return place not in self._dead and self._cut.get(place, 0.0) <= self._now

    def _send(self, place: int, act: Callable[[], None], certain: bool = False) -> None:
        """Carry something between the home and a location: late, or not at all."""
        if self._reaches(place) and (certain or self._chance.random() >= LOSS):
            self._at(self._chance.uniform(0.0, DELAY_S_MAX), lambda: act() if self._reaches(place) else None)

    def run(self) -> SwarmReport:
        """Run it until nothing happens any more."""
        for number in range(self._most):
            until = (60.0, 300.0, 410.0)[number % 3]  # some while the group ends
            self._at(self._chance.uniform(0.9 * until if number % 3 else 0.0, until), self._enter)
            if number % 5 == 0:
                self._at(self._chance.uniform(0, 300), self._trouble)
        self._at(400.0, lambda: self._took(self.ledger.end("time", self._now_us)))
        steps = 0
        while self._line and steps < STEPS_MAX:
            steps += 1
            self._now, _, act = heappop(self._line)
            act()
            self._check()
        self._check_over()
        return self._report()

    def _trouble(self) -> None:
        """A location is cut off for a while, or killed."""
        place = self._chance.randrange(self._locations)
        if self._chance.random() < 0.2:
            self._dead.add(place)
            for one in self._there.values():
                if one.place == place:
                    one.is_alive = False
        else:
            self._cut[place] = self._now + self._chance.uniform(1.0, 2.0 * LEASE_S)

    # The home

    @property
    def _now_us(self) -> int:
        return int(self._now * 1e6)

    def _took(self, happened: list[AnyHappening]) -> None:
        for event in happened:
            if not (self._fault == "forgotten-event" and isinstance(event, Spent)):
                self._events.append(event)
            if isinstance(event, Ordered):
                self._order(event.agent)
        if self.ledger.group.phase != "open" and self._ended_at is None:
            self._ended_at = self._now

    def _order(self, agent: str) -> None:
        there = self._there.get(agent)
        if there is not None:
            self._send(there.place, lambda: self._finish(there))
        self._at(GRACE_S + orphan_s_max(LEASE_S, GRACE_S), lambda: self._lose(agent))

    def _lose(self, agent: str) -> None:
        """The home takes one for lost that has not been heard of."""
        self._took(self.ledger.leave(self.ledger.members[agent], "orphan", self._now_us, lost=True))

    def _enter(self) -> None:
        ledger = self.ledger
        parents = ["", *(one.agent for one in ledger.running)]
        parent, cookie = self._chance.choice(parents), str(self._number)
        if self._fault == "late-entry" and ledger.group.phase == "ending":
            ledger.group.phase = "open"
        held = (ledger.members[parent].account if parent else ledger.group.account).held.get("usd", 0)
        share = {"usd": min(held, self._chance.randrange(1, 20) * MICRO)}
        try:
            happened = ledger.enter(
                "a", parent=parent, cookie=cookie, lease_s=LEASE_S, share=share, now_us=self._now_us
            )
        except AgentError:
            return
        finally:
            if self._ended_at is not None and ledger.group.phase == "open":
                ledger.group.phase = "ending"
        entered = happened[0]
        assert isinstance(entered, Entered)
        place = self._chance.randrange(self._locations)
        holder = LeaseHolder(LEASE_S, self._chance.random, self._now)
        there = self._there[entered.agent] = Located(entered.agent, cookie, place, holder, self._now)
        there.is_alive = place not in self._dead
        self._took(happened)
        self._watch(entered.agent, self._now)
        self._live(there)

    def _watch(self, agent: str, heard_at: float) -> None:
        """Look at a lease when it would end at the home: it allows for what is under way."""

        def look() -> None:
            member = self.ledger.members[agent]
            if member.state == "ended":
                return
            there = self._there[agent]
            if there.answered_at > heard_at:
                self._watch(agent, there.answered_at)
            else:
                self._lose(agent)

        self._at(heard_at + LEASE_S + DELAY_S_MAX + GRACE_S - self._now, look)

    # A location

    def _live(self, there: Located) -> None:
        """What a location does next for an agent that is alive."""
        if not there.is_alive:
            return
        holder, now = there.holder, self._now
        if holder.is_over(now) and self._fault != "never-over":
            self._finish(there)
            return
        if holder.asks(now):
            self._ask(there)
        if self._chance.random() < 0.1:
            self._work(there)
        wake_s = max(0.1, min(holder.wake_at - now, LEASE_S)) if holder.wake_at > now else 1.0
        if self._ended_at is None or now < self._ended_at + 10 * LEASE_S:
            self._at(wake_s, lambda: self._live(there))

    def _ask(self, there: Located) -> None:
        asked_at = self._now
        if self._fault == "impatient" and not self._reaches(there.place):
            self._finish(there)
            return

        def asked() -> None:
            try:
                member = self.ledger.living(there.agent, 1, there.cookie)
            except AgentError:
                self._send(there.place, lambda: self._answered(there, "no", asked_at))
                return
            answer = "yes" if member.state == "running" else "no"
            self._send(there.place, lambda: self._answered(there, answer, asked_at))

        self._send(there.place, asked)

    def _answered(self, there: Located, answer: Any, asked_at: float) -> None:
        if not there.is_alive:
            return
        if answer == "yes":
            there.answered_at = max(there.answered_at, asked_at)
        if not there.holder.answered(answer, self._now):
            self._finish(there)

    def _work(self, there: Located) -> None:
        def works() -> None:
            try:
                member = self.ledger.living(there.agent, 1, there.cookie)
                self._took(self.ledger.spend(member, {"usd": MICRO}, "", self._now_us))
                if self._chance.random() < 0.1:
                    self._took(self.ledger.result(member, b"1", False, self._now_us))
            except AgentError:
                return

        self._send(there.place, works)

    def _finish(self, there: Located) -> None:
        """An agent ends at its location, within the grace; the home is told if it can be."""
        if not there.is_alive:
            return
        ledger = self.ledger
        was_cut = self._now - there.answered_at
        member = ledger.members[there.agent]
        if ledger.group.phase == "open" and member.state == "running" and was_cut < LEASE_S - 1e-6:
            raise SwarmFailure(self._seed, f"{there.agent} ended after {was_cut:.1f} s, and was useful")
        there.is_alive = False
        if self._ended_at is not None:
            self._orphan_s = max(self._orphan_s, self._now - max(self._ended_at, there.answered_at))

        def left() -> None:
            self._leave(member)

        self._send(there.place, left, certain=True)

    def _leave(self, member: AgentRecord) -> None:
        kept = dict(member.account.held)
        self._took(self.ledger.leave(member, "done", self._now_us))
        if self._fault == "printing-money" and kept:
            member.account.held.update(kept)

    # What must hold

    def _check(self) -> None:
        ledger = self.ledger
        if not ledger.totals.is_conserved:
            raise SwarmFailure(self._seed, f"money was made or lost: {ledger.totals}")
        if ledger.group.phase == "ended" and ledger.running:
            raise SwarmFailure(self._seed, "a member runs in a group that has ended")
        if ledger.group.phase != "open" and any(one.state == "running" for one in ledger.running):
            raise SwarmFailure(self._seed, "a member was entered after the end, and was not ordered to end")

    def _check_over(self) -> None:
        bound_s = orphan_s_max(LEASE_S, GRACE_S)
        for one in self._there.values():
            if one.is_alive:
                raise SwarmFailure(self._seed, f"{one.agent} runs for ever in a group that has ended")
        if self._orphan_s > bound_s:
            raise SwarmFailure(
                self._seed, f"an orphan lived for {self._orphan_s:.1f} s, and the bound is {bound_s:g}"
            )
        if self.ledger.group.phase != "ended":
            raise SwarmFailure(self._seed, "the group has not ended")
        again = GroupLedger.replay(self._events)
        if msgspec.json.encode([*again.members.values()]) != msgspec.json.encode(
            [*self.ledger.members.values()]
        ):
            raise SwarmFailure(self._seed, "the events of the group are not its state")

    def _report(self) -> SwarmReport:
        ends: dict[str, int] = {}
        for one in self.ledger.members.values():
            ends[one.reason or ""] = ends.get(one.reason or "", 0) + 1
        totals = self.ledger.totals
        return SwarmReport(
            seed=self._seed,
            agents=len(self.ledger.members),
            ends=dict(sorted(ends.items())),
            lost=sum(one.is_lost for one in self.ledger.members.values()),
            orphan_s_max=round(self._orphan_s, 3),
            bound_s=orphan_s_max(LEASE_S, GRACE_S),
            spent=totals.spent.get("usd", 0) / MICRO,
            written_off=totals.written_off.get("usd", 0) / MICRO,
        )


def swarm(seed: int, agents: int = 30, locations: int = 6, fault: AgentFault = "") -> SwarmReport:
    """Run one group; raises SwarmFailure if anything does not hold."""
    return Swarm(seed, agents, locations, fault).run()


class DetectionCost(Struct, frozen=True):
    """The cost of finding orphans in one interval: as it was counted, and by the formula."""

    way: str
    counted: float
    formula: float


def detection_costs(participants: int, survivors: int, hops: int) -> Iterator[DetectionCost]:
    """Count what is sent in one interval by each way, in a star whose arms have so many hops.

    An event crosses the whole tree, `participants` × `hops` edges; a message to one crosses `hops`.
    """
    event, message = float(participants * hops), float(hops)
    counts: dict[DetectionWay, tuple[int, int]] = {
        "active worst": (_notices(participants, is_talkative=False), 0),
        "active best": (_notices(participants, is_talkative=True), 0),
        "basic": (2 * _requests(participants, is_shared=False), 0),
        "direct": (_requests(participants, is_shared=False), survivors),
        "channel": (2 * _requests(participants, is_shared=True), 0),
    }
    for way, (events, messages) in counts.items():
        formula = costs(way, participants, survivors, event, message)
        yield DetectionCost(way, events * event + messages * message, formula)


def _notices(participants: int, is_talkative: bool) -> int:
    """How many notices members send in one interval, in which each has said something or nothing."""
    times = AliveTimes(10.0, 22.0, 2.0)
    senders = [NoticeSender(times, 0.0) for _ in range(participants)]
    for one in senders if is_talkative else []:
        one.said(5.0)
    return sum(one.wake(times.notice_s) for one in senders)


def _requests(participants: int, is_shared: bool) -> int:
    """How many locations ask in one interval; where a grant serves all, only the first that has to."""
    chance = random.Random(participants)
    holders = [LeaseHolder(LEASE_S, chance.random, 0.0) for _ in range(participants)]
    asked = 0
    for one in sorted(holders, key=lambda holder: holder.ask_at):
        now = one.ask_at
        if now > 2 / 3 * LEASE_S or not one.asks(now):  # it has got a lease by another's request
            continue
        asked += 1
        for other in holders if is_shared else [one]:
            other.answered("yes", now)
            other.ask_at = max(other.ask_at, LEASE_S)  # the next interval
    return asked
