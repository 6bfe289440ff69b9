"""Retention of the log: sealing into files, release by the store, pruning, and checks for damage.

Another process writes the files: the sealer asks how far to seal, and reports how far it has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tidings.errors import Refused, StoreError, TidingsError
from tidings.log import arguments
from tidings.log.history import LogHistory, SealedSpan
from tidings.log.sealing import SealSchedule, reach
from tidings.protocol.broker import Broker
from tidings.protocol.service import IncomingRequest
from tidings.protocol.session import Session
from tidings.replies import Deferred
from tidings.store.interface import Discard

RETAIN_S = 60.0
"""Time between two checks for events that are too old or too much."""

Operations = Mapping[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]]
Go = Callable[[IncomingRequest, Callable[[], Any], Callable[[Any], Any]], Any]
"""Runs work for a client in a thread, and then sends the reply."""


class RetentionTerms(Struct, frozen=True):
    """Settings for the retention of the log."""

    age_s_max: float | None = None
    size_max: int | None = None

    @property
    def is_endless(self) -> bool:
        """Whether nothing is pruned."""
        return self.age_s_max is None and self.size_max is None


class LogRetention:
    """Sealing, release, pruning and verification of a node's log."""

    def __init__(
        self, broker: Broker, history: LogHistory, retention: RetentionTerms, seal_s: float | None, go: Go
    ) -> None:
        self.span = history.sealed.span()
        self._broker = broker
        self._history = history
        self._refuse_later()
        self._reach = self._reached() if self.span.files else 0  # end of the files that adjoin
        self._retention = retention
        if not retention.is_endless:
            broker.timers.at(broker.now + RETAIN_S, self._retain)
        self._go = go
        self._sealings: list[tuple[int, Session, Deferred[Any]]] = []  # position, waiting client, reply
        self._schedule = SealSchedule(seal_s, self.sealed_last, broker.now)
        self._look_back()
        self.operations: Operations = {
            "log.seal": (arguments.Nothing, self._seal),
            "log.sealed": (arguments.SealedRequest, self._sealed),
            "log.prune": (arguments.Prune, self._prune),
            "log.verify": (arguments.Verify, self._verify),
        }

    @property
    def first(self) -> int:
        """Lowest position that can be read."""
        return self.span.first if self.span.files else self._history.discarded + 1

    @property
    def sealed_last(self) -> int:
        """Position up to which nothing is left to be sealed."""
        return max(self._reach, self._history.discarded)

    def _refuse_later(self) -> None:
        """Refuse a store that is older than its files: its next events would seem to be in them."""
        last, position = self.span.last, self._broker.position
        if last > position:
            raise StoreError(
                self._history.sealed.place,
                f"its files reach to position {last} and the store only to {position}: it is an older copy. "
                "Make a backup of it and a new store of that with `tidings restore`, which goes on behind "
                "the files, or have another log_folder",
            )

    def _look(self) -> tuple[SealedSpan, int]:
        """List the files; return their span and up to where they have everything; called in a thread."""
        span = self._history.sealed.refresh()
        return span, self._reached()

    def _reached(self) -> int:
        files = self._history.sealed.files
        return reach(files, self._history.discarded, self._broker.end_logged - 1, self._is_empty)

    def _is_empty(self, first: int, last: int) -> bool:
        """Whether nothing was stored from one position to another, or all of that is gone."""
        found = self._history.batches(first, 1)
        return not found or found[0].first > last

    def _looked(self, found: tuple[SealedSpan, int]) -> None:
        self.span, reached = found
        if reached < self._reach:
            self._schedule.lost(reached, self._broker.now)
        self._reach = reached

    def _look_back(self) -> None:
        """After a start, find what is not sealed, and since when it waits."""
        since_us = self._history.waiting_us(self.sealed_last + 1)
        if since_us is not None:
            self._schedule.grown(self._broker.end_logged - 1, 0, self._broker.now)
            self._schedule.waited(self._broker.deadline(since_us / 1e6))

    @property
    def wanted(self) -> int:
        """Return the position up to which the log is to be sealed now; 0 if it need not be."""
        return self._schedule.due(self._broker.now)

    def _seal(self, asked: IncomingRequest, _wanted: arguments.Nothing) -> Any:
        """Reply when everything present has been sealed, which the sealer does: see `log.status`."""
        asked.session.principal.check_manage()
        last = self._broker.end_logged - 1
        if self._schedule.wait_s is None:
            if last <= self.sealed_last:
                return {"sealed": last}
            raise Refused("not-found", "this node seals nothing: it has no directory, or sealing is off")
        self._schedule.grown(last, self._broker.size_logged, self._broker.now)
        self._schedule.ask(last)
        sealed: Deferred[Any] = Deferred()
        self._sealings.append((last, asked.session, sealed))
        self._broker.offload(self._look).then(self._settle, self._give_up)
        return sealed

    def _settle(self, found: tuple[SealedSpan, int]) -> None:
        self._note(found, 0)
        self._answer_waiting()

    def _give_up(self, problem: TidingsError | str) -> None:
        """Report to waiting clients that sealing fails now; it is tried again all the same."""
        waiting, self._sealings = self._sealings, []
        for _, _, sealed in waiting:
            sealed.fail(Refused("failed", f"the log can't be sealed: {problem}"))

    def _sealed(self, asked: IncomingRequest, wanted: arguments.SealedRequest) -> Any:
        asked.session.principal.check_manage()
        if wanted.problem:
            self._give_up(wanted.problem)
            return {"sealed": self._schedule.position}
        return self._go(asked, self._look, lambda found: self._take_sealed(found, wanted))

    def _take_sealed(self, found: tuple[SealedSpan, int], wanted: arguments.SealedRequest) -> dict[str, Any]:
        """Discard in the store what files have, as far as no subscription needs it there."""
        self._note(found, wanted.position, wanted.first)
        self._discard()
        self._answer_waiting()
        return {"sealed": self._schedule.position}

    def _note(self, found: tuple[SealedSpan, int], position: int, first: int = 0) -> None:
        """Note how far the log is sealed.

        The sealer may be further than the files: then there was nothing to be put into one. But if it began
        at `first` after earlier files were removed, it has skipped their events.
        """
        self._looked(found)
        reported = position if first <= self.sealed_last + 1 else 0
        self._schedule.sealed(min(max(reported, self._reach), self._broker.end_logged - 1), self._broker.now)

    def _answer_waiting(self) -> None:
        """Reply to clients that wait for the log to be sealed this far."""
        done = self._schedule.position
        for end, _, sealed in self._sealings:
            if end <= done:
                sealed.resolve({"sealed": done})
        self._sealings = [one for one in self._sealings if one[0] > done]

    def _discard(self) -> None:
        """Let the store discard what files have; what is trimmed now is discarded with the next call."""
        for operation in self._broker.cursors.trim(after=1):
            self._broker.store(operation)
        self._broker.store(Discard(min(self._reach, self._broker.end_logged - 1)))

    def _prune(self, asked: IncomingRequest, wanted: arguments.Prune) -> Any:
        asked.session.principal.check_manage()
        if wanted.before is None and wanted.before_us is None and wanted.size_max is None:
            raise Refused("not-understood", "no limit is given; name a position, a time or a size")
        top = self._broker.end_logged if wanted.before is None else wanted.before
        limit = top if wanted.force else min(top, self.needed)

        def run() -> tuple[int, SealedSpan]:
            spent = self._history.sealed.spent(top, wanted.before_us, wanted.size_max)
            return spent, self._pruned(limit, wanted.before_us, wanted.size_max)

        def answer(found: tuple[int, SealedSpan]) -> dict[str, Any]:
            spent, self.span = found
            held_for = [] if wanted.force else self._holders(spent)
            return {"first": self.first, "kept_for": held_for, "bytes": self.span.size}

        return self._go(asked, run, answer)

    def _pruned(self, limit: int, before_us: int | None, size_max: int | None) -> SealedSpan:
        """Remove files; called in a thread. Events that the store still has stay in files too."""
        return self._history.sealed.prune(min(limit, self._history.discarded + 1), before_us, size_max)

    def _verify(self, asked: IncomingRequest, wanted: arguments.Verify) -> Any:
        asked.session.principal.check_manage()
        start, end = max(wanted.start, 1), self._broker.end_logged

        def answer(found: tuple[list[str], int]) -> dict[str, Any]:
            return {"problems": found[0], "next": max(found[1], start + 1), "end": end}

        if start >= end:
            return {"problems": [], "next": start, "end": end}
        return self._go(asked, lambda: self._history.verify(start, end), answer)

    @property
    def needed(self) -> int:
        """Return the lowest position that some reader has not passed."""
        places = self._broker.cursors
        return min((cursor.passed for cursor in places.named), default=self._broker.position) + 1

    def _holders(self, spent: int) -> list[str]:
        """Return the readers for which something up to the position is kept."""
        places = self._broker.cursors
        return [cursor.name for cursor in places.named if cursor.passed < spent]

    # Time

    def _retain(self, now: float) -> None:
        """Prune what is too old or too much."""
        self._broker.timers.at(now + RETAIN_S, self._retain)
        age_s, size = self._retention.age_s_max, self._retention.size_max
        # Pruning can't be undone: a wall clock that was set ahead would make it prune too much.
        today = min(now, self._broker.wall)
        before_us = None if age_s is None else int((today - age_s) * 1e6)
        limit = self.needed

        def run() -> tuple[SealedSpan, int]:
            _, reached = self._look()
            return self._pruned(limit, before_us, size_max=size), reached

        def done(found: tuple[SealedSpan, int]) -> None:
            self._looked(found)
            self._discard()

        def failed(_error: Any) -> None:
            self._broker.count("failures", reason="log")

        self._broker.offload(run).then(done, failed)

    def finish_tick(self) -> None:
        """Note how the log has grown."""
        broker = self._broker
        self._schedule.grown(broker.end_logged - 1, broker.size_logged, broker.now)

    def parted(self, session: Session) -> None:
        """Drop the requests of a session that has ended."""
        self._sealings = [one for one in self._sealings if one[1] is not session]
