"""Queues of other nodes, as an application uses them: as those of the node it is attached to.

The tests of a queue here are run once more with one of another node: that it can't be told from a queue here
is shown by their being the same.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import IS_SOAK

import tidings
from client import test_queue, test_worker
from client.neighbours import address_of, home_at, neighbours, node_at, wait_peer
from client.nodes import run
from tidings import Event
from tidings.errors import (
    ConfigError,
    Disconnected,
    MessageNotHeld,
    NotAllowed,
    QueueAmbiguous,
    QueueEmpty,
    QueueError,
    QueueFull,
    QueueNotFound,
)
from tidings.peers import peer_client


def with_queue_elsewhere(work: Any, **wish: Any) -> None:
    """Run a test with a queue called `jobs` that another node has."""

    async def within() -> None:
        with tempfile.TemporaryDirectory() as place:
            async with neighbours(Path(place)) as (bus, kitchen, _):
                await kitchen.create_queue("jobs", **wish)
                await work(bus, await bus.queue("jobs"))

    run(within())


def with_jobs_elsewhere(count: int, work: Any, **wish: Any) -> None:
    """The same with so many jobs in it."""

    async def fill(bus: Any, queue: Any) -> None:
        await queue.put_all(Event("job", n=n) for n in range(count))
        await work(bus, queue)

    with_queue_elsewhere(fill, **wish)


ELSEWHERE = {"with_queue": with_queue_elsewhere, "with_jobs": with_jobs_elsewhere}


ONLY_HERE = {
    "test_a_long_body_among_short_ones",
    "test_a_queue_says_how_it_stands",
    "test_a_queue_that_is_gone_is_not_found",
    "test_a_queue_that_is_deleted_ends_the_loop",
}
"""Those that purge or delete the queue, or get from it in a transaction: that is for the node that has it."""


def same_tests() -> list[Any]:
    """The tests that are given a queue, with each set of arguments they are run with."""
    found = [
        (name, test)
        for module in (test_queue, test_worker)
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and name not in ONLY_HERE
        if not ELSEWHERE.keys().isdisjoint(test.__code__.co_names)
    ]
    return [
        pytest.param(test, arguments, id=f"{name.removeprefix('test_')}-{number}")
        for name, test in found
        for number, arguments in _chosen(list(enumerate(_cases(test))))
    ]


def _chosen(cases: list[Any]) -> list[Any]:
    """The first, the last and one between them; the long run has all, as the tests of a queue here have."""
    return cases if IS_SOAK or len(cases) <= 3 else [cases[0], cases[len(cases) // 2], cases[-1]]


def _cases(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The arguments of each run of a test."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        arguments: dict[str, Any] = {}
        for mark, value in zip(marks, values, strict=True):
            names = mark.args[0]
            arguments |= {names: value} if isinstance(names, str) else zip(names, value, strict=True)
        yield arguments


@pytest.mark.parametrize(("test", "arguments"), same_tests())
def test_a_queue_elsewhere_is_as_one_here(
    test: Callable[..., None], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ELSEWHERE.keys() & test.__globals__.keys():
        monkeypatch.setitem(test.__globals__, name, ELSEWHERE[name])
    test(**arguments)


# -- finding


def test_queues_are_found_wherever_they_are(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, garage):
            await bus.create_queue("letters", properties={"paper": "A4"})
            await kitchen.create_queue("jobs", properties={"paper": "A4"})
            await garage.create_queue("tools")

            async def names(**sought: Any) -> set[str]:
                return {f"{one.name}@{one.node}" for one in await bus.lookup(**sought)}

            assert await names() == {"letters@home"}
            assert await names(scope="remote") == {"jobs@kitchen", "tools@garage"}
            assert await names(scope="both") == {"letters@home", "jobs@kitchen", "tools@garage"}
            both = await names(properties={"paper": "A4"}, scope="both")
            assert both == {"letters@home", "jobs@kitchen"}
            assert await names(name="tools", scope="remote") == {"tools@garage"}

    run(work())


def test_a_queue_is_asked_for_by_its_node_once_it_was_found(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, garage):
            jobs = await kitchen.create_queue("jobs")
            await jobs.put("job", n=1)
            found = await bus.queue("jobs")
            assert (found.name, found.description.node, repr(found)) == (
                "jobs@kitchen",
                "kitchen",
                "<Queue 'jobs@kitchen'>",
            )
            here = await bus.create_queue("jobs")
            await garage.create_queue("jobs")
            assert (await found.read())["n"] == 1
            assert (await bus.queue("jobs")).name == "jobs"
            assert await here.is_empty()
            for address in ("jobs@kitchen", jobs.description.id, f"jobs@{jobs.description.id.split('.')[0]}"):
                assert (await (await bus.queue(address)).read())["n"] == 1
            assert await (await bus.queue("jobs@home")).is_empty()

    run(work())


def test_several_candidates_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, garage):
            await kitchen.create_queue("jobs")
            await garage.create_queue("jobs")
            with pytest.raises(QueueAmbiguous, match="jobs@garage, jobs@kitchen") as caught:
                await bus.queue("jobs")
            assert caught.value.queue == "jobs"
            with pytest.raises(QueueNotFound, match="tools"):
                await bus.queue("tools")
            with pytest.raises(QueueNotFound, match="knows no node 'moon'"):
                await bus.queue("jobs@moon")

    run(work())


def test_a_further_name_of_a_queue_elsewhere_is_one_of_its_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, _):
            await kitchen.create_queue("jobs")
            await kitchen.create_alias("work", "jobs")
            queue = await bus.queue("work")
            await queue.put("job", n=1)
            assert (await (await kitchen.queue("jobs")).get())["n"] == 1

    run(work())


def test_a_queue_elsewhere_is_managed_elsewhere(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, _):
            await kitchen.create_queue("jobs")
            queue = await bus.queue("jobs")
            with pytest.raises(NotAllowed, match="kitchen"):
                await bus.delete_queue(queue.name)
            with pytest.raises(NotAllowed, match="kitchen"):
                await queue.purge()
            with pytest.raises(NotAllowed, match="kitchen"):
                await bus.create_alias("work", queue.name)

    run(work())


# -- transactions


def test_a_transaction_puts_here_and_elsewhere_or_not_at_all(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, _):
            there = await kitchen.create_queue("jobs")
            here = await bus.create_queue("done")
            jobs = await bus.queue("jobs")
            async with bus.transaction() as tx:
                await tx.put(jobs, "job", n=1)
                await tx.put(here, "done", n=1)
                await tx.rollback()
            async with bus.transaction() as tx:
                await tx.put(jobs, "job", n=2)
                await tx.put("jobs@kitchen", "job", n=3)
                await tx.put(here, "done", n=2)
            assert [(await there.get(timeout_s=60))["n"] for _ in range(2)] == [2, 3]
            assert [message["n"] for message in await here.get_all()] == [2]
            with pytest.raises(QueueError, match=r"jobs@kitchen.*transaction"):
                async with bus.transaction() as tx:
                    await tx.get(jobs)

    run(work())


def test_a_transaction_of_one_put_is_told_what_the_other_node_says(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, _):
            await kitchen.create_queue("jobs", max_messages=1)
            jobs = await bus.queue("jobs")
            await jobs.put("job", n=1)
            with pytest.raises(QueueFull, match="jobs@kitchen"):
                async with bus.transaction() as tx:
                    await tx.put(jobs, "job", n=2)
            with pytest.raises(QueueFull, match="jobs@kitchen"):
                await jobs.put("job", n=3, body=bytes(3 << 20))
            assert [message["n"] for message in await jobs.get_all()] == [1]

    run(work())


# -- nodes that go and come back


@pytest.fixture
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a node that is away."""
    monkeypatch.setattr(peer_client, "AWAY_S", 0.2)


