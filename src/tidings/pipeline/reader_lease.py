"""Readers of a running query at its nodes, and the renewal of their leases.

A reader creates the demand of the query: sensors are on for it, and their readings are kept in the log. It
has a lease, which a thread of the driver renews for as long as the driver lives; a query that is stopped
removes its readers, and one that is killed is forgotten when the lease ends. A durable reader stays until it
is removed. A query that goes on from a checkpoint goes on with the reader that is named there.

The thread waits for a node that is away. A refusal, or an unexpected error, ends the query: the thread keeps
it for the next call of `check`. A reader that has vanished has missed something, and ends the query as other
losses do.

Spark runs the reader of a stream in a child process of the driver, and does not report the end of a query:

| what happens | what the process sees | its readers |
| --- | --- | --- |
| the query is stopped, or fails in Spark | SIGTERM; perhaps the end of the connection before | leave |
| the driver dies | the end of the connection, and another parent | stay until their lease ends |
| a call of the reader fails | that error | stay until their lease ends |

If a query is stopped while Spark waits for a reply, Spark closes the connection at once, and SIGTERM comes
later; a driver that dies closes it a moment before its children get another parent. So at the end of the
connection the process waits for one of the two (`QueryEnding`).
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, Final

from tidings.client import blocking
from tidings.errors import Disconnected, NoAnswer, Refused, TidingsError, UserError
from tidings.pipeline.connect import ANSWER_S_MAX, connect, naming_node, standing_of
from tidings.pipeline.offsets import NodeExtent
from tidings.pipeline.options import LEASE_S, ReadOptions, label_of
from tidings.timers import renewal_s

LEAVE_S_MAX = 30.0
"""Time for removing the readers when a query ends, else the lease ends them."""
VERDICT_S_MAX: Final = 30.0
"""Longest wait for SIGTERM or the death of the driver; without either, the query is over."""
LOOK_S: Final = 0.02

_MADE = "spark-"  # prefix of the names of readers that are not durable

logger = logging.getLogger("tidings")


class QueryEnding:
    """State of the query's end in this process, which has the reader of its stream."""

    def __init__(self) -> None:
        self._driver = os.getppid()
        self._is_stopped = False
        self._is_ending = False

    def watch(self) -> None:
        """Let SIGTERM end this process by an exception, unless it has another handler.

        Spark ends the process with that signal, and lets it clean up only if it does not end on the spot:
        else `stop` would never be called.
        """
        self._driver, self._is_stopped, self._is_ending = os.getppid(), False, False
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    @property
    def is_stopped(self) -> bool:
        """Whether Spark has ended the query."""
        return self._is_stopped

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self._is_stopped = not self._is_stopped, True
        if is_first and not self._is_ending:  # else it would interrupt the cleaning up
            self._is_ending = True
            sys.exit(0)

    def wait_verdict(self, error: BaseException | None) -> bool:
        """Whether the query is over, by the error that ends the work of this process; None is no error.

        Waits if that is not known yet. From now on SIGTERM raises nothing.
        """
        self._is_ending = True
        if error is None or isinstance(error, SystemExit):
            return True
        is_cut = isinstance(error, EOFError | OSError | KeyboardInterrupt)
        if not is_cut or isinstance(error, TidingsError):
            return self._is_stopped
        deadline = time.monotonic() + VERDICT_S_MAX
        while not (self._is_stopped or self._is_orphan) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self._is_stopped or not self._is_orphan

    @property
    def _is_orphan(self) -> bool:
        return os.getppid() != self._driver


ENDING: Final = QueryEnding()
"""Instance of this process, which has the reader of one query."""


