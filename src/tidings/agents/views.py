"""What is shown of groups and agents, told to lives, and published of what happens."""

from __future__ import annotations

from typing import Any

import msgspec

from tidings.agents.amounts import Amounts, shown
from tidings.agents.arguments import AgentInfo, GroupInfo, LeaseTerms
from tidings.agents.conditions import text_of
from tidings.agents.events import AnyHappening, Ended, Ending, Ordered
from tidings.agents.ledger import GroupLedger
from tidings.agents.orphans import orphan_s_max
from tidings.agents.records import AgentRecord, GroupRecord
from tidings.event import Event

EXPEDITED = 9
"""Priority of orders to end."""
TYPE = "agent."
"""How the types of these events begin."""
_TOLD = ("reason", "problem", "lost", "partial", "unit", "what", "step", "grace_s")


def group_info(ledger: GroupLedger, version: int) -> GroupInfo:
    """Return a group as it is shown, without its agents."""
    group, totals = ledger.group, ledger.totals
    return GroupInfo(
        group=group.group,
        name=group.name,
        user=group.user,
        condition=text_of(group.condition),
        phase=group.phase,
        reason=group.reason,
        problem=group.problem,
        opened_us=group.opened_us,
        until_us=group.until_us,
        ended_us=group.ended_us,
        grace_s=group.grace_s,
        parent=group.parent,
        kept_by=group.kept_by,
        running=ledger.running_count,
        members=len(ledger.members),
        version=version,
        given=shown(totals.given),
        spent=shown(totals.spent),
        refunded=shown(totals.refunded),
        held=shown(totals.held),
        written_off=shown(totals.written_off),
    )


def agent_info(group: GroupRecord, one: AgentRecord, left_s: float | None) -> AgentInfo:
    """Return an agent as it is shown; its lease lasts so long, if it has one."""
    return AgentInfo(
        agent=one.agent,
        name=one.name,
        group=group.group,
        group_name=group.name,
        parent=one.parent,
        kind=one.kind,
        state=one.state,
        life=one.life,
        user=one.user,
        where=one.where,
        entered_us=one.entered_us,
        ended_us=one.ended_us,
        reason=one.reason,
        problem=one.problem,
        lost=one.is_lost,
        released=one.is_exempt,
        lease_s=one.lease_s,
        lease_left_s=left_s,
        rests_until_us=one.rests_until_us,
        step=one.step,
        partners=one.partners,
        done=one.is_done,
        result=None if one.result is None else msgspec.json.decode(one.result),
        given=shown(one.account.given),
        spent=shown(one.account.spent),
        held=shown(one.account.held),
    )


def lease_terms(group: GroupRecord, member: AgentRecord, now_us: int) -> LeaseTerms:
    """Return what a life is told: whether it may go on, and its limits."""
    return LeaseTerms(
        agent=member.agent,
        life=member.life,
        group=group.group,
        goes_on=member.state == "running",
        lease_s=member.lease_s,
        grace_s=group.grace_s,
        orphan_s_max=orphan_s_max(member.lease_s, group.grace_s),
        reason=member.reason,
        generation=group.generation,
        together=group.together,
        notice_s=None if group.alive is None or member.is_exempt else group.alive.notice_s,
        left_s=None if group.until_us is None else max(0.0, (group.until_us - now_us) / 1e6),
        budget=shown(member.account.held),
    )


def published(ledger: GroupLedger, happening: AnyHappening) -> Event:
    """Return the event that says what has happened; its body is all of it."""
    attributes: dict[str, Any] = {"group": ledger.group.group, "group_name": ledger.group.name}
    agent = ledger.members.get(getattr(happening, "agent", ""))
    if agent is not None:
        named = {"agent": agent.agent, "agent_name": agent.name, "life": agent.life, "where": agent.where}
        attributes |= {name: value for name, value in named.items() if value != ""}
    told = {name: getattr(happening, name, None) for name in _TOLD}
    attributes |= {name: value for name, value in told.items() if value not in (None, "")}
    amounts: Amounts = getattr(happening, "amounts", None) or getattr(happening, "share", None) or {}
    attributes |= {f"amount.{unit}": float(value) for unit, value in shown(amounts).items()}
    if isinstance(happening, Ended):
        attributes["lived_s"] = happening.lived_us / 1e6
        attributes |= {f"spent.{unit}": float(value) for unit, value in shown(happening.spent).items()}
    header: dict[str, Any] = {"priority": EXPEDITED} if isinstance(happening, Ordered | Ending) else {}
    body = msgspec.json.encode(happening)
    return Event(type_of(happening), attributes, delivery="persistent", body=body, **header)


def alive(group: GroupRecord, member: AgentRecord) -> Event:
    """Return the event that says that a member is alive, and where."""
    attributes = {
        "group": group.group,
        "group_name": group.name,
        "agent": member.agent,
        "where": member.where,
    }
    return Event(f"{TYPE}alive", {**attributes, "agent_name": member.name, "life": member.life})


def type_of(happening: AnyHappening) -> str:
    """Return the type of the event that says what has happened."""
    return f"{TYPE}{type(happening).__struct_config__.tag}"
