"""Compression of events on links that are slow, and on no others."""

from __future__ import annotations

import pytest
import zstandard
from overlay.network import App, Network

from tidings.errors import CodecError
from tidings.ids import StoredIds
from tidings.overlay import linking
from tidings.overlay.packing import (
    LOOK_S,
    QUIET_S,
    SLOW_BYTES_S,
    WAITING_MIN,
    LinkSpeed,
    packed,
    unpacked,
)
from tidings.protocol.connection import Connection
from tidings.protocol.frames import FRAME_MAX, PREFIX, FrameReader, encode
from tidings.protocol.messages import Packed, Welcome
from tidings.simulator.world import Conditions
from tidings.store import packing as stored_packing

MUCH = 2 * WAITING_MIN
EVENTS = 8_000
SLOW = Conditions(bytes_per_s=50_000.0)


# -- judging a link


def looked(*looks: tuple[float, int, int]) -> list[bool]:
    """Whether a link is slow after each look: the time, bytes that wait, bytes that were posted before."""
    speed = LinkSpeed()
    judged = []
    for now, waiting, posted in looks:
        speed.posted(posted)
        speed.look(waiting, now)
        judged.append(speed.is_slow)
    return judged


def test_a_link_is_slow_where_much_waits_and_little_leaves() -> None:
    assert looked((0.0, MUCH, MUCH), (LOOK_S / 2, MUCH, 0), (LOOK_S, MUCH, 1_000)) == [False, False, True]


def test_a_link_is_fast_where_much_waits_and_much_leaves() -> None:
    each = int(LOOK_S * SLOW_BYTES_S)
    assert looked((0.0, MUCH, MUCH), (LOOK_S, MUCH, each), (2 * LOOK_S, MUCH, each)) == [False] * 3
    assert looked((0.0, MUCH, MUCH), (LOOK_S, MUCH, each - 10)) == [False, True]


def test_a_link_that_has_little_to_do_is_not_slow() -> None:
    assert looked(*((n * LOOK_S, WAITING_MIN - 1, 10) for n in range(100))) == [False] * 100


def test_a_burst_makes_no_link_slow() -> None:
    looks = [(0.0, MUCH, MUCH), (LOOK_S * 0.9, 0, 0), (LOOK_S, MUCH, MUCH), (LOOK_S * 1.9, MUCH, 0)]
    assert looked(*looks) == [False] * 4


def test_a_slow_link_is_fast_again_when_it_has_kept_up_for_a_while() -> None:
    begun = [(0.0, MUCH, MUCH), (LOOK_S, MUCH, 0)]
    quiet = [(1.0, 0, 0), (QUIET_S, 0, 0), (1.0 + QUIET_S, 0, 0)]
    assert looked(*begun, *quiet) == [False, True, True, True, False]
    again = [(1.0, 0, 0), (QUIET_S, MUCH, MUCH), (1.0 + QUIET_S, 0, 0)]
    assert looked(*begun, *again)[-1]


# -- over links


def crossing(conditions: Conditions, seconds: float) -> tuple[Network, list[int]]:
    """Events that are published faster than a link carries them: the network, and what has arrived."""
    net = Network(("a", "b"), seed=2)  # one in which the link is found slow before much has left
    far = net.app("b").subscribe("x >= 0", durable="mine")
    source = net.app("a")
    net.run()
    net.world.network.link("a", "b").conditions = conditions
    for start in range(0, EVENTS, EVENTS // 100):
        publish(source, range(start, start + EVENTS // 100))
        net.run(0.02)
    net.run(seconds)
    return net, far.values


def publish(app: App, values: range) -> None:
    app.publish(*values, note="the air is as it was yesterday and the day before " * 10)


def test_events_on_a_slow_link_are_compressed_and_come_once_and_in_order() -> None:
    net, got = crossing(SLOW, 300.0)
    assert got == list(range(EVENTS))
    before, after = (net.count("a", "compressed_bytes", reason) for reason in ("before", "after"))
    assert 0 < after < before / 5


def test_compression_brings_events_over_a_slow_link_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    _, with_it = crossing(SLOW, 40.0)
    monkeypatch.setattr(linking, "forms", list)
    net, without = crossing(SLOW, 40.0)
    assert len(with_it) > 1.5 * len(without) > 0
    assert net.count("a", "compressed_bytes", "before") == 0, "a node that can't unpack is sent none"


def test_nothing_is_compressed_on_a_fast_link() -> None:
    net, got = crossing(Conditions(), 5.0)
    assert got == list(range(EVENTS))
    assert net.count("a", "compressed_bytes", "before") == 0
    assert not net.neighbour("a", "b").status(0)["compressed"]


# -- bad input


@pytest.mark.parametrize("data", [b"", b"junk", zstandard.compress(b"x" * 100)[:-3]])
def test_what_can_t_be_unpacked_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError, match=r"Packed\.data"):
        unpacked(data)


@pytest.mark.parametrize("size", [FRAME_MAX, stored_packing.UNPACKED_BYTES_MAX + 1])
def test_a_small_frame_that_would_become_too_long_is_refused(size: int) -> None:
    with pytest.raises(CodecError, match=r"Packed\.data"):
        unpacked(zstandard.compress(bytes(size)))


def test_a_frame_that_does_not_become_shorter_stays_as_it_is() -> None:
    frame = encode(Packed(b"short"))
    assert packed(frame) is frame
    long = encode(Packed(b"x" * 10_000))
    ((message, _),) = FrameReader(FRAME_MAX).feed(packed(long))
    assert isinstance(message, Packed)
    assert unpacked(message.data) == long[PREFIX:]


def test_a_client_that_is_no_node_takes_no_compressed_frame() -> None:
    connection = Connection(StoredIds("client", 1))
    connection.connect(0.0)
    connection.receive(encode(Welcome(1, "node", 1, "s", 0, 1_000)), 0.0)
    connection.receive(packed(encode(Packed(b"x" * 10_000))), 0.0)
    assert connection.is_given_up
    assert "Packed is not for a client that is no node" in str(connection.trouble)
