"""Who gets a copy of a message that is for somebody else."""

from collections import deque

import pytest
from adhoc.hosts import held, host, meet, note, send

from tidings.adhoc.effects import SendFrame
from tidings.adhoc.frames import CopyFrame
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


@pytest.mark.parametrize("strategy", ["epidemic", "spray"])
@pytest.mark.parametrize("names", ["abx", "yzx"])
def test_a_recipient_gets_one_copy_however_often_it_meets_carriers(strategy, names):
    sender, carrier, x = _pair(strategy, names)
    send(sender, "m", "x", ttl_s=1_000.0)
    meet(sender, carrier)
    met = [meet(one, x, now=60.0 * at) for at, one in enumerate([sender, carrier, sender, carrier])]
    assert [told.copies() for told in met] == [["m"], [], [], []]
    assert x.got == ["m"]
    x.wake(1_100.0)
    assert x.needless == ()


@pytest.mark.parametrize("names", ["abx", "yzx"])
def test_a_recipient_says_to_all_that_are_here_what_it_has_got(names):
    sender, carrier, x = _pair("epidemic", names)
    send(sender, "m", "x")
    meet(sender, carrier)
    hosts = {one.name: one for one in (sender, carrier, x)}
    frames = deque((one, sent) for one in (sender, carrier) for sent in note(one, one.meet("x", 60.0)))
    frames += [(x, sent) for one in (sender, carrier) for sent in note(x, x.meet(one.name, 60.0))]
    copies = 0
    while frames:
        giver, sent = frames.popleft()
        taker = hosts[sent.peer]
        frames += [(taker, answer) for answer in note(taker, taker.receive(giver.name, sent.frame, 60.0))]
        for one in (sender, carrier) if not frames else ():
            copy = one.next_copy("x", 60.0)
            if copy is not None:
                copies += 1
                frames.append((one, SendFrame("x", copy)))
                break
    assert (copies, x.got) == (1, ["m"])


def test_a_sender_that_had_to_drop_its_message_gets_no_copy_of_it():
    one, two = host("a", messages_max=1), host("b")
    send(one, "m", "x")
    meet(one, two)
    send(one, "n", "x")
    assert held(one) == ["n"]
    assert meet(one, two, now=60.0).copies() == ["n"]
    assert two.tallies["refused", "own"] == one.tallies["refused", "own"] == 0


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


def test_a_budget_has_as_many_copies_as_the_reliability_needs():
    one = host("a", "budget")
    assert [next(iter(_sent(one, reliability).buffer)).copies for reliability in (0.5,)] == [
        6
    ]  # nothing seen
    for at in range(100):  # each of 10 hosts once in 1,000 s
        one.strategy.meet(f"p{at % 10}", 100.0 * at)
    rate = one.strategy.rate(9_900.0)
    assert rate == pytest.approx(1 / 990, rel=0.02)
    copies = [one.strategy.needed(reliability, 1_000.0, 9_900.0) for reliability in (0.5, 0.9, 0.99, 1.0)]
    assert copies == [1, 3, 5, 10]
    assert one.strategy.needed(0.9, 100.0, 9_900.0) == 23


def _sent(one, reliability):
    send(one, "m", "x", reliability=reliability)
    return one


def test_a_budget_doubles_when_half_of_the_life_is_gone_if_there_is_room():
    one, full = host("a", "budget"), host("b", "budget", messages_max=1)
    for each in (one, full):
        send(each, "m", "x", ttl_s=1_000.0)
        (replica,) = each.buffer
        each.strategy.share(replica, "p", 499.0)
        assert replica.copies == 6
        each.strategy.share(replica, "p", 500.0)
    assert [next(iter(each.buffer)).copies for each in (one, full)] == [12, 6]
    one.strategy.share(next(iter(one.buffer)), "p", 760.0)
    assert next(iter(one.buffer)).copies == 24


def test_an_empty_battery_gets_few_copies():
    one, weak = host("a", "budget"), host("b", "budget")
    weak.strategy.battery = 0.25
    send(one, "m", "x")
    meet(one, weak)
    assert [next(iter(each.buffer)).copies for each in (one, weak)] == [5, 1]


def test_a_budget_never_gives_its_last_copy_away():
    one, two = host("a", "budget"), host("b", "budget")
    send(one, "m", "x")
    (replica,) = one.buffer
    replica.copies = 1
    assert meet(one, two).copies() == []
    assert held(one) == ["m"]


def test_a_budget_gives_no_copy_to_a_carrier_that_would_have_to_displace_another():
    one, two = host("a", "budget"), host("b", "budget", messages_max=2)
    for name in ("m", "n", "o"):
        send(one, name, "x")
    send(two, "own", "y")
    assert meet(one, two).copies() == ["own", "m"]
    assert held(two) == ["own", "m"]
    assert two.tallies["dropped", "displaced"] == 0


def test_a_budget_delivers_to_a_recipient_that_has_no_room():
    one, two = host("a", "budget"), host("b", "budget", messages_max=0)
    send(one, "m", "b")
    meet(one, two)
    assert two.got == ["m"]


def test_a_budget_counts_the_meetings_only_that_last_for_a_message():
    one = host("a", "budget")
    for at in range(100):
        one.strategy.meet(f"p{at % 10}", 100.0 * at)
    whole = one.strategy.rate(9_900.0)
    for _ in range(96):
        one.strategy.begin_copy()
    for _ in range(46):
        one.strategy.end_copy()
    assert one.strategy.rate(9_900.0) == pytest.approx(whole / 2)
    assert one.strategy.needed(0.9, 1_000.0, 9_900.0) == 5


def test_a_copy_that_was_cut_was_begun_and_has_not_ended():
    one, two = host("a", "budget"), host("b", "budget")
    send(one, "m", "x")
    meet(one, two, stop=lambda frame: isinstance(frame, CopyFrame))
    assert (one.strategy._begun, one.strategy._ended) == (1, 0)
    meet(one, two)
    assert (one.strategy._begun, one.strategy._ended) == (2, 1)
