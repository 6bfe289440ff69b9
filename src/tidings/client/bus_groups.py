"""The part of a bus for groups of agents: opening, joining, showing, ending, drawing and taking them over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidings.agents.arguments import GroupInfo
from tidings.agents.conditions import Condition
from tidings.agents.orphans import AliveTimes
from tidings.agents.picture import group_svg, happenings_of
from tidings.client.agent import Amount
from tidings.client.agents import GRACE_S, LEASE_S, AgentGroup, Watching, group_request, show_group
from tidings.client.bus_part import BusPart
from tidings.client.location import STEPS_MAX, Location
from tidings.client.mobile import MobileAgent
from tidings.client.renewals import Renewals
from tidings.client.sessions import read_as
from tidings.event import Event
from tidings.filters import Filter

if TYPE_CHECKING:
    from tidings.client.bus import Bus

CLOCK_S = 1.0
"""How much earlier than it was opened the events of a group are looked for."""


class BusGroups(BusPart):
    """The part of a bus for groups of agents."""

    _held_renewals: Renewals | None = None

    @abstractmethod
    def _bus(self) -> Bus:
        """Return itself."""

    @abstractmethod
    def _twin(self) -> Bus | None:
        """Return another bus to the same node, for another loop; None if the node is in this one."""

    def _renewing(self) -> Renewals:
        if self._held_renewals is None:
            self._held_renewals = Renewals(self._link, self._twin)
        return self._held_renewals

    def group(
        self,
        name: str,
        condition: Condition | Watching | None = None,
        *,
        timeout_s: float | None = None,
        budget: Amount | None = None,
        grace_s: float = GRACE_S,
        lease_s: float = LEASE_S,
        rates: Amount | None = None,
        step_rates: Amount | None = None,
        soft: float = 0.2,
        alive: AliveTimes | None = None,
        deputies: Sequence[str] | None = None,
        together: bool = False,
    ) -> AgentGroup:
        """Return a new group of agents, to be entered with `async with`.

        `condition` says when it has what it wants: `any_of()`, `all_of()` (the default), `at_least(2)`, names
        and nested ones, or a function of its `GroupInfo`, which this program evaluates. `timeout_s` ends the
        members, not only the waiting. `budget` is what they may spend, in units of your own; `rates` is what
        each of them pays for a second of existence, and `step_rates` for a step of an agent that moves. Below
        the part `soft` of its budget, an agent's `agent.low` is published. A member that has to end has
        `grace_s` for a last step; one whose location is not heard of for `lease_s` is lost, and one whose
        location can't ask ends itself. With `alive` each location also gives notice, one that was not heard
        of for the check is an orphan, and members may declare partners. `deputies` are two or more nodes that
        keep the group, too: if its home is gone, one of them stands in by itself. None means those of the
        node's settings. With `together` each location asks once for the leases of all its members.
        """
        limits = {"timeout_s": timeout_s, "grace_s": grace_s, "rates": rates, "soft": soft, "alive": alive}
        money = {"budget": budget, "step_rates": step_rates}
        asked, until = group_request(name, condition, {**limits, **money})
        asked |= {"deputies": None if deputies is None else list(deputies), "together": together}
        return AgentGroup(self._link, self._renewing, asked, lease_s, until)

    def join_group(self, which: str, *, lease_s: float = LEASE_S) -> AgentGroup:
        """Return a group that is there, by id or name: members that are started in its block belong to it.

        At the end of the block it waits for these members, and not for the group.
        """
        return AgentGroup(self._link, self._renewing, {"group": which}, lease_s)

    def location(
        self, *classes: type[MobileAgent], address: str = "", steps_max: int = STEPS_MAX
    ) -> Location:
        """Return a location of agents that move, to be entered with `async with`; it trusts these classes.

        It runs up to `steps_max` steps side by side. Classes with limits of memory or processes need the
        `address` by which their processes connect.
        """
        return Location(self._bus(), classes, address, steps_max)

    async def groups(self) -> list[GroupInfo]:
        """Return the groups of the node that this client may see, without their members."""
        return read_as(await self._link.call("agent.list", {}, None, "again"), list[GroupInfo], "$.groups")

    async def group_info(self, group: str) -> GroupInfo:
        """Return a group with its members, by id or name; raises GroupNotFound if there is none."""
        return await show_group(self._link, group)

    async def draw_group(self, group: str) -> str:
        """Return the run of a group of this node as an SVG document, from the events in its log.

        It shows who was where and when, who has started whom, and why each has ended. Raises GroupNotFound,
        or AgentError if the log does not have the beginning of the group any more.
        """
        info = await show_group(self._link, group)
        where = Filter("type LIKE 'agent.%' AND type <> 'agent.alive' AND group = :group", group=info.group)
        since = datetime.fromtimestamp(info.opened_us / 1e6 - CLOCK_S, UTC)
        read = [event async for _, event in self._bus().log.read(since=since, where=where, skip_pruned=True)]
        return group_svg(happenings_of(event for event in read if event.source == read[0].source))

    async def take_over(self, what: str | Iterable[Event]) -> GroupInfo:
        """Have this node be the home of a group whose own home is gone; return the group.

        A group that this node keeps is named, by id or name. Otherwise it takes all events `agent.…` of the
        group from its opening on, in the order in which its home has published them, and the home must be
        gone for good: a durable subscription at another node has them. Raises AgentError if some are missing,
        if the home lives, or if a node that this one knows has the group already or can't be asked.
        """
        asked = {"group": what} if isinstance(what, str) else _taken(what)
        return read_as(await self._link.call("agent.take", asked, None, "again"), GroupInfo, "$.group")

    async def set_deputies(self, group: str, *nodes: str) -> GroupInfo:
        """Have these nodes keep a group with its home, and no others; see `AgentGroup.set_deputies`."""
        return await self.join_group(group).set_deputies(*nodes)

    async def stop_agents(self, which: str) -> None:
        """End a group, by id or name, or an agent, by id, with those below it."""
        await self._link.call("agent.stop", {"which": which}, None, "again")

    async def renew_agents(self, which: str) -> int:
        """Renew the lease of an agent, or of all members of a group; how many that were."""
        return int(await self._link.call("agent.extend", {"which": which}, None, "again"))

    async def release_agent(self, which: str) -> None:
        """Let an agent, or all members of a group, live without leases, for as long as the group does."""
        await self._link.call("agent.exempt", {"which": which}, None, "again")


def _taken(events: Iterable[Event]) -> dict[str, object]:
    """Return the arguments that take a group over by its events, of which only those of its homes count."""
    happened, home = list[bytes](), ""
    for event in events:
        if event.type == "agent.moved" or not home:
            home = event.source or ""
        if event.source == home and event.type != "agent.alive":
            happened.append(event.body or b"")
    return {"home": home, "events": happened}
