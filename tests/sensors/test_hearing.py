from __future__ import annotations

import pytest

from tidings.errors import CodecError
from tidings.gateway.messages import Ack, Error, Sensor, SubscribeSensors, UnsubscribeSensors, encode
from tidings.sensors import network
from tidings.sensors.network import Ear

SAID = [
    SubscribeSensors("bus", [Sensor("a", min_value=1, max_value=2.5), Sensor("b")], cookie="c0"),
    UnsubscribeSensors("bus", [Sensor("a")]),
    Ack("bus", 7),
    Error("is missing", "$.sensing"),
]
BYTES = b"".join(map(encode, SAID))


def test_what_a_gateway_says_is_heard() -> None:
    assert Ear().feed(BYTES) == SAID


def test_it_is_heard_byte_by_byte_too() -> None:
    ear = Ear()
    assert [message for at in range(len(BYTES)) for message in ear.feed(BYTES[at : at + 1])] == SAID


def test_half_a_message_is_waited_for() -> None:
    ear = Ear()
    assert ear.feed(BYTES[:-5]) == SAID[:-1]
    assert ear.feed(BYTES[-5:]) == SAID[-1:]


def test_a_datagram_needs_no_end_of_line() -> None:
    assert Ear().feed_whole(encode(SAID[2]).strip()) == [SAID[2]]


def test_messages_and_members_that_are_not_known_are_passed_over() -> None:
    data = b'{"news":{"a":1}}\n\r\n{"ack":{"sensing-id":"x","seq":1,"why":[]}}\n'
    assert Ear().feed(data) == [Ack("x", 1)]


@pytest.mark.parametrize("junk", [b"junk\n", b'{"ack":{"seq":1}}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_message_is_an_error(junk: bytes) -> None:
    with pytest.raises(CodecError, match="no message of a gateway"):
        Ear().feed(junk)


def test_a_message_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LINE_SIZE_MAX", 100)
    ear = Ear()
    ear.feed(b"x" * 100)
    with pytest.raises(CodecError, match="longer than 100 bytes"):
        ear.feed(b"x")
