"""Streams over datagrams that are lost, doubled and reordered, in virtual time."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.transport import reliable
from tidings.transport.reliable import (
    CHALLENGE,
    DATA,
    DATAGRAM_SIZE_MAX,
    OPEN,
    RESET,
    SILENCE_S_MAX,
    WINDOW,
    ReliableListener,
    ReliableStream,
)

PLACE = "10.0.0.7"
CONNECTION = 0x1234_5678_9ABC_DEF0


class Air:
    """Two ends, and datagrams between them that have what befalls them from a seed."""

    def __init__(self, seed: int, loss: float = 0.0, doubled: float = 0.0, jitter_s: float = 0.0) -> None:
        self.now = 0.0
        self.loss, self.doubled, self.jitter_s = loss, doubled, jitter_s
        self.dialled = ReliableStream.dialled(CONNECTION, 0.0)
        self.listener = ReliableListener(b"secret")
        self.accepted: ReliableStream | None = None
        self.got: dict[str, bytes] = {"dialled": b"", "accepted": b""}
        self.sent = 0
        self._random = Random(seed)
        self._due: list[tuple[float, int, str, bytes]] = []
        self._numbers = count()
        self._flush("dialled")

    def _send(self, to: str, datagram: bytes) -> None:
        assert len(datagram) <= DATAGRAM_SIZE_MAX
        self.sent += 1
        copies = 0 if self._random.random() < self.loss else 1 + (self._random.random() < self.doubled)
        for _ in range(copies):
            at = self.now + 0.01 + self._random.uniform(0, self.jitter_s)
            heappush(self._due, (at, next(self._numbers), to, datagram))

    def _flush(self, end: str) -> None:
        stream = self.dialled if end == "dialled" else self.accepted
        if stream is None:
            return
        self.got[end] += b"".join(stream.take())
        for datagram in stream.output(self.now):
            self._send("accepted" if end == "dialled" else "dialled", datagram)

    def flush(self) -> None:
        """Send what the ends have to say."""
        for end in ("dialled", "accepted"):
            self._flush(end)

    def _hear(self, to: str, datagram: bytes) -> None:
        if to == "dialled":
            self.dialled.receive(datagram, self.now)
        else:
            stream, answer = self.listener.receive(datagram, PLACE, self.now)
            self.accepted = stream or self.accepted
            if answer is not None:
                self._send("dialled", answer)
            if stream is not None and stream.is_over:
                self._flush(to)
                self.listener.forget(PLACE, CONNECTION)
        self._flush(to)

    def run(self, until: float) -> None:
        """Let time pass."""
        self.flush()
        while True:
            ends = {"dialled": self.dialled, "accepted": self.accepted}
            wakes = [(end.wake_at, name) for name, end in ends.items() if end is not None]
            at, name = min(wakes)
            if self._due and self._due[0][0] <= min(at, until):
                self.now, _, to, datagram = heappop(self._due)
                self._hear(to, datagram)
            elif at <= until:
                self.now = max(self.now, at)
                stream = ends[name]
                assert stream is not None
                stream.wake(self.now)
                self._flush(name)
            else:
                self.now = until
                return


@given(
    st.integers(0, 1 << 30),
    st.floats(0, 0.3),
    st.floats(0, 0.3),
    st.sampled_from([0.0, 0.05]),
    st.binary(max_size=20_000),
    st.binary(max_size=5_000),
)
def test_what_is_written_arrives_once_and_in_order_whatever_befalls_datagrams(
    seed: int, loss: float, doubled: float, jitter_s: float, there: bytes, back: bytes
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reliable, "SILENCE_S_MAX", 60.0)  # so many losses may follow each other
        air = Air(seed, loss, doubled, jitter_s)
        air.dialled.write(there)
        air.run(20)
        assert air.accepted is not None
        assert air.dialled.is_open
        air.accepted.write(back)
        air.loss = 0.1
        air.run(60)
        assert air.got == {"accepted": there, "dialled": back}
        assert air.dialled.size == air.accepted.size == 0
        air.dialled.end()
        air.run(90)
        assert air.dialled.is_over
        assert air.accepted.is_over
        assert air.dialled.failure is air.accepted.failure is None
        assert air.dialled.wake_at == air.accepted.wake_at == inf


def test_what_was_written_before_the_end_arrives() -> None:
    air = Air(1, loss=0.2)
    air.dialled.write(b"x" * 100_000)
    air.dialled.end()
    air.run(60)
    assert len(air.got["accepted"]) == 100_000
    assert air.dialled.is_over
    assert air.dialled.failure is None


def test_a_loss_costs_one_datagram_and_not_all_that_follow() -> None:
    air = Air(3)
    air.run(1)
    air.dialled.write(bytes(400_000))
    air.run(5)
    clean, air.sent, air.loss = air.sent, 0, 0.02
    air.dialled.write(bytes(400_000))
    air.run(30)
    assert len(air.got["accepted"]) == 800_000
    assert air.sent < 1.2 * clean


def test_an_end_that_reads_nothing_holds_no_more_than_its_window() -> None:
    air = Air(5)
    air.run(1)
    assert air.accepted is not None
    air.accepted.pause(True)
    air.dialled.write(bytes(3_000_000))
    air.run(10)
    assert air.got["accepted"] == b""
    assert len(air.accepted._arrived) == WINDOW
    air.accepted.pause(False)
    air.run(30)
    assert len(air.got["accepted"]) == 3_000_000


def test_an_end_whose_other_end_is_gone_is_told_so_in_time() -> None:
    air = Air(7)
    air.run(1)
    air.loss = 1.0
    air.dialled.write(b"hello")
    air.run(2 + SILENCE_S_MAX + reliable.RETRY_S_MAX)
    assert air.dialled.failure == f"nothing was heard of the other end for {SILENCE_S_MAX:g} s"


def test_an_end_that_has_started_again_says_that_it_knows_nothing_of_the_connection() -> None:
    air = Air(9)
    air.run(1)
    air.listener = ReliableListener(b"another")
    air.dialled.write(b"hello")
    air.run(2)
    assert air.dialled.failure is not None
    assert "knows nothing" in air.dialled.failure


def test_a_caller_that_does_not_hear_at_its_address_takes_no_memory_and_gets_no_more_than_it_sent() -> None:
    listener = ReliableListener(b"secret")
    forged = ReliableStream.dialled(CONNECTION, 0.0).output(0.0)[0]
    for number in range(1_000):
        stream, answer = listener.receive(forged, f"10.0.{number}", 0.0)
        assert stream is None
        assert answer is not None
        assert answer[0] == CHALLENGE
        assert len(answer) <= len(forged)
        taken, _ = listener.receive(forged[:-8] + answer[-8:], "10.9.9.9", 0.0)
        assert taken is None  # the cookie is for one address
    assert not listener.streams


def test_past_its_limit_a_listener_takes_no_further_connection() -> None:
    listener = ReliableListener(b"secret", connections_max=2)
    answers = []
    for connection in (1, 2, 3):
        stream = ReliableStream.dialled(connection, 0.0)
        _, challenge = listener.receive(stream.output(0.0)[0], PLACE, 0.0)
        assert challenge is not None
        stream.receive(challenge, 0.0)
        answers.append(listener.receive(stream.output(0.0)[0], PLACE, 0.0)[1])
    assert answers[:2] == [None, None]
    assert answers[2] is not None
    assert answers[2][0] == RESET
    listener.forget(PLACE, 1)
    assert len(listener.streams) == 1


@pytest.mark.parametrize("junk", [b"", b"\x13", bytes(20), bytes([DATA]) + bytes(19), bytes([OPEN] * 40)])
def test_junk_is_passed_over(junk: bytes) -> None:
    air = Air(11)
    air.run(1)
    assert air.accepted is not None
    for end in (air.dialled, air.accepted):
        end.receive(junk, air.now)
        assert end.failure is None
    air.listener.receive(junk, "elsewhere", air.now)
    assert len(air.listener.streams) == 1


@given(st.binary(max_size=200), st.integers(0, 1 << 32))
def test_no_datagram_breaks_an_end(tail: bytes, expected: int) -> None:
    air = Air(13)
    air.run(1)
    head = reliable._HEAD
    number = int.from_bytes(tail[:4])
    room, size = int.from_bytes(tail[4:6]), len(tail[6:7]) and tail[6]
    datagram = head.pack(DATA, CONNECTION, number, min(expected, (1 << 32) - 1), room, size) + tail
    air.dialled.receive(datagram, air.now)
    air.dialled.output(air.now)
    assert len(air.dialled._early) + len(air.dialled._arrived) <= WINDOW
