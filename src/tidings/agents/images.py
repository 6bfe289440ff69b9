"""Agents at rest: a message of a queue `agents` has all that goes on elsewhere, and no code.

The image of an agent is its class by name and version, the step that comes next, its state, and the life that
has packed it with its cookie. So a location that knows the class can go on with it, and one that does not
sends it back. Who may get from the queue can go on with its agents: its rules say who that is.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tidings.agents.arguments import COOKIE_LENGTH_MAX
from tidings.agents.views import TYPE
from tidings.errors import AgentError
from tidings.event import Event
from tidings.queues.description import NAME_LENGTH_MAX

AGENTS = "agents"
"""The queue of a location."""
STATE_SIZE_MAX = 1 << 20
"""Bytes of the state of an agent, as it is packed."""
RESTING = f"{TYPE}image"
"""The type of the event that an agent is at rest."""
CLASS_LENGTH_MAX = 255
PROBLEM_LENGTH_MAX = 400

_Text = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]


class AgentImage(Struct, frozen=True, kw_only=True):
    """An agent at rest."""

    agent: _Text
    """Its id at its home."""
    home: _Text
    """The node that is the home of its group."""
    group: _Text
    name: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
    kind: Annotated[str, Meta(min_length=3, max_length=CLASS_LENGTH_MAX, pattern=r"^[\w.]+:[\w.]+$")]
    """Its class, by import path: `trips.agents:Hotels`."""
    version: Annotated[str, Meta(max_length=64)]
    step: _Text
    state: Annotated[bytes, Meta(max_length=STATE_SIZE_MAX)]
    cookie: Annotated[str, Meta(min_length=16, max_length=COOKIE_LENGTH_MAX)]
    life: Annotated[int, Meta(ge=1)]
    """The life that has packed it."""
    origin: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""
    """The node that it comes from, and goes back to where it is not trusted."""
    problem: Annotated[str, Meta(max_length=PROBLEM_LENGTH_MAX)] = ""
    """Why it did not move where it wanted to."""
    moves: Annotated[int, Meta(ge=0)] = 0

    @property
    def address(self) -> str:
        """Its id for other nodes than its home."""
        return f"{self.agent}@{self.home}"


class AgentClassInfo(Struct, frozen=True):
    """A class that a location trusts."""

    kind: Annotated[str, Meta(min_length=3, max_length=CLASS_LENGTH_MAX)]
    version: Annotated[str, Meta(max_length=64)] = ""
    first: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""
    """The step that a new agent begins with."""
    stays: bool = False
    """Whether its agents are system agents, which do not move."""


def packed(image: AgentImage) -> Event:
    """Return the event that an agent is as a message."""
    about = {"agent": image.agent, "agent_name": image.name, "group": image.group, "home": image.home}
    attributes = {**about, "class": image.kind, "version": image.version, "step": image.step}
    return Event(RESTING, attributes, body=msgspec.msgpack.encode(image))


def unpacked(event: Event) -> AgentImage:
    """Return the agent that a message is; AgentError if it is none."""
    try:
        return msgspec.msgpack.decode(event.body or b"", type=AgentImage)
    except msgspec.DecodeError as error:
        raise AgentError(AGENTS, f"a message is no agent: {error}") from None
