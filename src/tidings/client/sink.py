"""A sink of a node, as jobs of many tasks have it: rows are staged one by one, and published all at once.

What these calls do is the same done twice, so a connection that breaks is waited out and they are said again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidings.transport.link import Link


class Sink:
    """Rows that are staged one by one and published all at once; made by `Bus.sink`.

    A `run` is one try of a job, an `attempt` one try of a task.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name

    async def stage(
        self, run: str, attempt: str, number: int, raw: bytes, *, timeout_s: float | None = None
    ) -> int:
        """Stage the piece of this number, an array of events with its head; the rows of the attempt so far.

        Pieces of an attempt are numbered from 0 on.
        """
        piece = {"attempt": attempt, "number": number, "raw": raw}
        rows: int = (await self._call("sink.stage", run, piece, timeout_s))["rows"]
        return rows

    async def commit(
        self,
        run: str,
        batch: int | None,
        attempts: Mapping[str, int],
        *,
        query: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Publish what these attempts have staged, each in so many pieces; False if it was done before.

        `query` says whose batch it is: one of the same number that is of another query is refused.
        """
        counted = {"batch": batch, "attempts": dict(attempts), "query": query}
        answer = await self._call("sink.commit", run, counted, timeout_s)
        return not answer["repeated"]

    async def abort(
        self, run: str, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Forget what these attempts have staged, or all of the run."""
        await self._call("sink.abort", run, {"attempts": attempts}, timeout_s)

    async def _call(self, operation: str, run: str, said: dict[str, Any], timeout_s: float | None) -> Any:
        return await self._link.call(operation, {"sink": self._name, "run": run, **said}, timeout_s, "again")
