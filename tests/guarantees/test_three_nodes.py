"""Three nodes that hand on to each other over TLS, killed with SIGKILL again and again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from effort import SEED, often
from guarantees.handed_on import Arrival, HandedOn, Place
from guarantees.peered import Secured, run_within, secured_nodes
from node.peers import Start

from tidings import Event
from tidings.errors import Disconnected, MessageNotHeld
from tidings.queues.description import DEAD

KILLS = often(3)
"""How often the node is killed that has the queues; the others are killed now and then."""
VICTIMS = ("b", "b", "b", "b", "ab", "bc", "abc", "a", "c")
"""Who is killed at the same time."""
QUEUES = ("jobs", "more")
WRITERS = {"ann": "a", "art/feed": "a", "cora/feed": "c"}
"""Clients, and the nodes where they are known by the first part of their names."""
BATCHES = (1, 1, 2, 5, 20, 50)
"""Messages that are put at once."""
ARRIVALS_MAX = 300
"""The most messages that arrive between two kills."""
AWAY_MAX = 200
"""The most messages that are put while the node with the queues is away."""
PREFETCH = 50
BACKLOG_MAX = 500
"""Messages that may be on their way; writers wait beyond that."""


class Killing:
    """One run: three nodes that die at random moments, those who put, and those who read."""

    def __init__(self, start: Start, home: Path) -> None:
        self.account = HandedOn()
        self.far: set[Place] = set()  # what was read through another node
        self.nodes = secured_nodes(start, home, "abc")
        self._random = Random(SEED)
        self._is_over = False
        for name, node in WRITERS.items():
            self.nodes[node].let_in(name.partition("/")[0], "put", "*@b")
        self.nodes["b"].let_in("bob", "get", *QUEUES)
        self.nodes["c"].let_in("cleo", "get", "jobs@b")

    def story(self) -> str:
        """How far it has come, for a run that failed."""
        kills = {name: node.kills for name, node in self.nodes.items()}
        return f"kills {kills}, {self.account}"

    async def run(self) -> None:
        """Kill, then let everything come to rest, and see what is there."""
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        await self._make_queues()
        async with asyncio.TaskGroup() as group:
            writers = [group.create_task(self._write(name)) for name in WRITERS]
            readers = [group.create_task(self._read_from_afar())]
            await self.account.wait_until(lambda: bool(self.far))  # before others take everything where it is
            readers += [group.create_task(self._read(queue)) for queue in QUEUES]
            while self.nodes["b"].kills < KILLS:
                await self._kill(self._random.choice(VICTIMS))
            self._is_over = True
            await asyncio.wait(writers)
            for node in self.nodes.values():
                await self._check_sent(node)
            for reader in readers:
                reader.cancel()
        await self._take_rest()

    async def _make_queues(self) -> None:
        async with self.nodes["b"].manage() as bus:
            for queue in QUEUES:
                await bus.create_queue(queue, persistent=True, deliveries_max=None, redelivery_s=None)

    async def _kill(self, names: str) -> None:
        """Let some messages arrive, kill nodes, and start them again, maybe after more was put at others."""
        account, random = self.account, self._random
        arrived = len(account.arrived) + random.randint(0, ARRIVALS_MAX)
        await account.wait_until(lambda: len(account.arrived) >= arrived)
        victims = [self.nodes[name] for name in names]
        await asyncio.gather(*(victim.kill() for victim in victims))
        if names == "b":
            put = len(account.accepted) + random.randint(0, AWAY_MAX)
            await account.wait_until(lambda: len(account.accepted) >= put or account.backlog >= BACKLOG_MAX)
        await asyncio.gather(*(victim.start() for victim in victims))

    # Those who use the nodes

    async def _write(self, name: str) -> None:
        """Put messages into both queues, one batch after the other, until it is over."""
        account, random, written = self.account, self._random, 0
        async with self.nodes[WRITERS[name]].bus(name) as bus:
            queues = {queue: await bus.queue(f"{queue}@b") for queue in QUEUES}
            while not self._is_over:
                await account.wait_until(lambda: account.backlog < BACKLOG_MAX)
                queue, first = random.choice(QUEUES), written
                written += random.choice(BATCHES)
                places = [Place(queue, name, number) for number in range(first, written)]
                account.put(places)
                await queues[queue].put_all(Event("job", n=place.number, by=name) for place in places)
                account.accept(places)

    async def _read(self, name: str) -> None:
        """Take everything where the queue is, and acknowledge some at a time."""
        async with self.nodes["b"].bus(f"bob/{name}") as bus:
            taken: list[Place] = []
            async for message in (await bus.queue(name)).messages(prefetch=PREFETCH, acknowledge="client"):
                taken.append(self.account.take(name, message))
                if self._random.random() < 0.1:
                    with suppress(MessageNotHeld):  # some of them; nobody knows which
                        await message.acknowledge()
                        self.account.settle(taken)
                    taken = []

    async def _read_from_afar(self) -> None:
        """Take messages one by one through another node."""
        async with self.nodes["c"].bus("cleo") as bus:
            jobs = await bus.queue("jobs@b")
            while True:
                with suppress(MessageNotHeld, Disconnected):
                    async with jobs.take() as message:
                        place = self.account.take("jobs", message)
                        self.far.add(place)
                    self.account.settle([place])

    # The end

    async def _check_sent(self, node: Secured) -> None:
        """Wait until nothing is on its way from a node; it must have no dead letters."""
        async with node.manage() as bus:
            while any(one["waiting"] for one in (await bus.status())["forwarding"]):
                await asyncio.sleep(0.01)
            forwarding = {(one["queue"], one["peer"]) for one in (await bus.status())["forwarding"]}
            assert forwarding == ({(queue, "b") for queue in QUEUES} if node.name != "b" else set())
            assert await bus.lookup(DEAD, scope="local") == []

    async def _take_rest(self) -> None:
        """Take what the readers have left, until nothing is in a queue or comes back to it."""
        async with self.nodes["b"].manage() as bus:
            for name in QUEUES:
                queue = await bus.queue(name)
                while (told := await queue.describe()).messages or told.in_flight:
                    for message in await queue.get_all():
                        self.account.take(name, message)


@pytest.mark.slow
def test_three_nodes_with_tls_hand_on_each_message_once_and_in_order_though_they_are_killed(
    start: Start, tmp_path: Path
) -> None:
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it when the test fails
    killing = Killing(start, tmp_path)
    run_within(killing.run(), killing.story)
    killing.account.check()
    assert len(killing.account.arrived) > 20 * KILLS
    assert killing.account.marked


# What the account finds out


def account_of(*places: Place) -> HandedOn:
    account = HandedOn()
    account.put([*places])
    account.accept([*places])
    return account


FIRST, SECOND = Place("jobs", "ann", 1), Place("jobs", "ann", 2)


def arrival(second: int) -> Arrival:
    return Arrival(datetime(2026, 11, 15, 12, 0, second, tzinfo=UTC), f"id {second}")


def test_a_message_that_is_handed_out_again_is_no_second_one() -> None:
    account = account_of(FIRST, SECOND)
    account.note(FIRST, arrival(1), False)
    account.note(FIRST, arrival(1), True)
    account.note(SECOND, arrival(2), False)
    account.check()


def test_a_message_that_has_arrived_twice_is_found_out() -> None:
    account = account_of(FIRST)
    account.note(FIRST, arrival(1), False)
    with pytest.raises(AssertionError, match="has arrived twice"):
        account.note(FIRST, arrival(2), True)


def test_a_message_that_comes_again_though_it_was_acknowledged_is_found_out() -> None:
    account = account_of(FIRST)
    account.settle([account.note(FIRST, arrival(1), False)])
    with pytest.raises(AssertionError, match="though it was acknowledged"):
        account.note(FIRST, arrival(1), True)


@pytest.mark.parametrize("came", [[FIRST], [SECOND], [SECOND, FIRST]])
def test_a_message_that_is_lost_or_out_of_order_is_found_out(came: list[Place]) -> None:
    account = account_of(FIRST, SECOND)
    for second, place in enumerate(came):
        account.note(place, arrival(second), False)
    with pytest.raises(AssertionError, match=r"is lost|not in the order"):
        account.check()
