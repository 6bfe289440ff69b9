"""How large recorded readings are as sealed files, beside the same events as JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks import neighbours, peers
from tidings.client import blocking
from tidings.event import Event
from tidings.event.header import Header
from tidings.event.json import to_json
from tidings.event.wire import decode_events
from tidings.gateway.decoding import decode_object
from tidings.gateway.messages import Sensing
from tidings.gateway.reading import Mapper
from tidings.sensors.network import encode_sensing
from tidings.sensors.recording import make_recording
from tidings.sensors.replay import Recording
from tidings.steps import finish

DATA = "TIDINGS_DATA"
"""The variable that has the folder of recorded readings."""
MAY_2019 = "luftdaten-aberdeen-2019-05.csv.gz"
MESSAGES = 500
"""Lines of the recording whose readings are published at once."""
SEALED_S_MAX = 300.0


class Sizes(NamedTuple):
    """What was found."""

    what: str
    readings: int
    files: int
    json: int


def measure(days: float) -> Sizes:
    """Publish a recording and have it sealed; where there is no real one, so many days are generated."""
    with TemporaryDirectory(prefix="tidings-bench-") as home:
        path, what = Path(os.environ.get(DATA, ""), MAY_2019), "May 2019"
        if not path.is_file():
            path, what = Path(home, "made.csv"), "a generated recording"
            make_recording(path, seed=1, days=days)
        with neighbours.node(peers.free_port(), dir=f"{home}/node", compiled=False) as node:
            readings, json = _publish(node.address, path)
        files = sum(file.stat().st_size for file in Path(home, "node", "log").rglob("*.parquet"))
    return Sizes(what, readings, files, json)


def _publish(address: str, path: Path) -> tuple[int, int]:
    """How many readings are sealed now, and how many bytes they are as JSON."""
    readings = size = 0
    with blocking.connect(address) as bus:
        for events in recorded(path):
            bus.publish_all(events)
            readings += len(events)
            size += sum(len(to_json(event)) + 1 for event in events)
        bus.log.seal(timeout_s=SEALED_S_MAX)
    return readings, size


def recorded(path: Path) -> Iterator[list[Event]]:
    """The readings of a file as the events that a gateway makes of them."""
    mapper, messages = Mapper(), Recording(path).messages()
    header = Header(delivery="persistent")
    while some := list(islice(messages, MESSAGES)):
        lines = (encode_sensing(message.sensing_id, message.readings) for message in some)
        said = [one for line in lines for one in finish(decode_object(line)) if isinstance(one, Sensing)]
        yield decode_events(mapper.map(said, 1, time.time_ns() // 1_000, header).raw)
