"""Turns: the order of workers that have more to do than fits into one turn of a loop.

Each worker has a *share*, which counts the time that was spent on it; workers of one user have one share
together. The worker whose share has used least goes next, for at most SLICE_S, and a share that was idle
begins with the usage of the least busy of the others: it owes nothing, and has saved up no more than SAVED_S
(start-time fair queueing). Its savings take it past others that are equally busy, so a client with little to
do is served at once, however much many others have piled up; those that use all the time there is get equal
parts of it. If many wait, their slices are shorter, and all have had one within ROUND_S.

The driver gives the clock. One that never advances runs everything to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

SLICE_S = 0.005
"""Longest uninterrupted work of one worker."""
SAVED_S = 0.005
"""Most time that an idle share may have saved up."""
ROUND_S, SLICE_S_MIN = 0.050, 0.000_5
"""Time within which all workers in line get their next slice, and how short slices may become for it."""
TURN_S = 0.010
"""Longest work of all of them before the loop polls for input again."""
REST_S = 0.002
"""How long the others may go on after one has finished, which may have sent more meanwhile."""

TurnTaker = TypeVar("TurnTaker", bound=Hashable)


class Worker(Hashable, Protocol):
    """Who has turns."""

    def work(self, until: float) -> bool:
        """Go on until this moment of the turns' clock; whether more is left."""

    def give_up(self) -> bool:
        """End what has failed by a fault of the node; whether more is left."""


class Share:
    """Time that was spent on one party, and its workers that are in line."""

    __slots__ = ("is_in_line", "used_s", "workers")

    def __init__(self) -> None:
        self.used_s = 0.0
        self.workers: dict[Any, None] = {}
        self.is_in_line = False


class Turns(Generic[TurnTaker]):
    """Workers in line, each once; those of one share behind each other."""

    def __init__(self, clock: Callable[[], float], work: Callable[[TurnTaker, float], bool]) -> None:
        """`work(worker, until)` works until that moment of the clock, and returns whether more is left."""
        self.clock = clock
        self._work = work
        self._line: list[tuple[float, int, Share]] = []  # a heap of shares, the least used first
        self._shares: dict[TurnTaker, Share] = {}  # of the workers in line
        self._floor_s = 0.0  # usage of the share that worked last: none in line has much less
        self._spent_s = 0.0  # in this turn, by workers that did not wait in line
        self._pushed = 0

    def __len__(self) -> int:
        """Number of workers in line."""
        return len(self._shares)

    def __contains__(self, worker: TurnTaker) -> bool:
        return worker in self._shares

    @property
    def is_busy(self) -> bool:
        """Whether a new worker has to wait, because others do or because the turn is over."""
        return bool(self._shares) or self._spent_s >= TURN_S

    def offer(self, worker: TurnTaker, share: Share) -> None:
        """Let a worker with something to do work now; in line, if others are there or the turn is over."""
        if self._shares or self._spent_s >= TURN_S:
            self.add(worker, share)
        else:
            self._spent_s += self._let_work(worker, share)

    def add(self, worker: TurnTaker, share: Share) -> None:
        """Put a worker that has something to do in line, unless it is there."""
        if worker not in self._shares:
            self._line_up(worker, share)
            self._push(share)

    def discard(self, worker: TurnTaker) -> None:
        """Take a worker out of the line, if it is there."""
        share = self._shares.pop(worker, None)
        if share is not None:
            del share.workers[worker]

    def run(self, most_s: float | None = None) -> None:
        """Let the workers in line work for the rest of this turn, one slice at least, and begin the next."""
        spent_s, self._spent_s = self._spent_s, 0.0
        if not self._shares:
            return
        until = self.clock() + max(SLICE_S, (TURN_S if most_s is None else most_s) - spent_s)
        while self._line:
            used_s, _, share = heappop(self._line)
            share.is_in_line = False
            if not share.workers:
                continue
            self._floor_s = max(self._floor_s, used_s)
            now = self._serve(share, until)
            if share.workers:
                self._push(share)
            else:
                until = min(until, now + REST_S)
            if now >= until:
                return

    def _serve(self, share: Share, until: float) -> float:
        """Let one of its workers work for a slice, or several if no other share waits; return its end."""
        clock, workers = self.clock, share.workers
        begun = now = clock()
        end = self._end_of_slice(now, until)
        while workers:
            worker = next(iter(workers))
            self.discard(worker)
            is_left = self._work(worker, end)
            now = clock()
            if is_left:
                self._line_up(worker, share)
            if self._line or now >= end:
                break
        share.used_s = max(self._floor_s - SAVED_S, share.used_s) + now - begun
        return now

    def _end_of_slice(self, now: float, until: float) -> float:
        """Return the end of a slice that begins now: with the turn, so that the loop polls for input."""
        slice_s = min(SLICE_S, max(SLICE_S_MIN, ROUND_S / (1 + len(self._line))))
        return min(now + slice_s, until)

    def _let_work(self, worker: TurnTaker, share: Share) -> float:
        """Let a worker work for a slice, and put it in line if more is left; return the time it took."""
        begun = self.clock()
        is_left = self._work(worker, begun + SLICE_S)
        took_s = self.clock() - begun
        share.used_s = max(self._floor_s - SAVED_S, share.used_s) + took_s
        if is_left:
            self.add(worker, share)
        return took_s

    def _line_up(self, worker: TurnTaker, share: Share) -> None:
        self._shares[worker] = share
        share.workers[worker] = None

    def _push(self, share: Share) -> None:
        """Put a share in line, unless it is there."""
        if not share.is_in_line:
            share.is_in_line = True
            share.used_s = max(share.used_s, self._floor_s - SAVED_S)
            self._pushed += 1
            heappush(self._line, (share.used_s, self._pushed, share))


def adapted(size: int, took_s: float, quick_s: float, slow_s: float, most: int) -> int:
    """Return the size of the next step, after one of this size that took so long.

    The cost of a step is known when it is done: steps grow while they are quick and shrink when slow.
    """
    if took_s < quick_s:
        return min(2 * size, most)
    return max(1, size // 2) if took_s > slow_s else size
