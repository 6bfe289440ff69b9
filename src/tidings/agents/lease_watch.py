"""The leases of the agents of a node's groups: which life was heard of when, and who is lost.

A member whose lease ends was not heard of for as long: it is lost, and what it held is written off. If this
node itself stood still meanwhile, nobody could have been heard: then each lease gets a renewal's time more.
A group in which nobody runs, and that nobody has watched for IDLE_S, ends as well.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tidings.agents.records import AgentRecord
from tidings.timers import Leases, renewal_s

if TYPE_CHECKING:
    from tidings.agents.homes import GroupHomes, HomeGroup, LifeKey

STALL_S = 1.0
"""A node that is so late for the end of a lease stood still itself."""
IDLE_S = 60.0
"""A group in which nobody runs, and that nobody has watched for so long, ends: it is an orphan itself."""


class LeaseWatch:
    """When each life was heard of, and what follows if it was not."""

    def __init__(self, homes: GroupHomes) -> None:
        self._homes = homes
        self._broker = homes.broker
        self._heard: dict[LifeKey, float] = {}  # later than now for one that rests until then
        self._paid: dict[LifeKey, float] = {}  # up to when each has paid for its time
        self._leases: Leases[LifeKey] = Leases(self._end_of)
        self._alarm = self._wake

    def begin_group(self, home: HomeGroup) -> None:
        """Watch whether anybody cares for a group."""
        self.care(home)
        self._leases.watch((home.group.group, ""))
        self._set_alarm()

    def care(self, home: HomeGroup) -> None:
        """Note that somebody wants to know of a group."""
        self._heard[home.group.group, ""] = self._broker.now

    def begin(self, home: HomeGroup, member: AgentRecord) -> None:
        """Watch the lease of a member, from now on."""
        if not member.is_exempt and self._homes.group_of(home, member) is None:
            key = home.group.group, member.agent
            self._paid[key] = now = self._broker.now
            rests_until = self._broker.deadline(member.rests_until_us / 1e6) if member.is_at_rest else now
            self._heard[key] = max(now, rests_until)
            self._leases.watch(key)
            self._set_alarm()
            self._homes.notices.hear(key, self._heard[key])

    def hear(self, key: LifeKey, rests_s: float = 0.0) -> float:
        """A life was heard of, and rests for so long from now on; how many seconds it has to pay for."""
        now = self._broker.now
        before, self._paid[key] = self._paid.get(key, now), now
        is_sooner = now + rests_s < self._heard.get(key, now)
        self._heard[key] = now + rests_s
        self._homes.notices.hear(key, now + rests_s)
        if is_sooner and key in self._leases:
            self._leases.watch(key)
            self._set_alarm()
        return now - before

    def renew(self, key: LifeKey) -> bool:
        """Renew a lease for others; whether there is one."""
        if key not in self._leases:
            return False
        self._heard[key] = max(self._heard.get(key, 0.0), self._broker.now)
        return True

    def left_s(self, key: LifeKey) -> float | None:
        """How long a lease lasts; None if there is none."""
        return self._end_of(key) - self._broker.now if key in self._leases else None

    def cancel(self, key: LifeKey) -> None:
        """Let one live without a lease."""
        self._leases.cancel(key)
        self._homes.notices.forget(key)

    def forget(self, key: LifeKey) -> None:
        """One has ended."""
        self._heard.pop(key, None)
        self._paid.pop(key, None)
        self.cancel(key)

    def _end_of(self, key: LifeKey) -> float:
        group, agent = key
        home = self._homes.groups.get(group)
        if home is not None and not agent:
            return -inf if home.group.phase == "ended" else self._heard[key] + IDLE_S
        member = None if home is None else home.ledger.members.get(agent)
        if member is None or member.state == "ended":
            return -inf
        return self._heard.get(key, 0.0) + member.lease_s

    def _wake(self, now: float) -> None:
        """End the agent whose lease has ended; if there are more, the alarm goes off again at once."""
        late_s = now - self._leases.wake_at
        for group, agent in self._leases.ended(now, most=1):
            self._has_ended(group, agent, late_s)
        self._set_alarm()

    def _has_ended(self, group: str, agent: str, late_s: float) -> None:
        home = self._homes.groups.get(group)
        if home is not None and not agent:
            self._look_after(home)
            return
        member = None if home is None else home.ledger.members.get(agent)
        if home is None or member is None or member.state == "ended":
            return
        if late_s > STALL_S:
            self._heard[group, agent] = self._broker.now - member.lease_s + renewal_s(member.lease_s)
            self._leases.watch((group, agent))
            return
        problem = "its lease has ended"
        happened = home.ledger.leave(member, "orphan", self._homes.now_us, problem, lost=True)
        self._homes.took(home, happened)

    def _look_after(self, home: HomeGroup) -> None:
        """End a group that nobody cares for, and in which nobody runs."""
        if home.group.phase != "open":
            return
        if home.ledger.running_count:
            self.care(home)
            self._leases.watch((home.group.group, ""))
        else:
            problem = "nobody runs in it, and nobody watches it"
            self._homes.took(home, home.ledger.end("orphan", self._homes.now_us, problem))

    def _set_alarm(self) -> None:
        self._broker.timers.at(self._leases.wake_at, self._alarm)
