"""What clients ask of the agents of a node, and what they are answered."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from tidings.agents.events import AgentKind, Reason
from tidings.agents.orphans import LEASE_S_MAX, LEASE_S_MIN, AliveTimes
from tidings.agents.records import AgentState, GroupPhase
from tidings.errors import UserError
from tidings.protocol.arguments import NAME_LENGTH_MAX, Name

TIMEOUT_S_MAX = 366 * 86_400.0
GRACE_S_MAX = 3_600.0
COOKIE_LENGTH_MAX = 64
EVENTS_MAX = 100_000
"""Events of a group that is taken over."""
TOGETHER_MAX = 256
"""Lives whose leases are renewed by one request."""
DEPUTIES_MAX = 6
"""Nodes that keep a group beside its home."""
PARTNERS_MAX = 100
"""Partners that an agent declares."""

Id = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-z0-9][a-z0-9.-]*$")]
MaybeName = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Cookie = Annotated[str, Meta(min_length=16, max_length=COOKIE_LENGTH_MAX)]
LeaseS = Annotated[float, Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)]


class OpenGroup(Struct, frozen=True):
    """The arguments of `agent.open`; doing it twice with one id is doing it once."""

    group: Id
    name: Name
    condition: Any
    timeout_s: Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)] | None = None
    grace_s: Annotated[float, Meta(ge=0, le=GRACE_S_MAX)] = 5.0
    budget: Any = None
    rates: Any = None
    step_rates: Any = None
    soft: Annotated[float, Meta(ge=0, le=1)] = 0.2
    alive: AliveTimes | None = None
    """The times of active detection; without them there is none."""
    together: bool = False
    """Whether a location asks once for the leases of all its members of the group."""
    deputies: Annotated[list[Name], Meta(max_length=DEPUTIES_MAX)] | None = None
    """Other nodes that keep the group; None: those of the node's settings."""
    parent: MaybeName = ""
    """Agent as which the group is a member of another one; it was entered with the kind `group`."""
    parent_cookie: Annotated[str, Meta(max_length=COOKIE_LENGTH_MAX)] = ""


class WhichGroup(Struct, frozen=True):
    """The group that is meant, by id or name."""

    group: Name


class ChangeDeputies(WhichGroup, frozen=True):
    """The arguments of `agent.deputies`: all nodes that are to keep a group beside its home."""

    deputies: Annotated[list[Name], Meta(max_length=DEPUTIES_MAX)]


class ShowGroup(WhichGroup, frozen=True):
    """The arguments of `agent.show`: a group, without so many of its first members."""

    first: Annotated[int, Meta(ge=0)] = 0


class EnterAgent(Struct, frozen=True):
    """The arguments of `agent.enter`; doing it twice with one cookie is doing it once."""

    group: Name
    cookie: Cookie
    name: MaybeName = ""
    parent: MaybeName = ""
    kind: AgentKind = "task"
    where: MaybeName = ""
    lease_s: LeaseS = 30.0
    share: Any = None


class AgentLife(Struct, frozen=True):
    """One life of an agent: the arguments of what it does itself."""

    agent: Name
    life: Annotated[int, Meta(ge=1)]
    cookie: Cookie
    where: MaybeName = ""
    generation: Annotated[int, Meta(ge=0)] = 0
    """The highest of the homes that have answered it: one of an earlier generation is to ignore it."""


class RenewAgents(Struct, frozen=True):
    """The arguments of `agent.renew-all`: lives of one group at one location."""

    group: Name
    lives: Annotated[list[AgentLife], Meta(max_length=TOGETHER_MAX)]


