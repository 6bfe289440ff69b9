"""The location of a node, as the node sees it: `tidings node --agents trips.agents:Hotels`.

It is a child (`client/location_process.py`), an ordinary client over the node's own socket. So the code of
agents is in that process, or in those that it starts, and never in the node's own.
"""

from __future__ import annotations

from msgspec import Struct

from tidings.errors import UserError
from tidings.node.child import ChildProcess
from tidings.node.logs import Level, LogForm
from tidings.processes import StartedProcess

READY = "location of "
"""How the line begins that it prints when it is there."""
FAILED = "failed: "


class LocationConfig(Struct, frozen=True):
    """Settings of a location, which are its only argument."""

    node: str  # the address of the node, by its own socket
    classes: str  # import paths, separated by commas
    log_level: Level = "info"
    log_form: LogForm = "text"


class LocationProcess(ChildProcess[LocationConfig]):
    """The child as its node sees it."""

    def __init__(self, config: LocationConfig) -> None:
        super().__init__("location", "tidings.client.location_process", config)

    async def _greet(self, process: StartedProcess) -> None:
        text = (await process.readline()).decode(errors="replace").strip()
        if not text.startswith(READY):
            raise UserError(text.removeprefix(FAILED) or "the location has ended before it was there")
