"""Who gets a copy of a message that is for somebody else."""

import pytest
from adhoc.hosts import held, host, meet, send

from tidings.adhoc.strategies import STRATEGIES, strategy_type
from tidings.errors import UserError


def _pair(strategy, names="ab"):
    return [host(name, strategy) for name in names]


def test_with_direct_delivery_nobody_but_the_recipient_gets_a_copy():
    one, two, x = _pair("direct", "abx")
    send(one, "m", "x")
    assert meet(one, two).copies() == []
    assert meet(one, x).copies() == ["m"]
    assert x.got == ["m"]
    assert held(one) == []


def test_direct_delivery_leaves_no_recipient_with_the_others_of_a_list():
    one, x, y = _pair("direct", "axy")
    send(one, "m", "x", "y")
    meet(one, x)
    assert held(x) == []
    assert meet(x, y).copies() == []
    meet(one, y, now=60.0)
    assert y.got == ["m"]


def test_plain_epidemic_keeps_what_it_has_delivered():
    one, two, x = _pair("epidemic", "abx")
    send(one, "m", "x")
    meet(one, x)
    assert held(one) == ["m"]
    assert meet(one, two, now=60.0).copies() == ["m"]
    assert meet(two, x, now=120.0).copies() == []
    assert x.got == ["m"]


def test_spray_and_wait_hands_out_halves_and_then_waits():
    hosts = _pair("spray", "abcdefg")
    send(hosts[0], "m", "x")
    for at, other in enumerate(hosts[1:]):
        meet(hosts[0], other, now=60.0 * at)
    copies = [next((one.copies for one in each.buffer), 0) for each in hosts]
    assert copies == [1, 3, 1, 1, 0, 0, 0]
    meet(hosts[1], hosts[5], now=900.0)
    assert [next(iter(hosts[at].buffer)).copies for at in (1, 5)] == [2, 1]


def test_copies_of_a_meeting_that_was_cut_are_not_gone():
    one, two = _pair("spray")
    send(one, "m", "x")
    meet(one, two, stop=lambda frame: type(frame).__name__ == "CopyFrame")
    assert next(iter(one.buffer)).copies == 6


def test_prophet_gives_a_copy_to_the_host_that_is_likelier_to_meet_the_recipient():
    one, two, three, x = _pair("prophet", "abcx")
    for at in range(3):
        meet(two, x, now=100.0 * at)
    send(one, "m", "x", now=300.0)
    assert meet(one, three, now=310.0).copies() == []
    assert meet(one, two, now=320.0).copies() == ["m"]
    assert two.strategy.predictability["x"] > one.strategy.predictability["x"] > 0


def test_predictability_ages_and_a_long_meeting_counts_once():
    one, two = _pair("prophet")
    meet(one, two, now=0.0)
    meet(one, two, now=20.0)
    assert one.strategy.predictability["b"] == pytest.approx(0.75 * 0.98 ** (20 / 30))
    meet(one, two, now=3_020.0)
    aged = 0.75 * 0.98 ** (3_020 / 30)
    assert one.strategy.predictability["b"] == pytest.approx(aged + (1 - aged) * 0.75)


def test_a_strategy_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(UserError, match="direct, epidemic, acknowledged"):
        strategy_type("magic")
    assert all(name == kind.name for name, kind in STRATEGIES.items())
