"""Agents as classes: a name, a typed state, and named steps, between which they may move.

    class Hotels(MobileAgent, version="1"):
        state: HotelsState                     # a msgspec.Struct

        @step
        async def begin(self) -> Next:
            return self.move("node-b", "search")

        @step
        async def search(self) -> dict | None:
            await self.agent.spend(usd=0.5)
            ...
            return {"price": 80}               # its result; the agent is done

Between two steps an agent is a message: its state and the name of the next step, in the queue `agents` of its
location or of another node's. The first step is the one that is defined first. What a step has done to the
state counts when it has returned: a step whose location has died begins again, from the state before it, in a
new life.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from tidings.agents.images import STATE_SIZE_MAX, AgentClassInfo, AgentImage
from tidings.errors import AgentError, UserError

if TYPE_CHECKING:
    from tidings.client.agent import Agent
    from tidings.client.bus import Bus

STEP_S = 60.0
STEP_S_MAX = 240.0
"""How long a step may take: it is one transaction with the move that follows."""
_STEP = "_is_step"

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])


class StepLimits(Struct, frozen=True):
    """What a step may use; with memory or processes it runs in a process of its own."""

    seconds: float = STEP_S
    memory_mb: float | None = None
    processes: int | None = None

    @property
    def is_apart(self) -> bool:
        """Whether it needs a process of its own."""
        return self.memory_mb is not None or self.processes is not None


class Next(Struct, frozen=True):
    """What comes after a step: the next one, after a rest, here or at another node."""

    step: str
    node: str = ""
    rests_s: float = 0.0


class MobileAgent:
    """The base of agents that move; see the module.

    `agent` spends, reports and starts others; `bus` is the connection of the location. Both are there while a
    step runs, as is `problem`: why the last move was not possible.
    """

    version: ClassVar[str] = ""
    limits: ClassVar[StepLimits] = StepLimits()
    stays: ClassVar[bool] = False
    """Whether these are system agents, which do not move."""
    steps: ClassVar[tuple[str, ...]] = ()

    agent: Agent
    bus: Bus
    state: Any
    problem: str = ""

    @property
    def where(self) -> str:
        """What the node is called at which it is."""
        return self.agent._life.where.removeprefix("node ")

    def __init_subclass__(
        cls, version: str = "", limits: StepLimits | None = None, stays: bool = False
    ) -> None:
        cls.version, cls.stays = version, stays
        cls.limits = limits or cls.limits
        own = tuple(name for name, value in vars(cls).items() if getattr(value, _STEP, False))
        cls.steps = tuple(dict.fromkeys((*own, *cls.steps)))
        if not 0 < cls.limits.seconds <= STEP_S_MAX:
            raise UserError(f"a step may take up to {STEP_S_MAX:g} s, not {cls.limits.seconds:g}")

    def then(self, step: str, *, rests_s: float = 0.0) -> Next:
        """Go on here with a step, after a rest, in which the agent is a message and needs no memory."""
        return Next(self._checked(step), "", rests_s)

    def move(self, node: str, step: str) -> Next:
        """Go on at another node with a step.

        If that is not possible, the agent goes on with it here, and `problem` says why.
        """
        if self.stays:
            raise AgentError(type(self).__name__, "a system agent does not move")
        return Next(self._checked(step), node)

    def _checked(self, step: str) -> str:
        if step not in self.steps:
            raise AgentError(type(self).__name__, f"it has no step {step!r}, only {', '.join(self.steps)}")
        return step


def step(function: Function) -> Function:
    """Mark a method as a step of an agent."""
    setattr(function, _STEP, True)
    return function


def kind_of(cls: type[MobileAgent]) -> str:
    """Return the name by which a class is known: its import path."""
    return f"{cls.__module__}:{cls.__qualname__}"


def about_class(cls: type[MobileAgent]) -> AgentClassInfo:
    """Return what locations say of a class; UserError if it can't be one."""
    if not cls.steps:
        raise UserError(f"{kind_of(cls)} has no steps: mark methods with @step")
    return AgentClassInfo(kind_of(cls), cls.version, cls.steps[0], cls.stays)


def load_class(path: str) -> type[MobileAgent]:
    """Import a class by its path; UserError if there is none."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"no class {path!r}: {error}; it is module:Class") from None
    if not (isinstance(found, type) and issubclass(found, MobileAgent)):
        raise UserError(f"{path!r} is no class of MobileAgent")
    about_class(found)
    return found


def pack_state(name: str, state: object) -> bytes:
    """Return a state as it travels; AgentError if it can't."""
    try:
        encoded = msgspec.msgpack.encode(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise AgentError(name, f"its state can't be packed: {error}") from None
    if len(encoded) > STATE_SIZE_MAX:
        raise AgentError(name, f"its state has {len(encoded)} bytes, and at most {STATE_SIZE_MAX} travel")
    return encoded


@cache
def _state_type(cls: Any) -> Any:
    """Return the type of the states of a class, of which its module knows the name."""
    for base in cls.__mro__:
        annotation = vars(base).get("__annotations__", {}).get("state")
        if annotation is not None:
            alone = type("State", (), {"__annotations__": {"state": annotation}})
            return get_type_hints(alone, vars(sys.modules[base.__module__]))["state"]
    return Any


def wake(cls: type[MobileAgent], image: AgentImage) -> MobileAgent:
    """Make an agent of its image; AgentError if the class does not fit."""
    if image.version != cls.version:
        problem = f"version {image.version!r} of {image.kind} is not there, but {cls.version!r}"
        raise AgentError(image.name, problem)
    if image.step not in cls.steps:
        raise AgentError(image.name, f"{image.kind} has no step {image.step!r}")
    agent = cls()
    kind: Any = cls  # mypy takes the hash of a class for that of its objects
    try:
        agent.state = msgspec.msgpack.decode(image.state, type=_state_type(kind))
    except msgspec.DecodeError as error:
        raise AgentError(image.name, f"its state does not fit {image.kind}: {error}") from None
    agent.problem = image.problem
    return agent
