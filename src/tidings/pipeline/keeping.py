"""The readers that a running query has at its nodes, and what keeps them there.

A reader demands what the query wants: sensors are on for it, and what they say is kept in the log. It is a
lease, which a thread of the driver's renews for as long as the driver lives; one that ends well leaves, and
one that is killed is forgotten when the lease ends. A durable reader stays until somebody has it removed.

A node that is away is waited for. What it says no to, or an error nobody thought of, ends the query: the
thread keeps it for the next call of `check`.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

from tidings.client import blocking
from tidings.errors import Disconnected, NoAnswer, Refused, TidingsError
from tidings.pipeline.offsets import Standing
from tidings.pipeline.options import ReadOptions, label_of
from tidings.pipeline.reaching import ANSWER_S_MAX, connect, standing_of, told_of

RENEWALS_PER_LEASE = 3
"""How often a lease is renewed before it would end, so that one renewal may be late."""
LEAVE_S_MAX = 3.0
"""How long a query that ends waits until its nodes have heard so; else the lease sees to it."""

logger = logging.getLogger("tidings")


class Readers:
    """See the module. Connected when made; `name` is what the readers are called at the nodes."""

    def __init__(self, options: ReadOptions, passive: bool = False) -> None:
        self.name = options.durable or f"spark-{uuid.uuid4().hex}"
        self._options = options
        self._passive = passive
        self._starts: Mapping[str, int | None] = {}
        self._places: dict[str, int] = {}  # where each reader stands that was opened
        self._heard: dict[str, float] = {}  # when each node last heard of us
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._held = ExitStack()
        self._nodes: dict[str, str] = {label_of(node): node for node in options.reach.nodes}
        self._buses: dict[str, blocking.Bus] = {}
        try:
            for label, node in self._nodes.items():
                with told_of(node):
                    self._buses[label] = self._held.enter_context(connect(options.reach, node))
        except BaseException:
            self._held.close()
            raise

    def bus(self, label: str) -> blocking.Bus:
        """The connection to a node."""
        return self._buses[label]

    def standings(self) -> dict[str, Standing]:
        """What each node has now; a node that is away is waited for."""
        self.check()
        found = {}
        for label, node in self._nodes.items():
            with told_of(node):
                found[label] = standing_of(self._buses[label])
        return found

    def open(self, starts: Mapping[str, int | None]) -> dict[str, int]:
        """Become a reader where that is not so yet; where each of them stands.

        A reader begins at its start, or behind all there is. One that was there before, a durable one, stays
        where it is.
        """
        self._starts = starts
        for label in self._nodes.keys() - self._places.keys():
            told = self._say(label)
            # Behind the log's end may be events that are not of the log, which nobody will ever read.
            self._places[label] = min(told["cursor"] + 1, told["end"])
        if self._thread is None and self._options.lease_s is not None:
            self._thread = threading.Thread(target=self._keep, name="tidings lease", daemon=True)
            self._thread.start()
        return dict(self._places)

    def passed(self, places: Mapping[str, int]) -> None:
        """Everything below these places has been dealt with."""
        self.check()
        for label in self._places.keys() & places.keys():
            self._places[label] = places[label]
            try:
                with told_of(self._nodes[label], Refused):
                    self._buses[label].log.passed(self.name, places[label], timeout_s=ANSWER_S_MAX)
            except Refused as error:
                if error.code != "not-found":
                    raise
                self._say(label)  # the lease has ended; it begins again from here

    def check(self) -> None:
        """Raise what has gone wrong with the leases, if something has."""
        if self._failure is not None:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the readers are closed."""
        self._stopping.wait(seconds)

    def close(self) -> None:
        """Leave the nodes, unless the readers are durable."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(LEAVE_S_MAX)  # what it says after the leaving would undo that
        for label in sorted(self._places) if self._options.durable is None else ():
            with suppress(TidingsError):
                self._buses[label].log.leave(self.name, timeout_s=LEAVE_S_MAX)
        self._held.close()

    # Renewing

    def _say(self, label: str, timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        """Be a reader at a node, or go on being one."""
        options = self._options
        with told_of(self._nodes[label]):
            told = self._buses[label].log.reader(
                self.name,
                options.where,
                lease_s=options.lease_s,
                start=self._places.get(label, self._starts.get(label)),
                passive=self._passive,
                timeout_s=timeout_s,
            )
        self._note_heard(label)
        return told

    def _note_heard(self, label: str) -> None:
        now = time.monotonic()
        silent_s = now - self._heard.get(label, now)
        self._heard[label] = now
        if self._options.lease_s is not None and silent_s > self._options.lease_s:
            logger.warning(
                "node %s had not heard of the query for %.0f s, longer than its lease of %g s:"
                " what nobody else wanted in that time was not made",
                label,
                silent_s,
                self._options.lease_s,
            )

    def _keep(self) -> None:
        """What the thread does: renew all leases now and then."""
        assert self._options.lease_s is not None
        pause_s = self._options.lease_s / RENEWALS_PER_LEASE
        while not self._stopping.wait(pause_s):
            for label in sorted(self._places):
                try:
                    self._renew(label, pause_s)
                except BaseException as error:
                    self._failure = error
                    return

    def _renew(self, label: str, timeout_s: float) -> None:
        # While a node is away the query waits for it, too, or has no question to it.
        with suppress(Disconnected, NoAnswer):
            self._say(label, timeout_s)


def end_on_term() -> None:
    """Have SIGTERM end this process by an exception.

    Spark ends the process of a stream's reader with that signal, and lets it clean up only if it is not ended
    by it on the spot: `stop` would never be called.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave_process)


def _leave_process(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another one must not disturb the cleaning up
    sys.exit(0)
