"""Frames: the same whatever pieces they come in, and nothing on the word of a length alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged

from protocol.rig import event
from tidings.errors import CodecError
from tidings.event.wire import decode_events, encode_events
from tidings.protocol.frames import FIRST_FRAME_MAX, FRAME_MAX, Frame, FrameReader, encode, read_frame
from tidings.protocol.messages import (
    Accepted,
    Credit,
    Deliver,
    Notice,
    Ping,
    ProtocolMessage,
    Publish,
    Put,
    Reverse,
)

messages: st.SearchStrategy[ProtocolMessage] = st.one_of(
    st.builds(Ping, st.integers(0, 2**63)),
    st.builds(Accepted, st.integers(0, 2**63)),
    st.builds(Credit, st.integers(0, 2**32), st.integers(0, 2**63)),
    st.builds(
        Notice, st.text(max_size=5), st.integers(0, 9), st.dictionaries(st.text(max_size=3), st.none())
    ),
    st.builds(Deliver, st.integers(0, 9), st.none() | st.just("s"), positions=st.none() | st.just(bytes(8))),
    st.just(Publish()),
    st.builds(Put, st.sampled_from(["jobs", "bills"]), st.integers(0, 1)),
)
sections = st.integers(0, 3).map(lambda count: encode_events([event(n, n=n) for n in range(1, count + 1)]))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    message = draw(messages)
    return message, draw(sections) if message.HAS_EVENTS else b""


def flat(read: list[Frame]) -> list[tuple[ProtocolMessage, object]]:
    """What was read, with publications or puts that follow each other as one: a reader may join them."""
    found: list[tuple[ProtocolMessage, object]] = []
    for message, events in read:
        if isinstance(message, Publish | Put):
            if not (found and found[-1][0] == message):
                found.append((message, []))
            found[-1][1].extend(decode_events(events))  # type: ignore[attr-defined]
        else:
            found.append((message, events))
    return [one for one in found if one[1] != []]


@given(st.lists(frames()), st.data())
def test_frames_come_out_as_they_went_in_whatever_the_pieces(made: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode(*frame) for frame in made)
    reader, read, at = FrameReader(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 30))
        read += reader.feed(stream[at : at + size])
        at += size
    assert flat(read) == flat(made)
    assert reader.held == 0


@given(st.lists(frames(), min_size=1))
def test_byte_by_byte_each_frame_comes_with_its_last_byte(made: list[Frame]) -> None:
    reader = FrameReader()
    for message, events in made:
        frame = encode(message, events)
        for byte in frame[:-1]:
            assert list(reader.feed(bytes([byte]))) == []
        ((got, _),) = reader.feed(frame[-1:])
        assert got == message


@given(frames(), st.data())
def test_a_frame_cut_short_is_held_and_not_given(frame: Frame, data: st.DataObject) -> None:
    whole = encode(*frame)
    cut = data.draw(st.integers(0, len(whole) - 1))
    reader = FrameReader()
    assert list(reader.feed(whole[:cut])) == []
    assert reader.held == cut


@given(damaged(st.lists(frames()).map(lambda made: b"".join(encode(*frame) for frame in made))))
def test_damaged_bytes_give_messages_or_a_codec_error_and_nothing_else(data: bytes) -> None:
    reader = FrameReader()
    try:
        for message, _ in reader.feed(data):
            assert isinstance(message, ProtocolMessage)
    except CodecError:
        pass


@pytest.mark.parametrize("length", [0, FIRST_FRAME_MAX + 1, FRAME_MAX, 2**32 - 1])
def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come(length: int) -> None:
    reader = FrameReader()
    with pytest.raises(CodecError, match=f"frame of {length} bytes"):
        list(reader.feed(length.to_bytes(4, "big") + b"\x0b"))


def test_a_kind_that_is_not_there_is_refused() -> None:
    with pytest.raises(CodecError, match="no frame of kind 99"):
        read_frame(99, b"\x90")


@pytest.mark.parametrize("kind", [Publish, Deliver])
def test_a_kind_with_events_must_have_them(kind: type[ProtocolMessage]) -> None:
    header = encode(Deliver(1) if kind is Deliver else Publish())[5:]
    with pytest.raises(CodecError, match="has no events"):
        read_frame(kind.KIND, header)


@given(st.sampled_from(["", "\u0750", "jobs"]), st.sampled_from([0, 0xDD, 0xDDDD, 0xDD00DD00DD]), sections)
def test_a_header_may_have_bytes_that_events_begin_with(name: str, seen: int, events: bytes) -> None:
    message = Put(name, seen)
    assert read_frame(Put.KIND, encode(message, events)[5:]) == (message, events)


def test_bytes_behind_a_message_without_events_are_refused() -> None:
    with pytest.raises(CodecError):
        read_frame(Ping.KIND, b"\x91\x01\x00")


@given(
    st.lists(st.integers(0, 300), max_size=12), st.lists(st.tuples(st.integers(1, 400), st.integers(0, 4)))
)
def test_frames_that_are_left_unread_for_a_while_all_come(
    sizes: list[int], steps: list[tuple[int, int]]
) -> None:
    """Bytes come in pieces, and only some of the frames that are whole are asked for after each."""
    stream = b"".join(encode(Notice("x" * size, number, {})) for number, size in enumerate(sizes))
    reader, got = FrameReader(FRAME_MAX), []
    at = 0
    for size, asked in [*steps, (len(stream), 0)]:
        piece = stream[at : at + size]
        at += len(piece)
        reader.add(piece)
        for _ in range(asked):
            frame = reader.next()
            if frame is not None:
                got.append(frame[0])
    while (frame := reader.next()) is not None:
        got.append(frame[0])
    assert [message.number for message in got] == list(range(len(sizes)))
    assert reader.held == 0
    assert not reader.has_next


def test_a_frame_that_comes_byte_by_byte_is_held_in_few_pieces() -> None:
    frame = encode(Reverse(bytes(20_000)))
    reader = FrameReader()
    for at in range(len(frame) - 1):
        assert not list(reader.feed(frame[at : at + 1]))
    assert reader.held == len(frame) - 1
    assert len(reader._behind) < 10
    ((message, _),) = reader.feed(frame[-1:])
    assert message == Reverse(bytes(20_000))
