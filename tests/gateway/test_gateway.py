"""The gateway as a whole: networks on one side, a node on the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.world import World, box, is_known, names
from tidings.errors import ConfigError
from tidings.gateway import network_registry
from tidings.gateway.advertisement import WITHDRAW_AFTER_S
from tidings.gateway.effects import AdvertiseFilter, Widen, Withdraw
from tidings.gateway.gateway import ERRORS_MAX
from tidings.gateway.messages import (
    NAME_LENGTH_MAX,
    SENSORS_MAX,
    Ack,
    Error,
    Point,
    Reading,
    Redirect,
    Sensor,
    SubscribeSensors,
    UnsubscribeSensors,
    encode,
)
from tidings.gateway.network_registry import SILENT_S_MAX
from tidings.gateway.networks import GRACE_S, LEASE_S, PER_CONNECTION_MAX, DatagramAddress
from tidings.gateway.policy import GatewayGrid, Policy

THREE = [Sensor("1", "temperature"), Sensor("2", "noise"), Sensor("3", "light")]


def connected() -> World:
    world = World()
    world.connect(1)
    return world


def test_the_whole_conversation_of_a_network_with_three_sensors() -> None:
    world = connected()
    world.register(1, "net", *THREE)
    world.demand("type = 'temperature'", "type = 'noise'")
    assert world.heard() == [SubscribeSensors("net", [Sensor("1")]), SubscribeSensors("net", [Sensor("2")])]
    first = Reading("1", "temperature", 20.5), Reading("2", "noise", 60)
    assert world.sense(1, "net", *first) == list(first)
    world.demand("type = 'temperature'", "type = 'light'")
    assert world.heard() == [UnsubscribeSensors("net", [Sensor("2")]), SubscribeSensors("net", [Sensor("3")])]
    assert world.sense(1, "net", Reading("3", "light", 800))
    world.deregister(1, "net", "1")
    assert world.heard() == []
    assert world.sense(1, "net", Reading("3", "light", 700))
    world.deregister(1, "net")
    assert world.gateway.overview() == []
    world.register(1, "net", Sensor("3", "light"))  # the connection is still open
    assert world.heard() == [SubscribeSensors("net", [Sensor("3")])]


WANTS = ["type = 'temp' AND value BETWEEN 1 AND 10", "type = 'temp' AND value BETWEEN 5 AND 7"]
WANTS += ["type = 'temp' AND value = 37"]


def test_a_network_is_asked_for_more_only_when_what_it_was_asked_for_does_not_cover_it() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp", -50, 50))
    world.demand(*WANTS[:1])
    assert world.heard() == [SubscribeSensors("net", [Sensor("t", "", 1, 10)])]
    world.demand(*WANTS[:2])
    assert world.heard() == []
    world.demand(*WANTS)
    assert world.heard() == [SubscribeSensors("net", [Sensor("t", "", 1, 37)])]
    world.demand(*WANTS[1:])
    assert world.heard() == [SubscribeSensors("net", [Sensor("t", "", 5, 37)])]
    world.demand(WANTS[1])
    assert world.heard() == [SubscribeSensors("net", [Sensor("t", "", 5, 7)])]
    world.demand()
    assert world.heard() == [UnsubscribeSensors("net", [Sensor("t")])]


def test_a_network_without_a_range_is_asked_once_and_for_the_whole_sensor() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    for count in (1, 2, 3):
        world.demand(*WANTS[:count])
    assert world.heard() == [SubscribeSensors("net", [Sensor("t")])]


def test_a_network_of_a_narrow_range_serves_filters_fully_in_part_or_not_at_all() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp", 4, 8))
    world.demand(*WANTS)
    assert world.on == {"net": {"t": (4, 8)}}
    assert [world.gateway.serves(text, "net") for text in WANTS] == ["part", "full", "none"]
    (network,) = world.gateway.overview()
    assert network["sensors"] == [
        {"name": "t", "type": "temp", "range": [4, 8], "on": True, "asked": [4, 8], "filters": WANTS[:2]}
    ]


def test_an_open_end_is_left_out_of_what_a_network_is_told() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp", min_value=0))
    world.demand("value > 5")
    ((_, message),) = world.said
    assert encode(message) == b'{"subscribe":{"sensing-id":"net","sensors":[{"name":"t","min-value":5}]}}\n'


def test_only_networks_in_the_area_that_is_wanted_are_asked() -> None:
    world = connected()
    world.register(1, "near", Sensor("t", "temp"), area=box(0, 0, 1, 1))
    world.register(1, "far", Sensor("t", "temp"), area=box(10, 10, 11, 11))
    world.register(1, "anywhere", Sensor("t", "temp"))
    world.demand("type = 'temp' AND WITHIN(posx, posy, 'POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))')")
    assert set(world.on) == {"near", "anywhere"}
    world.demand("DISTANCE(posx, posy, 11, 12) < 1.5")
    assert {name for name, sensors in world.on.items() if sensors} == {"far", "anywhere"}
    world.demand("WITHIN(area, 'POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))')")
    assert {name for name, sensors in world.on.items() if sensors} == {"near", "anywhere"}


def test_a_network_that_moves_is_asked_where_it_is() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"), area=[Point(0, 0)])
    world.demand("posx > 5")
    assert world.on == {}
    world.register(1, "net", Sensor("t", "temp"), area=[Point(6, 0)])
    assert world.on == {"net": {"t": (None, None)}}
    world.register(1, "net", Sensor("t", "temp"), area=[Point(4, 0)])
    assert world.on == {"net": {}}


def test_a_sensor_is_asked_for_so_many_readings_and_for_none_that_are_old() -> None:
    world = World(Policy(max_rate=2.0, max_age_s=60.0))
    world.connect(1)
    world.register(1, "net", Sensor("t", "temp"), Sensor("r", "temp", 0, 9))
    world.demand("type = 'temp' AND value < 5")
    ((asked, ranged),) = [message.sensors for message in world.heard()]  # type: ignore[union-attr]
    assert asked == Sensor("t", max_rate=2.0, max_age_s=60.0)
    assert ranged == Sensor("r", "", 0, 5, 2.0, 60.0)
    world.demand()
    assert world.heard() == [UnsubscribeSensors("net", [Sensor("t"), Sensor("r")])]


def test_registering_again_adds_only_what_is_new() -> None:
    world = connected()
    world.demand("value > 0")
    world.register(1, "net", Sensor("t", "temp"))
    world.heard()
    world.register(1, "net", Sensor("t", "noise"), Sensor("u", "temp"))
    assert world.heard() == [SubscribeSensors("net", [Sensor("u")])]
    assert [sensor["type"] for sensor in world.gateway.overview()[0]["sensors"]] == ["temp", "temp"]


# Connections and leases


def test_a_network_that_comes_back_is_told_at_once_what_is_wanted_of_it() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    world.demand("type = 'temp'")
    world.lose(1, "net")
    world.heard()
    world.advance(GRACE_S - 1)
    assert world.gateway.overview()[0]["state"] == "lost"
    world.connect(2)
    world.register(2, "net", Sensor("t", "temp"))
    assert world.said == [(2, SubscribeSensors("net", [Sensor("t")]))]
    world.advance(10 * GRACE_S)
    assert is_known(world.gateway, "net", "t")


def test_a_network_that_comes_back_is_told_what_is_wanted_no_longer() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"), Sensor("n", "noise"))
    world.demand("type = 'temp'")
    world.lose(1, "net")
    world.demand()
    world.heard()
    world.connect(2)
    world.register(2, "net", Sensor("t", "temp"), Sensor("n", "noise"))
    assert world.heard() == [UnsubscribeSensors("net", [Sensor("t")])]
    world.register(2, "net", Sensor("t", "temp"))
    assert world.heard() == []


def test_what_is_read_late_on_an_earlier_connection_does_not_bring_a_network_back_there() -> None:
    world = connected()
    world.connect(2)
    world.register(2, "net", Sensor("t", "temp"))
    world.register(1, "net", Sensor("t", "temp"), Sensor("n", "noise"))
    world.gateway.lost(1, world.now)
    world.advance(10 * GRACE_S)
    world.demand("type IN ('temp', 'noise')")
    assert world.said == [(2, SubscribeSensors("net", [Sensor("n"), Sensor("t")]))]


def test_a_network_whose_connection_broke_is_gone_after_a_while() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    world.lose(1, "net")
    world.demand("type = 'temp'")
    world.advance(GRACE_S)
    assert world.heard() == []
    assert world.gateway.overview() == []


PHONE = DatagramAddress("phone", 4000)


def test_a_silent_network_past_its_lease_is_asked_and_then_dropped() -> None:
    world = World()
    world.demand("type = 'temp'")
    world.gateway.heard(PHONE, 500)
    world.register(PHONE, "net", Sensor("t", "temp"), lease_s=10)
    cookie = world.gateway._speaker.cookie(PHONE)
    world.advance(9)
    world.sense(PHONE, "net", Reading("t", "temp", 1), cookie=cookie)
    world.heard()
    world.advance(18.9)
    assert world.heard() == []
    world.advance(19)
    assert world.heard() == [SubscribeSensors("net", [Sensor("t")])]
    assert world.gateway.overview()[0]["state"] == "asked"
    world.sense(PHONE, "net", Reading("t", "temp", 1))
    world.advance(28.9)
    assert world.gateway.overview()[0]["state"] == "here"
    world.advance(39)
    assert world.gateway.overview() == []


def test_a_network_that_is_not_wanted_is_asked_too_before_it_is_dropped() -> None:
    world = World()
    world.gateway.heard(PHONE, 500)
    world.register(PHONE, "net", Sensor("t", "temp"))
    world.advance(LEASE_S)
    assert [names(message.sensors) for message in world.heard() if isinstance(message, SubscribeSensors)] == [
        []
    ]
    world.advance(2 * LEASE_S)
    assert world.gateway.overview() == []


# Whose a network is


def test_a_network_belongs_to_the_user_who_registered_it_first() -> None:
    world = World()
    world.connect(1, "home", "ada")
    world.connect(2, "home", "eve")
    world.connect(3, "away", "ada")
    world.register(1, "net", Sensor("t", "temp"))
    world.register(2, "net", Sensor("u", "temp"))
    (error,) = world.heard()
    assert error == Error("belongs to someone else", "$.register.sensing-id", "net")
    assert world.sense(2, "net", Reading("t", "temp", 1)) == []
    world.deregister(2, "net")
    assert is_known(world.gateway, "net", "t")
    world.register(3, "net", Sensor("u", "temp"))
    assert is_known(world.gateway, "net", "u")
    assert world.gateway.overview()[0]["owner"] == "ada"


def test_without_users_a_network_belongs_to_the_host_while_it_is_there() -> None:
    world = World()
    world.connect(1, "home")
    world.connect(2, "elsewhere")
    world.register(1, "net", Sensor("t", "temp"))
    world.lose(1, "net")
    world.register(2, "net", Sensor("t", "temp"))
    assert isinstance(world.heard()[0], Error)
    world.advance(GRACE_S)
    world.register(2, "net", Sensor("t", "temp"))
    assert world.heard() == []
    assert world.gateway.overview()[0]["state"] == "here"


# Datagrams


def test_to_an_address_that_is_not_confirmed_so_many_times_more_goes_than_came_from_there() -> None:
    world = World()
    sensors = [Sensor(f"sensor {number}", "temp") for number in range(15)]
    world.gateway.heard(PHONE, 20)
    world.register(PHONE, "net", *sensors)
    world.demand("type = 'temp'")
    assert world.heard() == []
    world.carry_out(world.gateway.heard(PHONE, 20))
    assert world.heard() == []
    world.carry_out(world.gateway.heard(PHONE, 2_000))
    ((key, message),) = world.said
    assert key == PHONE
    assert isinstance(message, SubscribeSensors)
    assert len(message.sensors) == 15
    assert message.cookie == world.gateway._speaker.cookie(PHONE)


def test_an_address_that_sends_its_cookie_back_is_told_everything_at_once() -> None:
    world = World()
    world.gateway.heard(PHONE, 20)
    world.register(PHONE, "net", Sensor("t", "temp"))
    world.demand("type = 'temp'")
    ((_, message),) = world.said
    assert isinstance(message, SubscribeSensors)
    assert isinstance(message.cookie, str)
    world.heard()
    world.demand()
    assert world.heard() == []
    world.sense(PHONE, "net", Reading("t", "temp", 1), cookie="0" * 16)
    world.demand("type = 'temp'", "value > 1")
    assert world.heard() == []
    world.demand()
    world.sense(PHONE, "net", Reading("t", "temp", 1), cookie=message.cookie)
    assert world.heard() == [UnsubscribeSensors("net", [Sensor("t")])]


SMALL = '{"register":{"sensing-id":"n","sensors":[{"name":"t","type":"x"}]}}'


@given(st.lists(st.booleans(), max_size=40), st.booleans())
def test_a_network_without_cookies_is_told_every_start_and_with_its_readings_every_stop(
    interests: list[bool], has_address: bool
) -> None:
    world = World()
    world.gateway.heard(PHONE, len(SMALL))
    more = {"address": "phone:77"} if has_address else {}
    world.register(PHONE, "n", Sensor("t", "x"), **more)
    for is_wanted in interests:
        world.demand(*(["type = 'x'"] if is_wanted else []))
        if is_wanted:
            assert "t" in world.on.get("n", {})
        else:
            for _ in range(3):  # readings of a sensor that goes on
                if "t" in world.on.get("n", {}):
                    world.carry_out(world.gateway.heard(PHONE, len(SMALL)))
            assert "t" not in world.on.get("n", {})


def test_who_registers_again_in_a_datagram_is_told_again_what_it_may_have_missed() -> None:
    world = World()
    world.demand("type = 'temp'")
    cookie = world.gateway._speaker.cookie(PHONE)
    world.register(PHONE, "net", Sensor("t", "temp"), cookie=cookie)
    world.register(PHONE, "net", Sensor("t", "temp"))
    assert world.heard() == [SubscribeSensors("net", [Sensor("t")])] * 2
    world.demand()
    world.heard()
    world.register(PHONE, "net", Sensor("t", "temp"))
    assert world.heard() == []


def test_what_goes_in_datagrams_is_cut_into_small_messages() -> None:
    world = World(Policy(hosts=frozenset({"sink"})))
    world.gateway.heard(PHONE, 100)
    sensors = [Sensor(str(number), "temp") for number in range(50)]
    world.demand("type = 'temp'")
    world.register(PHONE, "net", *sensors, address="sink:99")
    assert [key for key, _ in world.said] == [DatagramAddress("sink", 99)] * 3
    assert len(world.on["net"]) == 50


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("phone:77", DatagramAddress("phone", 77)),
        ("victim:77", PHONE),
        ("phone:0", PHONE),
        ("phone:70000", PHONE),
        ("phone", PHONE),
        ("phone:٣", PHONE),
        ("", PHONE),
    ],
)
def test_an_address_that_is_not_the_senders_own_is_not_used(address: str, reached: DatagramAddress) -> None:
    world = World()
    world.demand("type = 'temp'")
    world.gateway.heard(PHONE, 300)
    world.register(PHONE, "net", Sensor("t", "temp"), address=address)
    assert [key for key, _ in world.said] == [reached]


# Readings


def test_readings_of_a_network_that_never_registered_are_taken_and_advertised() -> None:
    world = connected()
    reading = Reading("t", "temp", 1)
    assert world.sense(1, "net", reading) == [reading]
    assert world.sense(1, "net", reading) == [reading]
    assert world.done == [AdvertiseFilter(1, "type = 'temp'")]
    assert world.gateway.overview()[0]["state"] == "unregistered"
    assert world.gateway.figures.strange == 2
    world.advance(SILENT_S_MAX + WITHDRAW_AFTER_S)
    assert world.gateway.overview() == []
    assert world.done[1:] == [Withdraw(1)]


def test_readings_of_strangers_are_dropped_and_counted_where_they_are_not_wanted() -> None:
    world = World(Policy(strangers=False))
    world.connect(1)
    assert world.sense(1, "net", Reading("t", "temp", 1), Reading("t", "temp", 2)) == []
    assert world.done == []
    assert (world.gateway.figures.strange, world.gateway.figures.refused) == (2, 2)


def test_a_stranger_that_registers_is_one_no_longer() -> None:
    world = connected()
    world.sense(1, "net", Reading("t", "temp", 1))
    world.register(1, "net", Sensor("t", "temp", 0, 1))
    assert [network["state"] for network in world.gateway.overview()] == ["here"]
    assert world.done == [AdvertiseFilter(1, "type = 'temp'")]


def test_a_reading_that_its_network_never_registered_is_advertised_while_the_network_is_there() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    for _ in range(3):
        assert world.sense(1, "net", Reading("n", "noise", 1), Reading("t", "sound", 1))
    assert world.done[1:] == [AdvertiseFilter(2, "type = 'noise'"), AdvertiseFilter(3, "type = 'sound'")]
    world.deregister(1, "net")
    world.advance(WITHDRAW_AFTER_S)
    assert world.offers == {}


def test_numbered_readings_are_counted_once_and_acknowledged_when_the_node_has_them() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    reading = Reading("t", "temp", 1)
    assert world.sense(1, "net", reading, seq=7) == [reading]
    assert world.sense(1, "net", reading, seq=7) == []
    assert world.heard() == []
    world.carry_out(world.gateway.accepted("net", 7, 1))
    assert world.heard() == [Ack("net", 7)]
    world.lose(1)
    world.connect(2)
    world.register(2, "net", Sensor("t", "temp"))
    assert world.sense(2, "net", reading, seq=7) == []
    assert world.said == [(2, Ack("net", 7))]
    assert world.gateway.figures.repeated == 2


def test_an_acknowledgement_goes_where_the_network_is_now() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    for seq in (7, 8, 9):
        assert world.sense(1, "net", Reading("t", "temp", 1), seq=seq)
    world.connect(2)
    world.register(2, "net", Sensor("t", "temp"))
    world.carry_out(world.gateway.accepted("net", 7, 1))
    world.lose(1)
    world.carry_out(world.gateway.accepted("net", 8, 1))
    world.lose(2)
    world.carry_out(world.gateway.accepted("net", 9, 1))
    assert world.said == [(1, Ack("net", 7)), (2, Ack("net", 8)), (1, Ack("net", 9))]
    world.connect(3)
    world.register(3, "net", Sensor("t", "temp"))
    assert world.sense(3, "net", Reading("t", "temp", 1), seq=9) == []
    assert world.said[-1] == (3, Ack("net", 9))


def test_numbered_readings_that_the_node_refused_may_come_again() -> None:
    world = connected()
    reading = Reading("t", "temp", 1)
    assert world.sense(1, "net", reading, seq=7)
    world.gateway.rejected("net", 7)
    assert world.sense(1, "net", reading, seq=7)


# Several gateways


def test_a_network_in_anothers_cell_is_sent_there_but_its_readings_are_taken() -> None:
    grid = GatewayGrid(10, {"a": "a:4242", "b": "b:4242"}, {"a": [(0, 0)], "b": [(1, 0)]})
    world = World(Policy(grid=grid, member="a"))
    world.connect(1)
    world.register(1, "here", Sensor("t", "temp"), area=[Point(5, 5)])
    world.register(1, "there", Sensor("t", "temp"), area=[Point(15, 5)])
    assert world.heard() == [Redirect("there", "b:4242")]
    assert not is_known(world.gateway, "there", "t")
    assert world.sense(1, "there", Reading("t", "temp", 1, area=[Point(15, 5)]))
    assert world.sense(1, "here", Reading("t", "temp", 1, area=[Point(15, 5)]))


def test_a_gateway_may_serve_networks_of_anothers_cells() -> None:
    grid = GatewayGrid(10, {"a": "a:4242", "b": "b:4242"}, {"b": [(1, 0)]})
    world = World(Policy(grid=grid, member="a", elsewhere="serve"))
    world.connect(1)
    world.register(1, "there", Sensor("t", "temp"), area=[Point(15, 5)])
    assert is_known(world.gateway, "there", "t")


# Limits


def problem(world: World) -> tuple[str, str]:
    (error,) = world.heard()
    assert isinstance(error, Error)
    return error.place, error.problem


def test_a_register_with_too_many_sensors_is_refused_and_the_connection_stays() -> None:
    world = connected()
    world.register(1, "net", *[Sensor(str(number), "temp") for number in range(SENSORS_MAX + 1)])
    assert problem(world)[0] == "$.register.sensors"
    assert world.closed == []
    world.register(1, "net", *[Sensor(str(number), "temp") for number in range(SENSORS_MAX)])
    assert world.heard() == []
    world.register(1, "net", Sensor("one more", "temp"))
    assert problem(world) == ("$.register.sensors", f"a network has at most {SENSORS_MAX} sensors")


@pytest.mark.parametrize(
    ("sensor", "place"),
    [
        (Sensor("", "temp"), "$.register.sensors[0].name"),
        (Sensor("t\x1b[2J", "temp"), "$.register.sensors[0].name"),
        (Sensor("t"), "$.register.sensors[0].type"),
        (Sensor("t", "air pressure"), "$.register.sensors[0].type"),
        (Sensor("t" * (NAME_LENGTH_MAX + 1), "temp"), "$.register.sensors[0].name"),
        (Sensor("t", "temp", 2, 1), "$.register.sensors[0].min-value"),
        (Sensor("t", "temp", float("nan")), "$.register.sensors[0].min-value"),
    ],
)
def test_a_sensor_that_can_not_be_is_refused_by_its_place(sensor: Sensor, place: str) -> None:
    world = connected()
    world.register(1, "net", sensor)
    assert problem(world)[0] == place
    assert world.gateway.overview() == []


@pytest.mark.parametrize("far", [1e16, -1e308, float("inf"), float("nan")])
def test_a_place_beyond_all_maps_is_refused(far: float) -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"), area=[Point(0, 0), Point(1, far)])
    assert problem(world)[0] == "$.register.area[1]"


def test_a_gateway_has_so_many_sensors_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_registry, "ALL_SENSORS_MAX", 3)
    world = connected()
    world.register(1, "net", *THREE[:2])
    world.sense(1, "net", Reading("stray", "temp", 1))
    world.register(1, "other", Sensor("t", "temp"))
    assert problem(world) == ("$.register.sensors", "there is no room for more sensors")
    world.deregister(1, "net")
    world.register(1, "other", *THREE)
    assert world.heard() == []


def test_a_gateway_is_one_of_its_grid() -> None:
    with pytest.raises(ConfigError):
        Policy(grid=GatewayGrid(1, {"a": "a:1"}), member="b")


def test_a_connection_has_so_many_networks_and_no_more() -> None:
    world = connected()
    for number in range(PER_CONNECTION_MAX):
        world.register(1, f"net {number}", Sensor("t", "temp"))
    world.register(1, "one more", Sensor("t", "temp"))
    assert problem(world)[1] == "there is no room for another network"
    world.register(1, "net 0", Sensor("u", "temp"))
    assert world.heard() == []


def test_who_makes_nothing_but_errors_is_cut_off() -> None:
    world = connected()
    for _ in range(ERRORS_MAX - 1):
        world.carry_out(world.gateway.failed(1, Error("no JSON")))
    world.register(1, "net", Sensor("t", "temp"))
    for _ in range(ERRORS_MAX - 1):
        world.carry_out(world.gateway.failed(1, Error("no JSON")))
    assert world.closed == []
    world.carry_out(world.gateway.failed(1, Error("no JSON")))
    assert world.closed == [1]


def test_a_filter_that_can_not_be_read_here_wants_everything() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp"))
    world.carry_out(world.gateway.demanded(1, ["UNHEARD_OF(value)"]))
    assert world.on == {"net": {"t": (None, None)}}


def test_an_advertisement_that_grows_is_told_again_under_its_number() -> None:
    world = connected()
    world.register(1, "net", Sensor("t", "temp", 0, 5), Sensor("u", "temp", 2, 3), Sensor("v", "temp", 4, 9))
    assert world.done == [
        AdvertiseFilter(1, "type = 'temp' AND value BETWEEN 0 AND 5"),
        Widen(1, "type = 'temp' AND value BETWEEN 0 AND 9"),
    ]


def test_a_reading_of_a_type_that_no_event_may_have_is_not_advertised() -> None:
    world = connected()
    world.sense(1, "stranger", Reading("t", "no type", 1))
    world.register(1, "net", Sensor("t", "temp"))
    world.sense(1, "net", Reading("t", "", 1))
    assert world.offers.keys() == {1}
    assert str(world.offers[1]) == "type = 'temp'"
