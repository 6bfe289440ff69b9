"""A gateway at a real exchange: subscriptions turn sensors on, and their end turns them off."""

from __future__ import annotations

from functools import partial

from tidings.event import Batch
from tidings.exchange import REPORTED_MAX, EventSink, Exchange, NodeSubscription, Rows
from tidings.filters import Filter
from tidings.gateway.effects import AdvertiseFilter, GatewayEffect, SendMessage, Widen, Withdraw
from tidings.gateway.gateway import Gateway
from tidings.gateway.messages import GatewayMessage, Register, Sensor, SubscribeSensors, UnsubscribeSensors
from tidings.gateway.networks import NetworkCaller
from tidings.interest import Advertisement
from tidings.steps import finish


class Nowhere(EventSink):
    """A sink that nothing is sent to."""

    def deliver(self, batch: Batch, rows: Rows, positions: object) -> None:
        raise AssertionError("nothing is published")


class Site:
    """A gateway and the exchange it advertises at."""

    def __init__(self) -> None:
        self.exchange = Exchange()
        self.gateway = Gateway(b"secret")
        self.gateway.connected(1, NetworkCaller("host"))
        self.advertisements: dict[int, Advertisement] = {}
        self.said: list[GatewayMessage] = []

    def register(self, *sensors: Sensor) -> None:
        finish(self.gateway.registering(1, Register("net", list(sensors)), 0.0))
        self.carry_out(self.gateway.said())

    def subscribe(self, text: str, passive: bool = False) -> NodeSubscription:
        subscription = NodeSubscription(Filter(text), Nowhere(), passive)
        self.exchange.subscribe(subscription)
        return subscription

    def heard(self) -> list[GatewayMessage]:
        self.exchange.finish_tick()
        while self.exchange.has_changes:
            self.exchange.finish_tick()
        said, self.said = self.said, []
        return said

    def carry_out(self, effects: list[GatewayEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage(_, message):
                    self.said.append(message)
                case AdvertiseFilter(number, filter) | Widen(number, filter):
                    self.advertise(number, Filter(filter))
                case Withdraw(number):
                    self.exchange.withdraw(self.advertisements.pop(number))

    def advertise(self, number: int, filter: Filter) -> None:
        old = self.advertisements.get(number)
        new = self.advertisements[number] = Advertisement(filter, partial(self.tell, number))
        wanted = self.exchange.advertise(new)
        if old is not None:
            self.exchange.withdraw(old)
        self.tell(number, wanted)

    def tell(self, number: int, filters: tuple[Filter, ...]) -> None:
        self.carry_out(self.gateway.demanded(number, map(str, filters)))


def test_a_subscription_turns_a_sensor_on_and_its_end_turns_it_off() -> None:
    site = Site()
    site.register(Sensor("t", "temp", 0, 50), Sensor("n", "noise"))
    first = site.subscribe("type = 'temp' AND value BETWEEN 10 AND 20")
    assert site.heard() == [SubscribeSensors("net", [Sensor("t", "", 10, 20)])]
    second = site.subscribe("value > 15")
    assert site.heard() == [SubscribeSensors("net", [Sensor("t", "", 10, 50), Sensor("n")])]
    site.exchange.unsubscribe(first)
    assert site.heard() == [SubscribeSensors("net", [Sensor("t", "", 15, 50)])]
    site.exchange.unsubscribe(second)
    assert site.heard() == [UnsubscribeSensors("net", [Sensor("t"), Sensor("n")])]


def test_a_passive_subscription_asks_for_nothing() -> None:
    site = Site()
    site.subscribe("type = 'temp'", passive=True)
    site.register(Sensor("t", "temp"))
    assert site.heard() == []


def test_a_sensor_that_makes_the_advertisement_wider_is_asked_for_what_was_wanted_before() -> None:
    site = Site()
    site.register(Sensor("a", "temp", 0, 10))
    site.subscribe("type = 'temp' AND value > 20")
    assert site.heard() == []
    site.register(Sensor("b", "temp", 0, 30))
    assert site.heard() == [SubscribeSensors("net", [Sensor("b", "", 20, 30)])]


def test_more_subscriptions_than_are_told_one_by_one_are_served_all_the_same() -> None:
    site = Site()
    site.register(Sensor("t", "temp", 0, 1_000))
    many = [site.subscribe(f"type = 'temp' AND value = {number}") for number in range(REPORTED_MAX + 20)]
    assert site.heard() == [SubscribeSensors("net", [Sensor("t", "", 0, REPORTED_MAX + 19)])]
    for subscription in many:
        site.exchange.unsubscribe(subscription)
    assert site.heard()[-1] == UnsubscribeSensors("net", [Sensor("t")])
