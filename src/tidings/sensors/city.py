"""Simulated city: sensors of several types on a map, some of them on buses, with plausible values.

A value is a daily curve, a wandering drift, and an outlier now and then. Everything comes from a seed: the
same network gives the same readings in the same order in each run, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, hypot, pi
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidings.gateway.messages import Point, Sensor
from tidings.sensors.network import SensorNetwork

SIZE_M = 10_000.0
"""Side of the city, a square, in metres."""
DAY_S = 86_400.0
MORNING_S = 8 * 3_600.0
"""Time of day when a simulation begins."""
OUTLIERS = 1 / 500
"""Share of readings that are far off."""
BUSES = 4
"""If networks move, one in so many is a bus; the others stand in streets."""
HARBOUR_M = 1_000.0
"""Side of the corner where the air is bad, if it is bad anywhere."""
SMOG = 5.0
"""Factor of the dust in the air there."""
DUST = ("air.pm10", "air.pm25")
CITY = [Point(0.0, 0.0), Point(SIZE_M, 0.0), Point(SIZE_M, SIZE_M), Point(0.0, SIZE_M)]


class ReadingKind(NamedTuple):
    """Range of the values of a type, and the mean, swing and peak of a day."""

    low: float
    high: float
    mean: float
    swing: float
    peak_hour: float
    noise: float


KINDS = {
    "air.pm10": ReadingKind(0.0, 1_000.0, 18.0, 8.0, 8.0, 1.5),
    "air.pm25": ReadingKind(0.0, 500.0, 9.0, 4.0, 8.0, 0.8),
    "air.temperature": ReadingKind(-40.0, 60.0, 12.0, 6.0, 15.0, 0.2),
    "air.humidity": ReadingKind(0.0, 100.0, 65.0, 15.0, 5.0, 1.0),
    "sound.level": ReadingKind(20.0, 130.0, 58.0, 9.0, 17.0, 2.0),
    "traffic.speed": ReadingKind(0.0, 120.0, 38.0, 10.0, 3.0, 2.5),
}
OTHER = ReadingKind(0.0, 100.0, 50.0, 20.0, 12.0, 2.0)
"""Values of any other type."""


class Signal:
    """Values of one sensor, one after the other."""

    __slots__ = ("_drift", "_kind", "_random", "_shift")

    def __init__(self, kind: ReadingKind, random: Random) -> None:
        self._kind = kind
        self._random = random
        self._drift = 0.0
        self._shift = random.uniform(0.8, 1.2)  # no two places are alike

    def next(self, time_s: float) -> float:
        """Return the value at a time of a day, in seconds."""
        kind, random = self._kind, self._random
        self._drift = 0.95 * self._drift + random.gauss(0.0, kind.noise)
        curve = kind.mean * self._shift + kind.swing * cos(2 * pi * (time_s / DAY_S - kind.peak_hour / 24))
        value = curve + self._drift
        if random.random() < OUTLIERS:
            value += random.uniform(0.3, 1.0) * (kind.high - value)
        return round(min(max(value, kind.low), kind.high), 2)


class Spot:
    """Place of a network: it stands, or drives from one place to the next at a speed in metres per second.

    It stays in a square of `size_m` metres, a corner of the city or all of it.
    """

    __slots__ = ("_goal", "_random", "_size_m", "_speed", "x", "y")

    def __init__(self, random: Random, speed: float = 0.0, size_m: float = SIZE_M) -> None:
        self._random = random
        self._speed = speed
        self._size_m = size_m
        self.x, self.y = self._anywhere()
        self._goal = self._anywhere()

    @property
    def moves(self) -> bool:
        """Whether it drives."""
        return self._speed > 0

    def advance(self, elapsed_s: float) -> None:
        """Drive for a while."""
        rest_m = self._speed * elapsed_s
        while rest_m > 0:
            away_m = hypot(self._goal[0] - self.x, self._goal[1] - self.y)
            if away_m <= rest_m:
                self.x, self.y = self._goal
                self._goal = self._anywhere()
                rest_m -= max(away_m, 1.0)
            else:
                self.x = round(self.x + (self._goal[0] - self.x) * rest_m / away_m, 2)
                self.y = round(self.y + (self._goal[1] - self.y) * rest_m / away_m, 2)
                return

    def _anywhere(self) -> tuple[float, float]:
        return round(self._random.uniform(0, self._size_m), 2), round(
            self._random.uniform(0, self._size_m), 2
        )


class Load(Struct, frozen=True, kw_only=True):
    """Simulated load. `rate`: messages per second and network, 0: as many as the connections take.

    `smog`: number of networks that stand close together, where the air is bad.
    """

    networks: int = 1
    sensors: int = 10
    types: Sequence[str] = tuple(KINDS)
    rate: float = 2.0
    readings: int = 1
    mobility: float = 0.0
    churn: float = 0.0
    smog: int = 0
    seed: int = 0
    duration_s: float | None = None
    always: bool = False
    connections: int | None = None

    @property
    def period_s(self) -> float:
        """Time between two messages of a network; one second if they go as fast as they can."""
        return 1 / self.rate if self.rate else 1.0


class CityMessage(NamedTuple):
    """Message that is ready to be sent."""

    line: str
    readings: int
    unwanted: int


class CityNetwork:
    """Simulated network: the core with the requests of the gateway, and the city around it.

    Its messages are put together from pieces that were encoded before, since there are very many of them.
    """

    def __init__(self, number: int, load: Load, lease_s: float | None = None) -> None:
        random, types = Random(f"{load.seed}/{number}"), load.types
        smoggy = number <= load.smog
        drives = number % BUSES == 0 and not smoggy
        self.spot = Spot(random, load.mobility if drives else 0.0, HARBOUR_M if smoggy else SIZE_M)
        self.core = SensorNetwork(
            f"{'bus' if self.spot.moves else 'street'}-{number}",
            [_sensor(index, types[(number + index) % len(types)]) for index in range(load.sensors)],
            area=list(CITY) if self.spot.moves else [Point(self.spot.x, self.spot.y)],
            always=load.always,
            lease_s=lease_s,
        )
        self._signals = {
            name: Signal(_kind(sensor.type, smoggy), random) for name, sensor in self.core.sensors.items()
        }
        self._heads = {
            name: f'{{"name":{_json(name)},"type":{_json(sensor.type)},"value":'
            for name, sensor in self.core.sensors.items()
        }
        self._opening = f'{{"sensing":{{"sensing-id":{_json(self.core.sensing_id)},"sensors":['
        self._names = list(self.core.sensors)
        self._readings = min(load.readings, load.sensors)
        self._period_s = load.period_s
        self._next = 0
        self._time_s = MORNING_S

    def switched(self) -> None:
        """Note that sensors were switched on or off."""
        if not self.core.always:
            self._names = [name for name in self.core.sensors if name in self.core.asked]

    def message(self, stamp: str, now: float) -> CityMessage | None:
        """Return the next message; None without a request for one, or without a value in its range.

        `stamp` is the time for the readings; empty: they have none.
        """
        self._time_s += self._period_s
        self.spot.advance(self._period_s)
        names = self._chosen()
        if not names:
            return None
        tail = f',"timestamp":"{stamp}"' if stamp else ""
        tail += f',"area":[{{"x":{self.spot.x},"y":{self.spot.y}}}]}}'
        parts, unwanted = [], 0
        for name in names:
            value = self._signals[name].next(self._time_s)
            is_wanted = self.core.take(name, value, now)
            if is_wanted or self.core.always:
                parts.append(f"{self._heads[name]}{value}{tail}")
                unwanted += not is_wanted
        if not parts:
            return None
        return CityMessage(f"{self._opening}{','.join(parts)}]}}}}\n", len(parts), unwanted)

    def _chosen(self) -> list[str]:
        """Return the sensors whose turn it is, of those that are on."""
        count = len(self._names)
        if count <= self._readings:
            return self._names
        start = self._next % count
        self._next = start + self._readings
        return (self._names + self._names)[start : start + self._readings]


def _kind(type: str, smoggy: bool) -> ReadingKind:
    kind = KINDS.get(type, OTHER)
    return kind._replace(mean=SMOG * kind.mean) if smoggy and type in DUST else kind


def _sensor(index: int, type: str) -> Sensor:
    kind = KINDS.get(type, OTHER)
    return Sensor(f"{type.rpartition('.')[2]}-{index}", type, min_value=kind.low, max_value=kind.high)


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
