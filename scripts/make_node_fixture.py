#!/usr/bin/env python3
"""Write down the store of a node that has had a bit of everything, in the format that is in use.

    PYTHONPATH=tests python -m scripts.make_node_fixture [FOLDER]

makes `node-N.db.xz` in tests/store/formats. `make_format_fixture` has what a store holds; this has what the
services of a node have made of it, which a later tidings must go on with. A file that is there stays.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

from protocol.guarded import ALL, Book
from protocol.rig import READ_SIZE, Rig, event, persistent, reliable
from queues.rig import Client

from tidings.event.wire import encode_events
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.store.records import FORMAT
from tidings.store.sqlite import SqliteStore

FOLDER = Path(__file__).parents[1] / "tests" / "store" / "formats"
LEASE_S = 600.0


class DiskRig(Rig):
    """A node on a directory."""

    def __init__(self, home: Path, now: float = 1_000.0) -> None:
        self.store = SyncedStore(home)  # type: ignore[assignment]  # it has all that rigs ask of one
        self.now = now
        self.read_size = READ_SIZE
        self.core = NodeCore(self.store, CoreSettings(authenticator=Book(bob=ALL)), self.now, bytes)
        self.broker, self.queues = self.core.broker, self.core.queues
        self.peers = []
        self.commits = []
        self._mark = 0


class SyncedStore(SqliteStore):
    """A store whose commits are on disk when they are made."""

    def sync(self) -> None:
        """Have nothing left to do."""


def live(rig: DiskRig) -> None:
    """Let clients of all kinds come and go."""
    ann, bob = Client(rig, "spark", "bob/spark", "bob"), Client(rig, "reader", "bob", "bob")
    ann.ask("log.reader", name="query", where="n > 0", lease_s=LEASE_S, passive=False, start=None)
    ann.ask("log.passed", name="query", position=2)
    ann.ask("log.reader", name="stopped", where="n > 0", lease_s=LEASE_S, passive=True, start=None)
    ann.ask("log.leave", name="stopped", resumable=True)
    ann.ask("log.keep", name="kept", where="type = 'kept'")
    _subscribe(bob)
    bob.peer.publish(reliable(1, n=1), reliable(2, n=2), event(3, "kept", n=-3))
    rig.run()
    bob.peer.acknowledge(1, 1)
    bob.lose()
    for batch, run in ((3, "r3"), (None, "once"), (None, "twice")):
        _stage(ann, run, 10 + (batch or len(run)))
        ann.ask("sink.commit", sink="s", run=run, batch=batch, attempts={"a": 1}, query="q")
    _stage(ann, "waits", 20)
    bob.come()
    bob.create("jobs")
    bob.counter = 3
    bob.put("jobs", 1, 2)
    rig.run()
    outgoing = rig.core.transmission.outgoing("far", "jobs")
    outgoing.meet("far-node")
    outgoing.begin_sweep()
    rig.run()


def _subscribe(client: Client) -> None:
    client.peer.subscribe(1, "n > 0", durable="all")
    client.peer.subscribe(2, "n > 100", durable="news", order="newest", passive=True)


def _stage(client: Client, run: str, n: int) -> Any:
    raw = encode_events([persistent(n, n=n)])
    return client.ask("sink.stage", sink="s", run=run, attempt="a", number=0, raw=raw)


def write(folder: Path) -> Path:
    """Write the store for the format in use; FileExistsError if it is there."""
    with tempfile.TemporaryDirectory() as place:
        rig = DiskRig(Path(place) / "node")
        live(rig)
        rig.store.close()
        database = (Path(place) / "node" / "tidings.db").read_bytes()
    file = folder / f"node-{FORMAT}.db.xz"
    with file.open("xb") as out:
        out.write(lzma.compress(database, preset=9))
    return file


if __name__ == "__main__":
    print(write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
