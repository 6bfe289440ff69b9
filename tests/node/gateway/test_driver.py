"""A gateway that starts while its node is away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest
from ports import free_port

from tidings.node.gateway import driver
from tidings.node.gateway.config import GatewayConfig


def test_a_gateway_logs_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "WAIT_LOGGED_S", 0.0)
    address = f"tidings://127.0.0.1:{free_port()}"

    async def start() -> None:
        starting = asyncio.ensure_future(driver.Server(GatewayConfig(node=address, port=0)).start())
        while not caplog.records:
            await asyncio.sleep(0)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting

    with caplog.at_level(logging.WARNING, "tidings.node"):
        asyncio.run(start())
    (record,) = caplog.records
    assert record.getMessage() == "the gateway waits for its node"
