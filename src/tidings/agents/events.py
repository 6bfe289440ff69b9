"""What happens in a group: the events of which its ledger is the sum.

Each is published as an event `agent.` and its tag, with its fields as attributes and itself as the body. So
the log has every step, and whoever reads it can compute the state of a group: see `ledger.replay`.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct, field

from tidings.agents.amounts import Amounts
from tidings.agents.conditions import AnyCondition
from tidings.agents.orphans import AliveTimes

Reason = Literal["done", "condition", "time", "orphan", "budget", "user", "error"]
"""Why an agent or a group has ended.

done: by itself. condition: its group has what it wanted. time: the time-out of the group. orphan: nobody
could be asked for too long, or its lease was not renewed. budget: all is spent. user: someone has ended it.
error: it has failed, or the condition can't be met any more.
"""
AgentKind = Literal["task", "process", "group", "mobile", "other"]
"""What an agent is at its location; one that is `mobile` rests in queues, and moves between nodes."""


class Happening(Struct, frozen=True, tag_field="is", kw_only=True):
    """The base: when it happened, in microseconds since 1970."""

    at_us: int = 0


class Opened(Happening, frozen=True, tag="opened"):
    """A group begins. `parent` is the agent, in another group of this node, that it is a member as."""

    group: str
    name: str
    user: str
    condition: AnyCondition
    grace_s: float
    until_us: int | None = None
    budget: Amounts = field(default_factory=dict)
    rates: Amounts = field(default_factory=dict)
    step_rates: Amounts = field(default_factory=dict)
    soft: float = 0.2
    alive: AliveTimes | None = None
    parent_group: str = ""
    parent: str = ""
    kept_by: list[str] = []
    together: bool = False


class Sealed(Happening, frozen=True, tag="sealed"):
    """No more members are started by who has opened the group."""


class Noted(Happening, frozen=True, tag="noted"):
    """Events that match a filter of the condition were published in the group."""

    where: str
    times: int = 1


class Entered(Happening, frozen=True, tag="entered"):
    """A member, or a new life of one, is about to begin; `share` comes out of its parent's account."""

    agent: str
    name: str
    life: int
    parent: str
    user: str
    cookie: str  # a digest of it
    kind: AgentKind
    where: str
    lease_s: float
    share: Amounts
    packed: int = 0  # the life by which an agent was packed that has arrived
    step: str = ""  # for which it has


class Rested(Happening, frozen=True, tag="rested"):
    """An agent is at rest in a queue, or on its way to one, until it arrives there for its next step."""

    agent: str
    where: str
    step: str
    until_us: int


class Placed(Happening, frozen=True, tag="placed"):
    """An agent is somewhere else than before."""

    agent: str
    where: str


class Partnered(Happening, frozen=True, tag="partnered"):
    """An agent can do its task only with these others, by name; nobody else counts from now on."""

    agent: str
    partners: list[str]


class Spent(Happening, frozen=True, tag="spent"):
    """An agent has spent something."""

    agent: str
    amounts: Amounts
    what: str = ""
    step: int = 0


class WrittenOff(Happening, frozen=True, tag="written_off"):
    """A group that is a member has lost something, with members of its own."""

    agent: str
    amounts: Amounts


class Low(Happening, frozen=True, tag="low"):
    """An agent holds less of a unit than the soft limit."""

    agent: str
    unit: str


class Granted(Happening, frozen=True, tag="granted"):
    """An agent has got more, out of its parent's account."""

    agent: str
    amounts: Amounts
    ask: int = 0


class Resulted(Happening, frozen=True, tag="resulted"):
    """An agent has a result, or a part of one."""

    agent: str
    result: msgspec.Raw
    partial: bool = False


class Exempted(Happening, frozen=True, tag="released"):
    """An agent needs no lease any more: it was deliberately let go."""

    agent: str


class Ordered(Happening, frozen=True, tag="stop"):
    """An agent is to end within the grace."""

    agent: str
    reason: Reason
    grace_s: float


class Ended(Happening, frozen=True, tag="ended"):
    """An agent has ended; what it held goes back, or is written off if it was `lost`.

    It has what the agent has spent in its lives, and how long these lasted, so that one event is its bill.
    """

    agent: str
    reason: Reason
    lost: bool = False
    problem: str = ""
    spent: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    lived_us: int = 0


class Ending(Happening, frozen=True, tag="ending"):
    """The group ends: so do all its members."""

    reason: Reason
    problem: str = ""


class Moved(Happening, frozen=True, tag="moved"):
    """The group has another home, a node that has replayed all events before this one."""

    home: str


class Deputed(Happening, frozen=True, tag="deputed"):
    """Other nodes keep the group than before, with its home; their names by their ids."""

    voters: dict[str, str]


class Closed(Happening, frozen=True, tag="closed"):
    """No member is left; what the group holds goes back."""

    reason: Reason


AnyHappening = (
    Opened
    | Sealed
    | Noted
    | Entered
    | Rested
    | Placed
    | Partnered
    | Spent
    | WrittenOff
    | Low
    | Granted
    | Resulted
    | Exempted
    | Ordered
    | Ended
    | Ending
    | Moved
    | Deputed
    | Closed
)

_DECODER: msgspec.json.Decoder[AnyHappening] = msgspec.json.Decoder(AnyHappening)


def decode_happening(body: bytes) -> AnyHappening:
    """Return what the body of an event `agent.…` says; raises msgspec.DecodeError for any other."""
    return _DECODER.decode(body)
