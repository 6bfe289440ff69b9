from __future__ import annotations

import json
from collections.abc import Callable
from struct import pack

import pytest

from benchmarks import queue, queue_load, queue_peers
from benchmarks.amqp import ACK, CLOSE, END, AmqpWire, frame, method, text
from benchmarks.queue_wires import (
    BODY,
    QUEUE,
    Getting,
    QueueWire,
    RedisStreamWire,
    StompWire,
    TidingsQueueWire,
)
from benchmarks.wires import COUNTER_FIRST, MARKER
from tidings.errors import PeerError
from tidings.event import Batch, Event
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import (
    DONE,
    HANDLE,
    Accepted,
    Failure,
    Put,
    Refusal,
    Reply,
    Request,
    Settle,
)

WIRES = [TidingsQueueWire(0), StompWire(0), AmqpWire(0), RedisStreamWire(0)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without peers and compiled code, in sizes that take no time."""
    sizes = {"COUNT": 1_000, "WARM": 1_000, "CONNECTIONS": 10, "OUTSTANDING": 50, "WAITING": 1_000}
    for name, value in {**sizes, "DELAYED": 10_000, "OPERATIONS": 20, "PEERS": ()}.items():
        monkeypatch.setattr(queue, name, value)
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    monkeypatch.setattr("benchmarks.footprint.SETTLE_S", 0.0)
    monkeypatch.setattr("benchmarks.queue_later.IDLE_S", 0.1)


@pytest.mark.slow
def test_a_small_run_measures_every_workload(tiny: None) -> None:
    figures = queue.run(True, [].append)
    names = [one["name"] for one in figures["workloads"]]
    kinds = [f"{kind}, {place}" for place in ("local", "remote") for kind in ("volatile", "persistent")]
    operations = ("put", "get", "put all", "get all", "get(template)", "get all(template)")
    assert names == [
        "memory of a volatile message beyond its body, 100",
        "API, put and get with 1,000 delayed messages, over a plain queue",
        "processor of a node with 1,000 delayed messages, idle",
        "API, queue.work over a loop by hand",
        "wire, put and get, 10 connections",
        "wire, put and get, 50 outstanding on one",
        "API, put and get, 10 connections",
        "API, put and get, 50 outstanding on one",
        "put_all of 1,000, persistent over volatile",
        *(f"API, {operation}, {kind}" for kind in kinds for operation in operations),
        *(f"get(where) over get, 100 volatile, {name}" for name in ("equality", "range", "IN")),
        *(f"get(where), 100 volatile, residue {name}" for name in ("LIKE", "arithmetic")),
        *(f"get(where) over get, 100 persistent, {name}" for name in ("equality", "range", "IN")),
        *(f"get(where), 100 persistent, residue {name}" for name in ("LIKE", "arithmetic")),
    ]
    for one in figures["workloads"]:
        assert {"name", "unit", "value", "target", "reached", "beside"} <= set(one)
    assert json.loads(json.dumps(figures)) == figures


@pytest.mark.slow
@pytest.mark.parametrize("name", list(queue_peers.PROGRAMS))
def test_a_peer_that_is_installed_stores_messages_and_hands_them_out(name: str) -> None:
    if not queue_peers.is_installed(name):
        pytest.skip(f"{queue_peers.PROGRAMS[name][0]} is not installed")
    with queue_peers.peer(name) as broker:
        wire = queue_peers.WIRES[name](broker.port)
        assert queue_load.carry(wire, 400, connections=10, outstanding=2) > 0
        assert queue_load.fill(wire, 100, outstanding=100) > 0
        assert queue_load.drain(wire, 100) > 0
    assert broker.process.poll() is not None


def test_a_peer_that_lacks_a_program_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(queue_peers.PROGRAMS, "redis", ("Redis", ("no-such-program",)))
    lines: list[str] = []
    monkeypatch.setattr(queue, "PEERS", ("redis",))
    monkeypatch.setattr(queue, "_all", lambda *_: iter(()))
    assert queue.run(True, lines.append)["peers"] == []
    assert "Redis is not installed: left out" in lines


# What is put


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_puts_bodies_of_one_size_with_one_marker_each(wire: QueueWire) -> None:
    load = wire.load(20)
    assert load.data.count(BODY) == load.data.count(MARKER) == 20
    assert len(load.data) == 20 * load.piece_size
    assert load.piece_size < len(BODY) + 100


@pytest.mark.parametrize("outstanding", [1, 3, 15])
def test_messages_for_a_node_are_numbered_and_tell_what_their_sender_has_seen(outstanding: int) -> None:
    load = TidingsQueueWire(0).load(20, outstanding=outstanding)
    pieces = [load.data[at : at + load.piece_size] for at in range(0, len(load.data), load.piece_size)]
    frames = [frame for piece in pieces for frame in FrameReader(FRAME_MAX).feed(piece)]
    seen = [message.seen - COUNTER_FIRST + 1 for message, _ in frames if isinstance(message, Put)]
    assert len(seen) == 20
    assert all(
        max(0, place - outstanding) <= one <= max(0, place - outstanding + 1)
        for place, one in enumerate(seen)
    )
    events = [event for _, raw in frames for event in Batch(raw)]
    assert [event.counter for event in events] == list(range(COUNTER_FIRST, COUNTER_FIRST + 20))
    assert {event.body for event in events} == {BODY}


RECEIPTS = b"RECEIPT\nreceipt-id:1\n\n\0\n" * 4
IDS = b"".join(b"$15\r\n1794738992527-%d\r\n" % number for number in range(4))
CONFIRMS = b"".join(method(ACK, pack(">QB", tag, many)) for tag, many in ((2, 0), (3, 1), (5, 0)))


@pytest.mark.parametrize(
    ("wire", "heard"),
    [
        (WIRES[0], encode(Accepted(COUNTER_FIRST + 3))),
        (WIRES[1], RECEIPTS),
        (WIRES[2], CONFIRMS),
        (WIRES[3], IDS),
    ],
)
def test_who_puts_hears_what_was_accepted_however_it_is_cut(wire: QueueWire, heard: bytes) -> None:
    assert wire.hearing()(heard) == 4
    hear = wire.hearing()
    assert [hear(heard[at : at + 1]) for at in range(len(heard))][-1] == 4


# What is got


def _came(getting: Getting, heard: bytes, size: int) -> tuple[int, list[bytes]]:
    """How many messages came, and what was said, if what is heard comes in pieces of this size."""
    came, said = 0, []
    for at in range(0, len(heard), size):
        more, answer = getting.hear(heard[at : at + size])
        came += more
        said += [answer] if answer else []
    return came, said


def _reply(first: int) -> bytes:
    raw = Batch.of([Event("job", {}, body=BODY)]).raw
    hands = [[number, 1, False, "s", 1, None, 0, raw[5:]] for number in (first, first + 1)]
    return encode(Reply(1, {"messages": hands, "last": 9, "next": None}))


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_who_gets_from_a_node_settles_what_came_and_asks_for_the_rest(size: int) -> None:
    getting = TidingsQueueWire(0, at_once=2).getting(3)
    came, said = _came(getting, _reply(7), size)
    settle, more = (message for message, _ in FrameReader(FRAME_MAX).feed(b"".join(said)))
    assert came == 2
    assert settle == Settle(COUNTER_FIRST, 0, HANDLE.pack(7, 1) + HANDLE.pack(8, 1), DONE)
    assert isinstance(more, Request)
    assert more.arguments == {"queue": QUEUE, "count": 1, "wait_s": None}


STOMP = b"".join(
    b"MESSAGE\nsubscription:1\nmessage-id:ID\\c%d\npriority:4\n\n%b\0\n" % (number, BODY)
    for number in range(3)
)


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_who_gets_by_stomp_acknowledges_the_last_that_came_whole(size: int) -> None:
    came, said = _came(StompWire(0).getting(3), STOMP + STOMP[:500], size)
    assert came == 3
    assert said[-1] == b"ACK\nsubscription:1\nmessage-id:ID\\c2\n\n\0"


AMQP = b"".join(
    method((60, 60), text(b"me") + pack(">QB", tag, 0) + text(b"") + text(QUEUE.encode()))
    + frame(2, 1, pack(">HHQHB", 60, 0, len(BODY), 0x1000, 2))
    + frame(3, 1, BODY)
    for tag in (1, 2, 3)
)


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_who_gets_by_amqp_acknowledges_all_that_came_whole(size: int) -> None:
    came, said = _came(AmqpWire(0).getting(3), AMQP + AMQP[:500], size)
    assert came == 3
    assert said[-1] == method(ACK, pack(">QB", 3, 1))


REDIS = b"*1\r\n*2\r\n$5\r\nbench\r\n*2\r\n" + b"".join(
    b"*2\r\n$15\r\n1794738992527-%d\r\n*2\r\n$1\r\nb\r\n$1000\r\n%b\r\n" % (number, BODY)
    for number in range(2)
)


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_who_gets_from_redis_acknowledges_what_came_and_asks_for_the_rest(size: int) -> None:
    getting = RedisStreamWire(0, at_once=2).getting(3)
    came, said = _came(getting, REDIS, size)
    assert came == 2
    assert len(said) == 1
    assert said[0].startswith(b"*5\r\n$4\r\nXACK\r\n$5\r\nbench\r\n$1\r\ng\r\n$15\r\n1794738992527-0\r\n")
    assert said[0].endswith(getting.first())
    assert b"COUNT\r\n$1\r\n1\r\n" in getting.first()


@pytest.mark.parametrize(
    ("getting", "heard"),
    [
        (StompWire(0).getting(1), b"RECEIPT\nreceipt-id:2\n\n\0\n"),
        (AmqpWire(0).getting(1), method((20, 41))),
        (RedisStreamWire(0).getting(1), b":1\r\n$4\r\ndone\r\n"),
    ],
)
def test_all_is_acknowledged_when_the_peer_has_answered_the_last_word(getting: Getting, heard: bytes) -> None:
    assert not getting.is_over(heard[:3])
    assert getting.is_over(heard[3:])


def test_all_is_acknowledged_when_the_node_has_accepted_the_last_settlement() -> None:
    getting = TidingsQueueWire(0).getting(2)
    getting.hear(_reply(7))
    assert not getting.is_over(encode(Accepted(COUNTER_FIRST)))
    assert getting.is_over(encode(Accepted(COUNTER_FIRST + 1)))


def test_an_acceptance_that_came_with_the_last_messages_is_not_waited_for_again() -> None:
    getting = TidingsQueueWire(0).getting(2)
    getting.hear(_reply(7) + encode(Accepted(COUNTER_FIRST + 1)))
    assert getting.is_over(b"")


# What is refused


@pytest.mark.parametrize(
    ("hear", "heard"),
    [
        (TidingsQueueWire(0).getting(1).hear, encode(Refusal(1, 1, Failure("queue-full", "no room")))),
        (StompWire(0).hearing(), b"ERROR\nmessage:no room\n\n\0\n"),
        (StompWire(0).getting(1).hear, b"ERROR\nmessage:no room\n\n\0\n"),
        (RedisStreamWire(0).hearing(), b"-OOM no room\r\n"),
        (RedisStreamWire(0).getting(1).hear, b"-NOGROUP no room\r\n"),
        (AmqpWire(0).hearing(), method(CLOSE, pack(">H", 404) + text(b"no room") + pack(">HH", 0, 0))),
    ],
)
def test_whoever_is_refused_fails(hear: Callable[[bytes], object], heard: bytes) -> None:
    with pytest.raises(PeerError, match="no room"):
        hear(heard)


def test_a_connection_ends_its_frames_as_amqp_wants_it() -> None:
    assert frame(1, 0, b"ab") == b"\x01\0\0\0\0\0\x02ab" + END
