"""What the parts of a bus share: its connection."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidings.transport.link import Link


class BusPart(ABC):
    """Some methods of a bus, which stand in a module of their own."""

    @property
    @abstractmethod
    def _link(self) -> Link:
        """Return the connection; UserError if the bus was not entered."""
