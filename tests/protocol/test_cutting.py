"""Cutting frames out of a stream: the same events, in whatever pieces it comes and whoever cuts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import damaged, numbered_events

from tidings.errors import CodecError
from tidings.event import Event
from tidings.event.wire import COUNT_MAX, HEAD_SIZE, array_head, count_in_head, decode_events, encode_events
from tidings.protocol import cutting, frames
from tidings.protocol.cutting import join_compiled
from tidings.protocol.frames import FRAME_MAX, PUBLISH, Frame, FrameReader, encode, join
from tidings.protocol.messages import Deliver, Ping, Publish, Request

SOURCE = Path(__file__).parents[2] / "src"
LIMIT = 300


@pytest.fixture(autouse=True, scope="module")
def _few_frames_are_many() -> Iterator[None]:
    """Compiled code is called for every run, however short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "FEW", 0)
        yield


Outcome = tuple[list[Frame], str | None, int]
"""Frames with neighbouring PUBLISH ones joined, the error that ended them, the bytes held."""


def outcome(pieces: list[bytes], limit: int, is_compiled: bool) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_join", join_compiled if is_compiled else join)
        reader, seen, problem = FrameReader(limit), list[Frame](), None
        try:
            for piece in pieces:
                seen.extend(reader.feed(piece))
        except CodecError as error:
            problem = str(error)
    return united(seen), problem, 0 if problem else reader.held


def united(seen: list[Frame]) -> list[Frame]:
    """The frames with the events of PUBLISH frames that follow each other in one, counted past all bounds."""
    result: list[Frame] = []
    for message, events in seen:
        last = result[-1] if result else None
        if last is not None and message == last[0] == PUBLISH:
            count = int.from_bytes(last[1][:8], "big") + count_in_head(events)
            result[-1] = (PUBLISH, count.to_bytes(8, "big") + last[1][8:] + events[HEAD_SIZE:])
        elif message == PUBLISH:
            result.append((message, count_in_head(events).to_bytes(8, "big") + events[HEAD_SIZE:]))
        else:
            result.append((message, events))
    return result


def raw_frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


real = st.lists(numbered_events(), max_size=2).map(encode_events)
opaque = st.builds(
    lambda count, data: array_head(count) + data,
    st.sampled_from([0, 1, 2, 255, COUNT_MAX]),
    st.binary(max_size=30),
)
plain = (real | opaque).map(lambda events: encode(PUBLISH, events))
others = st.one_of(
    st.sampled_from([encode(Ping(7)), encode(Request(1, "status"))]),
    opaque.map(lambda events: encode(Deliver(5), events)),
    opaque.map(lambda events: raw_frame(b"\x03\x91\xc0" + events)),
)
wrong = st.sampled_from([
    raw_frame(b""), raw_frame(b"\x03"), raw_frame(b"\x03\x90"), raw_frame(b"\x03\x90\xdd\0\0\0"),
    raw_frame(b"\x63\x90"), raw_frame(b"\x03\x90\xdc\0\1\0\0"), raw_frame(b"\x03\x80\xdd\0\0\0\0"),
    raw_frame(b"\x03\xc1\xdd\0\0\0\0"), raw_frame(b"\x0b\x91\xa1x"), b"\xff\xff\xff\xff\x03",
    b"\x00\x00\x00\x03", encode(PUBLISH, array_head(1) + bytes(900)),
])  # fmt: skip
streams = st.lists(st.one_of(plain, plain, plain, others), max_size=12).map(b"".join)
rough_streams = st.one_of(
    streams, st.tuples(streams, wrong, streams).map(b"".join), damaged(streams), st.binary(max_size=60)
)
limits = st.sampled_from([LIMIT, 40, 64, 4096, FRAME_MAX])


@given(rough_streams, st.lists(st.integers(0, 200), max_size=20), limits)
def test_in_whatever_pieces_a_stream_comes_both_readers_give_the_same(
    stream: bytes, sizes: list[int], limit: int
) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    pieces.append(stream[at:])
    expected = outcome([stream], limit, is_compiled=False)
    assert outcome([stream], limit, is_compiled=True) == expected
    assert outcome(pieces, limit, is_compiled=False) == expected
    assert outcome(pieces, limit, is_compiled=True) == expected


@given(rough_streams.filter(lambda stream: len(stream) < 800))
def test_byte_by_byte_both_readers_give_the_same(stream: bytes) -> None:
    expected = outcome([stream], LIMIT, is_compiled=False)
    single = [stream[at : at + 1] for at in range(len(stream))]
    assert outcome(single, LIMIT, is_compiled=False) == expected
    assert outcome(single, LIMIT, is_compiled=True) == expected


@given(plain, rough_streams, st.binary(max_size=9), limits)
def test_both_join_the_same_run(first: bytes, rest: bytes, before: bytes, limit: int) -> None:
    assume(len(first) - 4 <= limit)
    stream = before + first + rest
    assert join_compiled(stream, len(before), limit) == join(stream, len(before), limit)


