"""Which messages a database holds, and in which runs: known in memory, at eight bytes a message.

Numbers mostly grow from commit to commit, so most runs stand one behind the other and a message is found by
bisecting. What does not fit between the others is *stray*: messages that were changed, came late, or are
compressed beside others that are not; each of those has an entry of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidings.store.runs import Run

# A run of which few messages are left keeps its whole space. When such runs have more than this together, the
# oldest are rewritten: but for this much, at least a quarter of the messages of every run on disk is there.
SPARSE_BYTES_MAX = 16 * 2**20


class Stock:
    """The runs of a database. Speed is its contract, as every put and every get comes here."""

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.last = 0  # no message ever had a higher number
        self._firsts: list[int] = []  # the first number of each run in order
        self._ordered: list[Run] = []
        self._strays: dict[int, Run] = {}
        self._sparse: dict[int, Run] = {}  # by their keys, those first that have been sparse for longest
        self._sparse_size = 0

    def has(self, number: int) -> bool:
        """Whether there is a message of that number."""
        return bool(self.locate([number]))

    def locate(self, numbers: list[int]) -> dict[int, int]:
        """In which runs these messages are, by their keys, and the bits they have there.

        The numbers ascend; those that are nowhere are left out.
        """
        found: dict[int, int] = {}
        if self._strays:
            for number in numbers:
                run = self._strays.get(number)
                if run is not None:
                    found[run.key] = found.get(run.key, 0) | run.bits_of((number,))
        for run, here in self._in_order(numbers):
            bits = run.bits_of(here) & ~run.gone
            if bits:
                found[run.key] = bits
        return found

    def overdue(self, count_max: int) -> list[Run]:
        """The sparse runs that are to be rewritten, no more than so many."""
        found: list[Run] = []
        excess = self._sparse_size - SPARSE_BYTES_MAX
        for run in self._sparse.values():
            if excess <= 0 or len(found) == count_max:
                break
            found.append(run)
            excess -= run.size
        return found

    def in_order(self) -> list[tuple[int, int]]:
        """The first number and the key of each run, by these."""
        return sorted((run.numbers[0], key) for key, run in self.runs.items())

    def add(self, run: Run) -> None:
        """Take in a run; its messages count instead of those that others have of the same numbers."""
        self.runs[run.key] = run
        self.last = max(self.last, run.numbers[-1])
        place = self._place(run)
        if place is None or self._strays:
            for key, bits in self.locate(run.left).items():
                other = self.runs[key]
                self.settle(other, other.gone | bits, other.settled)
        if place is None:
            run.is_stray = True
            self._strays.update(dict.fromkeys(run.left, run))
        else:
            self._firsts.insert(place, run.numbers[0])
            self._ordered.insert(place, run)
        self._weigh(run)

    def settle(self, run: Run, gone: int, settled: int | None) -> None:
        """Let these messages of a run be gone; `settled` is the checksum of the row that says so."""
        if run.is_stray:
            for number in run.left:
                del self._strays[number]
        run.gone, run.settled = gone, settled
        if run.is_stray:
            self._strays.update(dict.fromkeys(run.left, run))
        self._weigh(run)

    def remove(self, run: Run) -> None:
        """Let a run be gone with all its messages."""
        del self.runs[run.key]
        if self._sparse.pop(run.key, None) is not None:
            self._sparse_size -= run.size
        if run.is_stray:
            for number in run.left:
                del self._strays[number]
        else:
            place = bisect_left(self._firsts, run.numbers[0])
            del self._firsts[place], self._ordered[place]

    def _in_order(self, numbers: list[int]) -> Iterator[tuple[Run, list[int]]]:
        """Each run whose numbers may be among these, with those between its first and its last."""
        begin = 0
        while begin < len(numbers):
            place = bisect_right(self._firsts, numbers[begin]) - 1
            end = begin
            if place >= 0:
                run = self._ordered[place]
                end = bisect_right(numbers, run.numbers[-1], begin)
                if end > begin:
                    yield run, numbers[begin:end]
            begin = max(end, begin + 1)

    def _place(self, run: Run) -> int | None:
        """Where a run fits in between the others, None if it does not."""
        place = bisect_right(self._firsts, run.numbers[0])
        if place > 0 and self._ordered[place - 1].numbers[-1] >= run.numbers[0]:
            return None
        if place < len(self._firsts) and self._firsts[place] <= run.numbers[-1]:
            return None
        return place

    def _weigh(self, run: Run) -> None:
        if run.is_sparse and run.key not in self._sparse:
            self._sparse[run.key] = run
            self._sparse_size += run.size
