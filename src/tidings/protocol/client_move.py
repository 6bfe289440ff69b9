"""A client's move to another node: what it says before it leaves, and when it goes.

It holds back what is published from then on, waits until the node has accepted all that was sent, and until
other nodes have it: otherwise what is published elsewhere could overtake it. Then it asks the node to hand it
over, and leaves when that has answered with a cookie and addresses. Until then it gets all its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tidings.errors import CodecError, MoveRefused, TidingsError
from tidings.protocol.messages import HandedOver
from tidings.replies import Deferred

if TYPE_CHECKING:
    from tidings.protocol.connection import Connection


class ClientMove:
    """A move to the node of this name or id; `reply` comes when the client is there."""

    def __init__(self, connection: Connection, to: str) -> None:
        self.to = to
        self.reply: Deferred[None] = Deferred()
        self.node = ""  # its id, once the node has handed the client over
        self._connection = connection
        self._is_held = False  # other nodes have what was sent
        self._is_asked = False

    def go_on(self) -> None:
        """Say what is next, if nothing is waited for."""
        connection = self._connection
        publications = connection.publications
        publications.is_held = True
        if not connection.is_up or not publications.is_settled or connection.waits:
            return
        if self.node:
            connection.leave("the client moves to another node")
        elif not self._is_held:
            self._is_held = True
            if publications.accepted:
                connection.ask_on("held", {"by_all": True}).then(self._next, self._next)
            else:
                self.go_on()
        elif not self._is_asked:
            self._is_asked = True
            arguments = {"to": self.to, "subscriptions": connection.subscriptions_made()}
            connection.ask_on("move", arguments).then(self._handed_over, self.fail)

    def _next(self, _outcome: Any) -> None:
        self.go_on()

    def _handed_over(self, told: Any) -> None:
        try:
            answer = msgspec.convert(told, HandedOver)
        except msgspec.ValidationError as error:
            raise CodecError("$.move", str(error)) from None
        self.node = answer.node
        self._connection.leaving.go_to(answer.addresses, answer.cookie)
        for number, dropped in answer.dropped.items():
            self._connection.report_gap(number, dropped, "moved")
        self.go_on()

    def fail(self, error: TidingsError) -> None:
        """The client stays where it is, or has come to another node than it wanted to."""
        self._connection.publications.is_held = False
        self._connection.leaving.stay()
        self.reply.fail(error)

    def arrived(self, node: str) -> None:
        """The client is connected again."""
        if node == self.node:
            self.reply.resolve(None)
        else:
            self.reply.fail(MoveRefused(self.to, "the client could not connect to it"))
