"""Publishers and subscribers of a real node, through the real client, and the account of what they had.

All of them live on one loop and outlive the node, which the test kills and starts again. The account is the
simulator's: it checks each delivery when it comes, and knows at the end what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

import tidings
from tidings import Event
from tidings.client.bus import Bus
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import StormAccount
from tidings.simulator.storm import DELIVERIES, KEPT

BATCHES = (1, 1, 2, 5, 20, 100)
"""Events that are published at once."""
SIZES = (0, 10, 300, 5_000)
"""Bytes of their bodies."""
SUBJECTS = 5
"""Subjects that they have in turn."""


class Crowd:
    """Everybody who is connected to one address."""

    def __init__(self, address: str, random: Random) -> None:
        self.account = StormAccount()
        self.is_over = False
        self._address = address
        self._random = random
        self._changed = asyncio.Event()
        self._readers: list[Reader] = []

    async def publish(self, name: str) -> None:
        """Publish events of all kinds, one batch after the other, until it is over."""
        number = 0
        async with self._bus(name) as bus:
            while not self.is_over:
                batch: dict[tuple[str, int, int], Event] = {}
                for _ in range(self._random.choice(BATCHES)):
                    number += 1
                    batch[name, 0, number] = self._event(number)
                await self.publish_batch(bus, batch)

    async def publish_batch(self, bus: Bus, batch: dict[tuple[str, int, int], Event]) -> None:
        """Publish these, and note what is promised when the call returns."""
        for identity, event in batch.items():
            self.account.published(identity, event)
        await bus.publish_all(batch.values())
        for identity, event in batch.items():
            if event.delivery in KEPT:
                self.account.accepted(identity)
        self.tell()

    def _event(self, number: int) -> Event:
        body = bytes(self._random.choice(SIZES))
        subject, delivery = f"s{number % SUBJECTS}", self._random.choice(DELIVERIES)
        return Event("a", n=number, delivery=delivery, subject=subject, body=body)

    async def read(self, name: str, opened: asyncio.Event) -> None:
        """Take what comes, for one life of a subscriber that the account knows."""
        durable = name if self.account.readers[name].keeps else None
        async with self._bus(name) as bus, bus.subscribe(durable=durable) as events:
            self.account.begin(name)
            opened.set()
            async for event in events:
                identity = (event.source or "", 0, int(event["n"]))
                self.account.delivered(name, identity, event, events.redelivered)
                self.tell()

    @contextlib.asynccontextmanager
    async def reader(self, name: str, keeps: bool) -> AsyncIterator[Reader]:
        """A subscriber that is there before anything is published, and until the block ends."""
        self.account.read_by(name, Wanted(), KEPT if keeps else frozenset())
        reader = Reader(self, name)
        self._readers.append(reader)
        await reader.begin()
        try:
            yield reader
        finally:
            await reader.end()

    async def wait_promised(self, count: int) -> None:
        """Until so many events were promised."""
        while len(self.account.promised) < count:
            await self._wait_change()

    async def wait_had(self, name: str, identity: tuple[str, int, int]) -> None:
        """Until a subscriber has had this event."""
        while identity not in self.account.readers[name].had:
            await self._wait_change()

    def _bus(self, name: str) -> Bus:
        return tidings.connect(self._address, name=name, random=lambda: 0.0, timeout_s=60.0)

    def tell(self) -> None:
        """Something has changed: those who wait look again."""
        self._changed.set()

    async def _wait_change(self) -> None:
        """Until something changes; what went wrong with a reader is raised."""
        for reader in self._readers:
            reader.check()
        self._changed.clear()
        await self._changed.wait()


class Reader:
    """A subscriber with several lives: each ends without a word to the node that anything was dealt with."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd = crowd
        self._name = name
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Begin a life; it has subscribed when this returns."""
        opened = asyncio.Event()
        task = self._task = asyncio.ensure_future(self._crowd.read(self._name, opened))
        task.add_done_callback(lambda _: self._crowd.tell())
        waiting = asyncio.ensure_future(opened.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()

    async def end(self) -> None:
        """End it in the middle of whatever it does; what went wrong in it is raised."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def check(self) -> None:
        """Raise what went wrong in this life."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