@pytest.mark.usefixtures("_brief")
def test_what_is_put_for_a_node_that_is_away_is_there_when_it_is_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with home_at(tmp_path, keeps=True) as home, tidings.connect(home) as bus:
            async with node_at(tmp_path, "kitchen", keeps=True) as address, tidings.connect(address) as there:
                await there.create_queue("jobs", text="what is to be done")
                await wait_peer(bus)
                jobs = await bus.queue("jobs")
                await jobs.put("job", n=1)
            await wait_peer(bus, state="away")
            assert (await jobs.describe()).is_away
            assert jobs.description.text == "what is to be done"
            unknown = await bus.queue("letters@kitchen")
            assert (unknown.description.is_away, unknown.name) == (True, "letters@kitchen")
            await jobs.put_all([Event("job", n=2), Event("job", n=3)])
            with pytest.raises(Disconnected, match="node kitchen is away"):
                await jobs.get(timeout_s=0)
            with pytest.raises(QueueNotFound, match=r"away: .*kitchen"):
                await bus.queue("jobs")
            getting = asyncio.create_task(jobs.get(timeout_s=20))
            async with node_at(tmp_path, "kitchen", keeps=True) as address, tidings.connect(address) as there:
                assert (await getting)["n"] == 1
                queue = await there.queue("jobs")
                assert [(await queue.get(timeout_s=20))["n"] for _ in range(2)] == [2, 3]

    run(work())


