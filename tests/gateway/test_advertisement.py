"""Advertisements that only grow."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidings.event import Event
from tidings.filters import Filter
from tidings.gateway.advertisement import OFFERS_MAX, WIDENED_MAX, WITHDRAW_AFTER_S, NetworkAdvertisements
from tidings.gateway.areas import AreaBox
from tidings.gateway.effects import AdvertiseFilter, GatewayEffect, Widen, Withdraw
from tidings.gateway.ranges import RangeSpan, span_of


def advertised(effects: list[GatewayEffect]) -> dict[int, str]:
    """The filter of each advertisement, by its number, as the node was told."""
    return {one.number: one.filter for one in effects if isinstance(one, AdvertiseFilter | Widen)}


def test_a_sensor_that_is_covered_costs_nothing() -> None:
    offers = NetworkAdvertisements()
    assert offers.add("temp", span_of(0, 10), None) == [
        AdvertiseFilter(1, "type = 'temp' AND value BETWEEN 0 AND 10")
    ]
    assert offers.add("temp", span_of(3, 7), AreaBox(0, 0, 1, 1)) == []
    assert offers.add("temp", span_of(5, None), None) == [Widen(1, "type = 'temp' AND value >= 0")]
    assert offers.add("temp", None, None) == [Widen(1, "type = 'temp'")]
    assert offers.add("temp", span_of(-99, 99), None) == []


def test_a_place_that_is_not_known_is_no_contradiction() -> None:
    offered = Filter(advertised(NetworkAdvertisements().add("temp", None, AreaBox(0, 0, 5, 5)))[1])
    assert offered.matches(Event("temp", {}))
    assert offered.matches(Event("temp", {"posx": 1, "posy": 5}))
    assert not offered.matches(Event("temp", {"posx": 1, "posy": 6}))
    assert not offered.overlaps(Filter("posx > 6"))


def test_an_advertisement_is_withdrawn_late_and_only_when_nothing_is_left_behind_it() -> None:
    offers = NetworkAdvertisements()
    offers.add("temp", None, None)
    offers.add("temp", span_of(0, 1), None)
    offers.remove("temp", 0)
    assert offers.wake_at == inf
    offers.remove("temp", 10)
    assert offers.wake_at == 10 + WITHDRAW_AFTER_S
    assert offers.wake(9 + WITHDRAW_AFTER_S) == []
    assert offers.add("temp", None, None) == []
    assert offers.wake(99 + WITHDRAW_AFTER_S) == []
    offers.remove("temp", 1_000)
    assert offers.wake(1_000 + WITHDRAW_AFTER_S) == [Withdraw(1)]
    assert offers.add("temp", None, None) == [AdvertiseFilter(2, "type = 'temp'")]


def test_one_that_is_widened_again_and_again_gives_up_its_limits() -> None:
    offers = NetworkAdvertisements()
    effects = [one for n in range(100) for one in offers.add("temp", span_of(n, n), AreaBox(n, n, n, n))]
    assert len(effects) == 2 + WIDENED_MAX
    assert advertised(effects) == {1: "type = 'temp'"}


def test_types_beyond_the_limit_share_one_advertisement_of_anything() -> None:
    offers = NetworkAdvertisements()
    for number in range(OFFERS_MAX):
        offers.add(f"type.{number}", None, None)
    assert offers.add("one more", None, None) == [AdvertiseFilter(OFFERS_MAX + 1, "")]
    assert offers.add("and another", None, None) == []
    offers.remove("one more", 0)
    assert offers.wake_at == inf
    offers.remove("and another", 0)
    assert offers.wake(WITHDRAW_AFTER_S) == [Withdraw(OFFERS_MAX + 1)]


def test_a_type_may_have_any_characters() -> None:
    offered = advertised(NetworkAdvertisements().add('it\'s"a"type', None, None))
    assert Filter(offered[1]).matches(Event('it\'s"a"type', {}))


spans = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: span_of(min(p), max(p)))
boxes = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: AreaBox(p[0], p[1], *p))


@given(st.lists(st.tuples(st.sampled_from("ab"), spans, boxes), max_size=20))
def test_every_sensor_is_covered_and_no_advertisement_ever_shrinks(
    sensors: list[tuple[str, RangeSpan | None, AreaBox | None]],
) -> None:
    offers = NetworkAdvertisements()
    before: dict[int, str] = {}
    for type, span, box in sensors:
        now = before | advertised(offers.add(type, span, box))
        values = {} if span is None else {"value": span.ends[0]}
        place = {} if box is None else {"posx": box.x_low, "posy": box.y_low}
        event = Event(type, values | place)  # type: ignore[arg-type]
        assert any(Filter(text).matches(event) for text in now.values())
        for number, text in before.items():
            assert Filter(now[number]).covers(Filter(text))
        before = now
