"""What sensors are asked for, against a reading by reading search for one that somebody wants."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice, product

import pytest
from effort import often
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.gateway.world import World, box
from tidings.event import Event
from tidings.filters import Filter
from tidings.gateway import interest as interest_module
from tidings.gateway.advertisement import WITHDRAW_AFTER_S
from tidings.gateway.areas import AreaBox
from tidings.gateway.interest import SensorInterest
from tidings.gateway.messages import Sensor
from tidings.gateway.networks import GRACE_S, Instrument
from tidings.steps import finish

TYPES = ["air.pm10", "air.no2", "noise"]
IDS = ["net1", "net2", "other"]
NAMES = ["s1", "s2", "t"]
VALUES = [number / 2 for number in range(-1, 10)]
PLACES = [number / 2 for number in range(-1, 5)]

numbers = st.integers(0, 4)
pairs = st.tuples(numbers, numbers).map(sorted)
coordinates = st.tuples(st.integers(0, 1), st.integers(0, 1)).map(sorted)
ranges = st.one_of(
    st.just((None, None)),
    pairs.map(tuple),
    numbers.map(lambda n: (n, None)),
    numbers.map(lambda n: (None, n)),
)
areas = st.none() | st.tuples(coordinates, coordinates).map(
    lambda c: AreaBox(float(c[0][0]), float(c[1][0]), float(c[0][1]), float(c[1][1]))
)
conditions = st.one_of(
    st.sampled_from(TYPES).map(lambda t: f"type = '{t}'"),
    st.sampled_from(TYPES).map(lambda t: f"type <> '{t}'"),
    st.just("type IN ('air.pm10', 'noise')"),
    st.just("STARTS_WITH(type, 'air.')"),
    st.just("type LIKE '%o%'"),
    st.just("TOPIC(type, '*.no2')"),
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers).map(
        lambda p: f"value {p[0]} {p[1]}"
    ),
    pairs.map(lambda p: f"value BETWEEN {p[0]} AND {p[1]}"),
    pairs.map(lambda p: f"value IN ({p[0]}, {p[1]}, 'on')"),
    st.just("value = 'on'"),
    st.just("value = TRUE"),
    st.just("value * 0 = 0"),
    st.tuples(st.sampled_from(["posx", "posy"]), st.sampled_from("<>="), coordinates).map(
        lambda p: f"{p[0]} {p[1]} {p[2][0]}"
    ),
    coordinates.map(
        lambda c: (
            f"WITHIN(posx, posy, 'POLYGON (({c[0]} 0, {c[1] + 1} 0, {c[1] + 1} 1, {c[0]} 1, {c[0]} 0))')"
        )
    ),
    st.sampled_from(IDS).map(lambda i: f"\"sensing-id\" = '{i}'"),
    st.just("\"sensing-id\" LIKE '%2'"),
    st.just("\"sensing-id\" <> 'net1'"),
    st.sampled_from(NAMES).map(lambda n: f"name = '{n}'"),
    st.just("name LIKE '_1'"),
    st.just("battery < 20"),
    st.just("NOT (value < 3 OR posx > 1)"),
)
filters = st.lists(
    st.lists(conditions, min_size=1, max_size=3).map(" AND ".join).map("({})".format), min_size=1, max_size=2
).map(" OR ".join)
placed = st.sampled_from(["posx < 1", "posx > 0", "posy = 1", "name = 's1' AND posy < 1", "value > 2"])
kinds = st.tuples(st.sampled_from(TYPES), ranges)

Kind = tuple[str, tuple[int | None, int | None]]


@lru_cache(maxsize=1_000)
def readings(sensing_id: str, name: str, kind: Kind, area: AreaBox | None) -> list[Event]:
    """Readings that the sensor may send, close enough together that no filter above slips through."""
    type, (low, high) = kind
    values: list[float | str | bool] = [
        v for v in VALUES if (low is None or v >= low) and (high is None or v <= high)
    ] + [60.0] * (high is None)
    if low is None and high is None:
        values += ["on", True]
    if area is None:
        places = list(product(PLACES, PLACES))
    else:
        xs = [x for x in PLACES if area.x_low <= x <= area.x_high]
        places = list(product(xs, [y for y in PLACES if area.y_low <= y <= area.y_high]))
    return [
        Event(type, {"sensing-id": sensing_id, "name": name, "value": v, "posx": x, "posy": y, "battery": 10})
        for v in values
        for x, y in places
    ]


@lru_cache(maxsize=20_000)
def matched(text: str, sensing_id: str, name: str, kind: Kind, area: AreaBox | None) -> list[object]:
    """The values of the readings that a filter takes, each once."""
    test = Filter(text).matches
    events = readings(sensing_id, name, kind, area)
    return list({id(v): v for e in events if test(e) for v in [e["value"]]}.values())


def wanted(texts: list[str], sensing_id: str, name: str, kind: Kind, area: AreaBox | None) -> list[object]:
    return [value for text in texts for value in matched(text, sensing_id, name, kind, area)]


def check(values: list[object], kind: Kind, asked: tuple[float | None, float | None] | None) -> None:
    """On if and only if a reading is wanted; asked for a range that has all of these, and hardly more."""
    assert (asked is not None) == bool(values)
    low, high = kind[1]
    if asked is None:
        return
    if low is None and high is None:
        assert asked == (None, None)
        return
    found = [value for value in values if isinstance(value, int | float)]
    if asked[0] is None:
        assert low is None
    else:
        assert asked[0] <= min(found) <= asked[0] + 0.5
    if asked[1] is None:
        assert high is None
    else:
        assert asked[1] - 0.5 <= max(found) <= asked[1] or max(found) == 60 <= asked[1]


class Networks(RuleBasedStateMachine):
    """Networks that come, go and are lost, filters that come and go, and time that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.keys = 0
        self.key: dict[str, int] = {}
        self.area: dict[str, AreaBox | None] = {}
        self.sensors: dict[str, dict[str, Kind]] = {}

    @rule(
        sensing_id=st.sampled_from(IDS),
        sensors=st.dictionaries(st.sampled_from(NAMES), kinds, min_size=1),
        area=areas,
    )
    def register(self, sensing_id: str, sensors: dict[str, Kind], area: AreaBox | None) -> None:
        if sensing_id not in self.key:
            self.keys += 1
            self.key[sensing_id] = self.keys
            self.world.connect(self.keys)
        offered = [Sensor(name, kind[0], *kind[1]) for name, kind in sensors.items()]
        corners = None if area is None else box(*area)
        self.world.register(self.key[sensing_id], sensing_id, *offered, area=corners)
        if sensing_id not in self.area or area is not None:
            self.area[sensing_id] = area
        self.sensors[sensing_id] = sensors | self.sensors.get(sensing_id, {})

    @rule(sensing_id=st.sampled_from(IDS), names=st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
    def deregister(self, sensing_id: str, names: list[str]) -> None:
        if sensing_id not in self.key:
            return
        self.world.deregister(self.key[sensing_id], sensing_id, *names)
        known = self.sensors.get(sensing_id, {})
        for name in names or NAMES:
            known.pop(name, None)
        if not known:
            self.sensors.pop(sensing_id, None)
            self.area.pop(sensing_id, None)

    @rule(sensing_id=st.sampled_from(IDS), is_long=st.booleans())
    def lose(self, sensing_id: str, is_long: bool) -> None:
        if sensing_id not in self.key:
            return
        self.world.lose(self.key.pop(sensing_id), sensing_id)
        if is_long:
            self.world.advance(self.world.now + GRACE_S)
            for other in IDS:
                if other not in self.key:
                    self.sensors.pop(other, None)
                    self.area.pop(other, None)

    @rule(texts=st.lists(filters, max_size=4, unique=True))
    def demand(self, texts: list[str]) -> None:
        self.world.demand(*texts)

    @rule(text=filters)
    def demand_more(self, text: str) -> None:
        self.world.demand(*dict.fromkeys([*self.world.filters, text]))

    @rule()
    def pass_time(self) -> None:
        self.world.advance(self.world.now + WITHDRAW_AFTER_S + GRACE_S)
        for sensing_id in IDS:
            if sensing_id not in self.key:
                self.sensors.pop(sensing_id, None)
                self.area.pop(sensing_id, None)

    @invariant()
    def a_sensor_is_on_if_and_only_if_a_reading_of_it_may_be_wanted(self) -> None:
        for sensing_id in self.key:
            on = self.world.on.get(sensing_id, {})
            for name, kind in self.sensors.get(sensing_id, {}).items():
                values = wanted(self.world.filters, sensing_id, name, kind, self.area[sensing_id])
                check(values, kind, on.get(name))

    @invariant()
    def what_the_gateway_reports_is_what_the_networks_were_told(self) -> None:
        for network in self.world.gateway.overview():
            told = self.world.on.get(network["sensing-id"], {})
            for sensor in network["sensors"]:
                assert sensor["on"] == (sensor["name"] in told)
                if network["state"] == "here":
                    assert sensor["on"] == bool(sensor["filters"])

    def teardown(self) -> None:
        """When all have gone and time has passed, nothing is left."""
        for sensing_id in list(self.key):
            self.lose(sensing_id, is_long=False)
        self.world.advance(self.world.now + GRACE_S + WITHDRAW_AFTER_S)
        assert self.world.gateway.overview() == []
        assert self.world.offers == {}
        assert self.world.gateway.wake_at == float("inf")
        assert not self.world.gateway._interest._filters


TestNetworks = Networks.TestCase
TestNetworks.settings = settings(
    max_examples=often(60),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

made = st.tuples(st.sampled_from(IDS), st.sampled_from(NAMES), kinds)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(IDS), areas, min_size=3, max_size=3),
    st.lists(made, max_size=8),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7), filters), max_size=12),
)
def test_small_changes_lead_to_the_same_as_working_everything_out_anew(
    places: dict[str, AreaBox | None],
    sensors: list[tuple[str, str, Kind]],
    steps: list[tuple[bool, int, str]],
) -> None:
    instruments = [
        Instrument(sensing_id, Sensor(name, kind[0], *kind[1]), places[sensing_id])
        for sensing_id, name, kind in sensors
    ]
    interest = SensorInterest()
    present: dict[Instrument, None] = {}
    for is_filter, at, text in steps:
        if is_filter:
            finish((interest.unwant if text in interest._filters else interest.want)(text))
        elif at < len(instruments):
            instrument = instruments[at]
            if instrument in present:
                interest.remove(instrument)
                del present[instrument]
            else:
                interest.add(instrument)
                present[instrument] = None
                instrument.asked = None
        for changed, span in interest.changes(100):
            changed.asked = span
    fresh = SensorInterest()
    for text in interest._filters:
        finish(fresh.want(text))
    for one in present:
        copy = Instrument(one.sensing_id, Sensor(one.name, one.type), one.box)
        copy.span = one.span
        fresh.add(copy)
        assert interest.wanted(one) == fresh.wanted(copy)
        span = fresh.wanted(copy)
        assert (one.asked and one.asked.ends) == (span and span.ends)
        assert set(interest.why(one)) == set(fresh.why(copy))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(IDS), areas, min_size=3, max_size=3),
    st.lists(made, min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), placed | filters, st.integers(0, 3), areas), min_size=3, max_size=12
    ),
)
def test_sensors_that_come_go_and_move_within_a_change_lead_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
    places: dict[str, AreaBox | None],
    sensors: list[tuple[str, str, Kind]],
    changes: list[tuple[int, str, int, AreaBox | None]],
) -> None:
    monkeypatch.setattr(interest_module, "STEP", 1)
    instruments = [
        Instrument(sensing_id, Sensor(name, kind[0], *kind[1]), places[sensing_id])
        for sensing_id, name, kind in sensors
    ]
    interest = SensorInterest()
    present: dict[Instrument, None] = {}
    for at, text, steps, area in changes:
        change = (interest.unwant if text in interest._filters else interest.want)(text)
        for _ in islice(change, steps):
            pass
        instrument = instruments[at % len(instruments)]
        alike = [one for one in present if one.sensing_id == instrument.sensing_id]
        if instrument in present and steps % 2:
            interest.remove(instrument)
            del present[instrument]
        elif instrument in present:
            finish(interest.move(alike, area))
        else:
            instrument.box = alike[0].box if alike else instrument.box
            instrument.asked = None
            interest.add(instrument)
            present[instrument] = None
        finish(change)
        while interest.is_touched:
            for changed, span in interest.changes(2):
                changed.asked = span
    fresh = SensorInterest()
    for text in interest._filters:
        finish(fresh.want(text))
    for one in present:
        copy = Instrument(one.sensing_id, Sensor(one.name, one.type), one.box)
        copy.span = one.span
        fresh.add(copy)
        span = fresh.wanted(copy)
        assert interest.wanted(one) == span
        assert (one.asked and one.asked.ends) == (span and span.ends)


