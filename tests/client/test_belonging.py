"""A bus belongs to one process, thread and event loop; elsewhere its calls say so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from effort import ANSWER_S

import tidings
from client.nodes import run
from tidings.client import Bus, Queue
from tidings.errors import UserError

CONNECT_AGAIN = "belongs to the process that has forked this one: connect again here"

Call = Callable[[Bus, Queue], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "publish": lambda bus, _: bus.publish("t"),
    "publish reliably": lambda bus, _: bus.publish("t", delivery="reliable"),
    "publish_all": lambda bus, _: bus.publish_all([tidings.Event("t")]),
    "subscribe": lambda bus, _: bus.subscribe().__aenter__(),
    "advertise": lambda bus, _: bus.advertise().__aenter__(),
    "request": lambda bus, _: bus.request("t"),
    "status": lambda bus, _: bus.status(),
    "put": lambda _, queue: queue.put("t"),
    "get": lambda _, queue: queue.get(timeout_s=0),
    "messages": lambda _, queue: anext(queue.messages()),
    "transaction": lambda bus, _: bus.transaction().__aenter__(),
    "exit": lambda bus, _: bus.__aexit__(None, None, None),
}

FORKED = """
import asyncio, os, sys
import tidings

async def work():
    async with tidings.open() as bus:
        queue = await bus.create_queue("jobs")
        await bus.publish("t")  # so that something is not sent yet
        if os.fork():
            os.wait()
            await queue.put("job", n=1)
            print((await queue.describe()).messages, bus)
            return
        for call in bus.publish("t"), bus.status(), queue.put("job"), queue.get():
            try:
                call.send(None)
            except tidings.errors.UserError as error:
                print(error)
        sys.stdout.flush()
        os._exit(0)

asyncio.run(work())
"""

FORKED_BLOCKING = """
import os, sys
import tidings

with tidings.blocking.open() as bus:
    queue = bus.create_queue("jobs")
    if not os.fork():
        try:
            queue.put("job")
        except tidings.errors.UserError as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    queue.put("job")
    print(queue.describe().messages)
"""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_another_loop_or_thread_says_where_the_bus_belongs(name: str) -> None:
    async def call(bus: Bus, queue: Queue) -> str:
        with pytest.raises(UserError) as caught:
            await CALLS[name](bus, queue)
        return str(caught.value)

    said: list[str] = []

    async def work() -> tuple[Bus, Queue]:
        bus = await tidings.open().__aenter__()
        queue = await bus.create_queue("jobs")
        thread = threading.Thread(target=lambda: said.append(asyncio.run(call(bus, queue))))
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0)
        return bus, queue

    with asyncio.Runner() as runner, asyncio.Runner() as other:
        bus, queue = runner.run(work())
        said.append(other.run(call(bus, queue)))
        runner.run(bus.__aexit__(None, None, None))
    assert said[0].startswith("the bus to the node in this process belongs to another thread: ")
    assert said[1].startswith("the bus to the node in this process belongs to another event loop: ")


def run_script(script: str) -> list[str]:
    """Run a program of its own, as one that has forked should not go on with the tests."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_call_after_a_fork_says_to_connect_again() -> None:
    *errors, last = run_script(FORKED)
    assert len(errors) == 4
    assert all(error.endswith(CONNECT_AGAIN) for error in errors)
    assert last == "1 <Bus to the node in this process, connected>"


def test_a_blocking_call_after_a_fork_says_the_same() -> None:
    error, last = run_script(FORKED_BLOCKING)
    assert error.endswith(CONNECT_AGAIN)
    assert last == "1"


def test_a_bus_shows_its_name_its_node_and_its_state() -> None:
    async def work() -> None:
        bus = tidings.open(name="ann")
        assert repr(bus) == "<Bus 'ann' to the node in this process, not entered>"
        async with bus:
            assert repr(bus) == "<Bus 'ann' to the node in this process, connected>"
        assert repr(bus) == "<Bus 'ann' to the node in this process, closed>"

    run(work())
    assert repr(tidings.connect("tidings://h:7")) == "<Bus to tidings://h:7, not entered>"
    with tidings.blocking.open() as bus:
        assert "connected" in repr(bus)


def test_a_bus_that_is_not_closed_warns_by_name() -> None:
    async def work() -> None:
        buses = [await tidings.open(name="ann").__aenter__()]
        link, held = buses[0]._link, buses[0]._held
        with pytest.warns(ResourceWarning, match="unclosed <Bus 'ann' to the node in this process"):
            buses.clear()
        await link.close()
        await held.aclose()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with tidings.open() as closed:
                pass
            del closed
            tidings.open()

    run(work())
