"""Definitions of a declarative project: which tables and views Spark is asked for, and what they read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
from pyspark import pipelines

from tidings.flows import load
from tidings.pipeline.definitions import Definitions, kept_sources
from tidings.pipeline.known import find, plan_of
from tidings.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("table", "materialized_view", "temporary_view")
QUOTES = """
[history.trades]
columns = { symbol = "string", price = "double", volume = "bigint" }
[history.large]
from = "trades"
select = "volume > 1000"
publish = "quotes.large"
[state.high]
from = "large"
by = "symbol"
collapse = { high = "highest(price)" }
publish = "quotes.high"
[history.highs]
from = "high"
expand = true
"""


@pytest.fixture
def defined(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is defined, by its name, as Spark would be asked for it."""
    found: dict[str, str] = {}

    def decorator(kind: str) -> Callable[..., Callable[[Any], None]]:
        def named(*, name: str, **_: Any) -> Callable[[Any], None]:
            assert name not in found
            return lambda _: found.update({name: kind})

        return named

    def add_sink(name: str, _: str, options: dict[str, str]) -> None:
        found[name] = options["sink"]

    for kind in (*KINDS, "append_flow"):
        monkeypatch.setattr(pipelines, kind, decorator(kind))
    monkeypatch.setattr(pipelines, "create_sink", add_sink)
    return found


def test_histories_are_tables_and_states_views_that_are_made_anew(
    spark: SparkSession, defined: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "quotes.toml").write_text(QUOTES)
    plan = plan_of(load(tmp_path / "quotes.toml"), "tables")
    settings = RunSettings(pipeline="quotes", node="127.0.0.1:7300", sink="mine")
    Definitions(spark, plan, settings).register()
    assert defined == {
        "large": "table",
        "large__all": "temporary_view",
        "large__new": "temporary_view",
        "high": "materialized_view",
        "highs": "materialized_view",
        "late": "materialized_view",
        "published_large": "mine-large",
        "publish_large": "append_flow",
    }


def test_a_source_that_is_read_as_a_whole_or_by_several_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "quotes.toml").write_text(QUOTES)
    assert kept_sources(plan_of(load(tmp_path / "quotes.toml"), "tables")) == []
    whole = QUOTES.replace('[state.high]\nfrom = "large"', '[state.high]\nfrom = "trades"')
    (tmp_path / "quotes.toml").write_text(whole)
    assert kept_sources(plan_of(load(tmp_path / "quotes.toml"), "tables")) == ["trades"]


def test_the_city_keeps_the_names_by_which_its_checkpoints_are_found(
    spark: SparkSession, defined: dict[str, str]
) -> None:
    city = find("city")
    Definitions(spark, city.plan(city.settings, "tables"), city.settings).register()
    own = {name: kind for name, kind in defined.items() if not name.endswith(("__new", "__all"))}
    assert own == {
        "raw": "table",
        "good": "temporary_view",
        "clean": "table",
        "rejected": "materialized_view",
        "aggregates": "materialized_view",
        "heard": "temporary_view",
        "alarms": "table",
        "published": "city",
        "publish": "append_flow",
    }
