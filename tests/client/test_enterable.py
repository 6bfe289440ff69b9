"""What is awaited or entered: it is a coroutine to asyncio, and a context to `async with`."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from tidings.client.enterable import Enterable, enterable

told: list[str] = []


class Room:
    def __init__(self, name: str) -> None:
        self.name = name

    async def __aenter__(self) -> Self:
        told.append(f"in {self.name}")
        return self

    async def __aexit__(self, *error: object) -> None:
        told.append(f"out of {self.name}")


@enterable
async def find(name: str) -> Room:
    """Find a room."""
    await asyncio.sleep(0)
    if name == "none":
        raise KeyError(name)
    return Room(name)


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


def test_it_is_entered_as_it_is_awaited_or_run_as_a_task() -> None:
    async def scenario() -> None:
        async with find("a") as entered:
            assert (entered.name, told) == ("a", ["in a"])
        async with await find("b") as entered:
            assert entered.name == "b"
        async with await asyncio.create_task(find("c")) as entered:
            assert entered.name == "c"
        async with await asyncio.wait_for(find("d"), 60) as entered:
            assert entered.name == "d"
        assert told[1::2] == [f"out of {name}" for name in "abcd"]

    asyncio.run(scenario())


def test_errors_go_through_the_block_and_come_from_the_request() -> None:
    async def scenario() -> None:
        with pytest.raises(KeyError):
            async with find("none"):
                pass
        with pytest.raises(ZeroDivisionError):
            async with find("a"):
                raise ZeroDivisionError
        assert told == ["in a", "out of a"]

    asyncio.run(scenario())


def test_it_has_the_name_of_its_function_and_can_be_closed() -> None:
    request = find("a")
    assert isinstance(request, Enterable)
    request.close()
    assert (find.__name__, find.__doc__, told) == ("find", "Find a room.", [])
