"""Groups of agents in virtual time: losses, partitions, killed locations, and what must hold all the same.

The home is the ledger of a group, a location has a `LeaseHolder` for each agent: the cores that a node and a
client run. Between them is a network that delays, loses and parts. What is checked, at every step:

- given = spent + refunded + held + written off, and nothing is negative;
- nobody useful ends: while the group is open, an agent ends only if its location was killed, or was cut off
  for longer than its lease allows; also while all agents compute for ten leases without a pause;
- a location that is not cut off ends its agents one delay + grace after the group has ended;
- nobody outlives its group by more than the bound: lease + grace after the last answer that its location got;
- the events of the group are its state.

`fault` builds a mistake in, which must be found: so it is known that these checks can see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tidings.agents.amounts import MICRO
from tidings.agents.conditions import at_least
from tidings.agents.events import AnyHappening, Entered, Opened, Ordered, Spent
from tidings.agents.ledger import GroupLedger
from tidings.agents.orphans import LeaseHolder, orphan_s_max
from tidings.agents.records import AgentRecord
from tidings.errors import AgentError

AgentFault = Literal[
    "", "never-over", "late-entry", "impatient", "printing-money", "forgotten-event", "forgotten-order"
]
"""Mistakes that can be built in, and are found.

never-over: a location goes on when the lease is used up. late-entry: members are entered when the group has
ended. impatient: an agent ends when its location can't ask once. printing-money: what is returned stays with
who returns it. forgotten-event: an event of the group is not written down. forgotten-order: an order to end
that was lost is not sent again.
"""

LEASE_S, GRACE_S, DELAY_S_MAX = 30.0, 5.0, 2.0
LOSS = 0.1
"""Part of messages that are lost."""
CLOSED_AT_S = 400.0
"""When the group is ended at the latest."""
STILL_FROM_S, STILL_S = 60.0, 10 * LEASE_S
"""When, in every third run, all agents compute without a pause, and for how long."""
STEPS_MAX = 100_000


class SwarmReport(Struct, frozen=True):
    """What came of a run: how many agents, ends by reason, and how long they outlived their group.

    `ended_s_max` is that of agents that could be reached all the time, `orphan_s_max` that of any, since the
    last answer that its location got; both have a bound.
    """

    seed: int
    agents: int
    reason: str
    ends: dict[str, int]
    lost: int
    ended_s_max: float
    ended_bound_s: float
    orphan_s_max: float
    bound_s: float
    spent: float
    written_off: float


class SwarmFailure(AssertionError):
    """Something that must hold did not; the seed repeats it."""

    def __init__(self, seed: int, problem: str) -> None:
        super().__init__(f"{problem} (seed {seed})")
        self.seed = seed
        self.problem = problem


class Located:
    """An agent at its location: alive or not, whatever the home thinks of it."""

    def __init__(self, agent: str, cookie: str, place: int, holder: LeaseHolder, now: float) -> None:
        self.agent, self.cookie, self.place, self.holder = agent, cookie, place, holder
        self.is_alive = True
        self.is_ending = False
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
            condition=at_least(max(1, agents // self._chance.choice((3, 20)))),
            grace_s=GRACE_S,
            budget=budget,
        )
        self.ledger = GroupLedger.opened(opened)
        self._events: list[AnyHappening] = [opened]
        self._ended_at: float | None = None
        self._orphan_s = self._ended_s = 0.0
        self._is_still = seed % 3 == 0

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
        self._at(CLOSED_AT_S, lambda: self._took(self.ledger.end("time", self._now_us)))
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
            self._deliver_order(there)
        self._at(GRACE_S + orphan_s_max(LEASE_S, GRACE_S), lambda: self._lose(agent))

    def _deliver_order(self, there: Located) -> None:
        """Deliver an order to end, as often as it takes: it is the answer to a watch that is asked again."""
        if there.place in self._dead:
            return
        if not self._reaches(there.place):
            if self._fault != "forgotten-order":
                self._at(self._cut[there.place] - self._now, lambda: self._deliver_order(there))
            return

        def arrive() -> None:
            if self._reaches(there.place):
                self._end_within_grace(there)
            else:
                self._deliver_order(there)

        if self._fault != "forgotten-order" or self._chance.random() >= LOSS:
            self._at(self._chance.uniform(0.0, DELAY_S_MAX), arrive)

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
        is_still = self._is_still and STILL_FROM_S <= now < STILL_FROM_S + STILL_S
        if self._chance.random() < 0.1 and not is_still:
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

    def _end_within_grace(self, there: Located) -> None:
        """An agent that was ordered to end takes a last step, which is as long as the grace at most."""
        if there.is_alive and not there.is_ending:
            there.is_ending = True
            self._at(self._chance.uniform(0.0, GRACE_S), lambda: self._finish(there))

    def _finish(self, there: Located) -> None:
        """An agent ends at its location, which reports that to the home if it can."""
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
            if self._cut.get(there.place, 0.0) < self._ended_at:
                self._ended_s = max(self._ended_s, self._now - self._ended_at)

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
        bound_s, ended_bound_s = orphan_s_max(LEASE_S, GRACE_S), DELAY_S_MAX + GRACE_S
        for one in self._there.values():
            if one.is_alive:
                raise SwarmFailure(self._seed, f"{one.agent} runs for ever in a group that has ended")
        if self._orphan_s > bound_s:
            raise SwarmFailure(
                self._seed, f"an orphan lived for {self._orphan_s:.1f} s, and the bound is {bound_s:g}"
            )
        if self._ended_s > ended_bound_s:
            raise SwarmFailure(
                self._seed,
                f"an agent that could be reached ended {self._ended_s:.1f} s after its group,"
                f" and the bound is {ended_bound_s:g}",
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
            reason=self.ledger.group.reason or "",
            ends=dict(sorted(ends.items())),
            lost=sum(one.is_lost for one in self.ledger.members.values()),
            ended_s_max=round(self._ended_s, 3),
            ended_bound_s=DELAY_S_MAX + GRACE_S,
            orphan_s_max=round(self._orphan_s, 3),
            bound_s=orphan_s_max(LEASE_S, GRACE_S),
            spent=totals.spent.get("usd", 0) / MICRO,
            written_off=totals.written_off.get("usd", 0) / MICRO,
        )


def swarm(seed: int, agents: int = 30, locations: int = 6, fault: AgentFault = "") -> SwarmReport:
    """Run one group; raises SwarmFailure if anything does not hold."""
    return Swarm(seed, agents, locations, fault).run()
