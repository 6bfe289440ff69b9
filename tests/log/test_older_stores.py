"""The store of a node from before there were records: its sinks, readers, subscriptions and queues go on."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from protocol.rig import event
from queues.rig import Client, numbers, pass_time

from scripts.make_node_fixture import FOLDER, LEASE_S, DiskRig, write
from tidings.protocol.archive import TERMS
from tidings.store.interface import Drop
from tidings.store.records import FORMAT

FORMATS = range(2, FORMAT + 1)


@pytest.fixture(params=FORMATS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DiskRig]:
    """A node that goes on with a store that was written in a format."""
    file = FOLDER / f"node-{request.param}.db.xz"
    home = tmp_path / "node"
    home.mkdir()
    (home / "tidings.db").write_bytes(lzma.decompress(file.read_bytes()))
    rig = DiskRig(home)
    with closing(rig.store):
        yield rig


def spark(rig: DiskRig) -> Client:
    return Client(rig, "spark", "bob/spark", "bob")


def reader(rig: DiskRig) -> Client:
    return Client(rig, "reader", "bob", "bob")


def commit(client: Client, batch: int | None, run: str, query: str = "q", **attempts: int) -> Any:
    return client.ask("sink.commit", sink="s", run=run, batch=batch, attempts=attempts, query=query)


def test_there_is_a_store_of_every_format_since_then(tmp_path: Path) -> None:
    found = {path.name for path in FOLDER.glob("node-*.db.xz")}
    assert found == {f"node-{number}.db.xz" for number in FORMATS}
    assert write(tmp_path).name == f"node-{FORMAT}.db.xz"


def test_what_sinks_have_published_is_not_published_again(rig: DiskRig) -> None:
    client = spark(rig)
    repeated = {"published": 0, "repeated": True}
    assert (
        commit(client, 3, "r3") == commit(client, None, "once") == commit(client, None, "twice") == repeated
    )
    assert client.fails("sink.commit", sink="s", run="x", batch=3, query="other").code == "passed"
    assert commit(client, None, "thrice") == {"published": 0, "repeated": False}


def test_rows_that_were_staged_are_published_at_their_commit(rig: DiskRig) -> None:
    assert commit(spark(rig), 4, "waits", a=1) == {"published": 1, "repeated": False}


def test_readers_and_what_is_kept_go_on_until_their_leases_end(rig: DiskRig) -> None:
    client = spark(rig)
    told = {one["name"]: one for one in client.ask("log.status")["readers"]}
    assert set(told) == {"query", "kept"}
    assert [told["query"][name] for name in ("cursor", "holds", "passive", "lease_s")] == [
        1,
        True,
        False,
        LEASE_S,
    ]
    assert [told["kept"][name] for name in ("holds", "passive", "lease_s")] == [False, True, None]
    assert client.ask("log.reader", name="stopped", where="n > 0", resume=True)["end"] > 0
    end = client.ask("log.status")["end"]
    client.peer.publish(event(1, "kept", n=-1), event(2, "other", n=-1))
    rig.run()
    assert client.ask("log.status")["end"] == end + 1
    pass_time(rig, LEASE_S)
    assert {one["name"] for one in client.ask("log.status")["readers"]} == {"stopped", "kept"}


def test_an_archive_that_has_lost_its_place_or_its_terms_is_forgotten(rig: DiskRig, tmp_path: Path) -> None:
    rig.run()
    rig.store.commit([TERMS.drop(("bob/spark", "kept")), Drop("stopped", "bob/spark")])
    rig.store.close()
    again = DiskRig(tmp_path / "node")
    again.run()
    assert {one.name for one in again.broker.cursors.named} == {"query", "all", "news"}
    again.store.close()
    last = DiskRig(tmp_path / "node")
    assert {one.name for one in last.store.state.durables} == {"query", "all", "news"}
    assert set(TERMS.known(last.store.state)) == {("bob/spark", "query")}
    last.store.close()


def test_durable_subscriptions_get_what_they_have_not_acknowledged(rig: DiskRig) -> None:
    client = reader(rig)
    client.peer.subscribe(1, "n > 0", durable="all")
    assert client.peer.positions()[0] == 2
    client.peer.subscribe(2, "n > 100", durable="news", order="newest", passive=True)


def test_what_waits_for_another_node_goes_on_with_its_sweep(rig: DiskRig) -> None:
    outgoing = rig.core.transmission.outgoing("far", "jobs")
    assert (outgoing.node, outgoing.sweep) == ("far-node", 1_000_000_008)
    assert outgoing.queue.description.properties == {}


def test_messages_wait_in_their_queues(rig: DiskRig) -> None:
    assert numbers(reader(rig).get("jobs", count=2)) == [1, 2]
