"""Messages that were got from a node which is killed right after that, or while someone has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from guarantees.mortal import MortalNode
from node.peers import Start, run

import tidings
from tidings import Event

COUNT = 100


@pytest.mark.parametrize("how", ["get", "get_all"])
def test_what_was_got_does_not_come_again_though_the_node_is_killed_at_once(
    start: Start, tmp_path: Path, how: str
) -> None:
    async def scenario() -> None:
        node = MortalNode(start, tmp_path)
        async with tidings.connect(await node.start()) as bus:
            queue = await bus.create_queue("jobs")
            await queue.put_all(Event("job", n=n) for n in range(COUNT))
            got = await queue.get_all() if how == "get_all" else [await queue.get() for _ in range(COUNT)]
            await node.kill()
            await node.start()
            async with tidings.connect(node.address) as other:
                about = await (await other.queue("jobs")).describe()
            assert (len(got), about.messages, about.in_flight) == (COUNT, 0, 0)

    run(scenario())


def test_a_message_whose_node_and_reader_are_killed_each_time_is_a_dead_letter_in_the_end(
    start: Start, tmp_path: Path
) -> None:
    async def scenario() -> None:
        node = MortalNode(start, tmp_path)
        async with tidings.connect(await node.start()) as bus:
            queue = await bus.create_queue("jobs", deliveries_max=2)
            await queue.put_all(Event("job", n=n) for n in range(2))
        for _ in range(3):  # the first of them is not counted
            async with tidings.connect(node.address, reconnect=False) as bus:
                taking = (await bus.queue("jobs")).take()
                assert (await taking.__aenter__())["n"] == 0
                await node.kill()
            await node.start()
        async with tidings.connect(node.address) as bus:
            (letter,) = await (await bus.queue("tidings.dead")).read_all()
            assert (letter["n"], letter["dead.deliveries"]) == (0, 2)
            assert (await (await bus.queue("jobs")).get())["n"] == 1

    run(scenario())
