"""The client's view of a node's log, `bus.log`, and the sinks by which jobs publish rows.

    async for position, event in bus.log.read(since=yesterday, where="type = 'air.pm10' AND value > 40"): ...
    await bus.log.keep("dust", "type = 'air.pm10'")  # store these from now on, even without subscribers
    await bus.log.find([id])

A position is the place of an event in its node's log; positions only grow. A client that reads on from time
to time opens a `reader` under a name: then the node stores the events that the reader wants, and prunes none
that it has not passed.

These calls are idempotent: after a lost connection the client repeats them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import Any

import msgspec

from tidings.errors import Refused
from tidings.event import Event
from tidings.event.values import plain_moment
from tidings.filters import Filter
from tidings.log.arguments import COLUMNS_MAX, IDS_MAX, CollapseTerms
from tidings.log.chunks import CollapsedPart, LivePart, Part, ReplyPart, SealedPart
from tidings.transport.link import Link

PIECE_SIZE = 1 << 20
"""Bytes of events per request, about."""


class Log:
    """The log of a node: its stored events and their readers; made by `Bus.log`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the first and end position of the log, how far it is sealed, and its readers."""
        return await self._call("log.status", {}, timeout_s)

    async def rights(self, *, timeout_s: float | None = None) -> dict[str, Filter]:
        """Return the filters of the events that this client may `subscribe` to and `publish`, by action."""
        found = await self._call("log.rights", {}, timeout_s)
        return {action: Filter(text) for action, text in found.items()}

    # Reading

    async def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Filter | str = "",
        skip: bool = False,
        skip_pruned: bool = False,
        channel: str = "",
    ) -> AsyncIterator[tuple[int, Event]]:
        """Read matching events, each with its position, from `start` or `since` on, before `end` or `until`.

        Without these it reads all that is stored now. A damaged part raises Refused unless `skip` is set, a
        pruned one unless `skip_pruned` is. Times are when events were stored. Events of channels are left
        out; with a `channel`, its id or the reference of a private one, only these are read.
        """
        first, last = await self._bounds(start, end, since, until)
        reading = self.parts(first, last, where, skip=skip, skip_pruned=skip_pruned, channel=channel)
        async for parts, _ in reading:
            for part in parts:
                for position, event in events_of(part):
                    yield position, event

    async def parts(
        self,
        start: int,
        end: int | None = None,
        where: Filter | str = "",
        *,
        skip: bool = False,
        skip_pruned: bool = False,
        size: int = PIECE_SIZE,
        columns: Sequence[str] | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[list[Part], int]]:
        """Read the log in parts as stored, each with the next position; the next request is sent ahead.

        Sealed parts have these columns, or all.
        """
        few = columns if columns is None or len(columns) <= COLUMNS_MAX else None
        asked = {
            "where": str(where),
            "skip": skip,
            "skip_pruned": skip_pruned,
            "size_max": size,
            "columns": few,
            "channel": channel,
        }
        async for page in self._pages(asked, start, end, timeout_s):
            yield [part for part in page.parts if not isinstance(part, CollapsedPart)], page.next

    async def collapsed(
        self,
        start: int,
        end: int | None,
        where: Filter | str,
        terms: CollapseTerms,
        *,
        skip: bool = False,
        skip_pruned: bool = False,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[list[ReplyPart], int]]:
        """Read partial rows of a collapse instead of events, as `parts` does; older nodes send the events."""
        asked = {
            "where": str(where),
            "skip": skip,
            "skip_pruned": skip_pruned,
            "size_max": PIECE_SIZE,
            "collapse": msgspec.to_builtins(terms),
            "channel": channel,
        }
        async for page in self._pages(asked, start, end, timeout_s):
            yield page.parts, page.next

    async def _pages(
        self, asked: dict[str, Any], start: int, end: int | None, timeout_s: float | None
    ) -> AsyncIterator[LogPage]:
        if end is None:
            end = (await self.status(timeout_s=timeout_s))["end"]
        reading = asyncio.ensure_future(self._piece({**asked, "start": start, "end": end}, timeout_s))
        try:
            while True:
                found = await reading
                is_last = found.next >= found.end
                if not is_last:
                    following = {**asked, "start": found.next, "end": end}
                    reading = asyncio.ensure_future(self._piece(following, timeout_s))
                yield found
                if is_last:
                    return
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reading

    async def find(self, ids: Iterable[str], *, timeout_s: float | None = None) -> list[Event]:
        """Return the events with these ids that are in the log."""
        wanted = list(ids)
        found: list[Event] = []
        for begin in range(0, len(wanted), IDS_MAX):
            some = wanted[begin : begin + IDS_MAX]
            start, end = 0, 1
            while start < end:
                asked = {"ids": some, "start": start}
                piece = msgspec.convert(await self._call("log.find", asked, timeout_s), LogPage)
                start, end = piece.next, piece.end
                found += [event for part in piece.parts for _, event in events_of(part)]
        return found

    async def position_at(self, time: datetime, *, timeout_s: float | None = None) -> int:
        """Return the position of the first event stored at or after a time, or one past the last."""
        time_us = plain_moment(time, "time")
        position: int = (await self._call("log.at", {"time_us": time_us}, timeout_s))["position"]
        return position

    async def _bounds(
        self, start: int | None, end: int | None, since: datetime | None, until: datetime | None
    ) -> tuple[int, int | None]:
        if since is not None:
            start = max(start or 0, await self.position_at(since))
        if until is not None:
            before = await self.position_at(until)
            end = before if end is None else min(end, before)
        if start is None:
            start = (await self.status())["first"]
        return start, end

    async def _piece(self, asked: dict[str, Any], timeout_s: float | None) -> LogPage:
        return msgspec.convert(await self._call("log.read", asked, timeout_s), LogPage)

    # Readers, and what is kept

    async def reader(
        self,
        name: str,
        where: Filter | str = "",
        *,
        lease_s: float | None = None,
        start: int | None = None,
        passive: bool = False,
        resume: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Open or renew a reader: it creates demand for matching events and keeps them in the log.

        A lease must be renewed before it ends; without one the reader stays until `leave`. Returns `cursor`,
        up to which the reader needs nothing, `first` and `end` of the log, and the `node`. With `resume` the
        reader must exist, or have left as `resumable`: raises Refused with the code `gone` if its lease has
        ended or another client has removed it.
        """
        asked = {"name": name, "where": str(where), "lease_s": lease_s, "start": start, "passive": passive}
        if resume:
            asked["resume"] = True
        return await self._call("log.reader", asked, timeout_s)

    async def passed(self, name: str, position: int, *, timeout_s: float | None = None) -> None:
        """Move the cursor of a reader: it needs nothing below this position any more."""
        await self._call("log.passed", {"name": name, "position": position}, timeout_s)

    async def keep(self, name: str, where: Filter | str, *, timeout_s: float | None = None) -> None:
        """Store all matching events in the log from now on, without creating demand for them."""
        await self._call("log.keep", {"name": name, "where": str(where)}, timeout_s)

    async def leave(
        self,
        name: str,
        *,
        owner: str | None = None,
        resumable: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Remove the reader or `keep` of that name, if there is one.

        A client with the right to manage may remove that of another client, the `owner`. A `resumable` reader
        may come back with `reader(…, resume=True)`.
        """
        asked: dict[str, Any] = {"name": name, "owner": owner}
        if resumable:
            asked["resumable"] = True
        try:
            await self._call("log.leave", asked, timeout_s)
        except Refused as error:
            if error.code != "not-found":
                raise

    # Managing

    async def seal(self, *, timeout_s: float | None = None) -> int:
        """Wait until the log as it is now is sealed, and return the last sealed position.

        Without a `timeout_s` the wait has no limit.
        """
        limit_s = inf if timeout_s is None else timeout_s  # it waits for work that may take long
        sealed: int = (await self._call("log.seal", {}, limit_s))["sealed"]
        return sealed

    async def sealed(self, position: int, *, timeout_s: float | None = None) -> None:
        """Report to the node that files hold its log up to this position; called by the sealer."""
        await self._call("log.sealed", {"position": position}, timeout_s)

    async def prune(
        self,
        before: int | None = None,
        *,
        since: datetime | None = None,
        size_max: int | None = None,
        force: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Remove sealed files that end before a position or time, or until `size_max` bytes are left.

        Events that a reader has not passed stay, unless `force` is set. Returns the `first` position that is
        left and, in `kept_for`, the names of readers that kept more.
        """
        before_us = None if since is None else plain_moment(since, "since")
        asked = {"before": before, "before_us": before_us, "size_max": size_max, "force": force}
        return await self._call("log.prune", asked, timeout_s)

    async def verify(self, *, timeout_s: float | None = None) -> AsyncIterator[tuple[list[str], int, int]]:
        """Let the node check its log: yields the problems of each piece, its end, and the end of the log.

        A piece is a sealed file, or some events that are not sealed yet.
        """
        position, end = 0, 1
        while position < end:
            reply = await self._call("log.verify", {"start": position}, timeout_s)
            position, end = reply["next"], reply["end"]
            yield reply["problems"], position, end

    async def _call(self, operation: str, asked: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._link.call(operation, asked, timeout_s, "again")
        return answer


class LogPage(msgspec.Struct, frozen=True):
    """An answer to `log.read`."""

    parts: list[ReplyPart]
    next: int
    end: int


def events_of(part: ReplyPart) -> Sequence[tuple[int, Event]]:
    """Return the events of a part with their positions; MissingExtra if it is sealed and needs Arrow."""
    if isinstance(part, LivePart):
        return list(zip(part.positions(), part.events(), strict=True))
    assert isinstance(part, SealedPart)
    from tidings.log.segment_file import positioned_events

    return positioned_events(part.table)


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
        """Stage a piece, an array of events with its head, and return the rows of the attempt so far.

        The pieces of an attempt are numbered from 0.
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

        `query` is the owner of the batch: the node refuses a batch of the same number from another query.
        """
        counted = {"batch": batch, "attempts": dict(attempts), "query": query}
        answer = await self._call("sink.commit", run, counted, timeout_s)
        return not answer["repeated"]

    async def abort(
        self, run: str, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Discard the staged pieces of these attempts, or of the whole run."""
        await self._call("sink.abort", run, {"attempts": attempts}, timeout_s)

    async def _call(self, operation: str, run: str, said: dict[str, Any], timeout_s: float | None) -> Any:
        return await self._link.call(operation, {"sink": self._name, "run": run, **said}, timeout_s, "again")
