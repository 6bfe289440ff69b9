"""Patterns at a node, beside their steps as plain subscriptions, and in a task of Spark, beside an idle one.

100 patterns of two steps, 10,000 keys, one event in ten a step. The node is its core without sockets or disk:
frames go in, frames come out, so both sides are processor time of the same path. Memory is that of 100,000
keys after ten times as many events.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from benchmarks.figures import Figure
from benchmarks.matching import SEED
from tidings.event import Event
from tidings.event.values import Value
from tidings.event.wire import encode_events
from tidings.matching import prepare
from tidings.node import compiled
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.node.main import GARBAGE
from tidings.patterns import Pattern
from tidings.patterns.matcher import Matcher, encode_key
from tidings.patterns.runs import Row
from tidings.pipeline.patterns.frames import finder
from tidings.pipeline.patterns.lifting import RowShape
from tidings.protocol.frames import encode
from tidings.protocol.messages import Hello, Publish, Request
from tidings.protocol.session import Session
from tidings.store.memory import SimulatedDisk, SimulatedStore

PATTERNS, KEYS = 100, 10_000
EVENTS, BATCH = 200_000, 1_000
STEP_EVERY = 10
"""One event in so many is a step."""
ROWS, ROWS_AT_ONCE = 200_000, 10_000
STATE_KEYS, STATE_EVENTS, STATE_TIMES = 100_000, 1_000_000, 10
ROUNDS = 3


def figures(quick: bool) -> Iterator[Figure]:
    """Measure everything."""
    part = 10 if quick else 1
    prepare()
    if compiled.is_installed():
        compiled.exercise()  # a node that is busy checks and cuts frames with it
    yield _node(EVENTS // part)
    yield _batch(ROWS // part)
    yield _state(STATE_KEYS // part, STATE_EVENTS // part)


def text(zone: int) -> str:
    """Return the pattern of a zone: two steps, the second with a reference to the first."""
    first, second = steps(zone)
    return f"a[{first}] THEN b[{second} AND value > a.value] WITHIN 60 s BY key LATE 0 s"


def steps(zone: int) -> tuple[str, str]:
    """Return the filters of both steps."""
    return f"type = 'A' AND zone = {zone}", f"type = 'B' AND zone = {zone}"


def frames_of(count: int) -> list[bytes]:
    """Return events in PUBLISH frames; one in ten is a step of one pattern."""
    chance = random.Random(SEED)
    made = []
    for start in range(0, count, BATCH):
        events = []
        for number in range(start, start + BATCH):
            kind = chance.choice("AB") if number % STEP_EVERY == 0 else "X"
            values: dict[str, Value] = {
                "zone": chance.randrange(PATTERNS),
                "key": chance.randrange(KEYS),
                "value": chance.random(),
            }
            events.append(Event.unchecked(number + 1, kind, number * 1_000, values))
        made.append(encode(Publish(), encode_events(events)))
    return made


class Core:
    """The core of a node, a publisher, and a client with subscriptions."""

    def __init__(self, wanted: list[dict[str, Any]]) -> None:
        self.store = SimulatedStore(SimulatedDisk(), bytes)
        self.now = 1_000.0
        self.broker = NodeCore(self.store, CoreSettings(), self.now, bytes).broker
        self.mark = self.sent = 0
        self.publisher, self.client = self._session("p"), self._session("c")
        for number, options in enumerate(wanted):
            request = Request(number + 1, "subscribe", {"number": number + 1, "credit": 1 << 40, **options})
            self.client.receive(encode(request), self.now)
            self.turn()

    def _session(self, system: str) -> Session:
        session = self.broker.connect(self.now)
        session.receive(encode(Hello([1], system, 1, system)), self.now)
        self.turn()
        return session

    def turn(self) -> None:
        """End a tick, store it and send what may leave."""
        operations = self.broker.finish_tick()
        if operations:
            self.store.commit(operations)
            self.mark += 1
            self.broker.durable(self.mark)
        for session in self.broker.take_dirty():
            while frames := session.output():
                self.sent += sum(map(len, frames))

    def publish(self, frames: list[bytes]) -> float:
        """Publish all frames; return the processor time."""
        begun = time.process_time()
        for frame in frames:
            self.now += 0.5
            self.publisher.receive(frame, self.now)
            self.broker.wake(self.now)
            self.turn()
        return time.process_time() - begun


def _node(count: int) -> Figure:
    frames = frames_of(count)
    plain = [{"filter": filter} for zone in range(PATTERNS) for filter in steps(zone)]
    matched = [{"pattern": text(zone)} for zone in range(PATTERNS)]
    Core(plain).publish(frames[:10])  # what is compiled is compiled
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE)  # as a node has it
    plain_s = min(Core(plain).publish(frames) for _ in range(ROUNDS))
    pattern_s = min(Core(matched).publish(frames) for _ in range(ROUNDS))
    gc.set_threshold(*before)
    return Figure(
        "100 patterns at a node, rate over that of plain subscriptions", "×", plain_s / pattern_s, 0.5,
        {"events_s": count / pattern_s, "plain_events_s": count / plain_s},
    )  # fmt: skip


def _batch(count: int) -> Figure:
    """A task over the sorted rows that are steps, one in ten, beside one that reads all rows."""
    pattern = Pattern(text(1))
    shape = RowShape(str(pattern), ("bigint",), ("double",))
    chance = random.Random(SEED)
    rows = sorted((chance.randrange(KEYS), number * 1_000_000) for number in range(count))
    table = pa.table(
        {
            "k0": [key for key, _ in rows],
            "time_us": [time_us for _, time_us in rows],
            "node": ["n"] * count,
            "position": list(range(count)),
            "mask": [chance.choice((1, 2)) for _ in rows],
            "v0": [chance.random() for _ in rows],
            "until_us": [count * 1_000_000] * count,
        }
    )
    batches = table.to_batches(ROWS_AT_ONCE)
    stepping = table.slice(0, count // STEP_EVERY).to_batches(ROWS_AT_ONCE)

    def nothing(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            for row in zip(*columns.values(), strict=True):
                del row
            yield batch.slice(0, 0)

    idle_s = _least(lambda: sum(one.num_rows for one in nothing(iter(batches))))
    found_s = _least(lambda: sum(one.num_rows for one in finder(shape)(iter(stepping))))
    return Figure(
        "a pattern in a task, one row in ten a step, over an idle task", "×", idle_s / found_s, 0.5,
        {"events_s": count / found_s, "idle_events_s": count / idle_s},
    )  # fmt: skip


def _least(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def _state(keys: int, events: int) -> Figure:
    """Memory of the keys of one pattern after ten times as many events."""
    matcher, chance = Matcher(Pattern(text(1)), 0.0), random.Random(SEED)
    encoded = [encode_key((key,)) for key in range(keys)]
    held: list[float] = []
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(events * STATE_TIMES):
        row = Row(number * 600_000_000 // events, "n", number, chance.choice((1, 2)), (chance.random(),))
        matcher.offer(encoded[number % keys], row, 0.0)
        for _key, _found in matcher.advance(0.0):
            pass
        if number + 1 in (events, events * STATE_TIMES):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    return Figure(
        "memory of 100,000 keys of a pattern after ten times as many events", "×", held[1] / held[0], 1.1,
        {"first_mb": held[0] / 1e6, "last_mb": held[1] / 1e6}, less_is_better=True,
    )  # fmt: skip
