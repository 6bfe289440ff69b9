#!/usr/bin/env python3
"""Write down the store of a node that carries messages of hosts that it has met, as it is stored now.

    PYTHONPATH=tests python -m scripts.make_adhoc_fixture FILE

`tests/store/formats/adhoc-records.db.xz` was written when the messages were records, each in parts: a later
tidings must go on carrying them. A file that is there stays.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from pathlib import Path

from msgspec.structs import replace
from protocol.rig import READ_SIZE
from queues.rig import Client

from scripts.make_node_fixture import DiskRig, SyncedStore
from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.carried_events import pack
from tidings.adhoc.frames import CopyFrame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import TTL_S_MAX
from tidings.adhoc.ring import Acknowledgement
from tidings.adhoc.service import AdhocService
from tidings.adhoc.settings import AdhocSettings
from tidings.adhoc.strategies.epidemic import AcknowledgedEpidemic
from tidings.event import Event
from tidings.ids import Origin, StoredIds
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.queues.message import event_bytes

LONG = b"y" * 200_000
"""A body that does not fit one record."""
CUT_AT = 100_000


class AdhocRig(DiskRig):
    """A node on a directory that meets hosts by chance."""

    def __init__(self, home: Path, now: float = 1_000.0) -> None:
        self.store = SyncedStore(home)  # type: ignore[assignment]  # it has all that rigs ask of one
        self.now = now
        self.read_size = READ_SIZE
        settings = CoreSettings(name="near", adhoc=AdhocSettings())
        self.core = NodeCore(self.store, settings, self.now, bytes)
        self.broker, self.queues = self.core.broker, self.core.queues
        self.peers = []
        self.commits = []
        self._mark = 0

    @property
    def service(self) -> AdhocService:
        assert self.core.adhoc is not None
        return self.core.adhoc


def live(rig: AdhocRig) -> None:
    """Put what is to be carried, and take what another host gives."""
    ann = Client(rig, "app")
    ann.create("reports")
    ann.create("jobs")
    ann.put(
        "jobs@far",
        Event("job", {"n": 1}, ttl_s=TTL_S_MAX),
        Event("job", {"n": 2}, ttl_s=TTL_S_MAX, body=LONG, delivery="reliable", priority=7),
        Event("job", {"n": 3, "report": "delivered"}, ttl_s=TTL_S_MAX, reply_to="reports"),
        Event("job", {"n": 4}, ttl_s=60.0),
    )
    rig.run()
    rig.service.places.hold("news", "topic", "far")
    rig.service.do(rig.service.messaging.subscribe("news", rig.now, durable=True))
    meet(rig)
    rig.run()


def meet(rig: AdhocRig) -> None:
    """Take a message of a host, the beginning of another, and an acknowledgement."""
    core = AdhocHost(StoredIds("other", 7), AcknowledgedEpidemic("other"), ReplicaBuffer())
    service, first = rig.service, next(iter(rig.service.host.buffer))
    service.do(service.host.meet("other", rig.now))
    whole = core.compose(["far", "near"], _raw(5), ttl_s=TTL_S_MAX, destination="queue:jobs", priority=2)
    long = core.compose(["far"], _raw(6, LONG), ttl_s=TTL_S_MAX, destination="queue:jobs")
    for message in (whole, replace(long, raw=long.raw[:CUT_AT])):
        copy = CopyFrame(message, TTL_S_MAX - 5.0, message.recipients, 3, 2)
        service.do(service.host.receive("other", copy, rig.now))
    service.do(service.host.hear((Acknowledgement(first.id, "far", TTL_S_MAX - 10.0),), rig.now))
    service.host.part("other", rig.now)


def _raw(n: int, body: bytes | None = None) -> bytes:
    return pack(event_bytes(Event("job", {"n": n}, body=body)), Origin("elsewhere", 3, "bob@other"))


def write(file: Path) -> Path:
    """Write the store; FileExistsError if it is there."""
    with tempfile.TemporaryDirectory() as place:
        rig = AdhocRig(Path(place) / "node")
        live(rig)
        rig.store.close()
        database = (Path(place) / "node" / "tidings.db").read_bytes()
    with file.open("xb") as out:
        out.write(lzma.compress(database, preset=9))
    return file


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
