"""Active detection at the home of groups: who was not heard of for too long, and who has lost a partner.

In a group with times for notices each location renews at least every `notice_s`, unless its agent has said
something else, and the node tells all who listen where the agent is. A member that was not heard of for
`check_s` is judged an orphan, and has the grace. An agent may declare its partners, by name: where none of
that name was heard of for `check_s`, its task can't be done any more, and it is an orphan, too. So a partner
that restarts quickly, in a new life or as a new member of its name, is no loss; nor is one that is done.

If this node itself stood still, nobody could be heard: then each has as long again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from tidings.agents.lease_watch import STALL_S
from tidings.agents.orphans import AliveWatch
from tidings.agents.records import AgentRecord
from tidings.agents.views import alive
from tidings.timers import Alarm

if TYPE_CHECKING:
    from tidings.agents.homes import GroupHomes, HomeGroup, LifeKey

Watched = tuple[Literal["agent", "partner"], str]
"""An agent, by its id, or a partner, by its name."""


class NoticeWatch:
    """The members and partners of groups that have times for notices."""

    def __init__(self, homes: GroupHomes) -> None:
        self._homes = homes
        self._broker = homes.broker
        self._watches: dict[str, tuple[AliveWatch[Watched], Alarm]] = {}

    def begin_group(self, home: HomeGroup) -> None:
        """Watch a group from now on, if it has times for that."""
        group = home.group
        if group.alive is not None:
            self._watches[group.group] = AliveWatch(group.alive), partial(self._wake, home)
            for member in home.ledger.running:
                self.declare(home, member)

    def end_group(self, home: HomeGroup) -> None:
        """Watch a group no more."""
        _, alarm = self._watches.pop(home.group.group, (None, None))
        self._broker.timers.cancel(alarm)

    def hear(self, key: LifeKey, until: float) -> None:
        """A member was heard of, or is at rest until then; with it the partner of its name."""
        group, agent = key
        if group not in self._watches or not agent:
            return
        watch, _ = self._watches[group]
        member = self._homes.groups[group].ledger.members[agent]
        if not member.is_exempt and member.state != "ended":
            watch.heard(("agent", agent), until, member.where)
        if ("partner", member.name) in watch:
            watch.heard(("partner", member.name), until)
        self._set_alarm(group)

    def forget(self, key: LifeKey) -> None:
        """A member has ended, or needs no notices any more."""
        group, agent = key
        if group in self._watches:
            self._watches[group][0].forget(("agent", agent))

    def declare(self, home: HomeGroup, member: AgentRecord) -> None:
        """Watch the partners that a member has declared."""
        watch, _ = self._watches[home.group.group]
        for name in member.partners:
            if ("partner", name) not in watch:
                watch.heard(("partner", name), self._broker.now)
        self._set_alarm(home.group.group)

    def tell(self, home: HomeGroup, member: AgentRecord) -> None:
        """Tell those who listen that a member is alive, and where."""
        if home.group.alive is not None:
            self._broker.announce(alive(home.group, member))

    def _set_alarm(self, group: str) -> None:
        watch, alarm = self._watches[group]
        self._broker.timers.by(watch.wake_at, alarm)

    def _wake(self, home: HomeGroup, now: float) -> None:
        """Judge one; if there are more, the alarm goes off again at once."""
        watch, _ = self._watches[home.group.group]
        stood_still = now - watch.wake_at > STALL_S
        for watched in watch.judged(now, most=1):
            kind, who = watched
            if stood_still or (kind == "partner" and _is_no_loss(home, who)):
                watch.heard(watched, now)
            elif kind == "agent":
                self._judge(home, [home.ledger.members[who]])
            else:
                self._judge(home, [one for one in home.ledger.running if who in one.partners])
        if home.group.group in self._watches:
            self._set_alarm(home.group.group)

    def _judge(self, home: HomeGroup, orphans: list[AgentRecord]) -> None:
        """End orphans within the grace, and not those below them, which may be useful."""
        for one in orphans:
            self._homes.took(home, home.ledger.stop(one, "orphan", self._homes.now_us, below=False))


def _is_no_loss(home: HomeGroup, name: str) -> bool:
    """Whether a partner has done its task, or lives without giving notice of it."""
    for one in home.ledger.members.values():
        if one.name == name:
            is_silent = one.is_exempt or one.kind == "group"
            if one.is_done or one.reason == "done" or (is_silent and one.state != "ended"):
                return True
    return False
