"""Receiving what a neighbour announces: changes of a set of filters, and whole sets in pieces.

The requests are those of an `Announcer` at the other end, for what it wants (`table.py`) and for what it
offers (`pruning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from tidings.steps import Steps


class TableChange(Struct, frozen=True):
    """The arguments of `link.table` and `link.offers`: a change of what the caller wants, or a piece of one.

    `reset` begins a whole table, and `done` ends it: then filters that did not come again are removed.
    `anew`: it is the first one since the caller uses the link, now or again.
    """

    add: list[tuple[str, bool]] = []
    remove: list[str] = []
    reset: bool = False
    done: bool = False
    digest: str = ""
    anew: bool = False

    def agrees(self, digest: str) -> bool:
        """Whether it says nothing else of the digest of the set."""
        return self.digest in ("", digest)

    def answer(self, digest: str) -> dict[str, Any]:
        """Return the reply: the digest of the set, unless it is the one of the request."""
        return {} if self.digest == digest else {"digest": digest}


class Receiving:
    """Changes of one set of a neighbour."""

    def __init__(self) -> None:
        self._stale: dict[str, None] | None = None  # of a whole set under way: what has not come again yet

    def steps(
        self,
        change: TableChange,
        known: Iterable[str],
        add: Callable[[str, bool], None],
        remove: Callable[[str], None],
    ) -> Steps[None]:
        """Make a change of a set with these filters, additions first."""
        if change.reset:
            self._stale = dict.fromkeys(known)
        for text, passive in change.add:
            if self._stale is not None:
                self._stale.pop(text, None)
            add(text, passive)
            yield
        gone = list(change.remove)
        if change.done and self._stale is not None:
            gone += self._stale
            self._stale = None
        for text in gone:
            remove(text)
            yield
