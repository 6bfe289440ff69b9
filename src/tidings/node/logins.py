"""Denied logins, as a node logs them.

A line for each denial, with the peer and the reason, never with what was said; and only some each second, so
that whoever fails often enough does not fill the disk.
"""

from __future__ import annotations

from tidings.node import logs
from tidings.protocol.broker import Broker
from tidings.protocol.session import Session

TOLD_MAX = 10
"""Denials that are logged one by one between two calls of `wake`; the others are counted."""


class Logins:
    """See the module; `broker` counts denials."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counts: dict[str, int] = {}  # denials by reason, as they were last looked at
        self._told = 0  # denials that were logged since the last waking
        self._untold = 0  # and that were not

    def tell(self, session: Session) -> None:
        """Log why a client that has been parted from was not let in, if that is why."""
        for reason in self.new_reasons():
            if self._told < TOLD_MAX:
                self._told += 1
                logs.warning("a login was denied", peer=session.caller.peer, reason=reason)
            else:
                self._untold += 1

    def new_reasons(self) -> list[str]:
        """The reasons for which logins were denied since this was asked last."""
        before, tallies = self._counts, self._broker.tallies
        self._counts = {reason: times for (what, reason), times in tallies.items() if what == "logins_denied"}
        return [reason for reason, times in self._counts.items() if times > before.get(reason, 0)]

    def wake(self) -> None:
        """Log how many were not told; called by the driver every second."""
        if self._untold:
            logs.warning("more logins were denied", count=self._untold)
        self._told = self._untold = 0
