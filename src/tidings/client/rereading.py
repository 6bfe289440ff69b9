"""Stored events of a channel, read from all nodes that have some, in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tidings.channels.description import ChannelOrder, LogPlace
from tidings.channels.merging import HistoryMerge, TakenEvents
from tidings.channels.parts import HistoryPage
from tidings.client.sessions import read_as
from tidings.errors import Disconnected, NoAnswer
from tidings.event import Event
from tidings.transport.link import Link

AGAIN_S = 0.05
"""How long to wait for what a node has not stored yet."""
TRIES_MAX = 100
"""How often a node is asked that has nothing more, before its rest is left out."""


class HistoryReader:
    """Reads what is stored of a channel; `token` is its id, or the reference of a private one."""

    def __init__(
        self, link: Link, token: str, order: ChannelOrder, where: str, timeout_s: float | None
    ) -> None:
        self._link = link
        self._token = token
        self._order = order
        self._where = where
        self._timeout_s = timeout_s
        self._at: dict[str, int] = {}  # where to go on, by source
        self.missing: list[str] = []
        """Nodes that could not be asked, or were lost meanwhile."""

    async def read(self, since_us: int | None, taken: TakenEvents) -> AsyncIterator[Event]:
        """Yield the events that are stored now, and note them as taken; those that were are left out."""
        found = await self._call("channel.places", {"channel": self._token})
        self.missing = read_as(found["missing"], list[str], "$.missing")
        places = read_as(found["logs"], list[LogPlace], "$.logs")
        logs = [one.node for one in places if not one.are_copies]
        sources = {(one.node + "~" * one.are_copies): one for one in places}
        self._at = {source: one.first for source, one in sources.items()}
        merge = HistoryMerge(sources, self._order)
        while True:
            for source in merge.lacking:
                without = logs if sources[source].are_copies else []
                if not await self._read_on(merge, source, sources[source], since_us, without):
                    merge.end(source)
            events = merge.take()
            if not events and not merge.lacking:
                return
            for event in events:
                if taken.take(event):
                    yield event

    async def _read_on(
        self, merge: HistoryMerge, source: str, place: LogPlace, since_us: int | None, without: list[str]
    ) -> bool:
        """Read the next page of a source; whether it has more."""
        asked: dict[str, Any] = {"channel": self._token, "to": place.node, "end": place.end}
        asked |= {"where": self._where, "without": without, "since_us": since_us}
        for _ in range(TRIES_MAX):
            before = self._at[source]
            if before >= place.end:
                return False
            try:
                answer = await self._call("channel.read", {**asked, "start": before})
            except (Disconnected, NoAnswer):
                if self._link.core.failure is not None:
                    raise
                self.missing.append(place.node)
                return False
            page = read_as(answer, HistoryPage, "$.page")
            merge.add(source, page.parts)
            self._at[source] = max(before, page.next)
            if page.parts:
                return True
            if self._at[source] == before:
                await asyncio.sleep(AGAIN_S)
        return False

    async def _call(self, operation: str, asked: dict[str, Any]) -> Any:
        return await self._link.call(operation, asked, self._timeout_s, "again")
