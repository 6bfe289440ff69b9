from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import peers, pipeline, pipeline_load, pipeline_size
from benchmarks.pipeline_load import TYPES, VALUE_MAX, ReadingWire
from benchmarks.wires import COUNTER_FIRST
from tidings import Batch
from tidings.event.header import Delivery
from tidings.event.wire import check
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.sensors.recording import make_recording


@pytest.mark.parametrize("delivery", ["transient", "persistent"])
def test_a_load_is_readings_that_a_node_takes(delivery: Delivery) -> None:
    wire = ReadingWire(0, delivery=delivery)
    load = wire.load(400, 200, ())
    assert len(load.data) == 2 * load.piece_size
    frames = list(FrameReader(FRAME_MAX).feed(load.data))
    events = [event for _, raw in frames for event in Batch(raw)]
    for _, raw in frames:
        check(raw)
    assert [event.counter for event in events] == list(range(COUNTER_FIRST, COUNTER_FIRST + 400))
    assert {event.type for event in events} == set(TYPES)
    assert {event.delivery for event in events} == {delivery}
    assert sorted(event["value"] for event in events) == pytest.approx(
        [number * VALUE_MAX / 400 for number in range(400)]
    )
    networks = [event["sensing-id"] for event in events[::100]]
    assert networks == ["net-0000", "net-0100", "net-0200", "net-0300"]
    assert all(earlier.time < later.time for earlier, later in pairwise(events))


def test_what_is_appended_is_in_the_log_when_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline.Stage(tmp_path, 0, 1, has_compiled=False).node("node", log_seal_s=0) as node:
        assert pipeline_load.append(node.address, ReadingWire(node.port, delivery="persistent"), 1_000) > 0
        assert pipeline_load.append_lists(node.address, 3_000) > 0
        monkeypatch.setattr(pipeline_load, "WAIT_S_MAX", 0.0)
        with pytest.raises(peers.PeerError, match="0 of 1000 readings are in the log"):
            pipeline_load.append(node.address, ReadingWire(node.port), 1_000)


def test_a_recording_becomes_the_events_that_a_gateway_makes(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    made = make_recording(path, seed=3, sensors=3, days=0.2)
    events = [event for some in pipeline_size.recorded(path) for event in some]
    assert len(events) == made.readings
    assert {event.type for event in events} == {"pm10", "pm25"}
    assert all({"sensing-id", "name", "value", "posx", "posy"} == set(event.values) for event in events)


def test_the_source_that_does_nothing_gives_as_many_rows_as_it_is_asked_for() -> None:
    pytest.importorskip("pyspark")
    from benchmarks.pipeline_spark import BATCH_ROWS, IdleReader

    for rows in (0, 1, 7, 2 * BATCH_ROWS + 1, 5 * BATCH_ROWS):
        reader = IdleReader(rows)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert sum(map(len, batches)) == rows
