"""Who seals, as the child of a node: there while there is something to seal, and for a while after.

A node that has nothing to seal has no such child: it costs memory, and reading Arrow takes a second.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from tidings.log.custody import Custody
from tidings.node.child import Child
from tidings.node.config import NodeConfig
from tidings.node.logs import Form, Level

LOCK = "tidings.sealing.lock"
"""The file in the node's directory that who seals has locked."""


class SealingConfig(Struct, frozen=True):
    """Settings of the process that seals, which are its only argument: there is no secret among them."""

    node: str  # the address of the node, by its own socket
    folder: str  # a path, or the URI of a folder on any Arrow filesystem
    lock: str  # a file beside the store, which who seals has locked
    log_level: Level = "info"
    log_form: Form = "text"


def settings_of(config: NodeConfig, folder: str, socket: Path) -> SealingConfig:
    """The settings of who seals for a node, and comes by this socket."""
    assert config.dir is not None, "what is not kept is not sealed"
    lock = Path(config.dir) / LOCK
    address = f"tidings+unix://{socket.absolute()}"
    return SealingConfig(address, folder, str(lock.absolute()), config.log_level, config.log_form)


class SealingProcess(Child[SealingConfig]):
    """See the module."""

    may_leave = True

    def __init__(self, config: SealingConfig, log: Custody) -> None:
        super().__init__("sealing", "tidings.node.sealing.main", config)
        self._log = log
        self._wanted = asyncio.Event()

    def look(self) -> None:
        """See whether there is something to seal; called now and then."""
        if self._log.wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def _wait_wanted(self) -> None:
        await self._wanted.wait()
