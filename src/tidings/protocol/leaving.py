"""How a client goes elsewhere when its node is to stop: not before other nodes have what it has sent.

Otherwise what it publishes elsewhere from then on could overtake that. It holds back what is published, waits
until the node has accepted all that was sent, and asks whether all other nodes have it. If some have not,
such as one that is away, the node answers so after a while; then what waits is sent after all, and the client
asks again. Until all have it the client is bound to its node, as one with a durable subscription is, whose
place is stored there: it goes nowhere else, not even when the node is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidings.errors import Refused, TidingsError

if TYPE_CHECKING:
    from tidings.protocol.publications import Publications
    from tidings.replies import Deferred


class Leaving:
    """What of a client's publications other nodes have.

    `ask` asks the node to answer when all of them have all, `send` sends what is published and not held back.
    """

    def __init__(
        self, publications: Publications, ask: Callable[[], Deferred[Any]], send: Callable[[], None]
    ) -> None:
        self._publications = publications
        self._ask = ask
        self._send = send
        self._had = 0  # the counter up to which all other nodes have what was sent

    @property
    def is_bound(self) -> bool:
        """Whether some nodes may lack what was sent to this one."""
        return self._publications.sent > self._had

    def go_on(self) -> bool:
        """Hold back what is published; return whether the client may leave, or else ask the node."""
        publications = self._publications
        publications.is_held = True
        if not publications.is_settled:
            return False
        if self.is_bound:
            self._ask_held()
        return not self.is_bound

    def _ask_held(self) -> None:
        publications, sent = self._publications, self._publications.sent

        def answered(have_all: Any) -> None:
            if have_all is False:
                publications.is_held = False
                self._send()
            else:
                self._had = sent

        def failed(error: TidingsError) -> None:
            if isinstance(error, Refused):  # some will never have it: nothing can overtake it there
                self._had = sent

        self._ask().then(answered, failed)
