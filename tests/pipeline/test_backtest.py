"""Back-tests: the counters are those of brute force, however history is stored and cut into tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from log.parting import all_events, part_of, parts
from msgspec import json
from pipeline.nodes import Running, running
from pyspark.sql import SparkSession

from tests.filters.conditions import events as likely_events
from tests.filters.conditions import filters
from tidings import Event, Filter, blocking
from tidings.errors import ConfigError, UserError
from tidings.event.json import to_json
from tidings.log.chunks import LivePart
from tidings.log.columns import table_of
from tidings.log.segment_folder import Folder
from tidings.pipeline.backtest.cases import EVERYONE, Case, Cases, read_cases
from tidings.pipeline.backtest.reading import match_all, match_parts
from tidings.pipeline.backtest.run import CaseResult, backtest, index_of
from tidings.pipeline.backtest.tally import OTHER_TYPES, TOTAL, CounterRow, Detail, Tally, TallyPlan

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
SAMPLES = 2


def cases_of(*texts: str) -> Cases:
    return Cases("filters", tuple(Case(text or "all", Filter(text)) for text in texts))


# The tally


def tallied(held: list[Filter], lots: list[tuple[str, list[LivePart], bool]], by_type: bool) -> Tally:
    """Count each lot, of a node, in a tally of its own, from bytes or as a table, and merge them."""
    plan = TallyPlan(len(held), SAMPLES, 7, by_type)
    index = index_of(tuple(Case(str(key), wanted) for key, wanted in enumerate(held)))
    merged = Tally(plan)
    for node, several, is_sealed in lots:
        tally = Tally(plan)
        found = (
            match_all(index, table_of(several), node, by_type)
            if is_sealed
            else match_parts(index, several, node, by_type)
        )
        for matches, chunk in found:
            tally.add(matches, chunk)
        for row in tally.rows():
            merged.merge(row)
    return merged


@settings(max_examples=often(40))
@given(
    st.lists(filters, max_size=8),
    st.lists(parts() | st.lists(likely_events, min_size=1).map(lambda made: [part_of(made)]), max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.booleans(),
)
def test_counters_are_those_of_brute_force_and_do_not_depend_on_the_cut(
    held: list[Filter], lots: list[list[LivePart]], sealed: list[bool], by_type: bool
) -> None:
    tally = tallied(held, list(zip("abc", lots, sealed, strict=False)), by_type)
    made = [event for lot in lots for _, event in all_events(lot)]
    assert tally.row(TOTAL).matched == len(made)
    for key, wanted in enumerate(held):
        times = [event.time_us for event in made if wanted.matches(event)]
        row = tally.row(key)
        assert row.matched == len(times)
        if times:
            assert (row.first_us, row.last_us) == (min(times), max(times))
    one_by_one = [(node, [part], True) for node, lot in zip("abc", lots, strict=False) for part in lot]
    other = tallied(held, one_by_one[::-1], by_type)
    for key in range(len(held)):
        assert plainly(tally.row(key)) == plainly(other.row(key))


def plainly(row: CounterRow) -> tuple[Any, ...]:
    """The counters with the samples as JSON values: attributes may stand in another order."""
    detail = json.decode(row.detail, type=Detail) if row.detail else Detail()
    samples = [(one.node, one.position, json.decode(one.event)) for one in detail.samples]
    return row[:-1], samples, detail.types


def test_types_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.pipeline.backtest.tally.TYPES_MAX", 2)
    tally = tallied([Filter()], [("n", [part_of([Event(kind) for kind in "abcdab"])], False)], True)
    assert plainly(tally.row(0))[-1] == {"a": 2, "b": 2, OTHER_TYPES: 2}


def test_counters_of_a_case_that_never_matched_are_empty() -> None:
    tally = Tally(TallyPlan(2))
    tally.merge(CounterRow(1, 3, 10, 20, ""))
    assert tally.row(0).matched == 0
    assert [row.case for row in tally.rows()] == [1, TOTAL]


# On Spark


class History:
    """A node with a history, part of it sealed, and a folder with all of it."""

    def __init__(self, node: Running, folder: Path, made: list[Event], end: int) -> None:
        self.node = node
        self.folder = folder
        self.made = made
        self.end = end


def random_events(rng: random.Random, count: int) -> list[Event]:
    return [
        Event(
            rng.choice(["air.pm10", "air.no2", "door", "tidings.figures"]),
            {
                "value": rng.choice([rng.randrange(100), rng.random() * 100, "high"]),
                "street": f"s{rng.randrange(9)}",
            },
            time=BEGIN + timedelta(seconds=rng.randrange(36_000)),
            delivery="persistent",
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    home = tmp_path_factory.mktemp("backtest")
    rng = random.Random(5)
    made = random_events(rng, 400)
    with running(home / "node") as node:
        node.publish(*made[:150])
        with blocking.connect(f"tidings://{node.address}") as bus:
            live = [part for found, _ in bus.log.parts(1) for part in found if isinstance(part, LivePart)]
            bus.log.seal()
            node.publish(*made[150:])
            live += [part for found, _ in bus.log.parts(1) for part in found if isinstance(part, LivePart)]
            end = bus.log.status()["end"]
        folder = Folder(home / "log")
        folder.write(live[: len(live) // 2], node.node.driver.broker.node, 1, live[len(live) // 2].first - 1)
        folder.write(
            live[len(live) // 2 :], node.node.driver.broker.node, live[len(live) // 2].first, end - 1
        )
        yield History(node, home / "log", made, end)


def options_of(history: History, place: str, **more: Any) -> dict[str, str]:
    where = {"node": history.node.address} if place == "node" else {"path": str(history.folder)}
    return where | {name: str(value) for name, value in more.items()}


def expected(case: Case, made: list[Event]) -> tuple[int, datetime | None, datetime | None]:
    times = [event.time for event in made if case.where.matches(event)]
    return len(times), min(times, default=None), max(times, default=None)


def counted(result: CaseResult) -> tuple[int, datetime | None, datetime | None]:
    return result.count, result.first, result.last


TEXTS = [
    "", "type = 'air.pm10' AND value > 50", "value = 'high'", "street LIKE '%3'", "type LIKE 'air.%'",
    "value > 1000", "street IN ('s1', 's2') AND value BETWEEN 10 AND 20", "NOT type = 'door'",
]  # fmt: skip


@pytest.mark.parametrize("place", ["node", "folder"])
def test_a_back_test_counts_what_brute_force_counts(
    spark: SparkSession, history: History, place: str
) -> None:
    rng = random.Random(place)
    more = [f"street = 's{rng.randrange(9)}' AND value > {rng.randrange(100)}" for _ in range(often(60))]
    cases = cases_of(*dict.fromkeys([*TEXTS, *more]))
    report = backtest(spark, cases, options_of(history, place, minPartitions=3), samples=SAMPLES, seed=3)
    assert (report.events, report.kind) == (len(history.made), "filters")
    assert [counted(result) for result in report.cases] == [
        expected(case, history.made) for case in cases.cases
    ]
    for case, result in zip(cases.cases, report.cases, strict=True):
        assert len(result.samples) == min(SAMPLES, result.count)
        for sample in result.samples:
            event = history.made[sample["position"] - 1]
            assert case.where.matches(event)
            assert sample["attributes"] == json.decode(to_json(event))["attributes"]
        assert result.share == result.count / len(history.made)
        assert result.types is None


def test_the_same_seed_gives_the_same_samples_from_node_and_files(
    spark: SparkSession, history: History
) -> None:
    def samples(place: str, seed: int, tasks: int) -> list[list[tuple[str, int]]]:
        report = backtest(
            spark, cases_of(*TEXTS), options_of(history, place, minPartitions=tasks), samples=5, seed=seed
        )
        return [[(one["node"], one["position"]) for one in result.samples] for result in report.cases]

    first = samples("node", 1, 2)
    assert samples("folder", 1, 1) == first
    assert samples("folder", 2, 1) != first


def test_a_back_test_reads_and_does_nothing_else(spark: SparkSession, history: History) -> None:
    backtest(spark, cases_of(*TEXTS), options_of(history, "node"))
    assert history.node.readers == []
    with blocking.connect(f"tidings://{history.node.address}") as bus:
        assert bus.log.status()["end"] == history.end


def test_a_back_test_of_rules_tells_who_would_have_seen_what(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    (tmp_path / "access.toml").write_text(
        """
        [[allow]]
        users = ["ann", "device"]
        actions = ["publish"]
        [[allow]]
        users = ["ann"]
        actions = ["subscribe"]
        where = "type = 'air.pm10'"
        [[allow]]
        users = ["ann", "bob"]
        actions = ["subscribe"]
        where = "street = 's1'"
        [[allow]]
        everyone = true
        actions = ["subscribe"]
        where = "type = 'door' AND value = 'high'"
        """
    )
    cases = read_cases(tmp_path / "access.toml")
    report = backtest(spark, cases, options_of(history, "folder"), samples=1)
    assert [result.name for result in report.cases] == ["ann", "device", "bob", EVERYONE]
    for result in report.cases:
        seen = [event.type for event in history.made if Filter(result.where).matches(event)]
        assert result.types == {kind: seen.count(kind) for kind in sorted(set(seen))}
        assert result.count == len(seen) > 0
    assert report.kind == "access"


def test_mistakes_are_found_before_anything_is_counted(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="option 'node': is missing"):
        backtest(spark, cases_of("x > 1"), {})
    with pytest.raises(UserError, match="samples must be from 0 to 100, not 101"):
        backtest(spark, cases_of("x > 1"), {"node": "127.0.0.1:1"}, samples=101)


# Files of cases


def test_cases_are_read_from_files_of_each_kind(tmp_path: Path) -> None:
    written = {
        "a.toml": '[filters]\nhigh = "value > 50"\n"two words" = "type = \'a\'"\n',
        "b.jsonl": '{"name": "high", "where": "value > 50"}\n\n"type = \'a\'"\n',
        "c.txt": "# comment\nvalue > 50\n\n  type = 'a'\n",
    }
    names = {"a.toml": ["high", "two words"], "b.jsonl": ["high", "line 3"], "c.txt": ["line 2", "line 4"]}
    for name, text in written.items():
        (tmp_path / name).write_text(text)
        found = read_cases(tmp_path / name)
        assert [case.name for case in found.cases] == names[name]
        assert [str(case.where) for case in found.cases] == ["value > 50", "type = 'a'"]
        assert found.kind == "filters"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.toml", "[filters]\nx = 'value >'\n", r"a.toml, filters.x: is no filter: line 1, column 8"),
        ("a.toml", "[filters]\nx = 1\n", r"a.toml, filters.x: a filter is text, not 1"),
        ("a.toml", "[filters", "a.toml: is not TOML"),
        ("a.toml", "[other]\n", r"a.toml: other: a file of cases has \[filters\]"),
        ("a.toml", "[[allow]]\nusers = ['a']\nactions = ['see']\n", r"allow\[1\] .*: there is no 'see'"),
        ("a.jsonl", "{}\n", "a.jsonl, line 1: is neither"),
        ("a.jsonl", "\n{\n", "a.jsonl, line 2: is no JSON"),
        ("a.jsonl", '{"name": "a", "where": "x > 1"}\n' * 2, "a.jsonl: a: two cases have this name"),
        ("a.txt", "value >\n", "a.txt, line 1: is no filter"),
        ("a.txt", "# nothing\n", "a.txt: has no case"),
        ("missing/a.txt", None, "can't be read"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_of_cases_is_reported_with_its_place(
    tmp_path: Path, name: str, text: str | None, problem: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_cases(tmp_path / name)


def test_too_many_cases_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.pipeline.backtest.cases.CASES_MAX", 2)
    (tmp_path / "a.txt").write_text("x > 1\n" * 3)
    with pytest.raises(ConfigError, match="more than CASES_MAX = 2 cases"):
        read_cases(tmp_path / "a.txt")
