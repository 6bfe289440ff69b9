"""The exchange: who gets what, and what sources are told of those who listen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event, Filter
from tidings import exchange as exchange_module
from tidings.event import Batch
from tidings.exchange import EventSink, Exchange, NodeSubscription, Positions, Rows
from tidings.interest import Advertisement


class Heap(EventSink):
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[list[int], Positions]] = []

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        self.got.append(([int(batch[row]["n"]) for row in rows], positions))

    @property
    def numbers(self) -> list[int]:
        return [number for numbers, _ in self.got for number in numbers]


class Source:
    """An advertisement that keeps what it is told."""

    def __init__(self, exchange: Exchange, filter: str = "", origin: object = None) -> None:
        self.told: list[list[str]] = []
        self.advertisement = Advertisement(Filter(filter), self._tell, origin)
        self.first = [str(one) for one in exchange.advertise(self.advertisement)]

    def _tell(self, wanted: tuple[Filter, ...]) -> None:
        self.told.append([str(one) for one in wanted])


def subscribed(
    exchange: Exchange, filter: str = "", passive: bool = False, origin: object = None
) -> NodeSubscription:
    subscription = NodeSubscription(Filter(filter), Heap(), passive, origin)
    exchange.subscribe(subscription)
    return subscription


def numbers(*wanted: int) -> Batch:
    return Batch.of([Event("t", {"n": number}) for number in wanted])


def publish(exchange: Exchange, batch: Batch, origin: object = None) -> int:
    matches = exchange.match(batch, origin)
    for subscription, rows in matches:
        subscription.sink.deliver(batch, rows, None)
    return len(matches)


def numbers_of(subscription: NodeSubscription) -> list[int]:
    assert isinstance(subscription.sink, Heap)
    return subscription.sink.numbers


# Publishing


def test_each_subscription_gets_the_rows_that_match_once_for_each_batch() -> None:
    exchange = Exchange()
    low, high, none = (subscribed(exchange, text) for text in ("n < 3", "n > 1", "n > 99"))
    assert publish(exchange, numbers(1, 2, 3)) == 2
    assert publish(exchange, numbers(50)) == 1
    assert (numbers_of(low), numbers_of(high), numbers_of(none)) == ([1, 2], [2, 3, 50], [])
    assert low.sink.got == [([1, 2], None)]  # type: ignore[attr-defined]


def test_an_empty_batch_reaches_nobody() -> None:
    exchange = Exchange()
    everything = subscribed(exchange)
    assert publish(exchange, numbers()) == 0
    assert numbers_of(everything) == []


def test_what_comes_from_an_origin_does_not_go_back_there() -> None:
    exchange, link, other_link = Exchange(), object(), object()
    back, on, local = (subscribed(exchange, origin=origin) for origin in (link, other_link, None))
    assert publish(exchange, numbers(1), link) == 2
    assert (numbers_of(back), numbers_of(on), numbers_of(local)) == ([], [1], [1])
    publish(exchange, numbers(2))
    assert numbers_of(back) == [2]


def test_an_unsubscribed_sink_gets_nothing_more() -> None:
    exchange = Exchange()
    gone, left = subscribed(exchange), subscribed(exchange)
    exchange.unsubscribe(gone)
    publish(exchange, numbers(1))
    assert (numbers_of(gone), numbers_of(left), exchange.subscriptions) == ([], [1], 1)
    with pytest.raises(KeyError):
        exchange.unsubscribe(gone)


def test_two_subscriptions_with_the_same_filter_are_two() -> None:
    exchange = Exchange()
    one, two = subscribed(exchange, "n = 1"), subscribed(exchange, "n = 1")
    assert publish(exchange, numbers(1)) == 2
    assert numbers_of(one) == numbers_of(two) == [1]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60),
    st.lists(st.integers(0, 9), max_size=30),
)
def test_rows_come_in_order_and_are_those_that_match(
    bounds: list[tuple[int, int]], values: list[int]
) -> None:
    exchange = Exchange()
    wanted = {
        subscribed(exchange, f"n = {low} OR n > {high}"): [v for v in values if v == low or v > high]
        for low, high in bounds
    }
    publish(exchange, numbers(*values))
    for subscription, expected in wanted.items():
        assert numbers_of(subscription) == expected


# Demand


def test_a_source_learns_at_once_who_listens_already() -> None:
    exchange = Exchange()
    subscribed(exchange, "n > 3")
    subscribed(exchange, "type = 'other'")
    assert Source(exchange, "type = 't'").first == ["n > 3"]


def test_a_source_is_told_when_interest_comes_and_when_it_goes_and_never_twice_the_same() -> None:
    exchange = Exchange()
    source = Source(exchange, "type = 't'")
    assert source.first == []
    first = subscribed(exchange, "n > 3")
    second = subscribed(exchange, "n > 3")
    exchange.finish_tick()
    third = subscribed(exchange, "n > 5")
    subscribed(exchange, "type = 'other'")
    exchange.finish_tick()
    for gone in (first, second, third):
        exchange.unsubscribe(gone)
        exchange.finish_tick()
    assert source.told == [["n > 3"], ["n > 3", "n > 5"], ["n > 5"], []]


def test_a_passive_subscription_takes_what_flows_and_demands_nothing() -> None:
    exchange = Exchange()
    source = Source(exchange)
    archive = subscribed(exchange, passive=True)
    publish(exchange, numbers(1))
    exchange.finish_tick()
    exchange.unsubscribe(archive)
    assert source.told == []
    assert numbers_of(archive) == [1]


def test_a_source_is_not_told_of_those_behind_its_own_link() -> None:
    exchange, link = Exchange(), object()
    subscribed(exchange, "n > 3", origin=link)
    source = Source(exchange, origin=link)
    assert source.first == []
    subscribed(exchange, "n > 4", origin=link)
    exchange.finish_tick()
    assert source.told == []
    subscribed(exchange, "n > 5", origin=object())
    exchange.finish_tick()
    assert source.told == [["n > 5"]]


def test_a_source_that_has_withdrawn_is_told_no_more() -> None:
    exchange = Exchange()
    source = Source(exchange)
    exchange.withdraw(source.advertisement)
    subscribed(exchange)
    exchange.finish_tick()
    assert (source.told, exchange.advertisements) == ([], 0)
    with pytest.raises(KeyError):
        exchange.withdraw(source.advertisement)


def test_a_source_may_withdraw_while_it_is_told() -> None:
    exchange = Exchange()
    told: list[int] = []

    def leave(_wanted: tuple[Filter, ...]) -> None:
        told.append(1)
        exchange.withdraw(leaving)

    leaving = Advertisement(Filter(), leave)
    exchange.advertise(leaving)
    source = Source(exchange)
    subscribed(exchange, "n = 1")
    exchange.finish_tick()
    subscribed(exchange, "n = 2")
    exchange.finish_tick()
    assert told == [1]
    assert source.told == [["n = 1"], ["n = 1", "n = 2"]]


def test_beyond_a_limit_a_source_is_told_of_one_filter_that_covers_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange_module, "REPORTED_MAX", 2)
    exchange = Exchange()
    source = Source(exchange)
    wanted = []
    for number in (1, 2, 3):
        wanted.append(subscribed(exchange, f"n = {number}"))
        exchange.finish_tick()
    assert source.told == [["n = 1"], ["n = 1", "n = 2"], ["n IN (1, 2, 3)"]]
    exchange.unsubscribe(wanted[0])
    exchange.finish_tick()
    assert source.told[3] == ["n = 2", "n = 3"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("+"), st.integers(0, 5), st.booleans()),
            st.tuples(st.just("-"), st.integers(0, 20), st.booleans()),
        ),
        max_size=25,
    )
)
def test_what_a_source_was_told_last_is_always_what_is_demanded(steps: list[tuple[str, int, bool]]) -> None:
    exchange = Exchange()
    source = Source(exchange, "n > 2")
    live: list[NodeSubscription] = []
    for step, number, passive in steps:
        if step == "+":
            live.append(subscribed(exchange, f"n = {number}", passive))
        elif live:
            exchange.unsubscribe(live.pop(number % len(live)))
        exchange.finish_tick()
        demanded = {
            str(one.filter) for one in live if not one.passive and one.filter.overlaps(Filter("n > 2"))
        }
        told = source.told[-1] if source.told else source.first
        assert sorted(told) == sorted(demanded)
    assert all(before != after for before, after in zip(source.told, source.told[1:], strict=False))
