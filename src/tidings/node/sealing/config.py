"""What the process that seals is told by its node."""

from __future__ import annotations

from msgspec import Struct

from tidings.node.logs import Form, Level


class SealingConfig(Struct, frozen=True):
    """Its settings, as its only argument: there is no secret among them."""

    node: str  # the address of the node, by its own socket
    folder: str  # a path, or the URI of a folder on any Arrow filesystem
    lock: str  # a file beside the store, which who seals has locked
    log_level: Level = "info"
    log_form: Form = "text"
