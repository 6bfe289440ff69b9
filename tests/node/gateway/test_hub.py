"""The hub between ports and the node, without either: limits, backpressure, and what is sent together."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from node.gateway.networks import Object, register, sensing, sensor
from node.secured import TOKEN, Secured

from tidings.event.wire import decode_events
from tidings.gateway import hub as hub_module
from tidings.gateway.gateway import Gateway
from tidings.gateway.hub import HALF_S_MAX, Clocks, Hub
from tidings.gateway.networks import GRACE_S, DatagramAddress
from tidings.gateway.peer import Entrance, LoginLine
from tidings.gateway.policy import Policy
from tidings.gateway.uplink import Uplink
from tidings.protocol.access import PeerInfo
from tidings.security.authenticator import UserAuthenticator
from tidings.security.directory import SecurityDirectory

HERE = DatagramAddress("127.0.0.1", 5)


class FakeNode:
    """What a hub has of a node, which takes what it is given when the test says so."""

    def __init__(self) -> None:
        self.is_full = False
        self.has_room = True
        self.accepted = 0
        self.counter = 0
        self.batches: list[list[Any]] = []
        self.refused: set[int] = set()
        self.advertised: dict[int, str] = {}
        self.noted: list[tuple[int, list[tuple[str, int]]]] = []
        self.sources: list[str | None] = []  # of the batches
        self.on_progress: Callable[[], None]
        self.on_demand: Callable[[int, list[str]], None]

    def advertise(self, number: int, filter: str) -> None:
        self.advertised[number] = filter

    widen = advertise

    def withdraw(self, number: int) -> None:
        del self.advertised[number]

    @property
    def publications(self) -> FakeNode:
        return self

    def publish_raw(
        self, count: int, make: Callable[[int], bytes], is_kept: bool = False, source: str | None = None
    ) -> int:
        events = decode_events(make(self.counter + 1))
        self.counter += count
        if events:
            self.sources.append(source)
            self.batches.append([event["value"] for event in events])
            assert all((event.delivery == "persistent") is is_kept for event in events)
        return self.counter

    def refusals(self, counters: range) -> list[int]:
        return [counter for counter in counters if counter in self.refused]

    def note(self, last: int, numbered: list[tuple[str, int]]) -> None:
        self.noted.append((last, numbered))

    def flush(self) -> None:
        """What is sent at once needs no flushing."""


class Bench:
    """A hub with a clock that the test moves, and one connection, `1`."""

    def __init__(self, entrance: Entrance | None = None, policy: Policy | None = None) -> None:
        self.now = 1000.0
        self.worked = self.look_s = 0.0
        self.node = FakeNode()
        self.due: list[Callable[[], None]] = []
        self.said: list[Object] = []
        self.is_closed = False
        self.pauses: list[bool] = []
        uplink = cast("Uplink", self.node)
        clocks = Clocks(lambda: self.now, time.time, self.work_clock)
        gateway, soon = Gateway(b"secret", policy), self.due.append
        self.hub = Hub(gateway, uplink, soon, clocks, lambda *_, **__: None, entrance)
        self.hub.send_datagram = lambda data, _: self.hear(data)
        self.hub.opened(1, PeerInfo("127.0.0.1:9", "127.0.0.1"), self.hear, self.close, self.pauses.append)

    def work_clock(self) -> float:
        """Each look at the clock takes `look_s`; while that is 0, all that comes is dealt with at once."""
        self.worked += self.look_s
        return self.worked

    def hear(self, data: bytes) -> None:
        self.said += map(json.loads, data.splitlines())

    def close(self) -> None:
        self.is_closed = True

    def say(self, *messages: Object) -> None:
        self.hub.feed(1, b"".join(json.dumps(one).encode() + b"\n" for one in messages))

    def turn(self) -> None:
        """The loop goes round."""
        due, self.due[:] = list(self.due), []
        for act in due:
            act()

    def accept(self) -> None:
        self.node.accepted = self.node.counter
        self.hub._progressed()


def test_the_readings_of_a_turn_go_to_the_node_together_by_who_has_sent_them() -> None:
    bench = Bench()
    bench.hub.opened(2, PeerInfo(), bench.hear, bench.close)
    bench.say(sensing("a", 1), sensing("a", 2, 3))
    bench.hub.feed(2, json.dumps(sensing("b", 4)).encode() + b"\n")
    bench.hub.datagram(HERE, json.dumps(sensing("c", 5)).encode())
    bench.say(sensing("a", 6), sensing("a", 7, seq=1), sensing("b\x07", 8))
    assert bench.node.batches == []
    bench.turn()
    assert bench.node.batches == [[1, 2, 3, 6], [4], [5], [8], [7]]
    assert bench.node.sources == ["a", "b", "c", None, "a"]  # what can't be shown is no source
    bench.turn()
    assert len(bench.node.batches) == 5


def test_much_that_comes_in_one_turn_is_sent_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.gateway.uplink.READINGS_MAX", 3)
    bench = Bench()
    bench.say(*(sensing("a", value) for value in range(8)), sensing("a", 8, 9, 10, 11))
    bench.turn()
    assert [value for batch in bench.node.batches for value in batch] == list(range(12))
    assert max(map(len, bench.node.batches)) == 4  # one message is not cut


def test_a_turn_that_is_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TURN_SIZE", 100)
    bench = Bench()
    bench.say(sensing("a", 1), sensing("a", 2))
    assert bench.node.batches == [[1, 2]]


def test_after_a_long_turn_others_get_theirs_before_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TURN_SIZE", 100)
    bench = Bench()
    bench.say(sensing("a", 1), sensing("a", 2))
    assert bench.pauses == [True]
    bench.turn()
    assert bench.pauses == [True, False]
    bench.node.is_full, bench.node.has_room = True, False
    bench.say(sensing("a", 3), sensing("a", 4))
    bench.turn()
    assert bench.pauses == [True, False, True]
    bench.node.is_full, bench.node.has_room = False, True
    bench.accept()
    assert bench.pauses == [True, False, True, False]


def test_a_number_is_acknowledged_when_the_node_has_stored_what_it_stands_for() -> None:
    bench = Bench()
    bench.say(sensing("a", 1, 2, seq=7), sensing("a", 3, seq=8))
    bench.turn()
    assert bench.node.noted == [(3, [("a", 7), ("a", 8)])]
    assert bench.said == []
    bench.accept()
    assert bench.said == [{"ack": {"sensing-id": "a", "seq": seq}} for seq in (7, 8)]
    bench.say(sensing("a", 1, 2, seq=7))
    bench.turn()
    assert bench.node.batches == [[1, 2, 3]]
    assert bench.said[2:] == [{"ack": {"sensing-id": "a", "seq": 7}}]


def test_what_the_node_refuses_is_not_acknowledged_and_may_come_again() -> None:
    bench = Bench()
    bench.say(sensing("a", 1, seq=1), sensing("a", 2, seq=2))
    bench.turn()
    bench.node.refused = {2}
    bench.accept()
    assert bench.said == [{"ack": {"sensing-id": "a", "seq": 1}}]
    bench.say(sensing("a", 2, seq=2))
    bench.turn()
    assert bench.node.batches == [[1, 2], [2]]


def test_a_numbered_message_without_readings_is_acknowledged() -> None:
    bench = Bench()
    bench.say(sensing("a", seq=1))
    bench.turn()
    bench.accept()
    assert bench.said == [{"ack": {"sensing-id": "a", "seq": 1}}]


def test_a_mistake_in_a_batch_is_told_to_who_made_it() -> None:
    bench = Bench()
    others: list[bytes] = []
    bench.hub.opened(2, PeerInfo(), others.append, bench.close)
    bench.hub.feed(2, json.dumps(sensing("b", "9" * 30, 4)).encode() + b"\n")
    bench.say(sensing("a", 1))
    bench.turn()
    assert bench.said == []
    error = json.loads(others[0])["error"]
    assert (error["place"], error["sensing-id"]) == ("$.sensing.sensors[0].value", "b")
    assert bench.node.batches == [[4], [1]]


def test_while_the_node_takes_nothing_connections_wait_and_datagrams_are_counted() -> None:
    bench = Bench()
    bench.node.is_full, bench.node.has_room = True, False
    bench.say(sensing("a", 1))
    bench.hub.datagram(HERE, json.dumps(sensing("c", 5)).encode())
    bench.turn()
    assert bench.node.batches == [[1]]
    assert bench.pauses == [True]
    assert bench.hub.dropped == 1
    bench.accept()
    assert bench.pauses == [True]
    bench.node.is_full, bench.node.has_room = False, True
    bench.accept()
    assert bench.pauses == [True, False]


def test_half_an_object_is_not_held_for_ever() -> None:
    bench = Bench()
    bench.hub.feed(1, b'{"sensing": {')
    bench.now += HALF_S_MAX / 2
    bench.hub.feed(1, b'"sensing-id":')
    bench.hub.wake()
    assert not bench.is_closed
    bench.now += HALF_S_MAX / 2
    bench.hub.wake()
    assert bench.is_closed
    assert "half an object" in bench.said[0]["error"]["problem"]
    assert len(bench.hub) == 0


def test_whoever_goes_on_with_whole_objects_may_take_as_long_as_it_likes() -> None:
    bench = Bench()
    for _ in range(5):
        line = json.dumps(sensing("a", 1)).encode()
        bench.hub.feed(1, line[:20])
        bench.now += HALF_S_MAX / 2
        bench.hub.feed(1, line[20:] + b"\n" + line[:20])
        bench.now += HALF_S_MAX / 2
        bench.hub.wake()
        bench.hub.feed(1, line[20:] + b"\n")
    assert not bench.is_closed


def test_nothing_is_done_for_a_connection_after_it_was_closed() -> None:
    bench = Bench()
    bench.say(*[{"what": {}}] * 200, register("n", sensor("t")))
    assert bench.is_closed
    assert bench.hub.gateway.networks == 0
    said = len(bench.said)
    bench.say(sensing("a", 1))
    bench.hub.closed(1)
    bench.turn()
    assert len(bench.said) == said
    assert bench.node.batches == []


def test_networks_that_do_not_come_back_are_forgotten() -> None:
    bench = Bench()
    bench.say(register("n", sensor("t")))
    bench.hub.closed(1)
    bench.now += GRACE_S - 1
    bench.hub.wake()
    assert bench.hub.gateway.networks == 1
    bench.now += 1
    bench.hub.wake()
    assert bench.hub.gateway.networks == 0


def test_what_is_demanded_is_asked_of_whoever_offers_it() -> None:
    bench = Bench()
    bench.say(register("n", sensor("t")))
    ((number, filter),) = bench.node.advertised.items()
    assert filter == "type = 'temp'"
    bench.node.on_demand(number, ["type = 'temp' AND value > 3"])
    assert bench.said == [{"subscribe": {"sensing-id": "n", "sensors": [{"name": "t"}]}}]


# With users


@pytest.fixture
def entrance(secured: Secured) -> Entrance:
    return Entrance(UserAuthenticator(*SecurityDirectory(secured.path).load()), time.monotonic, time.time)


def test_a_login_may_come_in_any_pieces_and_with_messages_behind_it(entrance: Entrance) -> None:
    data = b' \n{"login": {"token": "%b"}}\n' % TOKEN.encode() + json.dumps(sensing("a", 1)).encode()
    for size in (1, 7, len(data)):
        bench = Bench(entrance)
        bench.hub.gateway.policy = Policy(strangers=True)
        for at in range(0, len(data), size):
            bench.hub.feed(1, data[at : at + size])
        bench.turn()
        assert bench.node.batches == [[1]]


def test_what_is_no_login_is_read_as_a_message() -> None:
    assert LoginLine().feed(b'{"register": 1}') == (None, b'{"register": 1}')
    assert LoginLine().feed(b"\n") == (None, None)
    assert LoginLine().feed(b'{"login": {"token"') == (None, None)
    for bad in (b'{"login": 1}\n', b'{"login": {}}\n', b'{"login"\xff}\n', b'{"login' + b" " * 5000):
        assert LoginLine().feed(bad) == (None, bad)


def test_a_datagram_with_a_token_makes_its_address_known(entrance: Entrance) -> None:
    bench = Bench(entrance)
    message = register("u", sensor("t"), token=TOKEN)
    bench.hub.datagram(HERE, json.dumps(message).encode())
    bench.hub.datagram(HERE, json.dumps(sensing("u", 1)).encode())
    bench.hub.datagram(DatagramAddress("127.0.0.1", 6), json.dumps(sensing("u", 2)).encode())
    bench.turn()
    assert bench.node.batches == [[1]]