@pytest.mark.usefixtures("_brief")
def test_a_loop_goes_on_when_the_other_node_is_started_anew_and_nothing_is_lost(tmp_path: Path) -> None:
    count = 60

    async def work() -> None:
        got: list[int] = []
        async with home_at(tmp_path) as home, tidings.connect(home) as bus:
            async with node_at(tmp_path, "kitchen", keeps=True) as address, tidings.connect(address) as there:
                made = await there.create_queue("jobs")
                await made.put_all(Event("job", n=n) for n in range(count))
                await wait_peer(bus)
                messages = (await bus.queue("jobs")).messages(prefetch=5)
                while len(got) < count // 3:
                    got.append((await anext(messages))["n"])
            while len(got) < count // 3 + 2:  # what was fetched is in hands
                got.append((await anext(messages))["n"])
            async with node_at(tmp_path, "kitchen", keeps=True):
                while set(got) < set(range(count)):
                    got.append((await anext(messages))["n"])
                await messages.aclose()
        again = len(got) - count
        assert again <= 10  # what was in hands may come again, and nothing else

    run(work())


def test_a_message_that_was_taken_back_meanwhile_is_not_held(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (bus, kitchen, _):
            made = await kitchen.create_queue("jobs", redelivery_s=0.05)
            await made.put("job", n=1)
            jobs = await bus.queue("jobs")
            taking = jobs.take()
            message = await taking.__aenter__()
            assert (await made.get(timeout_s=20)).deliveries == 2
            with pytest.raises(MessageNotHeld, match="jobs@kitchen"):
                await message.acknowledge()

    run(work())


def test_a_node_that_goes_gives_back_what_its_clients_held(tmp_path: Path) -> None:
    async def work() -> None:
        async with node_at(tmp_path, "kitchen") as address, tidings.connect(address) as kitchen:
            made = await kitchen.create_queue("jobs")
            await made.put("job", n=1)
            async with home_at(tmp_path) as home, tidings.connect(home) as bus:
                await wait_peer(bus)
                await (await bus.queue("jobs")).take().__aenter__()
                with pytest.raises(QueueEmpty):
                    await made.get(timeout_s=0)
            assert (await made.get(timeout_s=20))["n"] == 1

    run(work())


# -- nodes that know each other


def test_an_answer_goes_to_a_queue_of_the_node_that_asked(tmp_path: Path) -> None:
    async def work() -> None:
        kitchen = f"kitchen={address_of(tmp_path, 'kitchen')}"
        async with (
            node_at(tmp_path, "home", peers=kitchen) as home,
            node_at(tmp_path, "kitchen", peers=f"home={home}") as there,
            tidings.connect(home) as asker,
            tidings.connect(there) as worker,
        ):
            answers = await asker.create_queue("answers")
            made = await worker.create_queue("jobs")
            await wait_peer(asker, "kitchen")
            await wait_peer(worker, "home")
            jobs = await asker.queue("jobs")
            await jobs.put("question", n=6, reply_to="answers@home", correlation_id="7")
            async with made.take(timeout_s=20) as message:
                await worker.reply(message, "answer", n=7 * message["n"])
            answer = await answers.get(timeout_s=20)
            assert (answer["n"], answer.correlation_id) == (42, "7")

    run(work())


# -- a node in this process


def test_a_node_in_this_process_has_peers_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with node_at(tmp_path, "kitchen") as address, tidings.connect(address) as kitchen:
            await kitchen.create_queue("jobs")
            async with tidings.open(tmp_path / "store", peers={"kitchen": address}) as bus:
                await wait_peer(bus)
                jobs = await bus.queue("jobs")
                await jobs.put("job", n=1)
                assert (await jobs.get(timeout_s=20))["n"] == 1

    run(work())


@pytest.mark.parametrize("peers", [{"the kitchen": "tidings://h"}, {"kitchen": "http://h"}])
def test_peers_that_cannot_be_are_refused(peers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="kitchen"):
        tidings.open(peers=peers)


# -- without await


def test_queues_elsewhere_are_used_without_await(tmp_path: Path) -> None:
    async def work() -> None:
        async with neighbours(tmp_path) as (_, kitchen, _):
            await kitchen.create_queue("jobs")
            await asyncio.to_thread(use_blocking, address_of(tmp_path, "home"))

    run(work())


def use_blocking(address: str) -> None:
    with tidings.blocking.connect(address) as bus:
        assert [one.node for one in bus.lookup("jobs", scope="both")] == ["kitchen"]
        queue = bus.queue("jobs")
        assert repr(queue) == "<Queue 'jobs@kitchen'>"
        queue.put("job", n=1)
        with queue.take() as message:
            assert message["n"] == 1
        with pytest.raises(QueueEmpty, match="jobs@kitchen"):
            queue.get(timeout_s=0)
