"""The rules and settings of the city pipeline; nothing here needs Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidings.errors import ConfigError
from tidings.pipeline.city.rules import Common, TypeLimits, parse_rules, read_rules
from tidings.pipeline.city.settings import CitySettings, project_folder
from tidings.pipeline.options import read_options
from tidings.pipeline.settings import NODE, RunSettings, time_span
from tidings.sensors.city import KINDS

NESTED = """
[default]
silent_s = 60
high = 5

[air]
high = 100

["air.pm10"]
mean_limit = 50
"""


def test_a_type_has_what_its_own_table_says_then_the_more_general_ones_then_the_default() -> None:
    rules = parse_rules(NESTED)
    assert rules.limits("air.pm10.indoor") == TypeLimits(high=100, mean_limit=50, silent_s=60)
    assert rules.limits("air.pm25") == TypeLimits(high=100, silent_s=60)
    assert rules.limits("airport") == TypeLimits(high=5, silent_s=60)


def test_an_empty_file_believes_everything_and_alarms_nobody() -> None:
    rules = parse_rules("")
    assert rules.limits("anything") == TypeLimits()
    assert rules.common == Common()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cell_size = 0", "cell_size: must be above 0"),
        ("cell_size = inf", "cell_size: must be above 0"),
        ("window_s = 0", "window_s: must be 1 to"),
        ("late_s = -1", "late_s: must be 0 to"),
        ("windows = 3", "unknown field `windows`"),
        ("[air]\nlimit = 3", r"\[air\]: .*unknown field `limit`"),
        ("[air]\nlow = 'much'", r"\[air\]: Expected `float"),
        ("[air]\nlow = nan", "low: is no number"),
        ("[air]\nlow = 3\nhigh = 2", "low: is above high"),
        ("[air]\nsilent_s = -1", "silent_s: must be 0 to"),
        ("[air", "rules"),
    ],
)
def test_what_is_wrong_in_the_rules_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_rules(text)


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-rules"):
        read_rules(tmp_path / "no-rules.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text"):
        read_rules(tmp_path / "binary")


def test_the_rules_of_the_project_believe_all_that_the_simulated_city_sends() -> None:
    rules = read_rules(project_folder() / "rules.toml")
    for type, kind in KINDS.items():
        limits = rules.limits(type)
        assert limits.low is not None
        assert limits.high is not None
        assert limits.low <= kind.low
        assert limits.high >= kind.high


# -- settings


def test_settings_come_from_sparks_configuration_first_and_then_from_the_environment() -> None:
    told = {"spark.tidings.city.node": "10.0.0.1:7300", "spark.tidings.city.where": "value > 3"}
    environment = {"TIDINGS_NODE": "10.0.0.2:7300", "TIDINGS_CITY_SINK": "mine", "TIDINGS_CA": "/ca.pem"}
    settings = CitySettings().completed(told.get, environment)
    assert settings == CitySettings(node="10.0.0.1:7300", where="value > 3", sink="mine", ca="/ca.pem")
    assert CitySettings().completed(settings.configuration().get, {}) == settings


def test_a_name_that_no_variable_can_have_is_written_with_underlines() -> None:
    settings = RunSettings(pipeline="air-quality.v2")
    found = settings.completed(lambda _: None, {"TIDINGS_AIR_QUALITY_V2_WHERE": "value > 3"})
    assert found.where == "value > 3"


def test_the_options_of_the_format_follow_from_the_settings() -> None:
    settings = CitySettings(
        node="tidings+tls://10.0.0.1:7300", token_file="/t", reader="city", starting="earliest"
    )
    reach = {"node": "tidings+tls://10.0.0.1:7300", "tokenFile": "/t"}
    assert settings.target() == {**reach, "sink": "city"}
    both = msgspec.structs.replace(settings, node="home:7300, office:7300")
    assert both.source("x")["node"] == "home:7300, office:7300"
    assert both.target() == {**reach, "node": "home:7300", "sink": "city"}  # at the first
    assert settings.source("value > 3") == {
        **reach,
        "where": "value > 3",
        "durable": "city",
        "startingOffsets": "earliest",
    }
    assert read_options(settings.source("TRUE"), "stream").durable == "city"
    assert CitySettings().reach() == {"node": NODE}
    assert read_options(CitySettings().source("TRUE"), "stream").fails_on_loss
    assert not read_options(CitySettings(allow_loss="true").source("TRUE"), "stream").fails_on_loss


def test_settings_overrule_what_the_rules_say_for_all_types(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("window_s = 60\nfuture_s = 7")
    settings = CitySettings(
        rules=str(tmp_path / "rules.toml"), window="10 s", watermark="2 min", cell_size="0.5"
    )
    common = settings.loaded_rules().common
    assert common == Common(cell_size=0.5, window_s=10, late_s=120, future_s=7)


@pytest.mark.parametrize(
    "setting", [{"cell_size": "wide"}, {"cell_size": "0"}, {"window": "0 s"}, {"window": "soon"}]
)
def test_a_setting_that_can_not_be_is_refused(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"cell_size|window"):
        CitySettings(**setting).loaded_rules()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 seconds", 10),
        ("1 second", 1),
        ("5min", 300),
        ("1.5 h", 5400),
        ("90", 90),
        ("250 ms", 0.25),
        (" 2 Days ", 172_800),
    ],
)
def test_time_spans_are_written_as_people_do(text: str, seconds: float) -> None:
    assert time_span(text, "window") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3 s", "5 lightyears", "3 4 s", "s"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        time_span(text, "window")
