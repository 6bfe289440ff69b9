"""What watches sensors by the clock, without Spark: its tester fires the timers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
from pyspark.sql import Row
from pyspark.sql.streaming import TwsTester

from tidings.pipeline.city.silence import SilenceProcessor

KEY = ("north", "a", "air.pm10")
SILENT_S = 10.0


class Sensors:
    """Sensors whose processor is given a clock by hand; keys are told as Spark tells them."""

    def __init__(self) -> None:
        self._now_ms = 0
        self.tester = TwsTester(KeyedProcessor(), timeMode="processingTime")

    def send(self, now_s: float, time_s: float, sensor: str = "a", posx: float = 1.0) -> None:
        assert self.at(now_s) == []
        row = Row(time_us=round(time_s * 1e6), posx=posx, posy=2.0, silent_s=SILENT_S)
        assert self.tester.test(("north", sensor, "air.pm10"), [row]) == []

    def at(self, now_s: float) -> list[tuple[str, float]]:
        """The sensors that fall silent up to then, with the second of their last reading."""
        if round(now_s * 1000) <= self._now_ms:
            return []
        self._now_ms = round(now_s * 1000)
        rows: Any = self.tester.setProcessingTime(self._now_ms)
        return [(row.sensor, row.last_us / 1e6) for row in rows]


class KeyedProcessor(SilenceProcessor):
    """The tester puts the key into a tuple of its own."""

    def handleInputRows(self, key: Any, rows: Any, values: Any) -> Any:  # noqa: N802
        return super().handleInputRows(key[0], rows, values)

    def handleExpiredTimer(self, key: Any, values: Any, expired: Any) -> Any:  # noqa: N802
        return super().handleExpiredTimer(key[0], values, expired)


def test_a_sensor_that_sends_nothing_falls_silent_once() -> None:
    sensors = Sensors()
    sensors.send(100, 5)
    assert sensors.at(109.9) == []
    assert sensors.at(110) == [("a", 5.0)]
    assert sensors.at(500) == []


def test_each_reading_is_a_sign_of_life_for_as_long_again() -> None:
    sensors = Sensors()
    for second in range(100, 150, 5):
        sensors.send(second, second - 100)
        assert sensors.at(second) == []
    assert sensors.at(154) == []
    assert sensors.at(156) == [("a", 45.0)]


def test_a_sensor_that_speaks_again_may_fall_silent_again() -> None:
    sensors = Sensors()
    sensors.send(100, 0)
    assert sensors.at(111) == [("a", 0.0)]
    sensors.send(200, 100)
    assert sensors.at(211) == [("a", 100.0)]


def test_a_reading_that_comes_late_is_a_sign_of_life_and_not_the_last_reading() -> None:
    sensors = Sensors()
    sensors.send(100, 50)
    sensors.send(105, 20)
    assert sensors.at(112) == []
    assert sensors.at(116) == [("a", 50.0)]


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("ab")), max_size=30))
def test_silences_are_the_gaps_between_readings(steps: list[tuple[int, str]]) -> None:
    sensors, now, told = Sensors(), 0, []
    heard: dict[str, int] = {}
    expected = []
    for step, sensor in steps:
        for other, last in heard.items():  # whoever falls silent on the way to the next reading
            if now < last + SILENT_S <= now + step:
                expected.append((other, float(last)))
        now += step
        told += sensors.at(now)
        sensors.send(now, now, sensor)
        heard[sensor] = now
    expected += [(sensor, float(last)) for sensor, last in heard.items() if last + SILENT_S > now]
    assert sorted(told + sensors.at(now + 1000)) == sorted(expected)
