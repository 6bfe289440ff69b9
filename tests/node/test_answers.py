"""Requests and answers at a node with security, by real clients: nobody answers for another."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from node.peers import Run, running
from node.secured import PASSWORD, TOKEN, Secured
from node.test_tls import at

import tidings
from tidings import Event
from tidings.errors import NotAllowed
from tidings.node.server import Node

ACCESS = """
[[allow]]
users = ["ada", "bob"]
actions = ["publish", "subscribe", "put", "get", "manage"]

[[allow]]
users = ["device"]
actions = ["publish"]
where = "type = 'sum'"
"""


def users(secured: Secured, node: Node) -> tuple[Any, Any, Any]:
    """Connections of ada who asks, bob who may answer, and a device that may publish sums."""
    place = at(node)
    return (
        tidings.connect(place, user="ada", password=PASSWORD, ca=secured.ca),
        tidings.connect(place, **secured.client("bob")),
        tidings.connect(place, token=TOKEN, ca=secured.ca),
    )


def test_who_knows_inbox_and_correlation_but_was_not_asked_can_not_answer(
    on_loop: Run, secured: Secured, tmp_path: Path
) -> None:
    secured.write_access(ACCESS)

    async def scenario() -> None:
        async with running(dir=str(tmp_path / "data"), security=str(secured.path), port=0) as node:
            ada, bob, eve = users(secured, node)
            async with ada, bob, eve, bob.subscribe("type = 'add'") as requests:
                asking = asyncio.ensure_future(ada.request("add", a=20, b=22, timeout_s=30))
                request = await anext(requests)
                forged = Event(
                    "sum", value=666, subject=request.reply_to, correlation_id=request.correlation_id,
                    delivery="reliable",
                )  # fmt: skip
                with pytest.raises(NotAllowed, match="only what was delivered to it"):
                    await eve.publish(forged)
                await bob.reply(request, "sum", value=42)
                assert (await asking)["value"] == 42

    on_loop(scenario())


def test_a_request_in_a_queue_is_answered_by_who_gets_it(
    on_loop: Run, secured: Secured, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "data"), security=str(secured.path), port=0) as node:
            ada, bob, eve = users(secured, node)
            async with ada, bob, eve:
                queue = await ada.create_queue("jobs")
                asking = asyncio.ensure_future(queue.request("add", a=20, b=22, timeout_s=30))
                async with (await bob.queue("jobs")).take(timeout_s=30) as message:
                    with pytest.raises(NotAllowed):
                        await eve.reply(message, Event("sum", value=666, delivery="reliable"))
                    await bob.reply(message, "sum", value=42)
                assert (await asking)["value"] == 42

    on_loop(scenario())


def test_nobody_can_guess_inboxes_or_requests(on_loop: Run) -> None:
    async def scenario() -> None:
        async with tidings.open() as bus, bus.subscribe("type = 'add'") as requests:
            seen = []
            for _ in range(2):
                asking = asyncio.ensure_future(bus.request("add", timeout_s=30))
                seen.append(await anext(requests))
                await bus.reply(seen[-1], "sum")
                await asking
            assert seen[0].reply_to == seen[1].reply_to
            assert seen[0].correlation_id != seen[1].correlation_id
            for request in seen:
                assert re.fullmatch(r"inbox\..+\.[0-9a-f]{32}", request.reply_to or "")
                assert re.fullmatch(r"[0-9a-f]{32}", request.correlation_id or "")

    on_loop(scenario())
