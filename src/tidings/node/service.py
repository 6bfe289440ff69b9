"""The node's own service: the status of its process beside that of the broker, and the request to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.errors import NotAllowed, Refused
from tidings.log.arguments import Nothing
from tidings.protocol.access import PeerInfo, Principal
from tidings.protocol.service import IncomingRequest, Service


class NodeService(Service):
    """Adds to the status of a node what only its process knows, and lets its managers stop it.

    `about` returns the process's part of the status. `on_stop` begins to stop it; None where a node runs in a
    program, with which it ends.
    """

    def __init__(self, about: Callable[[], dict[str, Any]]) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._about = about
        self.operations = {"node.stop": (Nothing, self._stop)}

    def status(self) -> dict[str, Any]:
        """Return the process's part of the node's status."""
        return self._about()

    def _stop(self, asked: IncomingRequest, _told: Nothing) -> None:
        """Begin to stop the node; the reply leaves before the connection is closed."""
        check_stop(asked.session.principal, asked.session.caller)
        if self.on_stop is None:
            raise Refused("unsupported", "this node runs in a program, and ends with it")
        self.on_stop()


def check_stop(principal: Principal, caller: PeerInfo) -> None:
    """Raise NotAllowed for one who may not stop the node.

    That takes the right to manage everything. Where there are no users, every program of the machine may
    connect to the port, and only the node's owner to its Unix socket.
    """
    if principal.rules is None and caller.host is not None:
        raise NotAllowed("a node without security is stopped over its Unix socket, or by a signal")
    principal.check_manage_all("stop this node")
