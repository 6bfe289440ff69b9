"""Logins at a node: passwords are checked in threads while others are served, and denials are logged.

A line for each denial, with the peer and the reason, never with what was said; and only some each second, so
that whoever fails often enough does not fill the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tidings.node import logs
from tidings.protocol.access import Check
from tidings.protocol.broker import Broker
from tidings.protocol.session import Session

CHECKS_AT_A_TIME = 2
"""Passwords that are checked at a time, each in a thread; the gate says how many may wait."""
TOLD_MAX = 10
"""Denials that are logged one by one between two calls of `wake`; the others are counted."""

Done = Callable[[Session, Check, bool], None]
"""Called on the loop when a check is done, with whether it has passed."""


class Logins:
    """See the module; `broker` counts denials."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        self._broker = broker
        self._loop = loop
        self._done = done
        self._threads: ThreadPoolExecutor | None = None  # made for the first password
        self._counts: dict[str, int] = {}  # denials by reason, as they were last looked at
        self._told = 0  # denials that were logged since the last waking
        self._untold = 0  # and that were not

    def check(self, session: Session, check: Check) -> None:
        """Run a check."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(CHECKS_AT_A_TIME, "tidings password")

        def tell(ran: Future[bool]) -> None:
            if not ran.cancelled():
                self._loop.call_soon_threadsafe(self._ran, session, check, ran)

        self._threads.submit(check.run).add_done_callback(tell)

    def _ran(self, session: Session, check: Check, ran: Future[bool]) -> None:
        error = ran.exception()
        if error is not None:  # told by its kind alone, as it is about a secret
            logs.error("a fault in tidings", peer=session.caller.peer, problem=type(error).__name__)
        self._done(session, check, error is None and ran.result())

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

    async def close(self) -> None:
        """Wait for the checks that run, and leave the others."""
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