class ArriveAgent(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.arrive`: the life that has packed it, and the step for which it has arrived."""

    what: MaybeName = ""


class RestAgent(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.rest`: for how long, and the step that comes next."""

    rests_s: Annotated[float, Meta(ge=0, le=TIMEOUT_S_MAX)]
    what: MaybeName = ""


class ArriveAgents(RenewAgents, frozen=True):
    """The arguments of `agent.arrive-all`: lives of one group that have arrived at one location."""

    lives: Annotated[list[ArriveAgent], Meta(max_length=TOGETHER_MAX)]  # type: ignore[assignment]  # a narrower list


class RestAgents(RenewAgents, frozen=True):
    """The arguments of `agent.rest-all`: lives of one group that have left one location."""

    lives: Annotated[list[RestAgent], Meta(max_length=TOGETHER_MAX)]  # type: ignore[assignment]  # a narrower list


class DeclarePartners(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.partners`: all of them, by name."""

    partners: Annotated[list[Name], Meta(max_length=PARTNERS_MAX)]


class SpendAmounts(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.spend` and `agent.more`."""

    amounts: Any
    what: MaybeName = ""
    step: Annotated[int, Meta(ge=0)] = 0


class GiveResult(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.result`; the result is JSON."""

    result: bytes
    partial: bool = False


class LeaveGroup(AgentLife, frozen=True, kw_only=True):
    """The arguments of `agent.leave`."""

    reason: Reason = "done"
    problem: Annotated[str, Meta(max_length=10_000)] = ""


class StopAgents(Struct, frozen=True):
    """The arguments of `agent.stop`: a group, or an agent with those below it."""

    which: Name
    reason: Reason = "user"


class WatchGroup(Struct, frozen=True):
    """The arguments of `agent.watch`.

    Answered when the group has changed since this version, or after a while.
    """

    group: Name
    after: int = -1


class TakeGroup(Struct, frozen=True):
    """The arguments of `agent.take`: the node that was the home, and the bodies of all events of a group.

    A group that this node keeps is named alone.
    """

    home: MaybeName = ""
    events: Annotated[list[bytes], Meta(max_length=EVENTS_MAX)] = []
    group: MaybeName = ""


class AskHome(Struct, frozen=True):
    """The arguments of `agent.at-home`: another operation, for a node that is asked as the home."""

    operation: Name
    arguments: dict[str, Any]


class LeaseTerms(Struct, frozen=True):
    """What a life is told.

    Whether it may go on, its limits, and how long it lives at most if nobody can be asked.
    """

    agent: str
    life: int
    group: str
    goes_on: bool
    lease_s: float
    grace_s: float
    orphan_s_max: float
    reason: Reason | None = None
    left_s: float | None = None
    generation: int = 0
    """How often the group has got another home: an answer of an earlier one does not count."""
    together: bool = False
    """Whether its location asks for all its members of the group at once."""
    notice_s: float | None = None
    """How often its location says that it is alive, if it has said nothing else; None: not at all."""
    budget: dict[str, float] = field(default_factory=dict)


class AgentInfo(Struct, frozen=True, kw_only=True):
    """An agent, as it is shown."""

    agent: str
    name: str
    group: str
    group_name: str
    parent: str
    kind: AgentKind
    state: AgentState
    life: int
    user: str
    where: str
    entered_us: int
    ended_us: int | None
    reason: Reason | None
    problem: str
    lost: bool
    released: bool
    lease_s: float
    lease_left_s: float | None
    rests_until_us: int = 0
    step: str = ""
    partners: list[str] = []
    done: bool
    result: Any
    given: dict[str, float]
    spent: dict[str, float]
    held: dict[str, float]


class GroupInfo(Struct, frozen=True, kw_only=True):
    """A group, as it is shown; without `agents` where many are listed."""

    group: str
    name: str
    user: str
    condition: str
    phase: GroupPhase
    reason: Reason | None
    problem: str
    opened_us: int
    until_us: int | None
    ended_us: int | None
    grace_s: float
    parent: str
    kept_by: list[str] = []
    """The nodes that keep it, its home among them, if several do."""
    running: int
    members: int
    version: int
    given: dict[str, float]
    spent: dict[str, float]
    refunded: dict[str, float]
    held: dict[str, float]
    written_off: dict[str, float]
    agents: list[AgentInfo] = field(default_factory=list)
    more: bool = False
    """Whether it has more agents than these: one answer has a bounded size."""
    orders: dict[str, Reason] = field(default_factory=dict)
    """Agents that are to end, and why; in answers to a watch."""


def encode_result(value: object) -> bytes:
    """Return a result as it travels; UserError if JSON can't be made of it."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"a result is something that JSON can be made of: {error}") from None
