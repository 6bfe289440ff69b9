"""A service of the broker that does nothing, and so what a service begins with that does little.

It is told who comes and goes when the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidings.protocol.messages import Message
from tidings.protocol.service import Asked, Heard
from tidings.protocol.session import Session
from tidings.store.interface import Operation


class Bystander:
    """Does nothing, whatever happens; for those who want to know of some of it."""

    operations: Mapping[str, tuple[Any, Callable[[Asked, Any], Any]]] = {}
    frames: Mapping[type[Message], Heard] = {}

    def greeted(self, session: Session) -> bool:  # noqa: ARG002
        """A client is there; nothing is held for it here."""
        return False

    def parted(self, session: Session, is_clean: bool) -> None:
        """A session has ended."""

    def review(self) -> None:
        """The rules may have changed."""

    def status(self) -> dict[str, Any]:
        """There is nothing to tell."""
        return {}

    def finish_tick(self) -> None:
        """The tick ends."""

    def durable(self, mark: int) -> None:
        """A commit is on disk."""

    def failed(self, lost: list[Operation]) -> list[Operation]:
        """These could not be stored; all of them are others'."""
        return lost
