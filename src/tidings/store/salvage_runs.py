"""What a damaged database still has of the messages of queues, and how that is brought into a new one.

A run that is gone does not come back as long as it can be told that its row is an old one: by the tree, by
SQLite's list of free pages, and by the sum in the head, which decides where those two contradict. If the row
is lost that tells which messages of a run are gone, these come back, and it is reported that they may.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from tidings.store.pages import Pages, Place
from tidings.store.records import RUN, SETTLED, SUM_MASK, Head, Row, changed_in, checksum_of, is_whole
from tidings.store.runs import gone_of, run_of, spans


class _Found(Struct, frozen=True, gc=False):
    """Where the sound row of a run lies."""

    checksum: int
    changed: int
    is_whole: bool  # its content is good too
    place: Place

    @property
    def rank(self) -> tuple[int, bool, bool, bool]:
        """What tells the right one of several with the same key."""
        return self.changed, self.is_whole, self.place.is_in_tree, not self.place.is_free


class FoundRuns:
    """The sound rows of runs, and the newest that tells what is gone of each."""

    def __init__(self) -> None:
        self._runs: dict[int, _Found] = {}
        self._settled: dict[int, Row] = {}

    def keep(self, row: Row, place: Place) -> None:
        """Take in a sound row of RUN."""
        key, found = cast(int, row[0]), _Found(checksum_of(row), changed_in(row), is_whole(row), place)
        known = self._runs.get(key)
        if known is None or known.rank < found.rank:
            self._runs[key] = found

    def keep_settled(self, row: Row) -> None:
        """Take in a sound row of SETTLED."""
        key = cast(int, row[0])
        known = self._settled.get(key)
        if known is None or changed_in(known) < changed_in(row):
            self._settled[key] = row

    def copy(self, pages: Pages, head: Head, connection: sqlite3.Connection, problems: list[str]) -> Head:
        """Write what is left; tell which messages are lost or may be back. The head that goes with it."""
        chosen = self._chosen(head.runs)
        whole = {key: found for key, found in chosen.items() if found.is_whole}
        left = 0
        for key, found in chosen.items():
            row = pages.row(found.place)
            assert row is not None
            numbers = self._left(row)
            if found.is_whole:
                left += len(numbers)
                connection.execute(RUN.put, row)
                connection.executemany(SETTLED.put, [self._settled[key]] if key in self._settled else [])
            else:
                problems.append(f"message {spans(numbers)}: run {key} is not as it was written")
        if _total(chosen.values()) != head.runs:
            problems.append(f"message: {left} are left, others are lost or some have come back")
        if self._total_settled(chosen) != head.settled:
            problems.append("settled: rows are lost, some messages may be there that were taken away before")
        last = max(head.run, *chosen, 0)
        return replace(head, run=last, runs=_total(whole.values()), settled=self._total_settled(whole))

    def _chosen(self, total: int) -> dict[int, _Found]:
        """The runs that are there by the trees, or by the list of free pages if these have the right sum.

        If neither is right it is both: better some that are gone than one too few.
        """
        found = {key: self._runs[key] for key in sorted(self._runs)}
        by_trees = {key: one for key, one in found.items() if one.place.is_in_tree}
        by_list = {key: one for key, one in found.items() if not one.place.is_free}
        return next((some for some in (by_trees, by_list) if _total(some.values()) == total), found)

    def _left(self, row: Row) -> list[int]:
        run = run_of(row)
        settled = self._settled.get(run.key)
        run.gone = 0 if settled is None else gone_of(settled)
        return run.left

    def _total_settled(self, keys: Iterable[int]) -> int:
        rows = (self._settled[key] for key in keys if key in self._settled)
        return sum(map(checksum_of, rows)) & SUM_MASK


def _total(runs: Iterable[_Found]) -> int:
    return sum(run.checksum for run in runs) & SUM_MASK
