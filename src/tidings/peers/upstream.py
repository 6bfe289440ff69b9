"""Where a device sends what is published at it: another node, which gets it when it can be reached."""

from __future__ import annotations

from typing import Literal, get_args

from tidings.errors import UserError
from tidings.filters import Filter
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial

Order = Literal["oldest", "newest"]
"""What goes first of what has gathered."""


class Upstream:
    """A node by its address, who this one is there, and which publications go there in which order.

    Raises AddressError, FilterError or UserError for what can't be.
    """

    def __init__(
        self, address: str, credentials: Credentials, order: Order = "oldest", filter: str | None = None
    ) -> None:
        if order not in get_args(Order):
            raise UserError(f"order is {' or '.join(map(repr, get_args(Order)))}, not {order!r}")
        dial(address, credentials)
        self.address = address
        self.credentials = credentials
        self.order: Order = order
        self.filter = str(Filter(filter or ""))
