"""The client's end of an advertisement: what is offered, and who is told of the demand for it."""

from __future__ import annotations

from typing import Any, Protocol

from tidings.errors import TidingsError
from tidings.replies import Deferred


class Interest(Protocol):
    """Who wants to know whether anyone wants what it advertises."""

    def changed(self, filters: list[str]) -> None:
        """These filters want it now; called whenever they change, and after each new connection."""

    def ended(self, reason: str) -> None:
        """Nothing more will be told; called once, and not when the application itself has withdrawn it."""


class Offer:
    """An advertisement."""

    __slots__ = ("begun", "filter", "interest", "number")

    def __init__(self, number: int, filter: str, interest: Interest) -> None:
        self.number = number
        self.filter = filter
        self.interest = interest
        self.begun: Deferred[Any] = Deferred()  # the node's first answer

    def fail(self, error: TidingsError) -> None:
        """The node has refused or ended it, or there is no connection any more."""
        if self.begun.is_over:
            self.interest.ended(str(error))
        else:
            self.begun.fail(error)
