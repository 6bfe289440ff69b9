"""How a client goes to another node: its own is to stop, is gone, or hands it over because the client moves.

It does not go before other nodes have what it has sent: otherwise what it publishes elsewhere from then on
could overtake that. It holds back what is published, waits until the node has accepted all that was sent, and
asks whether all other nodes have it. If some have not, such as one that is away, the node answers so after a
while; then what waits is sent after all, and the client asks again. Until all have it the client is bound to
its node, as one with a durable subscription is, whose place is stored there: it goes nowhere else, not even
when the node is gone. A move (`client_move.py`) takes such a subscription along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.errors import Refused, TidingsError, UserError
from tidings.protocol.client_move import ClientMove
from tidings.protocol.messages import Bye, Failure, Welcome, error_of
from tidings.replies import Deferred

if TYPE_CHECKING:
    from tidings.protocol.connection import Connection


class Leaving:
    """Where a client may go on, and whether it may go."""

    def __init__(self, connection: Connection) -> None:
        self.elsewhere: list[str] = []
        """Addresses of other nodes to which its own, which is to stop or has handed it over, sends it."""
        self.cookie = ""
        """By which the node to which it moves knows it."""
        self._others: list[str] = []  # addresses of other nodes, where it may go on if its own is gone
        self._connection = connection
        self._move: ClientMove | None = None
        self._was_sent_back = False  # the node to which it was handed over will not have it
        self._had = 0  # the counter up to which all other nodes have what was sent

    @property
    def places(self) -> list[str]:
        """Addresses of other nodes at which it may go on, as its own is to stop, or has handed it over.

        A client that is bound and was not handed over stays.
        """
        return [] if self.is_bound else self.elsewhere

    @property
    def refuges(self) -> list[str]:
        """Addresses of other nodes at which it may go on while its own can't be reached."""
        return [] if self._connection.has_place else self._others

    @property
    def is_bound(self) -> bool:
        """Whether it waits for its node if that is gone.

        Its place in a durable subscription is stored there, or other nodes may lack what it has sent.
        """
        return not self.cookie and (self._connection.has_place or self._is_ahead)

    @property
    def _is_ahead(self) -> bool:
        """Whether some nodes may lack what was sent to this one."""
        return self._connection.publications.sent > self._had

    def move(self, to: str) -> Deferred[None]:
        """Move to the node of this name or id; the reply comes when the client is there."""
        if self._move is not None:
            raise UserError(f"the client is on its way to {self._move.to!r}")
        self._move = move = ClientMove(self._connection, to)
        move.reply.then(self._moved, self._moved)
        move.go_on()
        return move.reply

    def _moved(self, _outcome: object) -> None:
        self._move = None

    def go_to(self, addresses: list[str], cookie: str = "") -> None:
        """Go on at one of these addresses; to nodes that hand a client over it is known by a cookie."""
        self.elsewhere, self.cookie = addresses, cookie

    def stay(self) -> None:
        """Go nowhere."""
        self.go_to([])

    # What the node says

    def greeted(self, welcome: Welcome) -> bool:
        """Note where the client may go on; whether it was handed over, and has not heard it."""
        is_here, self._was_sent_back = self._was_sent_back, False
        self.stay()
        self._others = welcome.others
        if welcome.moved is None or is_here:
            return False
        self.go_to(welcome.moved.addresses, welcome.moved.cookie)
        return True

    def arrived(self, node: str) -> None:
        """The client is connected again."""
        if self._move is not None:
            self._move.arrived(node)

    def parted(self, message: Bye) -> None:
        """The node has ended the connection; it may not have the client that was handed over to it."""
        if message.code == "move":
            self.cookie = ""  # it is connected without: what the node has stored for it is there
            self._was_sent_back = True
            if self._move is not None:
                self._move.fail(error_of(Failure("move", message.text)))

    # Going

    def go_on(self) -> None:
        """Leave the node if it is to stop, or for another one, when it has answered for everything."""
        if self._move is not None:
            self._move.go_on()
        elif self.elsewhere:
            self.go_elsewhere()

    def go_elsewhere(self) -> None:
        """Part from a node that is to stop, when other nodes have what was sent to it."""
        connection = self._connection
        may_leave = connection.is_up and not connection.waits and not connection.is_given_up
        if self.elsewhere and may_leave and not connection.has_place and self._is_done():
            connection.leave("the node is to stop")

    def _is_done(self) -> bool:
        """Hold back what is published; return whether the client may leave, or else ask the node."""
        publications = self._connection.publications
        publications.is_held = True
        if not publications.is_settled:
            return False
        if self._is_ahead:
            self._ask_held()
        return not self._is_ahead

    def _ask_held(self) -> None:
        connection = self._connection
        publications, sent = connection.publications, connection.publications.sent

        def answered(have_all: Any) -> None:
            if have_all is False:
                publications.is_held = False
                connection.send_published()
            else:
                self._had = sent

        def failed(error: TidingsError) -> None:
            if isinstance(error, Refused):  # some will never have it: nothing can overtake it there
                self._had = sent

        connection.ask_on("held", {"by_all": True}).then(answered, failed)