@pytest.mark.parametrize("is_compiled", [False, True])
@given(events=st.lists(numbered_events(), min_size=1, max_size=12))
def test_single_events_come_out_as_one_array(is_compiled: bool, events: list[Event]) -> None:
    stream = b"".join(encode(PUBLISH, encode_events([event])) for event in events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_join", join_compiled if is_compiled else join)
        ((message, joined),) = FrameReader(FRAME_MAX).feed(stream)
    assert message == PUBLISH
    assert joined == encode_events(events)
    assert len(decode_events(joined)) == len(events)


@pytest.mark.parametrize("joiner", [join, join_compiled])
class TestJoin:
    def test_a_run_ends_before_another_kind(self, joiner: object) -> None:
        one = encode(PUBLISH, array_head(1) + b"e")
        for other in (encode(Ping()), raw_frame(b"\x03\x91\xc0" + array_head(1) + b"e"), one[:-1], b""):
            assert run(joiner, one + one + other) == (2 * len(one), array_head(2) + b"ee")

    def test_a_run_ends_before_a_frame_too_short_for_the_head_of_its_events(self, joiner: object) -> None:
        one = encode(PUBLISH, array_head(1) + b"e")
        for size in range(3, 7):
            short = raw_frame(b"\x03\x90\xdd\0\0\0"[:size])
            assert run(joiner, one + short + one) == (len(one), array_head(1) + b"e")

    def test_a_run_ends_before_a_frame_longer_than_the_limit(self, joiner: object) -> None:
        none = encode(PUBLISH, array_head(0))
        for excess in (1, 2, 3):
            long = encode(PUBLISH, array_head(1) + bytes(LIMIT + excess - 2 - HEAD_SIZE))
            assert len(long) == 4 + LIMIT + excess
            assert run(joiner, none + long) == (len(none), array_head(0))

    def test_a_run_has_no_more_bytes_than_the_limit(self, joiner: object) -> None:
        one = encode(PUBLISH, array_head(1) + b"e" * 50)
        for limit in (57, 104, 105, 155):
            at, events = run(joiner, one * 9, limit)
            assert len(events) == HEAD_SIZE + 50 * max(1, (limit - HEAD_SIZE) // 50) <= limit
            assert at == len(one) * count_in_head(events)

    def test_a_run_has_no_more_events_than_a_head_can_say(self, joiner: object) -> None:
        one, most = (encode(PUBLISH, array_head(count)) for count in (1, COUNT_MAX))
        assert run(joiner, most + one) == (len(most), array_head(COUNT_MAX))
        assert run(joiner, one + most) == (len(one), array_head(1))


def run(joiner: object, stream: bytes, limit: int = LIMIT) -> tuple[int, bytes]:
    assert callable(joiner)
    following, events = joiner(stream, 0, limit)
    return following, events


@pytest.mark.parametrize("bad", [raw_frame(b"\x03\x90"), raw_frame(b"\x03\x90\xdd\0"), bytes(5), b"\xff" * 5])
def test_what_came_before_a_bad_frame_is_given_first(bad: bytes) -> None:
    one = encode(PUBLISH, array_head(1) + b"e")
    found = FrameReader().feed(one + one + bad + one)
    assert next(found) == (Publish(), array_head(2) + b"ee")
    with pytest.raises(CodecError):
        next(found)


def test_a_frame_without_the_head_of_its_events_does_not_borrow_from_the_next() -> None:
    with pytest.raises(CodecError, match="has no events"):
        list(FrameReader().feed(raw_frame(b"\x03\x90\xdd\0") + encode(PUBLISH, array_head(1) + b"e")))


def test_a_limit_raised_between_two_frames_holds_for_the_next_one() -> None:
    reader, seen = FrameReader(20), []
    large = encode(PUBLISH, array_head(1) + b"e" * 50)
    for message, _ in reader.feed(encode(Ping()) + large):
        reader.limit = 100
        seen.append(message)
    assert seen == [Ping(), PUBLISH]


def test_a_short_run_is_left_to_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "FEW", 8)
    one = encode(PUBLISH, array_head(1) + b"e")
    for number in (1, 3, 7, 8, 9, 40):
        assert join_compiled(one * number, 0, FRAME_MAX) == join(one * number, 0, FRAME_MAX)


def run_python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_numba_joins_frames_only_when_it_is_asked_to() -> None:
    code = """
import sys
from tidings.protocol import frames
list(frames.FrameReader().feed(b""))
print("numba" in sys.modules, frames._join.__name__)
frames.use_compiled()
print("numba" in sys.modules, frames._join.__name__)"""
    assert run_python(code).split() == ["False", "join", "True", "join_compiled"]


def test_without_numba_the_missing_extra_is_named() -> None:
    code = """
import sys
from tidings.protocol.frames import use_compiled
from tidings.errors import MissingExtra
sys.modules["numba"] = None
try:
    use_compiled()
except MissingExtra as error:
    print(error.extra)"""
    assert run_python(code) == "node"
