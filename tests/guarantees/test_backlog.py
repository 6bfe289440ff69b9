"""A durable subscriber that comes back to many stored events: served at its own pace, slowing nobody."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

from effort import IS_SOAK

import tidings
from tidings import Event
from tidings.event.wire import encode_events
from tidings.store.interface import Append, Durable, PutCursor, StoredBatch
from tidings.store.sqlite import SqliteStore

BACKLOG = 1_000_000 if IS_SOAK else 100_000
BATCH = 1_000
OTHERS = 2_000


def test_a_large_backlog_comes_at_the_readers_own_pace_and_slows_nobody(tmp_path: Path) -> None:
    fill(tmp_path)
    asyncio.run(scenario(tmp_path))


def fill(directory: Path) -> None:
    """Store events for a subscriber that is away, as a node would have."""
    raw = encode_events([Event("old", n=n, delivery="reliable") for n in range(BATCH)])
    firsts = range(1, BACKLOG, BATCH)
    batches = (StoredBatch(first, BATCH, "pub", 1, None, 1, False, raw) for first in firsts)
    store = SqliteStore(directory)
    store.commit([PutCursor(Durable("reader", "", "type = 'old'", 0, 0))])
    while part := [Append(batch) for batch in islice(batches, 100)]:
        store.commit(part)
    store.close()


async def scenario(directory: Path) -> None:
    async with tidings.open(directory) as bus, bus.subscribe("type = 'new'") as news:
        async with bus.subscribe("type = 'old'", durable="reader", prefetch=1_000) as old:
            assert (await anext(old))["n"] == 0
            # The reader pauses; others publish and get all of theirs meanwhile, stored events too.
            for n in range(OTHERS):
                await bus.publish("new", n=n, delivery="reliable" if n % 100 == 0 else "transient")
            assert [(await anext(news))["n"] for _ in range(OTHERS)] == list(range(OTHERS))
            durable = (await bus.status())["durables"][0]
            assert durable["depth"] > BACKLOG * 0.9
            count = 1
            while count < BACKLOG:
                part = await old.take()
                assert [event["n"] for event in part] == [(count + n) % BATCH for n in range(len(part))]
                count += len(part)
        assert (await bus.status())["durables"][0]["depth"] == 0
