"""Which modules a message passes on a real node: a node pays for nothing that it does not use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from node.peers import run

import tidings
from tidings import Event
from tidings.node.config import NodeConfig
from tidings.node.server import Node


@contextmanager
def called() -> Iterator[set[str]]:
    """The modules of tidings in which anything is called meanwhile, as `package/module`."""
    root = Path(tidings.__file__).parent
    seen: set[str] = set()
    modules: set[str] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(before)
        inside = [Path(name) for name in seen if Path(name).is_relative_to(root)]
        modules.update(str(path.relative_to(root).with_suffix("")) for path in inside)


def test_a_node_without_peers_runs_no_line_of_peers_on_put_and_get(tmp_path: Path) -> None:
    async def work() -> None:
        node = Node(NodeConfig(compiled=False, dir=str(tmp_path / "node"), unix=str(tmp_path / "node.sock")))
        await node.start()
        try:
            async with tidings.connect(node.addresses[0]) as bus:
                await bus.create_queue("jobs")
                queue = await bus.queue("jobs")
                with called() as modules:
                    await queue.put_all([Event("job", {"n": n}) for n in range(3)])
                    for n in range(3):
                        assert (await queue.get()).event["n"] == n
        finally:
            await node.close()
        assert {"queues/service", "queues/local", "queues/queue", "protocol/session"} <= modules
        assert [one for one in modules if one.startswith(("peers/", "postgres/"))] == []

    run(work())
