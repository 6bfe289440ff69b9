"""A store that was put back from an old copy, as the node and its clients notice it."""

from __future__ import annotations

import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from node.peers import run, running

import tidings
from tidings.protocol.connection import OLDER


def test_an_old_copy_of_the_store_is_noticed_by_node_and_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, copy = tmp_path / "node", tmp_path / "copy"
    settings = {"dir": str(home), "unix": str(tmp_path / "socket"), "port": None, "log_seal_s": 0}
    address = f"tidings+unix://{tmp_path}/socket"

    async def scenario() -> None:
        async with running(**settings):
            pass
        shutil.copytree(home, copy)
        nodes = AsyncExitStack()
        await nodes.enter_async_context(running(**settings))
        async with (
            tidings.connect(address, random=lambda: 0.0) as bus,
            bus.subscribe(durable="all") as subscription,
        ):
            for n in (1, 2):
                await bus.publish("job", n=n, delivery="reliable")
                assert (await anext(subscription))["n"] == n
            await nodes.aclose()
            shutil.rmtree(home)
            copy.rename(home)
            async with running(**settings) as node:
                await bus.publish("job", n=3, delivery="reliable")
                node.driver._look_for_older()
                assert node.driver.broker.tallies["clients_ahead", ""] == 1
                assert [gap.reason for gap in subscription.gaps] == [OLDER]

    with caplog.at_level(logging.WARNING):
        run(scenario())
    lines = [one.getMessage() for one in caplog.records]
    assert lines.count("the store is older than what clients know") == 1
    assert sum("is an older copy" in line for line in lines) == 1
