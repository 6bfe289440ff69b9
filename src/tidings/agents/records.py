"""What is kept of a group and of its members."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

from msgspec import Struct, field

from tidings.agents.amounts import Account, Amounts
from tidings.agents.conditions import AnyCondition, Outcome
from tidings.agents.events import AgentKind, Reason
from tidings.agents.orphans import AliveTimes


def digest(cookie: str) -> str:
    """Return what is kept, and logged, of a cookie: nobody can speak for an agent who has read that."""
    return sha256(cookie.encode()).hexdigest()[:32]


AgentState = Literal["running", "ending", "ended"]
GroupPhase = Literal["open", "ending", "ended"]


class AgentRecord(Struct, kw_only=True):
    """A member, as it is kept."""

    agent: str
    name: str
    life: int
    parent: str
    user: str
    cookie: str
    kind: AgentKind
    where: str
    lease_s: float
    entered_us: int
    state: AgentState = "running"
    is_exempt: bool = False
    reason: Reason | None = None
    ended_us: int | None = None
    is_lost: bool = False
    problem: str = ""
    result: bytes | None = None  # JSON
    is_done: bool = False
    account: Account = field(default_factory=Account)
    low: list[str] = field(default_factory=list)
    steps: int = 0  # the highest number of what it has spent, so that nothing is spent twice
    asks: int = 0  # and of what it has asked for
    packed: int = 0  # the life by which it was packed last that has arrived: an older copy is refused
    rests_until_us: int = 0  # it rests in a queue; 0: it does not
    step: str = ""  # the step that comes next, or is under way
    partners: list[str] = field(default_factory=list)  # names of those without whom it can't do its task

    @property
    def is_at_rest(self) -> bool:
        """Whether it rests in a queue, or is on its way to one."""
        return self.rests_until_us > 0

    @property
    def outcome(self) -> Outcome:
        """What conditions see of it."""
        if self.is_done:
            return "done"
        return "failed" if self.state == "ended" else "running"


class GroupRecord(Struct, kw_only=True):
    """A group without its members, as it is kept."""

    group: str
    name: str
    user: str
    condition: AnyCondition
    grace_s: float
    opened_us: int
    until_us: int | None = None
    rates: Amounts = field(default_factory=dict)
    step_rates: Amounts = field(default_factory=dict)
    soft: float = 0.2
    alive: AliveTimes | None = None
    parent_group: str = ""
    parent: str = ""
    phase: GroupPhase = "open"
    is_sealed: bool = False
    reason: Reason | None = None
    problem: str = ""
    ended_us: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    agents: int = 0
    generation: int = 0  # how often it has got another home
    home: str = ""  # the node that has taken it over last, if any has
    kept_by: list[str] = field(default_factory=list)  # names of all nodes that keep it, if several do
    together: bool = False  # a location asks once for the leases of all its members
