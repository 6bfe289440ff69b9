"""The bus without await, in threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

import tidings
from tidings import Event, Filter
from tidings.client.blocking import Bus
from tidings.errors import Disconnected, NoAnswer, UserError


def test_it_can_be_imported_by_its_name() -> None:
    code = "import tidings.blocking as a; from tidings.blocking import Bus; assert a.Bus is Bus"
    subprocess.run(
        [sys.executable, "-c", f"{code}; import tidings; assert tidings.blocking is a"], check=True
    )


def test_events_reach_those_who_want_them() -> None:
    with tidings.blocking.open() as bus, bus.subscribe("value > 40") as events:
        bus.publish("air.pm10", value=12.0)
        bus.publish(Event("air.pm10", value=41.2))
        bus.publish_all([Event("air.pm10", value=n) for n in range(50, 60)])
        taken = []
        for event in events:
            taken.append(event["value"])
            if event["value"] == 59:
                break
        assert taken == [41.2, *range(50, 60)]
        assert (events.gaps, events.dropped, events.redelivered) == ([], 0, False)


def test_a_loop_alone_begins_and_ends_a_subscription() -> None:
    with tidings.blocking.open() as bus:
        bus.publish_all([Event("t", n=n, delivery="persistent") for n in range(3)])
        taken = []
        for event in bus.subscribe(since=1):
            taken.append(event["n"])
            if len(taken) == 3:
                break
        assert taken == [0, 1, 2]
        assert bus.status()["subscriptions"] == 0


def test_a_durable_subscription_is_acknowledged_event_by_event(tmp_path: Path) -> None:
    with tidings.blocking.open(tmp_path) as bus:
        with bus.subscribe(durable="d") as events:
            bus.publish_all([Event("t", n=n, delivery="reliable") for n in range(4)])
            for event in events:
                if event["n"] == 1:
                    assert events.position == 2
                    break
        with bus.subscribe(durable="d") as events:
            assert next(iter(events))["n"] == 2
        bus.unsubscribe("d")
        assert bus.status()["durables"] == []


def test_events_can_be_acknowledged_by_hand(tmp_path: Path) -> None:
    with tidings.blocking.open(tmp_path) as bus:
        with bus.subscribe(durable="d", acknowledge="client") as events:
            bus.publish_all([Event("t", n=n, delivery="reliable") for n in range(3)])
            taken = list(islice(events, 3))
            events.acknowledge(taken[1])
        with bus.subscribe(durable="d") as events:
            assert next(iter(events))["n"] == 2


def test_a_subscription_that_is_ended_ends_the_loop(tmp_path: Path) -> None:
    with tidings.blocking.open(tmp_path) as bus, bus.subscribe(durable="d") as events:
        bus.unsubscribe("d")
        assert list(events) == []


def answer(bus: Bus, ask: Event) -> None:
    bus.reply(ask, "answer", n=2 * ask["n"])


def test_requests_are_answered_by_a_callback_that_calls_the_bus() -> None:
    with tidings.blocking.open() as bus, bus.listen("type = 'ask'", lambda ask: answer(bus, ask)):
        assert bus.request("ask", n=21, timeout_s=30)["n"] == 42


def test_without_an_answer_the_wait_ends() -> None:
    with tidings.blocking.open() as bus, pytest.raises(NoAnswer):
        bus.request("ask", timeout_s=0.01)


def test_interest_is_told() -> None:
    with tidings.blocking.open() as bus, bus.advertise("type = 't'") as interest:
        changes = iter(interest)
        assert next(changes) == ()
        with bus.subscribe("n > 1"):
            interest.wait_wanted()
            assert interest.wanted
            assert interest.filters == next(changes) == (Filter("n > 1"),)
        interest.wait_unwanted()


def test_several_threads_share_a_bus() -> None:
    with tidings.blocking.open() as bus, bus.subscribe() as events:

        def publish(first: int) -> None:
            for n in range(first, first + 50):
                bus.publish("t", n=n)

        threads = [threading.Thread(target=publish, args=(first,)) for first in range(0, 200, 50)]
        for thread in threads:
            thread.start()
        taken = {event["n"] for event in islice(events, 200)}
        for thread in threads:
            thread.join()
        assert taken == set(range(200))


def test_what_a_callback_raises_comes_out_of_its_block() -> None:
    def fail(event: Event) -> None:
        raise ZeroDivisionError

    def listen(bus: Bus) -> None:
        with bus.listen("", fail) as listener:
            bus.publish("t")
            listener.wait()

    with tidings.blocking.open() as bus:
        with pytest.raises(ZeroDivisionError):
            listen(bus)
        assert bus.is_connected


def test_no_thread_stays_behind() -> None:
    with tidings.blocking.open() as bus:
        pass
    with pytest.raises(Disconnected):
        tidings.blocking.connect("tidings+unix:///nowhere", reconnect=False).__enter__()
    assert not [thread for thread in threading.enumerate() if thread.name == "tidings"]
    with pytest.raises(UserError, match="once"):
        bus.__enter__()


def test_a_bus_is_used_inside_its_block() -> None:
    bus = tidings.blocking.open()
    with pytest.raises(UserError, match="inside `with`"):
        bus.publish("t")
    with pytest.raises(UserError, match="inside `with`"):
        bus.subscribe()
