"""The driver of a connection: who waits for what."""

from __future__ import annotations

import asyncio

from effort import ANSWER_S

import tidings


def test_who_waits_for_an_earlier_counter_does_not_wait_for_later_ones() -> None:
    async def work() -> None:
        async with tidings.open() as bus, asyncio.timeout(ANSWER_S):
            link, last = bus._link, bus._core.publications.last
            later = asyncio.create_task(link.wait_accepted(last + 2, None))
            await asyncio.sleep(0)
            await bus.publish("air", delivery="persistent")
            assert not later.done()
            await bus.publish("air", delivery="persistent")
            await later

    asyncio.run(work())