def test_every_filter_that_wants_something_of_a_sensor_is_named() -> None:
    interest = SensorInterest()
    sensor = Instrument("net", Sensor("s", "temp", 0, 10), None)
    interest.add(sensor)
    for text in ("value > 5", "value > 20", "type = 'noise'", "name = 's'", "humidity > 3"):
        finish(interest.want(text))
    assert interest.why(sensor) == ["value > 5", "name = 's'", "humidity > 3"]


def test_more_ranges_than_are_told_apart_are_asked_for_as_one() -> None:
    interest = SensorInterest()
    sensor = Instrument("net", Sensor("s", "temp", 100.5, 100.7), None)
    interest.add(sensor)
    finish(interest.want(f"value IN ({', '.join(map(str, range(200)))})"))
    assert interest.wanted(sensor) == sensor.span


def test_a_sensor_that_moves_is_wanted_where_it_is_and_no_more_where_it_was() -> None:
    interest = SensorInterest()
    sensor = Instrument("net", Sensor("s", "temp"), AreaBox(0, 0, 0, 0))
    interest.add(sensor)
    finish(interest.want("posx > 5"))
    assert interest.wanted(sensor) is None
    finish(interest.move([sensor], AreaBox(9, 0, 9, 0)))
    assert interest.wanted(sensor) is not None
    finish(interest.want("posx BETWEEN 8 AND 10 AND name = 's'"))
    finish(interest.unwant("posx > 5"))
    assert interest.wanted(sensor) is not None
    finish(interest.move([sensor], AreaBox(0, 0, 0, 0)))
    assert interest.wanted(sensor) is None
