"""Notice that the files of a store are not in their place any more.

A process goes on writing to files that were removed or replaced under it, and every sync succeeds; but who
opens the store next finds nothing of that. So before and after each commit the names must lead to the files
that are open: two calls of `stat` each, a few microseconds.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidings.errors import StoreFailed

Identity = tuple[int, int]


class Presence:
    """Files that must stay where they are."""

    def __init__(self, *paths: Path) -> None:
        """Raises OSError if one is not there."""
        self._files = [(str(path), _identity(str(path))) for path in paths]

    def check(self) -> None:
        """Raise StoreFailed if a file is not where it was, or another is there."""
        for path, identity in self._files:
            try:
                is_there = _identity(path) == identity
            except OSError:
                is_there = False
            if not is_there:
                raise StoreFailed(path, "was removed or replaced while the node runs; stop the node")


def _identity(path: str) -> Identity:
    found = os.stat(path)  # noqa: PTH116  # by name: a Path costs several times as much, at every commit
    return found.st_dev, found.st_ino
