"""Queues and topics by name: over a path where there is one, carried otherwise."""

import pytest
from adhoc.town import Town

from tidings.errors import QueueNotFound


def test_a_message_is_put_over_a_path_or_carried():
    town = Town("a", "b", "q")
    town.at["q"].hold_queue("jobs")
    town.meet("a", "q")
    town.paths.add(frozenset("aq"))
    town.call("a", town.at["a"].put("jobs", b"1", 0.0, persistent=True))
    assert town.hosts["q"].got == ["1"]
    town.paths.clear()
    town.call("a", town.at["a"].put("jobs", b"2", 0.0))
    assert town.hosts["q"].got == ["1"]
    town.meet("a", "b", 60.0)
    town.meet("b", "q", 120.0)
    assert town.hosts["q"].got == ["1", "2"]
    assert town.hosts["a"].notices == [(1, "q", "delivered")]


def test_a_queue_that_no_host_is_known_to_hold_is_not_found():
    with pytest.raises(QueueNotFound):
        Town("a").at["a"].put("jobs", b"1", 0.0)


def test_a_publication_goes_to_the_holder_and_as_one_message_to_durable_subscribers():
    town = Town("a", "c", "t", "x", "y")
    topic = town.at["t"].hold_topic("news")
    for name in "axy":
        town.meet("t", name)
    for name in "xy":
        town.call(name, town.at[name].subscribe("news", 0.0, durable=True))
        town.meet("t", name, 60.0)
    assert sorted(topic.subscribers) == ["x", "y"]
    town.call("a", town.at["a"].publish("news", b"rain", 60.0))
    town.meet("a", "t", 120.0)
    (replica,) = [one for one in town.hosts["t"].buffer if one.message.raw == b"rain"]
    assert replica.message.recipients == ("x", "y")
    town.meet("t", "c", 180.0)
    town.meet("c", "x", 240.0)
    town.meet("c", "y", 300.0)
    assert [town.hosts[name].got for name in "xyc"] == [["rain"], ["rain"], []]


def test_a_non_durable_subscriber_without_a_path_is_removed():
    town = Town("t", "x")
    topic = town.at["t"].hold_topic("news")
    town.meet("t", "x")
    town.paths.add(frozenset("tx"))
    town.call("x", town.at["x"].subscribe("news", 0.0))
    town.call("t", town.at["t"].publish("news", b"1", 0.0))
    assert town.hosts["x"].got == ["1"]
    town.paths.clear()
    town.call("t", town.at["t"].publish("news", b"2", 0.0))
    assert topic.subscribers == {}
    town.meet("t", "x", 60.0)
    assert town.hosts["x"].got == ["1"]


def test_a_durable_subscription_ends_when_it_says_so_and_by_its_lease():
    town = Town("t", "x", "y")
    topic = town.at["t"].hold_topic("news")
    for name in "xy":
        town.meet("t", name)
        town.call(name, town.at[name].subscribe("news", 0.0, durable=True, lease_s=1_000.0))
        town.meet("t", name, 60.0)
    town.call("x", town.at["x"].unsubscribe("news", 100.0))
    town.meet("t", "x", 120.0)
    assert sorted(topic.subscribers) == ["y"]
    assert topic.recipients(lambda _: False, 1_059.0) == ([], ["y"])
    assert topic.recipients(lambda _: False, 1_060.0) == ([], [])


def test_a_subscription_that_can_not_be_read_is_refused():
    town = Town("t", "x")
    town.at["t"].hold_topic("news")
    message = town.hosts["x"].compose(("t",), b"\xc1", destination="subscription:news")
    town.call("t", town.at["t"].accept(message, 0.0))
    assert town.hosts["t"].tallies["refused", "subscription"] == 1


def test_what_a_subscriber_has_said_last_holds_in_whatever_order_it_comes():
    town = Town("t", "x", "y")
    topic = town.at["t"].hold_topic("news")
    for name in "xy":
        town.meet("t", name)
        town.call(name, town.at[name].subscribe("news", 0.0, durable=True))
        town.call(name, town.at[name].unsubscribe("news", 1.0))
        subscribe, unsubscribe = [one.message for one in town.hosts[name].buffer]
        order = (subscribe, unsubscribe) if name == "x" else (unsubscribe, subscribe)
        for message in order:
            town.call("t", town.at["t"].accept(message, 60.0))
    assert topic.subscribers == {}
    town.call("y", town.at["y"].subscribe("news", 100.0, durable=True))
    town.meet("t", "y", 120.0)
    assert sorted(topic.subscribers) == ["y"]
