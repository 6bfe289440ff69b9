"""The simulated network: TCP with all its unpleasantness, and nothing worse."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.simulator.world import (
    BUFFER_SIZE,
    CONNECT_S_MAX,
    NOTICE_S_MAX,
    Clock,
    Conditions,
    End,
    SimulatedLink,
    SimulatedNetwork,
)

conditions = st.builds(
    Conditions,
    delay_s=st.floats(0, 1),
    jitter_s=st.floats(0, 1),
    bytes_per_s=st.floats(1e3, 1e8),
    piece_max=st.integers(1, 5_000),
)
sendings = st.lists(st.tuples(st.floats(0, 2), st.binary(min_size=1, max_size=200)), max_size=8)


class Program:
    """Has ends, and keeps what happens to them."""

    def __init__(self) -> None:
        self.is_up = True
        self.ends: list[End | None] = []
        self.pieces: list[bytes] = []
        self.losses = 0
        self.resumed = 0

    def connected(self, end: End | None) -> None:
        self.ends.append(end)

    def receive(self, _end: End, data: bytes) -> None:
        assert data
        self.pieces.append(data)

    def lost(self, _end: End) -> None:
        self.losses += 1

    def resume(self, _end: End) -> None:
        self.resumed += 1

    @property
    def end(self) -> End:
        (end,) = self.ends
        assert end is not None
        return end

    @property
    def got(self) -> bytes:
        return b"".join(self.pieces)


class Setting:
    """Two programs that are connected."""

    def __init__(self, conditions: Conditions | None = None, seed: int = 0) -> None:
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, Random(seed))
        self.link: SimulatedLink = self.network.link("a", "b")
        self.link.conditions = conditions or Conditions()
        self.near, self.far = Program(), Program()
        self.connect()

    def connect(self) -> None:
        self.network.connect(self.link, self.near, self.far, self.near.connected)
        self.pass_s(10)

    def pass_s(self, duration_s: float) -> None:
        self.clock.run(self.clock.now + duration_s)

    def send(self, sent: list[tuple[float, bytes]]) -> bytes:
        for delay_s, data in sent:
            self.near.end.send(data)
            self.pass_s(delay_s)
        return b"".join(data for _, data in sent)


@given(conditions, sendings, st.integers())
def test_all_bytes_arrive_in_order_whatever_the_conditions(
    given_conditions: Conditions, sent: list[tuple[float, bytes]], seed: int
) -> None:
    setting = Setting(given_conditions, seed)
    whole = setting.send(sent)
    setting.pass_s(1_000)
    assert setting.far.got == whole
    assert all(len(piece) <= given_conditions.piece_max for piece in setting.far.pieces)
    assert (setting.near.losses, setting.far.losses) == (0, 0)


@given(conditions, sendings, st.integers(), st.floats(0, 1))
def test_after_a_cut_a_beginning_has_arrived_and_both_ends_learn_of_it(
    given_conditions: Conditions, sent: list[tuple[float, bytes]], seed: int, wait_s: float
) -> None:
    setting = Setting(given_conditions, seed)
    whole = setting.send(sent)
    setting.pass_s(wait_s)
    setting.network.cut(setting.link)
    setting.near.end.send(b"never")
    setting.pass_s(NOTICE_S_MAX)
    assert whole.startswith(setting.far.got)
    assert (setting.near.losses, setting.far.losses) == (1, 1)
    assert not setting.link.ends


@given(conditions, sendings, st.integers())
def test_what_was_sent_before_a_close_arrives_before_it(
    given_conditions: Conditions, sent: list[tuple[float, bytes]], seed: int
) -> None:
    setting = Setting(given_conditions, seed)
    whole = setting.send(sent)
    setting.near.end.close()
    setting.far.end.send(b"too late")
    setting.pass_s(1_000)
    assert setting.far.got == whole
    assert (setting.near.losses, setting.far.losses, setting.near.got) == (0, 1, b"")


@given(sendings, sendings, st.integers())
def test_a_parted_link_stands_still_and_goes_on_when_it_heals(
    before: list[tuple[float, bytes]], after: list[tuple[float, bytes]], seed: int
) -> None:
    setting = Setting(Conditions(delay_s=0.5, piece_max=7), seed)
    whole = setting.send(before)
    setting.network.part(setting.link)
    arrived = setting.far.got
    whole += setting.send(after)
    setting.pass_s(100)
    assert setting.far.got == arrived
    setting.network.heal(setting.link)
    setting.pass_s(100)
    assert setting.far.got == whole


def test_nobody_connects_over_a_parted_link_or_to_who_is_not_there() -> None:
    setting = Setting()
    setting.network.part(setting.link)
    setting.network.connect(setting.link, setting.near, setting.far, setting.near.connected)
    setting.pass_s(CONNECT_S_MAX)
    setting.network.heal(setting.link)
    setting.far.is_up = False
    setting.connect()
    assert setting.near.ends[1:] == [None, None]
    assert len(setting.far.ends) == 1


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_link_takes_as_long_as_its_bandwidth_says(is_slow: bool) -> None:
    setting = Setting(Conditions(bytes_per_s=10 if is_slow else 1e6))
    setting.near.end.send(b"x" * 100)
    setting.pass_s(9)
    assert (setting.far.got == b"x" * 100) is not is_slow
    setting.pass_s(2)
    assert setting.far.got == b"x" * 100


def test_an_end_with_much_under_way_is_paused_and_told_when_it_can_go_on() -> None:
    setting = Setting(Conditions(bytes_per_s=BUFFER_SIZE, piece_max=1_000))
    setting.near.end.send(b"x" * BUFFER_SIZE)
    assert setting.near.end.is_paused
    setting.pass_s(2)
    assert not setting.near.end.is_paused
    assert setting.near.resumed == 1


def test_of_a_program_that_crashes_the_other_learns_later() -> None:
    setting = Setting()
    setting.network.drop(setting.far.end)
    setting.near.end.send(b"never")
    setting.pass_s(NOTICE_S_MAX)
    assert (setting.near.losses, setting.far.losses, setting.far.got) == (1, 0, b"")