class LeasedReaders:
    """Leased readers of a query at its nodes, connected when made; `name` is their name at the nodes."""

    def __init__(self, options: ReadOptions, passive: bool = False) -> None:
        self.name = options.durable or f"{_MADE}{uuid.uuid4().hex}"
        self._options = options
        self._passive = passive
        self._starts: Mapping[str, int | None] = {}
        self._places: dict[str, int] = {}  # position of each open reader
        self._asked: set[str] = set()  # nodes that may have a reader, though no reply has come
        self._resumed: set[str] = set()  # nodes that must have one already
        self._checked: set[tuple[str, str]] = set()  # other readers of the query, found at their nodes
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._held = ExitStack()
        self._nodes: dict[str, str] = {label_of(node): node for node in options.reach.nodes}
        self._buses: dict[str, blocking.Bus] = {}
        try:
            for label, node in self._nodes.items():
                with naming_node(node):
                    self._buses[label] = self._held.enter_context(connect(options.reach, node))
        except BaseException:
            self._held.close()
            raise

    def bus(self, label: str) -> blocking.Bus:
        """Return the connection to a node."""
        return self._buses[label]

    def standings(self) -> dict[str, NodeExtent]:
        """Return the current extent of each node's log, waiting for nodes that are away."""
        self.check()
        found = {}
        for label, node in self._nodes.items():
            with naming_node(node):
                found[label] = standing_of(self._buses[label])
        return found

    @property
    def demanded(self) -> str | None:
        """Name to be kept in checkpoints; None if nothing is missed while no query runs."""
        return None if self._passive else self.name

    def resume(self, names: Mapping[str, str]) -> None:
        """Go on with the readers that a checkpoint names at these nodes; before `open`."""
        made = [name for name in names.values() if name.startswith(_MADE)]
        if made and self._options.durable is None:
            self.name = min(made)
        self._resumed |= {label for label, name in names.items() if name == self.name}

    def open(self, starts: Mapping[str, int | None]) -> dict[str, int]:
        """Open a reader wherever there is none yet; return the position of each.

        A reader begins at its start, or at the end of the log. One that existed before, a durable one, stays
        where it is.
        """
        self._starts = starts
        atexit.register(self._close_at_exit)
        for label in self._nodes.keys() - self._places.keys():
            opened = self._say(label)
            # After the log's end there may be events that are not of the log, which are never read.
            self._places[label] = min(opened["cursor"] + 1, opened["end"])
        if self._thread is None and self._options.lease_s is not None:
            self._thread = threading.Thread(target=self._keep, name="tidings lease", daemon=True)
            self._thread.start()
        return dict(self._places)

    def check_others(self, names: Mapping[str, str]) -> None:
        """Check that other readers named in a checkpoint have missed nothing; their leases end soon.

        There are such if the query has become durable, or was killed in its first batch.
        """
        for label, name in names.items():
            if name == self.name or (label, name) in self._checked or not name.startswith(_MADE):
                continue
            with naming_node(self._nodes[label]):
                try:
                    self._succeed(label, name)
                except Refused as error:
                    if error.code != "gone":
                        raise
                    self._lose(label, error)
            self._checked.add((label, name))

    def _succeed(self, label: str, name: str) -> None:
        """Replace another reader of the query; Refused with the code `gone` if it does not exist.

        A durable reader stays, so the other one has left. Otherwise it expires as this one does if it is
        killed.
        """
        log, options = self._buses[label].log, self._options
        log.reader(name, options.where, lease_s=LEASE_S, passive=True, resume=True, timeout_s=ANSWER_S_MAX)
        if options.durable is not None:
            log.leave(name, resumable=True, timeout_s=ANSWER_S_MAX)

    def passed(self, places: Mapping[str, int]) -> None:
        """Report that everything below these places has been processed, to nodes that don't know it yet."""
        self.check()
        for label in self._places.keys() & places.keys():
            if places[label] == self._places[label]:
                continue
            self._places[label] = places[label]
            try:
                with naming_node(self._nodes[label], Refused):
                    self._buses[label].log.passed(self.name, places[label], timeout_s=ANSWER_S_MAX)
            except Refused as error:
                if error.code != "not-found":
                    raise
                self._say(label)  # the lease has ended; it begins again from here

    def check(self) -> None:
        """Raise the error of the leases, if there is one."""
        if self._failure is not None:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the readers are closed."""
        self._stopping.wait(seconds)

    def close(self, leaves: bool = True) -> None:
        """Leave the nodes, unless the readers are durable, or are to stay there until their lease ends."""
        self._stopping.set()
        if self._thread is not None and self._thread.is_alive():  # it may have been about to start
            self._thread.join(LEAVE_S_MAX)  # a later renewal would undo the leaving
        for label in sorted(self._asked):
            with suppress(TidingsError):
                if not leaves:
                    self._say(label, LEAVE_S_MAX)  # so that a whole lease is left
                elif self._options.durable is None:
                    self._buses[label].log.leave(self.name, resumable=True, timeout_s=LEAVE_S_MAX)
        self._asked.clear()
        self._held.close()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """Do what `close` does if a signal prevented that."""
        self.close(leaves=ENDING.is_stopped)

    # Renewing

    def _say(self, label: str, timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        """Open or renew a reader at a node; note a loss if it should be there and is gone."""
        self._asked.add(label)
        with naming_node(self._nodes[label]):
            try:
                opened = self._ask(label, timeout_s)
            except Refused as error:
                if error.code != "gone":
                    raise
                self._lose(label, error)
                self._resumed.discard(label)
                opened = self._ask(label, timeout_s)
        self._resumed.add(label)
        return opened

    def _ask(self, label: str, timeout_s: float) -> dict[str, Any]:
        options = self._options
        return self._buses[label].log.reader(
            self.name,
            options.where,
            lease_s=options.lease_s,
            start=self._places.get(label, self._starts.get(label)),
            passive=self._passive,
            resume=label in self._resumed,
            timeout_s=timeout_s,
        )

    def _lose(self, label: str, error: Refused) -> None:
        """Note that a reader is gone: the query ends, or goes on with a new one if that is allowed."""
        if self._options.fails_on_loss:
            raise UserError(f"{error}; the option failOnDataLoss=false goes on without what was missed")
        logger.warning("node %s: %s", label, error)

    def _keep(self) -> None:
        """Renew all leases periodically, in the thread."""
        assert self._options.lease_s is not None
        pause_s = renewal_s(self._options.lease_s)
        while not self._stopping.wait(pause_s):
            for label in sorted(self._places):
                try:
                    self._renew(label, pause_s)
                except BaseException as error:
                    self._failure = error
                    return

    def _renew(self, label: str, timeout_s: float) -> None:
        # While a node is away the query waits for it, too, or has no request for it.
        with suppress(Disconnected, NoAnswer):
            self._say(label, timeout_s)
