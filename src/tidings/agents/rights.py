"""Who may what with groups of agents, by the rules for events.

Each step is allowed to those who may publish the event that says so. Whoever has opened a group may end it
and see it; others see it if they may subscribe to its `agent.opened`.
"""

from __future__ import annotations

from tidings.agents.records import GroupRecord
from tidings.agents.views import TYPE
from tidings.errors import NotAllowed
from tidings.event import Event
from tidings.protocol.access import Principal


def check_may(principal: Principal, what: str, group: str, name: str, agent: str = "") -> None:
    """Raise NotAllowed for one who may not publish the event that says so."""
    granted = principal.grant("publish")
    about = {"group": group, "group_name": name, **({"agent_name": agent} if agent else {})}
    if granted is not None and not granted.matches(Event(f"{TYPE}{what}", about)):
        raise NotAllowed(f"{principal.user!r} may not publish '{TYPE}{what}' of group {name!r}")


def check_owner(principal: Principal, group: GroupRecord, what: str) -> None:
    """Raise NotAllowed for one who has not opened the group, and has no right to this."""
    if principal.rules is not None and principal.user != group.user:
        check_may(principal, what, group.group, group.name)


def sees(principal: Principal, group: GroupRecord) -> bool:
    """Whether a group is shown to a user."""
    if principal.rules is None or principal.user == group.user:
        return True
    try:
        check_may_see(principal, group.group, group.name)
    except NotAllowed:
        return False
    return True


def check_may_see(principal: Principal, group: str, name: str) -> None:
    """Raise NotAllowed for one who may not subscribe to the opening of a group."""
    granted = principal.grant("subscribe")
    if granted is not None and not granted.matches(
        Event(f"{TYPE}opened", {"group": group, "group_name": name})
    ):
        raise NotAllowed(f"{principal.user!r} may not see group {name!r}")


def check_sees(principal: Principal, group: GroupRecord) -> None:
    """Raise NotAllowed for one to whom a group is not shown."""
    if not sees(principal, group):
        raise NotAllowed(f"{principal.user!r} may not see group {group.name!r}")
