"""Real nodes beside the tests of the pipeline: each in a thread of its own, reached over TCP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from effort import ANSWER_S

from tidings import Event, blocking
from tidings.client.runner import Runner
from tidings.node.config import NodeConfig
from tidings.node.server import Node

PATIENCE_S = ANSWER_S
"""After this a test that waits for something is taken to wait for ever."""
LOOK_S = 0.02


class Running:
    """A node that runs beside the test."""

    def __init__(self, node: Node, runner: Runner) -> None:
        self.node = node
        self._runner = runner

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.node.addresses[0].rpartition("//")[2]

    @property
    def readers(self) -> list[dict[str, Any]]:
        """Who reads the log."""
        with blocking.connect(f"tidings://{self.address}") as bus:
            readers: list[dict[str, Any]] = bus.log.status()["readers"]
            return readers

    def reload(self) -> None:
        """Read the security directory again."""

        async def reload() -> None:
            self.node.reload()

        self._runner.run(reload())

    def publish(self, *events: Event) -> None:
        with blocking.connect(f"tidings://{self.address}") as bus:
            bus.publish_all(events)


@contextmanager
def running(home: Path | None, port: int = 0, **settings: Any) -> Iterator[Running]:
    """A node with that directory, or one that keeps nothing, for as long as the block lasts."""
    directory = None if home is None else str(home)
    runner = Runner()
    node = Node(NodeConfig(dir=directory, port=port, compiled=False, **settings))
    runner.run(node.start())
    try:
        yield Running(node, runner)
    finally:
        runner.run(node.close())
        runner.stop()


def reading(value: float, number: int = 0, **fields: Any) -> Event:
    """An event that the log keeps."""
    return Event("air.pm10", {"value": value, "number": number}, delivery="persistent", **fields)


def wait_until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; one that never comes fails the test."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(LOOK_S)
