"""From the bytes of a connection to messages: the same in any chunks, and after any mistake."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.whole import feed, read_datagram
from tidings.gateway.intake import FIRST_SIZE_MAX, MISTAKES_IN_A_ROW_MAX, OBJECT_SIZE_MAX, NetworkReader
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Error, Register, Sensing
from tidings.gateway.reading import Mapper

NOON_US = 1_794_744_000_000_000
GOOD = b'{"sensing":{"sensing-id":"net","sensors":[{"name":"a","type":"t","value":"20.5"}]}}'
ODD = b'{"sensing": {"sensing-id": "net", "sensors": [{"name": "a", "type": "t", "value": 5, "unit": "C"}]}}'
LONG = json.dumps(json.loads(ODD), indent=2).encode()
REGISTER = b'{"register": {"sensing-id": "net", "sensors": [{"name": "a", "type": "t"}]}}'
BAD = b'5, {"name": "a", "type": "t", "value": 1e999}, {"name": "b", "type": "t", "value": 1}'
MIXED = b'{"sensing": {"sensing-id": "net", "sensors": [' + BAD + b"]}}"
ESCAPED = b'{"sensing":{"sensing-id":"n\\u0065t","sensors":[{"name":"{\\"}","type":"t","value":"\\\\"}]}}'
RUBBISH = [b"junk", b"{}", b'{"a": "\n', b'{"a": {\n', b"\xef\xbb\xbf", b"\0", b"[1]", b'{"a":']
BLANKS = [b"\n", b"\n", b"\r\n", b" "]
PIECES = st.sampled_from([GOOD, GOOD, GOOD, ODD, LONG, REGISTER, MIXED, ESCAPED, *RUBBISH, *BLANKS])


def chunks(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(bounds)]


def read(pieces: list[bytes]) -> list[Said]:
    intake = NetworkReader()
    return [one for data in pieces for one in feed(intake, data)] + intake.finish()


def outcome(said: list[Said]) -> tuple[list[Any], list[Said]]:
    """What becomes of what was said: the events of each message, in order among the others."""
    mapper = Mapper()
    return [
        mapper.map([one], 1, NOON_US) if isinstance(one, Sensing) else one
        for one in said
    ], [one for one in said if isinstance(one, Error)]  # fmt: skip


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0)))
def test_the_messages_are_the_same_in_any_chunks(pieces: list[bytes], places: list[int]) -> None:
    stream = b"".join(pieces)
    whole = outcome(read([stream]))
    assert outcome(read(chunks(stream, places))) == whole
    assert outcome(read([stream[at : at + 1] for at in range(len(stream))])) == whole


@given(
    st.lists(st.sampled_from([GOOD, ODD, LONG, REGISTER, ESCAPED]), max_size=12),
    st.sampled_from([b"", b"\n", b" \r\n"]),
)
def test_every_good_message_comes_through(messages: list[bytes], between: bytes) -> None:
    said = read([between.join(messages)])
    assert [isinstance(one, Register) for one in said] == [one is REGISTER for one in messages]
    assert not any(isinstance(one, Error) for one in said)


@pytest.mark.parametrize("good", [GOOD, ODD, LONG, REGISTER, GOOD + b"\n", GOOD + b" ", ODD + b"\r\n"])
def test_a_message_is_there_with_its_last_byte(good: bytes) -> None:
    """A network may wait for the answer before it says more."""
    intake = NetworkReader()
    whole = good.rstrip()
    for at in range(len(whole) - 1):
        assert feed(intake, whole[at : at + 1]) == []
        assert intake.is_open
    assert len(feed(intake, whole[-1:])) == 1
    assert not intake.is_open
    assert len(feed(NetworkReader(), good)) == 1


def test_all_that_is_wrong_in_a_chunk_is_told_and_all_that_is_good_kept() -> None:
    said = read([b"\n".join([GOOD, b'{"hello": 1}', MIXED, b'{"a": "', ODD, b"rubbish", GOOD])])
    assert [type(one).__name__.removeprefix("Plain").removeprefix("Strict") for one in said] == [
        "Sensing", "Error", "Sensing", "Error", "Error", "Error", "Sensing", "Error", "Sensing",
    ]  # fmt: skip


def test_an_object_may_be_longer_once_a_message_was_understood() -> None:
    long = ODD.replace(b'"C"', b'"' + b"x" * FIRST_SIZE_MAX + b'"')
    (problem,) = read([long])
    assert problem == Error(f"an object has at most {FIRST_SIZE_MAX} bytes")
    for pieces in ([GOOD + long], [GOOD, long], [GOOD + b"\n" + long[:99], long[99:]]):
        assert [type(one) is Error for one in read(pieces)] == [False, False]
    longer = ODD.replace(b'"C"', b'"' + b"x" * OBJECT_SIZE_MAX + b'"')
    assert Error(f"an object has at most {OBJECT_SIZE_MAX} bytes") in read([GOOD + longer])
    assert len(read([GOOD, longer, GOOD])) == 3


def test_a_registration_of_very_many_sensors_is_refused_and_the_connection_stays() -> None:
    members = {"sensing-id": "net", "sensors": [{"name": f"s{at}", "type": "t"} for at in range(100_000)]}
    register = json.dumps({"register": members}).encode()
    intake = NetworkReader()
    said = [
        one for data in chunks(register, list(range(0, len(register), 50_000))) for one in feed(intake, data)
    ]
    assert said == [Error(f"an object has at most {FIRST_SIZE_MAX} bytes")]
    assert not intake.is_given_up
    assert len(feed(intake, GOOD)) == 1


@pytest.mark.parametrize("mistake", [b"{}\n", b"x{}", b'{"a":"\n', b"5\n{}\n"])
def test_a_peer_that_makes_only_mistakes_is_given_up(mistake: bytes) -> None:
    intake = NetworkReader()
    said = [one for _ in range(MISTAKES_IN_A_ROW_MAX) for one in feed(intake, mistake)]
    assert intake.is_given_up
    assert MISTAKES_IN_A_ROW_MAX <= len(said) <= MISTAKES_IN_A_ROW_MAX + 1
    assert feed(intake, GOOD) == []


def test_one_message_of_very_many_mistakes_is_one_mistake() -> None:
    intake = NetworkReader()
    readings = b", ".join(500 * [b"null"])
    assert len(feed(intake, b'{"sensing": {"sensing-id": "net", "sensors": [' + readings + b"]}}")) == 10
    assert not intake.is_given_up
    assert len(feed(intake, GOOD)) == 1


def test_a_message_between_the_mistakes_makes_up_for_them() -> None:
    intake = NetworkReader()
    for _ in range(3):
        assert len(feed(intake, (MISTAKES_IN_A_ROW_MAX - 1) * b"{}\n" + GOOD)) == MISTAKES_IN_A_ROW_MAX
    assert not intake.is_given_up


@given(st.lists(PIECES, max_size=6))
def test_a_datagram_is_read_as_a_stream_of_its_own(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert outcome(read_datagram(data)) == outcome(read([data]))


def test_a_datagram_that_is_cut_short_is_told() -> None:
    assert read_datagram(GOOD[:-1]) == [Error("the object is cut short")]
    assert read_datagram(b"") == []
    assert len(read_datagram(GOOD + GOOD)) == 2
