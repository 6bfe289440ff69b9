"""What a node carries is in a queue: stored, restored and looked into as queues are."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from adhoc.nodes import Hosts
from queues.rig import Client

from scripts.make_adhoc_fixture import LONG, AdhocRig, live
from scripts.make_node_fixture import FOLDER
from tidings.adhoc.carried_events import unpack
from tidings.adhoc.records import PARTS
from tidings.errors import TidingsError
from tidings.event.wire import decode_event
from tidings.ids import ForwardedOrigin
from tidings.queues.description import CARRIED


@pytest.fixture(params=["records", "queue"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AdhocRig]:
    """A node that goes on with what it has stored, or an earlier tidings, whose messages were records."""
    home = tmp_path / "node"
    if request.param == "queue":
        before = AdhocRig(home)
        live(before)
        before.store.close()
    else:
        home.mkdir()
        old = (FOLDER / "adhoc-records.db.xz").read_bytes()
        (home / "tidings.db").write_bytes(lzma.decompress(old))
    rig = AdhocRig(home, now=2_000.0)
    with closing(rig.store):
        yield rig


def carried(rig: AdhocRig) -> list[dict[str, Any]]:
    """What is carried for queues, oldest first."""
    buffer = rig.service.buffer
    raws = [buffer.raw_of(one) for one in buffer if one.message.destination.startswith("queue:")]
    return [decode_event(unpack(raw).raw) for raw in raws]


def test_what_was_carried_is_carried_on_whatever_it_was_stored_as(rig: AdhocRig) -> None:
    assert [event["n"] for event in carried(rig)] == [2, 3, 5]
    assert carried(rig)[0].body == LONG
    host = rig.service.host
    lives = [(one.copies, one.hops, one.left_s(rig.now)) for one in host.buffer]
    assert [(copies, hops) for copies, hops, _ in lives] == [(1, 0), (1, 0), (1, 0), (3, 2)]
    assert lives[3][2] == 30 * 86_400.0 - 5.0 - 1_000.0
    assert host.tallies == {("dropped", "expired"): 1}
    assert [size for _, size in host.partial.begun] == [100_000]
    assert len(host.ring) == 2


def test_messages_are_in_the_queue_alone_once_they_were_taken_over(rig: AdhocRig) -> None:
    rig.run()
    assert PARTS.known(rig.store.state) == {}
    queue = rig.queues.find(CARRIED)
    assert len(queue.shelf) == len(rig.service.buffer) == 4
    rig.service.do(rig.service.host.wake(rig.now + 31 * 86_400.0))
    assert len(queue.shelf) == len(rig.service.buffer) == 0


def test_clients_read_what_is_carried_with_the_origin_of_its_first_host(rig: AdhocRig) -> None:
    ann = Client(rig, "other-app")
    queue = rig.queues.find(CARRIED)
    hands = ann.read(CARRIED, count=10)
    assert {hand.event.values.get("n") for hand in hands} == {2, 3, None, 5}
    assert (hands[-1].system, hands[-1].source) == ("elsewhere", "bob@other")
    assert all(isinstance(queue.shelf[number].origin, ForwardedOrigin) for number in queue.shelf)


def test_a_buffer_that_was_made_smaller_drops_the_least() -> None:
    hosts = Hosts("a")
    for n in range(5):
        hosts.put("a", "jobs@far", n=n, delivery="reliable" if n == 0 else "transient")
    size = hosts["a"].queues.find(CARRIED).bytes
    service = hosts["a"].core.adhoc
    queue = hosts["a"].queues.find(CARRIED)
    queue.description = queue.kind.description = type(queue.description)(
        **{**queue.description.wish, "max_bytes": size // 2}
    )
    gone = service.buffer.shrink()
    assert [one.id.counter for one in gone] == [2, 3, 4]
    assert hosts.held("a") == len(queue.shelf) == 2


def _line() -> Hosts:
    hosts = Hosts("a", "b", "c")
    hosts.create("c", "jobs")
    hosts.put("a", "jobs@c", n=1)
    return hosts


def test_nobody_takes_or_puts_what_is_carried_or_deletes_its_queue() -> None:
    hosts = _line()
    for operation, arguments in (
        ("get", {"queue": CARRIED, "action": "take", "count": 1}),
        ("queue.delete", {"queue": CARRIED}),
        ("queue.create", {"name": "mine", "type": "carried"}),
    ):
        assert isinstance(hosts.ask("a", operation, **arguments), TidingsError), operation
    (failure,) = hosts.put("a", CARRIED, n=2)
    assert failure.code == "not-allowed"
    assert hosts.held("a") == len(hosts["a"].queues.find(CARRIED).shelf) == 1


def test_what_a_client_purges_is_carried_no_more_and_counted() -> None:
    hosts = _line()
    hosts.ask("a", "queue.purge", queue=CARRIED)
    assert hosts.held("a") == 0
    assert hosts.tally("a", "dropped", "purged") == 1
    hosts.restart("a")
    hosts.meet("a", "c")
    assert hosts.got("c", "jobs") == []


def test_a_full_buffer_displaces_and_says_so() -> None:
    hosts = Hosts("a", buffer_bytes=1_500)
    for n in range(4):
        hosts.put("a", "jobs@far", n=n, priority=9 if n == 0 else 4)
    kept = hosts["a"].queues.find(CARRIED)
    assert [kept.shelf[number].event.values["n"] for number in kept.shelf] == [0, 2, 3]
    assert hosts.tally("a", "dropped", "displaced") == 1
    assert hosts.held("a") == 3
    hosts.restart("a")
    assert hosts.held("a") == 3
