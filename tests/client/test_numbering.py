"""How a bus numbers what it publishes: with the clock or without it, and never the same twice."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import tidings
from client.nodes import node, run
from tidings.client.numbering import kept_ids
from tidings.errors import ConfigError, UserError
from tidings.ids import StoredIds, parse_id


async def identity(address: str, **options: Any) -> tuple[str, int, int]:
    """The parts of the id of an event that is put by a bus with these options."""
    async with tidings.connect(address, **options) as bus:
        queue = await bus.create_queue("jobs")
        await queue.put("job")
        parts = parse_id((await queue.get()).id)
    assert parts is not None
    return parts


def test_by_the_clock_an_id_has_the_time_of_the_start(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            before = time.time()
            _, epoch, counter = await identity(address)
            assert before * 1e6 - 1 <= epoch <= time.time() * 1e6
            assert counter == 1

    run(work())


def test_without_the_clock_ids_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidings.client import numbering

    def broken() -> float:
        raise AssertionError("the clock was asked")

    async def work() -> None:
        async with node(tmp_path) as address:
            with monkeypatch.context() as patch:
                patch.setattr(numbering.time, "time", broken)
                chosen = [numbering.ids_of(one) for one in ("random", tmp_path / "ids", StoredIds("s", 7))]
            systems = [await identity(address, ids=ids) for ids in chosen]
            assert [epoch for _, epoch, _ in systems] == [0, 1, 7]
            assert systems[2] == ("s", 7, 1)
            assert (await identity(address, ids="random"))[0] != systems[0][0]
        async with tidings.open(ids=StoredIds("own", 3)) as bus:
            await bus.create_queue("jobs")
            await (await bus.queue("jobs")).put("job")
            assert parse_id((await (await bus.queue("jobs")).get()).id) == ("own", 3, 1)

    run(work())


def test_each_start_counts_the_epoch_in_the_file_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            path = tmp_path / "ids"
            parts = [await identity(address, ids=path) for _ in range(3)]
            assert len({system for system, _, _ in parts}) == 1
            assert [(epoch, counter) for _, epoch, counter in parts] == [(1, 1), (2, 1), (3, 1)]

    run(work())


@pytest.mark.parametrize(
    "content",
    [b"nonsense", b"s -5\n", b"s x\n", b"\xff\xff 1", b"a b c", b"x" * 1_000, b"s" + b" " * 300 + b"1"],
)
def test_a_file_that_holds_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "ids"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="holds no system and epoch"):
        kept_ids(path)
    assert path.read_bytes() == content


def test_a_file_that_somebody_has_written_is_counted_up_too(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_text(f"quay-7{' ' * 40}2\n\n")
    assert [kept_ids(path).origin.epoch for _ in range(3)] == [3, 4, 5]


def test_a_file_that_can_not_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        kept_ids(tmp_path / "nowhere" / "ids")


@pytest.mark.parametrize("ids", ["counter", None, 5, object()])
def test_what_numbers_nothing_is_refused(ids: Any) -> None:
    with pytest.raises(UserError, match="'clock', 'random', a Path"):
        tidings.connect("tidings://127.0.0.1:1", ids=ids)


def test_an_epoch_that_was_used_before_is_refused_and_nothing_is_taken_for_had(tmp_path: Path) -> None:
    async def work() -> None:
        async with node(tmp_path) as address:
            await identity(address, ids=StoredIds("device", 1))
            with pytest.raises(UserError, match="epoch 1 of system 'device' were given out before"):
                async with tidings.connect(address, ids=StoredIds("device", 1)):
                    pass
            assert await identity(address, ids=StoredIds("device", 2)) == ("device", 2, 1)

    run(work())
