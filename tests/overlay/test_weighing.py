"""Weights of links: what pings make of them, what both ends agree on, and what is not believed."""

from __future__ import annotations

from random import Random

import pytest
from overlay.network import Network

from tidings.errors import CodecError
from tidings.overlay.pinging import RoundTrips
from tidings.overlay.records import WEIGHT_MAX, LinkRecord, NodeRecord, check_record
from tidings.overlay.settings import OverlaySettings
from tidings.overlay.tree import edges_of, weight_of
from tidings.overlay.weighing import PADDING, WEIGHT_MIN, LinkMeter, is_news, rounded
from tidings.simulator.world import Conditions

SETTINGS = OverlaySettings(weight_delay=1.0, weight_capacity=100.0)


def trips(*round_trips_s: float, sent: int = 0, lost: int = 0) -> RoundTrips:
    found = RoundTrips()
    found.samples.extend(round_trips_s)
    found.sent, found.lost = sent or len(round_trips_s), lost
    return found


def meter(settings: OverlaySettings, *probes_s: float) -> LinkMeter:
    made = LinkMeter(settings)
    for number, took_s in enumerate(probes_s):
        assert made.begin("connection", 100.0 * number)
        made.end("connection", 100.0 * number + took_s)
    return made


def test_a_weight_is_a_times_delay_plus_b_by_capacity() -> None:
    carried_s = PADDING * 8 / 2e6  # at 2 Mbit/s
    measured = meter(SETTINGS, 0.5, 0.040 + carried_s)
    assert measured.weigh(trips(0.07, 0.04, 0.05, 0.9)) == rounded(1000 * (20 + 100 / 2))
    alone = OverlaySettings(weight_delay=3.0, weight_capacity=0.0)
    assert meter(alone).weigh(trips(0.07, 0.04, 0.05, 0.9)) == 60_000


def test_lost_pings_make_a_link_heavier_by_the_times_that_one_is_sent() -> None:
    alone = OverlaySettings(weight_capacity=0.0)
    assert meter(alone).weigh(trips(*[0.1] * 32, sent=40, lost=20)) == 100_000
    assert meter(alone).weigh(trips(*[0.1] * 32, sent=40, lost=40)) == 500_000


def test_a_link_is_weighed_when_there_are_enough_answers() -> None:
    assert LinkMeter(SETTINGS).weigh(trips(*[0.1] * 9)) == 0, "no probe yet"
    assert meter(SETTINGS, 0.1).weigh(trips(0.1, 0.1, 0.1)) == 0
    assert meter(SETTINGS, 0.1).weigh(trips(0.1, 0.1, 0.1, 0.1)) == 50_000


def test_one_probe_is_under_way_on_a_connection_and_an_answer_on_a_former_one_counts_for_nothing() -> None:
    measured = LinkMeter(SETTINGS)
    assert measured.begin("first", 1.0)
    assert not measured.begin("first", 2.0)
    assert measured.begin("second", 3.0)
    measured.end("first", 4.0)
    assert measured.weigh(trips(*[0.1] * 9)) == 0
    measured.end("second", 3.1)
    assert measured.weigh(trips(*[0.1] * 9)) == 50_000


def test_jitter_is_not_told_to_others() -> None:
    random, found = Random(1), trips(0.1)
    told, tellings = 0, 0
    for number in range(2_000):
        found.samples.append(0.06 * random.uniform(1, 2))
        weight = meter(SETTINGS, 0.06).weigh(found)
        if number % 20 == 0 and is_news(weight, told):
            told, tellings = weight, tellings + 1
    assert tellings <= 2
    assert is_news(10 * told, told)


def test_weights_have_two_digits_within_their_limits() -> None:
    assert [rounded(one) for one in (0, 5_549, 12_345, 987_654)] == [WEIGHT_MIN, 5_500, 12_000, 990_000]
    assert rounded(1e30) == WEIGHT_MAX


def test_ends_that_have_measured_4_and_8_both_say_6() -> None:
    records = [
        NodeRecord("a", "", 1, 1, (LinkRecord("b", 1, weight=4),), run=1),
        NodeRecord("b", "", 1, 1, (LinkRecord("a", 1, weight=8),)),
    ]
    assert [weight_of(edge) for edge in edges_of(records)] == [6]
    assert [weight_of(edge) for edge in edges_of(records[::-1])] == [6]


def test_a_link_has_no_weight_before_both_ends_have_measured_it_and_a_run_has_begun() -> None:
    one = NodeRecord("a", "", 1, 1, (LinkRecord("b", 7, weight=4),))
    silent, other = (
        NodeRecord("b", "", 1, 1, (LinkRecord("a", 9, weight=w),), run=r) for w, r in ((0, 1), (8, 0))
    )
    assert edges_of([one, silent]) == edges_of([one, other]) == [(9, "a", "b")]


@pytest.mark.parametrize(
    ("field", "value"), [("weight", -1), ("weight", WEIGHT_MAX + 1), ("before", 10**18), ("run", -1)]
)
def test_an_absurd_weight_is_refused_with_its_place(field: str, value: int) -> None:
    link = LinkRecord("b", 1, **{field: value})
    with pytest.raises(CodecError) as refused:
        check_record(NodeRecord("a", "", 1, 1, (link,)))
    assert refused.value.place == f"$.links[0].{field}"


def test_both_ends_measure_delay_and_capacity_of_a_link() -> None:
    net = Network(("b", "a"), weigh_s=2.0)
    net.world.network.link("a", "b").conditions = Conditions(delay_s=0.05, bytes_per_s=1e6)
    net.run(40.0)
    weights = {
        net[one].core.overlay.topology.weights_said(net[other].broker.node) for one, other in ("ab", "ba")
    }
    expected = 50 + 100 / 8
    for pair in weights:
        assert all(0.9 * expected <= weight / 1000 <= 1.3 * expected for weight in pair), weights


def test_what_an_end_says_that_is_quite_different_is_counted_and_logged_once() -> None:
    net = Network(("b", "a"), weigh_s=2.0)
    net.run(20.0)
    liar, other = net["a"].core.overlay, net["b"].broker.node
    liar._weighing.tell = lambda _node, _weight: None  # it goes on saying this
    liar.records.carry_out(liar.topology.measured(other, 900_000, net["a"].broker.now))
    net.run(20.0)
    assert net.count("b", "weights_disagree") == 1
    assert [line for line in net.world.notes if "b both ends weigh a link differently" in line]
