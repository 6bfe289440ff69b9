"""A rolling restart of five real nodes while events are published at all of them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from guarantees.peered import run_within
from node.peers import running

from benchmarks.overlay_rolling import NODES, RollingCheck, RollingNodes, checked, restart_all
from benchmarks.overlay_rolling import running as all_running

RATE = 100.0
"""Events a second, of all publishers together."""


class NodesInLoop(RollingNodes):
    """Nodes in the loop of the test, with their own sockets and directories; processes take long to start."""

    async def start(self, number: int) -> None:
        stack = AsyncExitStack()
        await stack.enter_async_context(running(**self.settings(number)))
        self._running[number] = stack  # type: ignore[assignment]

    async def stop(self, number: int) -> None:
        await self._running.pop(number).aclose()  # type: ignore[attr-defined]


def test_a_rolling_restart_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    nodes = NodesInLoop(tmp_path, has_compiled=False)
    checks: list[RollingCheck] = []

    async def work() -> None:
        async with all_running(nodes), checked(nodes, RATE) as check:
            checks.append(check)
            await restart_all(nodes)

    def story() -> str:
        return str([(check.sent, check.problems()) for check in checks])

    run_within(work(), story)
    (check,) = checks
    assert check.problems() == []
    assert check.sent > NODES
