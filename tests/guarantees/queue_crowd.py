"""Writers and workers at the queues of a real node, through the real client, and what must come of that.

All of them live on one loop and outlive the node, which the test kills and starts again. Jobs are put into
one queue and worked off in every way there is; transactions move some of them on, as a pair, into two others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random

import tidings
from tidings import Event
from tidings.client.bus import Bus
from tidings.client.message import Message
from tidings.client.queue import Queue
from tidings.errors import Disconnected, MessageNotHeld, QueueEmpty, TransactionLost

JOBS, LEFT, RIGHT = "jobs", "left", "right"
BATCHES = (1, 1, 2, 5, 20)
"""Jobs that are put at once."""
SIZES = (0, 10, 300, 5_000)
"""Bytes of their bodies."""
HELD_S_MAX = 2.0
"""How long a worker may hold what it does not acknowledge."""
PATIENCE_S = 0.5
"""How long a transaction waits for a job."""

Place = tuple[str, int]
"""A queue, and the number of a job or a pair in it."""


class QueueCrowd:
    """Everybody who uses the queues at one address, and the account of what they were told."""

    def __init__(self, address: str, random: Random) -> None:
        self.is_over = False
        self.life = 0  # of the node
        self.accepted: set[Place] = set()
        self.finished: set[Place] = set()  # dealt with, as whoever has had it was told
        self.marked = 0
        self.lost = 0  # transactions
        self._address = address
        self._random = random
        self._known: set[Place] = set()  # put, or about to be
        self._refused: set[Place] = set()
        self._settled: set[Place] = set()  # must never come again
        self._seen: set[Place] = set()
        self._lives: dict[Place, int] = {}  # in which life of the node each has come last
        self._changed = asyncio.Event()
        self._made = 0

    @property
    def left_over(self) -> set[Place]:
        """What was accepted, and nobody has dealt with yet."""
        return self.accepted - self.finished

    async def open(self) -> None:
        """Make the queues."""
        async with self.bus("maker") as bus:
            for name in (JOBS, LEFT, RIGHT):
                await bus.create_queue(name, persistent=True, deliveries_max=None, redelivery_s=HELD_S_MAX)

    def bus(self, name: str) -> Bus:
        """A connection that waits for the node to be there again."""
        return tidings.connect(self._address, name=name, random=lambda: 0.0, timeout_s=60.0)

    # The account

    def _taken(self, place: Place, message: Message) -> None:
        """A message has come."""
        assert place in self._known, f"{place} was never put"
        assert place not in self._settled, f"{place} came again, though it was settled"
        assert place not in self._refused, f"{place} came, though its transaction was lost"
        assert message.redelivered or place not in self._seen, f"{place} came again, and is not marked"
        self.marked += message.redelivered
        self._seen.add(place)
        self._lives[place] = self.life

    def _settle(self, *places: Place) -> None:
        """These are gone for good, as the node has said.

        Of one that came before the node was killed nobody knows when it went: another may have got it since,
        and settled it, and look at it only now. That a message is gone is all that is said in both cases.
        """
        self._settled.update(place for place in places if self._lives[place] == self.life)
        self._finish(*places)

    def _finish(self, *places: Place) -> None:
        """These were dealt with."""
        self.finished.update(places)
        self._changed.set()

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until something is so that the account tells."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    # Writing

    async def write(self, name: str) -> None:
        """Put jobs, one batch after the other, until it is over."""
        async with self.bus(name) as bus:
            queue = await bus.queue(JOBS)
            while not self.is_over:
                jobs = {(JOBS, self._next()): self._body() for _ in range(self._random.choice(BATCHES))}
                self._known.update(jobs)
                await queue.put_all(Event("job", n=n, body=body) for (_, n), body in jobs.items())
                self.accepted.update(jobs)
                self._changed.set()

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _body(self) -> bytes:
        return bytes(self._random.choice(SIZES))

    # Working

    async def get(self, name: str, queue_name: str = JOBS) -> None:
        """Get messages that are acknowledged on arrival; after a kill they may come again, marked."""

        async def once(queue: Queue) -> None:
            message = await queue.get()
            place = queue_name, int(message["n"])
            self._taken(place, message)
            self._finish(place)

        await self._work(name, queue_name, once)

    async def take(self, name: str, queue_name: str = JOBS) -> None:
        """Take messages, and give some of them back."""

        async def once(queue: Queue) -> None:
            with contextlib.suppress(ValueError, MessageNotHeld):
                async with queue.take() as message:
                    place = queue_name, int(message["n"])
                    self._taken(place, message)
                    if self._random.random() < 0.2:
                        raise ValueError("this can't be done now")
                self._settle(place)

        await self._work(name, queue_name, once)

    async def _work(self, name: str, queue_name: str, once: Callable[[Queue], Awaitable[None]]) -> None:
        async with self.bus(name) as bus:
            queue = await bus.queue(queue_name)
            while True:
                await once(queue)

    async def loop(self, name: str) -> None:
        """Work in a loop that fetches ahead, and acknowledge some at a time."""
        async with self.bus(name) as bus:
            messages = (await bus.queue(JOBS)).messages(prefetch=5, acknowledge="client")
            handed: list[Place] = []
            async for message in messages:
                place = JOBS, int(message["n"])
                self._taken(place, message)
                handed.append(place)
                if self._random.random() < 0.5:
                    await self._acknowledge(message, handed)
                    handed = []

    async def _acknowledge(self, message: Message, handed: list[Place]) -> None:
        """Acknowledge all that were handed out; if one of them was taken back, nobody knows which."""
        try:
            await message.acknowledge()
        except MessageNotHeld:
            self._finish(*handed)
        else:
            self._settle(*handed)

    # Transactions

    async def move(self, name: str) -> None:
        """Take a job and put a pair for it, all of that or nothing."""
        async with self.bus(name) as bus:
            while True:
                await self._move_one(bus)

    async def _move_one(self, bus: Bus) -> None:
        pair = [(LEFT, number := self._next()), (RIGHT, number)]
        taken: list[Place] = []
        try:
            async with bus.transaction(timeout_s=10.0) as transaction:
                job = await transaction.get(JOBS, timeout_s=PATIENCE_S)
                taken.append((JOBS, int(job["n"])))
                self._taken(taken[0], job)
                self._known.update(pair)
                for queue, _ in pair:
                    await transaction.put(queue, "pair", n=number, body=self._body())
        except (QueueEmpty, Disconnected):
            return  # there was no job, or no node; a commit waits for it
        except TransactionLost:
            self.lost += 1
            self._refused.update(pair)
            return
        self.accepted.update(pair)
        self._settle(*taken)
