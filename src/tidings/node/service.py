"""The node's own service: the status of the process beside that of the broker, and the request to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.protocol.service import Service


class NodeService(Service):
    """Adds to the status of a node what only its process knows; `about` returns that."""

    def __init__(self, about: Callable[[], dict[str, Any]]) -> None:
        self._about = about

    def status(self) -> dict[str, Any]:
        """Return the process's part of the node's status."""
        return self._about()
