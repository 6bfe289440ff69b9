"""Events that a client may not publish: who waits is told so, and for the others it is counted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from node.secured import ACCESS, TOKEN, Secured

import tidings
from client.nodes import run
from client.test_credentials import node_of
from tidings import Event
from tidings.errors import NotAllowed

AIR_ONLY = ACCESS.replace('actions = ["publish"]', """actions = ["publish"]\nwhere = "type = 'air'\"""")


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    made = Secured(tmp_path)
    made.write_access(AIR_ONLY)
    return made


def test_who_waits_for_an_event_to_be_stored_is_told_that_it_may_not_be_published(secured: Secured) -> None:
    async def work() -> None:
        async with (
            node_of(secured) as node,
            tidings.connect(node.addresses[0], ca=secured.ca, token=TOKEN) as bus,
        ):
            await bus.publish("air", delivery="reliable")
            with pytest.raises(NotAllowed, match="'device' may not publish this"):
                await bus.publish("soil", delivery="reliable")
            with pytest.raises(NotAllowed):
                await bus.publish_all([Event(kind, delivery="reliable") for kind in ("air", "soil", "air")])
            assert bus.refused == 0

    run(work())


def test_transient_events_that_are_refused_are_counted_and_logged(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with (
            node_of(secured) as node,
            tidings.connect(node.addresses[0], ca=secured.ca, token=TOKEN) as bus,
        ):
            await bus.publish_all([Event(kind) for kind in ("air", "soil", "air", "soil", "soil")])
            await bus.publish("air", delivery="reliable")
            assert bus.refused == 3

    with caplog.at_level(logging.WARNING, "tidings"):
        run(work())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "tidings"]
    assert line == "the node refused 3 events: 'device' may not publish this"
