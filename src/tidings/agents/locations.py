"""Locations: which classes of agents are trusted at a node, as its locations say.

A location is a client that runs the agents which rest in the queue `agents` of its node. It says which
classes it knows, for as long as it is connected. An agent that wants to move there asks before it goes, so
one whose class or version is missing stays where it is.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidings.agents.images import AGENTS, AgentClassInfo
from tidings.errors import AgentError
from tidings.peers.backend import Peers
from tidings.peers.peer_client import AWAY_S
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.queues.description import NAME_LENGTH_MAX

CLASSES_MAX = 1_000
"""Classes of one location."""


class TrustClasses(Struct, frozen=True):
    """The arguments of `agent.locate`: all classes that this location trusts from now on."""

    classes: Annotated[list[AgentClassInfo], Meta(max_length=CLASSES_MAX)]


class AtNode(Struct, frozen=True):
    """The arguments of `agent.classes`: at which node, this one if it is empty."""

    node: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""


class LocationService(Service):
    """The locations of a node."""

    def __init__(self, broker: Broker, peers: Peers) -> None:
        self._broker = broker
        self._peers = peers
        self._classes: dict[Session, list[AgentClassInfo]] = {}
        self.operations = {
            "agent.locate": (TrustClasses, self._locate),
            "agent.classes": (AtNode, self._show),
        }

    def parted(self, session: Session, is_clean: bool) -> None:  # noqa: ARG002
        """A location is gone; what rests in the queue waits for the next."""
        self._classes.pop(session, None)

    def status(self) -> dict[str, Any]:
        """Return how many locations there are."""
        return {"locations": len(self._classes)}

    def _locate(self, asked: IncomingRequest, request: TrustClasses) -> str:
        """Note what a location trusts; what this node is called."""
        asked.session.allow("get", AGENTS)
        self._classes[asked.session] = request.classes
        return self._broker.name or self._broker.node

    def _show(self, asked: IncomingRequest, request: AtNode) -> Any:
        node, registry = request.node, self._peers.registry
        if node in ("", registry.name, registry.node):
            asked.session.allow("put", AGENTS)
            found = {one.kind: one for classes in self._classes.values() for one in classes}
            return msgspec.to_builtins(list(found.values()))
        asked.session.allow("put", f"{AGENTS}@{node}")
        peer = registry.find(node)
        if peer is None:
            raise AgentError(node, "no such node is known here")
        return self._peers.relays[peer].ask("agent.classes", {}, AWAY_S)
