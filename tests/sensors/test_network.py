from __future__ import annotations

from math import inf
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidings.gateway.messages import Ack, Error, Point, Redirect, Sensor, SubscribeSensors, UnsubscribeSensors
from tidings.gateway.networks import NumberState, Sequence
from tidings.sensors.network import (
    REPEAT_S_MAX,
    WAITING_MAX,
    Arrived,
    Redirected,
    SendLine,
    SensorEffect,
    SensorNetwork,
    Switched,
    Troubled,
)

TEMP, DUST = Sensor("t", "temp", min_value=-40, max_value=60), Sensor("d", "dust")


def reading(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "type": "temp", "value": value}


def said(effects: list[SensorEffect]) -> list[Any]:
    return [msgspec.json.decode(effect.line) for effect in effects if isinstance(effect, SendLine)]


def values(effects: list[SensorEffect]) -> list[Any]:
    return [one["value"] for message in said(effects) for one in message["sensing"]["sensors"]]


def connected(**options: Any) -> SensorNetwork:
    network = SensorNetwork("n", [TEMP, DUST], **options)
    network.connect(0.0)
    return network


# -- what it offers


def test_a_connected_network_registers_its_sensors() -> None:
    network = SensorNetwork("n", [TEMP, DUST], area=[Point(1, 2)])
    assert said(network.connect(0.0)) == [
        {
            "register": {
                "sensing-id": "n",
                "sensors": [
                    {"name": "t", "type": "temp", "min-value": -40, "max-value": 60},
                    {"name": "d", "type": "dust"},
                ],
                "area": [{"x": 1.0, "y": 2.0}],
            }
        }
    ]


def test_sensors_that_come_later_are_registered_once() -> None:
    network = connected()
    wind = Sensor("w", "wind")
    (message,) = said(network.add([TEMP, wind], 1.0))
    assert message["register"]["sensors"] == [{"name": "w", "type": "wind"}]
    assert network.add([wind], 1.0) == []


def test_the_last_sensor_takes_the_network_with_it() -> None:
    network = connected()
    assert said(network.remove(["t", "unknown"])) == [
        {"deregister": {"sensing-id": "n", "sensors": [{"name": "t"}]}}
    ]
    assert said(network.remove(["d"])) == [{"deregister": {"sensing-id": "n"}}]


def test_without_a_connection_nothing_is_said() -> None:
    network = SensorNetwork("n", [TEMP])
    assert network.add([DUST], 0.0) == []
    assert network.remove(["t"]) == []
    network.hear(SubscribeSensors("n", [Sensor("d")]), 0.0)
    assert network.offer([reading("d", 1)], 0.0) == []


# -- what it is asked for


def test_only_what_was_asked_for_is_sent() -> None:
    network = connected()
    assert network.offer([reading("t", 5)], 0.0) == []
    assert network.hear(SubscribeSensors("n", [Sensor("t"), Sensor("nobody")]), 0.0) == [Switched(("t",))]
    assert values(network.offer([reading("t", 5), reading("d", 6)], 0.0)) == [5]
    assert network.hear(UnsubscribeSensors("n", [Sensor("t"), Sensor("d")]), 0.0) == [Switched(("t",))]
    assert network.offer([reading("t", 5)], 0.0) == []
    assert network.unwanted == 3


def test_a_new_range_replaces_the_old_one() -> None:
    network = connected()
    ask = SubscribeSensors("n", [Sensor("t", min_value=1, max_value=10)])
    network.hear(ask, 0.0)
    assert network.hear(ask, 0.0) == []
    assert values(network.offer([reading("t", value) for value in (0, 1, 10, 11, "7", "warm")], 0.0)) == [
        *(1, 10, "7", "warm")
    ]
    assert network.hear(SubscribeSensors("n", [Sensor("t", max_value=0)]), 0.0) == [Switched(("t",))]
    assert values(network.offer([reading("t", value) for value in (0, 1)], 0.0)) == [0]


def test_a_rate_that_was_asked_for_is_kept() -> None:
    network = connected()
    network.hear(SubscribeSensors("n", [Sensor("t", max_rate=0.5)]), 0.0)
    sent = [now for now in range(7) if network.offer([reading("t", now)], float(now))]
    assert sent == [0, 2, 4, 6]


def test_one_that_always_sends_does_not_wait_to_be_asked() -> None:
    assert values(connected(always=True).offer([reading("t", 5)], 0.0)) == [5]


def test_what_it_was_asked_for_outlives_its_connection() -> None:
    network = connected()
    network.hear(SubscribeSensors("n", [Sensor("t")]), 0.0)
    network.disconnect()
    network.connect(1.0)
    assert values(network.offer([reading("t", 5)], 1.0)) == [5]


ASKS = st.tuples(
    st.sampled_from(["t", "d"]),
    st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)),
)


@given(st.lists(ASKS), st.lists(st.tuples(st.sampled_from(["t", "d"]), st.integers(0, 9))))
def test_the_last_word_about_a_sensor_counts(asks: list[Any], offered: list[tuple[str, int]]) -> None:
    network = connected()
    for name, ends in asks:
        if ends is None:
            network.hear(UnsubscribeSensors("n", [Sensor(name)]), 0.0)
        else:
            network.hear(SubscribeSensors("n", [Sensor(name, min_value=ends[0], max_value=ends[1])]), 0.0)
    last = dict(asks)
    wanted = [value for name, value in offered if last.get(name) and last[name][0] <= value <= last[name][1]]
    assert values(network.offer([reading(name, value) for name, value in offered], 0.0)) == wanted


