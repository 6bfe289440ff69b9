"""Queues as clients manage them: made, found, named and deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tidings
from client.nodes import node, run
from tidings import Event, Filter
from tidings.client import Bus
from tidings.errors import QueueError, QueueExists, QueueNotFound, UserError

Work = Callable[[Bus], Awaitable[None]]


def with_bus(work: Work) -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus)

    run(within())


def test_a_queue_is_made_once_and_found_by_all_its_names() -> None:
    async def work(bus: Bus) -> None:
        made = await bus.create_queue("jobs", properties={"paper": "A4"}, max_messages=5)
        same = await bus.create_queue("jobs", properties={"paper": "A4"}, max_messages=5)
        assert made.description == same.description
        await made.put("job", n=1)
        status = await bus.status()
        for name in ("jobs", made.description.id, f"jobs@{status['node']}"):
            assert (await (await bus.queue(name)).read())["n"] == 1
        assert repr(made) == "<Queue 'jobs'>"

    with_bus(work)


def test_another_description_is_told_with_the_difference() -> None:
    async def work(bus: Bus) -> None:
        await bus.create_queue("jobs", max_messages=5)
        with pytest.raises(QueueExists, match=r"'jobs'.*max_messages is 5, not 6"):
            await bus.create_queue("jobs", max_messages=6)

    with_bus(work)


def test_without_a_name_a_queue_is_called_by_its_id() -> None:
    async def work(bus: Bus) -> None:
        one, two = await bus.create_queue(), await bus.create_queue()
        assert one.name == one.description.id != two.name
        await one.put("job")
        assert await two.is_empty()
        assert not await (await bus.queue(one.name)).is_empty()

    with_bus(work)


def test_a_deleted_queue_is_gone() -> None:
    async def work(bus: Bus) -> None:
        await bus.create_queue("jobs")
        await bus.delete_queue("jobs")
        with pytest.raises(QueueNotFound, match="jobs"):
            await bus.queue("jobs")
        with pytest.raises(QueueNotFound, match="jobs"):
            await bus.delete_queue("jobs")

    with_bus(work)


def test_an_alias_is_another_name() -> None:
    async def work(bus: Bus) -> None:
        queue = await bus.create_queue("jobs")
        alias = await bus.create_alias("work", "jobs")
        await alias.put("job", n=1)
        assert alias.name == "work"
        assert (await queue.get())["n"] == 1
        with pytest.raises(QueueNotFound, match="nowhere"):
            await bus.create_alias("other", "nowhere")
        await bus.delete_queue("work")
        with pytest.raises(QueueNotFound):
            await bus.queue("work")
        assert await queue.is_empty()

    with_bus(work)


def test_queues_are_looked_up_by_what_is_said_about_them() -> None:
    async def work(bus: Bus) -> None:
        await bus.create_queue("one", properties={"paper": "A4", "color": True}, text="a printer")
        await bus.create_queue("two", properties={"paper": "A4", "color": False})
        await bus.create_queue("three")

        async def names(*asked: Any, **more: Any) -> set[str]:
            return {one.name for one in await bus.lookup(*asked, **more)}

        assert await names() >= {"one", "two", "three"}
        assert await names("two") == {"two"}
        assert await names(properties={"paper": "A4"}) == {"one", "two"}
        assert await names(properties={"paper": "A4", "color": True}) == {"one"}
        assert await names(text="printer") == {"one"}
        assert await names(name="nobody") == set()

    with_bus(work)


def test_queues_are_looked_up_by_how_they_work_and_by_their_ids() -> None:
    async def work(bus: Bus) -> None:
        one = await bus.create_queue("one", priorities=True, max_messages=5)
        await bus.create_queue("two", expiry=True, bind=Filter("value > :limit", limit=40))

        async def names(**fields: Any) -> set[str]:
            return {found.name for found in await bus.lookup(**fields)}

        assert await names(type="volatile", priorities=True) == {"one"}
        assert await names(expiry=True, persistent=False, keep=False) == {"two"}
        assert await names(max_messages=5, scope="both") == {"one"}
        assert await names(max_messages=None, text="") >= {"two"}
        assert await names(bind=Filter("value > 40")) == {"two"}
        assert await names(id=one.description.id) == {"one"}
        assert await names(name="two", priorities=True) == set()
        with pytest.raises(QueueError, match="no field 'colour'"):
            await names(colour="red")

    with_bus(work)


def test_a_node_that_passes_fields_over_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bus: Bus) -> None:
        await bus.create_queue("one", priorities=True)
        await bus.create_queue("two")
        assert [found.name for found in await bus.lookup(priorities=True)] == ["one"]

    monkeypatch.setattr("tidings.queues.arguments.read_fields", lambda _fields: {})  # as older ones do
    with_bus(work)


def test_what_is_no_scope_cannot_be_searched() -> None:
    async def work(bus: Bus) -> None:
        with pytest.raises(UserError, match="moon"):
            await bus.lookup(scope="moon")  # type: ignore[arg-type]

    with_bus(work)


def test_a_bound_queue_is_filled_by_publications() -> None:
    async def work(bus: Bus) -> None:
        queue = await bus.create_queue("high", bind=Filter("value > :limit", limit=40))
        await bus.publish("air.pm10", value=12)
        await bus.publish("air.pm10", value=41)
        assert (await queue.get(timeout_s=30))["value"] == 41
        assert await queue.is_empty()

    with_bus(work)


def test_dead_letters_go_back_where_they_came_from() -> None:
    async def work(bus: Bus) -> None:
        queue, other = await bus.create_queue("jobs"), await bus.create_queue("other")
        await queue.put_all(Event("job", n=n) for n in range(3))
        for _ in range(3):
            async with queue.take() as message:
                await message.reject("bad")
        assert await bus.replay_dead("n = 0") == 1
        assert await bus.replay_dead({"n": 1}, "other") == 1
        assert [message["n"] for message in await queue.get_all()] == [0]
        assert [message["n"] for message in await other.get_all()] == [1]
        assert await bus.replay_dead("n > 7") == 0

    with_bus(work)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": "many"}, "max_messages"),
        ({"redelivery_s": -1}, "redelivery_s"),
        ({"lease_s_max": -5, "expiry": True}, "lease_s_max"),
        ({"colour": "blue"}, "colour"),
        ({"properties": {"x": [1]}}, "properties"),
        ({"id": "mine"}, "id is set by the node"),
        ({"persistent": True}, "no directory"),
        ({"type": "round"}, "no type 'round'"),
    ],
)
def test_what_no_queue_can_be_is_refused_by_name(wish: dict[str, Any], said: str) -> None:
    async def work(bus: Bus) -> None:
        with pytest.raises(QueueError, match=f"'jobs'.*{said}"):
            await bus.create_queue("jobs", **wish)

    with_bus(work)


@pytest.mark.parametrize("name", ["", "x" * 600, 5, "a@b", " jobs"])
def test_what_is_no_name_is_refused(name: Any) -> None:
    async def work(bus: Bus) -> None:
        with pytest.raises(QueueError, match="name"):
            await bus.create_queue(name)

    with_bus(work)


def test_queues_and_their_messages_are_kept_where_the_node_keeps_anything(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            queue = await bus.create_queue("jobs")
            assert (queue.description.persistent, queue.description.keep) == (True, True)
            await queue.put("job", n=1)
            await bus.create_queue("light", persistent=False)
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            assert (await (await bus.queue("jobs")).get(timeout_s=0))["n"] == 1
            with pytest.raises(QueueNotFound, match="light"):
                await bus.queue("light")

    run(work())
