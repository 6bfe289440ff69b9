"""Messages that were got from a node which is killed right after that."""

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
