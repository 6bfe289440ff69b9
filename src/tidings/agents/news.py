"""What those who watch a group are answered: that it has changed, and which members have to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from tidings.agents.arguments import GroupInfo, LeaseTerms
from tidings.agents.events import Reason
from tidings.agents.lease_watch import LeaseWatch
from tidings.agents.views import agent_info, group_info
from tidings.errors import Refused
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, resolved
from tidings.steps import Steps

if TYPE_CHECKING:
    from tidings.agents.homes import HomeGroup

WATCH_S = 10.0
"""After so long a watch is answered though nothing has changed."""
NEWS_S = 0.1
"""How often those who watch a group are told of changes that are no end."""
PAGE_SIZE = 2 << 20
AGENT_SIZE = 1 << 10
"""Bytes of an answer, and of an agent in it without its result."""
AGENTS_AT_ONCE = 16
"""Agents that are shown in one step."""
WATCHES_MAX = 10_000
"""Watches of a node that wait."""


class GroupNews:
    """The watches of a node's groups."""

    def __init__(self, broker: Broker, leases: LeaseWatch) -> None:
        self._broker = broker
        self._leases = leases
        self._waiting = 0
        self._told: dict[HomeGroup, None] = {}  # changed in this tick, and watched

    def report(self, home: HomeGroup, is_urgent: bool) -> None:
        """Have those who watch a group told, of an end at once, else not more often than every NEWS_S."""
        if is_urgent or self._broker.now >= home.told_at + NEWS_S:
            self._told[home] = None
        elif home.report is None:

            def report(_now: float) -> None:
                home.report = None
                self._told[home] = None

            home.report = self._broker.timers.at(home.told_at + NEWS_S, report)

    def finish_tick(self) -> None:
        """Answer those who watch groups that have changed in this tick."""
        told, self._told = self._told, {}
        for home in told:
            home.told_at = self._broker.now
            watches, home.watches = home.watches, {}
            answers = {after: built(self._changed(home, after)) for after in set(watches.values())}
            for watch, after in watches.items():
                watch.resolve(answers[after])

    def watch(self, home: HomeGroup, after: int) -> Deferred[Any]:
        """Answer when a group has changed since a version, or after a while."""
        after = after if after <= home.version else -1  # that of an earlier life of this node
        if home.version > after or home.group.phase == "ended":
            return resolved(built(self._changed(home, after)))
        if self._waiting >= WATCHES_MAX:
            raise Refused("limit", f"{WATCHES_MAX} watches wait already")

        def over(_outcome: object = None) -> None:
            home.watches.pop(watch, None)

        watch: Deferred[Any] = Deferred(over)
        home.watches[watch] = after
        self._waiting += 1

        def late(_now: float) -> None:
            self._waiting -= 1
            if not watch.is_over:
                over()
                watch.resolve(built(self._changed(home, after)))

        self._broker.timers.at(self._broker.now + WATCH_S, late)
        return watch

    def _changed(self, home: HomeGroup, after: int) -> GroupInfo:
        """What watchers get: of the agents only those that were ordered to end since a version."""
        members = home.ledger.members
        ordered = [members[one] for one, version in home.orders.items() if version > after]
        orders: dict[str, Reason] = {one.agent: one.reason or "user" for one in ordered}
        return structs.replace(self.about(home), orders=orders)

    def about(self, home: HomeGroup) -> GroupInfo:
        """Return a group as it is shown, without its agents."""
        return group_info(home.ledger, home.version)

    def page(self, home: HomeGroup, first: int) -> Steps[Any]:
        """Answer with a group as it is shown, and as many of its agents as one answer has room for."""
        shown: list[Any] = []
        room, members = PAGE_SIZE, list(home.ledger.members.values())[first:]
        for one in members:
            room -= AGENT_SIZE + len(one.result or b"") + len(one.problem)
            if room < 0:
                break
            left_s = self._leases.left_s((home.group.group, one.agent))
            shown.append(msgspec.to_builtins(agent_info(home.group, one, left_s)))
            if len(shown) % AGENTS_AT_ONCE == 0:
                yield
        return {**built(self.about(home)), "agents": shown, "more": len(shown) < len(members)}


def built(info: GroupInfo | LeaseTerms) -> Any:
    """Return what is answered as builtins."""
    return msgspec.to_builtins(info)
