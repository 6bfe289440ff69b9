"""The log of a node, as its clients have it, `bus.log`, and the sinks by which jobs publish rows.

    async for position, event in bus.log.read(since=yesterday, where="type = 'air.pm10' AND value > 40"): ...
    await bus.log.keep("dust", "type = 'air.pm10'")          # from now on these are kept, whoever listens
    await bus.log.find([id])

A position is where an event stands in its node's log; positions only grow. Whoever reads on from time to time
opens a `reader` under a name: then the node keeps what it wants, and prunes nothing that it has not passed.

What these calls do is the same done twice, so a connection that breaks is waited out and they are said again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from tidings.errors import Refused
from tidings.event import Event
from tidings.event.values import plain_moment
from tidings.filters import Filter
from tidings.log.arguments import COLUMNS_MAX, IDS_MAX
from tidings.log.chunks import LivePart, Part, SealedPart
from tidings.transport.link import Link

PIECE_SIZE = 1 << 20
"""Bytes of events that are asked for at once, about."""


class Log:
    """The log of a node: events that were kept, and who reads them; made by `Bus.log`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Where the log begins and ends, what of it is sealed, and who reads it."""
        status: dict[str, Any] = await self._call("log.status", {}, timeout_s)
        return status

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
    ) -> AsyncIterator[tuple[int, Event]]:
        """Each event that matches with its position, from `start` or `since` on and before `end` or `until`.

        Without these it is all there is now. What is damaged raises Refused unless `skip`, what was pruned
        unless `skip_pruned`. Times are when events were stored.
        """
        first, last = await self._bounds(start, end, since, until)
        async for parts, _ in self.parts(first, last, where, skip=skip, skip_pruned=skip_pruned):
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
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[list[Part], int]]:
        """The log in parts as they lie there, each with where to read on; the next is asked for meanwhile.

        Of parts that are sealed these columns are wanted, or all.
        """
        few = columns if columns is None or len(columns) <= COLUMNS_MAX else None
        asked = {
            "where": str(where),
            "skip": skip,
            "skip_pruned": skip_pruned,
            "size_max": size,
            "columns": few,
        }
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
                yield found.parts, found.next
                if is_last:
                    return
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reading

    async def find(self, ids: Iterable[str], *, timeout_s: float | None = None) -> list[Event]:
        """The events with these ids, as many as the log has."""
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
        """The position of the first event that was stored at or after a time, or one past the last."""
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
        """Be a reader under a name, or go on being one: what matches is made, and kept in the log.

        With a lease this lasts so long, and is to be said again before its end; without one, until `leave`.
        Tells `cursor`, up to which the reader needs nothing, `first` and `end` of the log, and the `node`.
        With `resume` it must be there, or have left as one that may come back: raises Refused with the code
        `gone` if its lease has ended, or somebody else has removed it.
        """
        asked = {"name": name, "where": str(where), "lease_s": lease_s, "start": start, "passive": passive}
        if resume:
            asked["resume"] = True
        told: dict[str, Any] = await self._call("log.reader", asked, timeout_s)
        return told

    async def passed(self, name: str, position: int, *, timeout_s: float | None = None) -> None:
        """The reader of that name needs nothing below this position any more."""
        await self._call("log.passed", {"name": name, "position": position}, timeout_s)

    async def keep(self, name: str, where: Filter | str, *, timeout_s: float | None = None) -> None:
        """From now on what matches is kept in the log, whoever publishes it; nothing is made for that."""
        await self._call("log.keep", {"name": name, "where": str(where)}, timeout_s)

    async def leave(
        self,
        name: str,
        *,
        owner: str | None = None,
        resumable: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Nothing is kept, or made, under this name any more; nor is it an error if nothing was.

        Who may manage the node may end what another client, the `owner`, has there. A reader that is
        `resumable` may come back with `reader(…, resume=True)`.
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
        """Wait until all there is now lies in files; the last position that does."""
        sealed: int = (await self._call("log.seal", {}, timeout_s))["sealed"]
        return sealed

    async def sealed(self, position: int, *, timeout_s: float | None = None) -> None:
        """Tell the node that files hold its log up to this position; for who seals."""
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
        """Remove sealed files that end before a position or a time, or until so many bytes are left.

        What a reader has not passed stays, unless forced. Tells the `first` position there is, and the names
        of readers for whose sake more was `kept_for`.
        """
        before_us = None if since is None else plain_moment(since, "since")
        asked = {"before": before, "before_us": before_us, "size_max": size_max, "force": force}
        told: dict[str, Any] = await self._call("log.prune", asked, timeout_s)
        return told

    async def verify(self, *, timeout_s: float | None = None) -> AsyncIterator[tuple[list[str], int, int]]:
        """Have all of the log read where it lies: what is wrong with each piece, where that ends, and all.

        A piece is a sealed file, or some of what is not sealed yet.
        """
        position, end = 0, 1
        while position < end:
            told = await self._call("log.verify", {"start": position}, timeout_s)
            position, end = told["next"], told["end"]
            yield told["problems"], position, end

    async def _call(self, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        return await self._link.call(operation, arguments, timeout_s, "again")


class LogPage(msgspec.Struct, frozen=True):
    """An answer to `log.read`."""

    parts: list[Part]
    next: int
    end: int


def events_of(part: Part) -> Sequence[tuple[int, Event]]:
    """The events of a part, each with its position; MissingExtra if it was sealed and Arrow is not here."""
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
