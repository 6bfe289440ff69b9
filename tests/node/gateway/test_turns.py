"""Each connection has its turn: what one sends keeps no other waiting for long."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from node.gateway.networks import Object, register, sensing, sensor
from node.gateway.test_hub import Bench

from tests.gateway.world import is_known
from tidings.gateway import peer as peer_module
from tidings.gateway.networks import DatagramAddress
from tidings.node.gateway.websocket import WebSocket
from tidings.protocol.access import PeerInfo
from tidings.turns import SLICE_S, TURN_S

FRAMES = 100_000
REQUEST = (
    b"GET /sensors HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TINY = b"\x81\x81\0\0\0\0 "  # a masked text of one blank
HERE = DatagramAddress("127.0.0.1", 5)


def lines(*messages: Object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


class Busy(Bench):
    """A hub that has the time for few steps in a turn, and connections `1` and `2`."""

    def __init__(self, steps: int = 5) -> None:
        super().__init__()
        self.look_s = SLICE_S / steps
        self.hub.opened(2, PeerInfo("127.0.0.1:8", "127.0.0.1"), self.hear, self.close)

    def finish(self) -> int:
        """Let the loop go round until nothing is left to do; how often."""
        turns = 0
        while self.due:
            self.turn()
            turns += 1
        return turns

    @property
    def values(self) -> list[Any]:
        return [value for batch in self.node.batches for value in batch]


class FakeTransport:
    """What a WebSocket has of a connection."""

    def __init__(self) -> None:
        self.is_paused = False
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class CountingSocket(WebSocket):
    """A WebSocket that counts the frames it has read; nobody asks whether it is still there."""

    frames = 0

    def _take(self, frame: Any) -> Any:
        self.frames += 1
        return super()._take(frame)

    def _look_later(self) -> None:
        """There is no loop."""


def test_tiny_frames_of_one_websocket_keep_nobody_waiting() -> None:
    bench, transport = Busy(), FakeTransport()
    socket = CountingSocket(bench.hub, cast("Any", transport), PeerInfo("h:1", "h"), REQUEST)
    socket.feed(FRAMES * TINY)
    bench.hub.feed(2, lines(sensing("light", 7)))
    for _ in range(3):
        bench.turn()
    assert bench.values == [7]
    assert 0 < socket.frames < FRAMES // 100
    assert transport.is_paused
    bench.finish()
    assert socket.frames == FRAMES
    assert not transport.is_paused


def test_who_comes_with_little_goes_before_the_rest_of_those_who_sent_much() -> None:
    bench = Busy()
    mistakes = lines(*[{"what": 1}, sensing("heavy", 1)] * 2_000)
    bench.say(sensing("heavy", 1))
    bench.hub.feed(1, mistakes)
    done = []
    for value in range(20):
        bench.hub.feed(2, lines(sensing("light", f"v{value}")))
        bench.turn()
        bench.turn()
        done.append(f"v{value}" in bench.values)
    assert all(done)
    assert bench.pauses == [True]
    bench.finish()
    assert bench.values.count(1) == 2_001
    assert bench.pauses == [True, False]


def test_two_who_send_much_are_dealt_with_in_equal_parts() -> None:
    bench = Busy()
    for key, name in ((1, "a"), (2, "b")):
        bench.hub.feed(key, lines(*[{"what": 1}, sensing(name, name)] * 1_000))
    for _ in range(40):
        bench.turn()
    first, second = bench.values.count("a"), bench.values.count("b")
    assert 0 < first < 1_000
    assert abs(first - second) <= 20


def test_what_a_connection_sent_is_dealt_with_although_it_is_gone() -> None:
    bench = Busy()
    bench.say(register("n", sensor("t")))
    bench.say(*[{"what": 1}, sensing("n", 1)] * 50, {"deregister": {"sensing-id": "n"}})
    bench.hub.closed(1)
    assert bench.hub.gateway.networks == 1
    bench.finish()
    assert bench.values.count(1) == 50
    assert bench.hub.gateway.networks == 0
    assert len(bench.hub) == 1


def test_of_who_is_cut_off_nothing_more_is_dealt_with() -> None:
    bench = Busy()
    bench.say(*[{"what": 1}] * 500, sensing("n", 1))
    bench.finish()
    assert bench.is_closed
    assert bench.values == []
    assert not bench.hub.work._turns


def test_a_long_registration_is_cut_into_steps_and_is_whole_in_the_end() -> None:
    bench = Busy()
    bench.say(sensing("n", 1))  # so that long objects are taken
    bench.say(register("n", *(sensor(f"s{number}") for number in range(5_000))))
    bench.turn()
    assert not is_known(bench.hub.gateway, "n", "s4999")
    assert bench.finish() > 5
    assert is_known(bench.hub.gateway, "n", "s4999")
    assert bench.hub.gateway.networks == 1


def test_a_demand_for_very_many_sensors_reaches_all_of_them_in_the_end() -> None:
    bench = Bench()
    bench.say(sensing("n", 1))
    bench.say(register("n", *(sensor(f"s{number}") for number in range(5_000))))
    while bench.due:
        bench.turn()
    bench.look_s = SLICE_S / 2
    bench.said.clear()
    bench.node.on_demand(1, ["value > 1", "name LIKE 's1%'"])
    first = sum(len(one["subscribe"]["sensors"]) for one in bench.said)
    assert first < 5_000
    while bench.due:
        bench.turn()
    assert sum(len(one["subscribe"]["sensors"]) for one in bench.said) == 5_000


def test_datagrams_of_a_host_that_sends_much_wait_and_others_are_read() -> None:
    bench = Busy()
    odd = lines(*[{"what": 1}, sensing("odd", 1)] * 300)
    bench.hub.datagram(HERE, odd)
    bench.hub.datagram(HERE, lines(sensing("odd", 2)))
    bench.hub.datagram(DatagramAddress("10.0.0.1", 5), lines(sensing("other", 3)))
    for _ in range(3):
        bench.turn()
    assert 3 in bench.values
    assert 2 not in bench.values
    bench.finish()
    assert bench.values.count(1) == 300
    assert bench.values[-1] == 2
    assert bench.hub.dropped == 0


def test_more_datagrams_than_are_held_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Busy()
    odd = lines(*[{"what": 1}, sensing("odd", 1)] * 300)
    monkeypatch.setattr(peer_module, "HELD_SIZE_MAX", len(odd) + 10)
    for _ in range(5):
        bench.hub.datagram(HERE, odd)
    assert bench.hub.dropped == 4
    bench.finish()
    bench.hub.datagram(HERE, odd)
    assert bench.hub.dropped == 4


def test_trouble_with_one_connection_ends_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Busy()
    bench.hub.feed(2, lines(*[{"what": 1}, sensing("b", 2)] * 50))

    def trouble(*_: object) -> None:
        raise RuntimeError("an accident")

    monkeypatch.setattr(bench.hub._peers[1].intake, "read", trouble)
    bench.say({"what": 1}, sensing("a", 1))
    bench.finish()
    assert bench.is_closed
    assert bench.values.count(2) == 50


def test_a_turn_of_the_loop_has_an_end_however_many_send_at_once() -> None:
    bench = Busy()
    bench.look_s = TURN_S / 4
    for key in range(10, 60):
        bench.hub.opened(key, PeerInfo("h:1", "h"), bench.hear, bench.close)
        bench.hub.feed(key, lines(sensing(f"n{key}", key)))
    bench.turn()
    assert 0 < len(bench.values) < 20
    bench.finish()
    assert sorted(bench.values) == list(range(10, 60))