# -- what has arrived


def test_numbered_readings_have_arrived_when_they_are_acknowledged() -> None:
    network = connected(seq=41, always=True)
    (message,) = said(network.offer([reading("t", 5)], 0.0, "tag"))
    assert message["sensing"]["seq"] == 42
    assert network.hear(Ack("n", 41), 0.0) == []
    assert network.hear(Ack("n", 42), 0.0) == [Arrived("tag")]
    assert network.hear(Ack("n", 42), 0.0) == []


def test_what_nobody_wants_counts_as_arrived() -> None:
    assert connected(seq=0).offer([reading("t", 5)], 0.0, "tag") == [Arrived("tag")]


def test_over_a_new_connection_all_that_waits_is_said_again_in_order() -> None:
    network = connected(seq=0, always=True)
    for value in range(3):
        network.offer([reading("t", value)], 0.0)
    network.hear(Ack("n", 2), 0.0)
    network.disconnect()
    assert network.offer([reading("t", 3)], 1.0) == []
    again = network.connect(2.0)
    assert "register" in said(again)[0]
    assert values(again[1:]) == [0, 2, 3]


def test_no_more_may_wait_than_a_gateway_tells_apart() -> None:
    network = connected(seq=0, always=True)
    for value in range(WAITING_MAX):
        assert not network.is_full
        network.offer([reading("t", value)], 0.0)
    assert network.is_full
    network.hear(Ack("n", 1), 0.0)
    assert not network.is_full


@given(st.lists(st.sampled_from(["offer", "lose", "ack", "cut"])))
def test_over_links_that_break_every_reading_counts_once(steps: list[str]) -> None:
    """The other side is the gateway's own bookkeeping of numbers; what a cut link carried is lost."""
    network, sequence = connected(seq=0, always=True), Sequence()
    taken: list[int] = []
    arrived: list[int] = []
    offered = 0

    def take(effects: list[SensorEffect], acknowledges: bool) -> None:
        for message in said(effects):
            if "sensing" in message:
                seq = message["sensing"]["seq"]
                if sequence.take(seq) is NumberState.NEW:
                    taken.append(message["sensing"]["sensors"][0]["value"])
                    sequence.finish(seq)
                if acknowledges:
                    told = network.hear(Ack("n", seq), 0.0)
                    arrived.extend(effect.tag for effect in told if isinstance(effect, Arrived))

    for step in steps:
        if step == "cut":
            network.disconnect()
            take(network.connect(0.0), acknowledges=False)
        else:
            effects = network.offer([reading("t", offered)], 0.0, offered)
            offered += 1
            if step != "lose":
                take(effects, acknowledges=step == "ack")
    network.disconnect()
    take(network.connect(0.0), acknowledges=True)
    assert sorted(taken) == sorted(arrived) == list(range(offered))


def test_what_a_connection_does_not_acknowledge_is_repeated_after_a_while() -> None:
    network = connected(seq=0, always=True)
    network.offer([reading("t", 5)], 10.0)
    assert network.wake_at == 10.0 + REPEAT_S_MAX
    assert network.wake(network.wake_at - 0.1) == []
    assert values(network.wake(network.wake_at)) == [5]
    network.disconnect()
    assert network.wake_at == inf


# -- datagrams


def test_a_lease_is_renewed_before_it_is_over() -> None:
    network = connected(lease_s=60.0)
    now, pauses = 0.0, []
    for _ in range(7):
        pauses.append(network.wake_at - now)
        now = network.wake_at
        (message,) = said(network.wake(now))
        assert message["register"]["lease-s"] == 60.0
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


def test_datagrams_that_are_not_acknowledged_are_repeated_ever_less_often() -> None:
    network = connected(lease_s=1e9, seq=0, always=True)
    network.offer([reading("t", 5)], 0.0)
    said_at = [now for now in range(100) if any("sensing" in one for one in said(network.wake(float(now))))]
    assert said_at == [1, 2, 4, 8, 16, 32, 62, 92]


def test_a_cookie_is_sent_back_at_once() -> None:
    network = connected(lease_s=60.0)
    effects = network.hear(SubscribeSensors("n", [Sensor("t")], cookie="c0"), 0.1)
    assert said(effects)[0]["register"]["cookie"] == "c0"
    assert said(network.hear(SubscribeSensors("n", [Sensor("d")], cookie="c0"), 0.2)) == []


def test_who_is_asked_once_more_answers_but_not_each_time() -> None:
    network = connected(lease_s=60.0)
    ask = SubscribeSensors("n", [Sensor("t")])
    assert said(network.hear(ask, 5.0)) == []
    assert len(said(network.hear(ask, 10.0))) == 1
    assert said(network.hear(ask, 10.5)) == []


def test_many_sensors_are_registered_in_several_datagrams() -> None:
    network = SensorNetwork("n", [Sensor(f"s{number}", "x") for number in range(450)], lease_s=60.0)
    messages = said(network.connect(0.0))
    assert [len(message["register"]["sensors"]) for message in messages] == [200, 200, 50]


# -- what else a gateway says


def test_trouble_and_another_address_are_told() -> None:
    network = connected()
    assert network.hear(Error("is missing", "$.sensing"), 0.0) == [Troubled("$.sensing: is missing")]
    assert network.hear(Redirect("n", "10.0.0.7:4242"), 0.0) == [Redirected("10.0.0.7:4242")]
