"""Pings on links: when they leave, what their answers tell, and that both ends of a link send them."""

from __future__ import annotations

from math import inf

import pytest
from overlay.network import Network

from tidings.overlay.pinging import SAMPLES_MAX, UNANSWERED_MAX, Pinging, SendPing


def test_each_link_is_pinged_when_it_comes_up_and_every_period() -> None:
    pinging = Pinging(0.5)
    assert pinging.wake_at == inf
    pinging.link_up("b", 10.0)
    assert pinging.wake(10.0) == [SendPing("b", 1)]
    assert pinging.wake_at == 10.5
    assert pinging.wake(10.4) == []
    pinging.link_up("c", 10.4)
    assert pinging.wake(10.4) == [SendPing("b", 2), SendPing("c", 3)]
    pinging.link_down("b")
    assert pinging.wake(10.9) == [SendPing("c", 4)]
    pinging.forget("c")
    assert pinging.wake_at == inf


def test_a_period_of_zero_pings_nobody() -> None:
    pinging = Pinging(0.0)
    pinging.link_up("b", 10.0)
    assert pinging.wake_at == inf
    assert pinging.wake(11.0) == []


def test_an_answer_tells_how_long_the_round_trip_took() -> None:
    pinging, told = Pinging(0.5), []
    pinging.on_sample = lambda *sample: told.append(sample)
    pinging.link_up("b", 10.0)
    pinging.wake(10.0)
    pinging.wake(10.5)
    pinging.answered("b", 1, 10.75)
    pinging.answered("b", 2, 10.875)
    assert told == [("b", 0.75), ("b", 0.375)]
    assert (pinging.of("b").least_s, pinging.of("b").longest_s) == (0.375, 0.75)
    assert (pinging.of("z").least_s, pinging.of("z").longest_s) == (None, 0.0)


@pytest.mark.parametrize(("neighbour", "number"), [("b", 1), ("b", 7), ("c", 2), ("", 0)])
def test_an_answer_that_nobody_waits_for_is_passed_over(neighbour: str, number: int) -> None:
    pinging = Pinging(0.5)
    pinging.link_up("b", 10.0)
    pinging.wake(10.0)
    pinging.answered("b", 1, 10.1)
    pinging.answered(neighbour, number, 10.2)
    assert list(pinging.of("b").samples) == pytest.approx([0.1])


def test_pings_without_an_answer_count_as_lost_and_take_no_more_room() -> None:
    pinging = Pinging(0.5)
    pinging.link_up("b", 0.0)
    for at in range(UNANSWERED_MAX + 3):
        pinging.wake(float(at))
    assert (pinging.of("b").sent, pinging.of("b").lost) == (UNANSWERED_MAX + 3, 3)
    pinging.link_down("b")
    assert pinging.of("b").lost == UNANSWERED_MAX + 3
    pinging.link_up("b", 100.0)
    for at in range(2 * SAMPLES_MAX):
        (ping,) = pinging.wake(100.0 + at)
        pinging.answered("b", ping.number, 100.0 + at)
    assert list(pinging.of("b").samples) == [0.0] * SAMPLES_MAX


def test_both_ends_of_a_link_measure_its_round_trip() -> None:
    net = Network(("a", "b"))
    for near, far in (("a", "b"), ("b", "a")):
        trips = net[near].core.overlay.liveness.pinging.of(net[far].broker.node)
        least_s = trips.least_s
        assert least_s is not None
        assert 0.002 <= least_s < 0.02
        assert len(trips.samples) >= 8
        assert trips.lost == 0


def test_pings_begin_again_when_a_link_is_back() -> None:
    net = Network(("a", "b"))
    trips = net["a"].core.overlay.liveness.pinging.of(net["b"].broker.node)
    net.cut("a", "b")
    net.run(10.0)
    sent = trips.sent
    net.run(10.0)
    assert trips.sent == sent
    net.heal("a", "b")
    net.run(10.0)
    assert trips.sent > sent
