"""`tidings pipeline backtest`: what is typed and printed. Counting is tested beside the pipeline."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.commands import run_command

pytest.importorskip("pyspark")
from tidings.cli import backtest as command
from tidings.errors import UserError
from tidings.pipeline.backtest.firing import Firing
from tidings.pipeline.backtest.run import BacktestReport, CaseResult

NOW = datetime(2026, 5, 31, 12, tzinfo=UTC)


def result(name: str, count: int, **more: Any) -> CaseResult:
    first = NOW if count else None
    given = {"samples": [], "types": None, "per_hour": 1.5, **more}
    return CaseResult(name, "value > 40", count, count / 100, first=first, last=first, **given)


def report(*cases: CaseResult, kind: Any = "filters") -> BacktestReport:
    return BacktestReport(kind, 100, NOW, NOW, 7, list(cases))


def test_the_period_is_two_options_of_reading() -> None:
    assert command.period_of("30d", None, NOW) == {"startingTimestamp": "2026-05-01T12:00:00+00:00"}
    period = command.period_of("2026-05-30", "12h", NOW)
    assert period["endingTimestamp"] == "2026-05-31T00:00:00+00:00"
    with pytest.raises(UserError, match="--until: '30d' is not after --since '12h'"):
        command.period_of("12h", "30d", NOW)
    with pytest.raises(UserError, match="--since: 'soon' is neither a time"):
        command.period_of("soon", None, NOW)


def test_a_folder_is_read_even_if_the_environment_names_a_node() -> None:
    assert command.place_of("127.0.0.1:7300", "/var/log") == {"path": "/var/log"}
    assert command.place_of(None, None) == {"node": "127.0.0.1:7300"}


def test_a_node_that_is_away_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.pipeline.session.spark_session", None)
    (tmp_path / "cases.toml").write_text("[filters]\nhigh = 'value > 40'\n")
    code, _, errors = run_command(
        "pipeline", "backtest", str(tmp_path / "cases.toml"), "--node", "127.0.0.1:1"
    )
    assert (code, "no node answers at" in errors) == (2, True), errors


def test_a_pattern_is_reported_with_every_time_it_would_have_fired(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fired = [Firing(["quay", 3], NOW, NOW + timedelta(minutes=n)) for n in range(25)]
    more = {"fired": fired, "timeouts": 1, "unused": {"no key": 2}}
    command.print_report(report(result("stuck", 25, **more), kind="patterns"), json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["case", "fired", "share", "per", "hour", "first", "last", "pattern"]
    assert lines[4:6] == ["stuck would have fired at", "  2026-05-31 12:00:00  quay, 3"]
    assert lines[-3:] == [
        "  and 5 times later; --json lists them",
        "stuck: 1 run timed out",
        "stuck: 2 events not used: no key",
    ]
    command.print_report(report(result("stuck", 25, **more), kind="patterns"), json=True)
    _, case = map(json.loads, capsys.readouterr().out.splitlines())
    assert case["fired"][24] == {
        "key": ["quay", 3],
        "start": "2026-05-31T12:00:00Z",
        "end": "2026-05-31T12:24:00Z",
    }


def test_a_report_is_a_table_with_samples(capsys: pytest.CaptureFixture[str]) -> None:
    command.print_report(report(result("high", 3, samples=[{"position": 4}]), result("never", 0)), json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "100 events, from 2026-05-31 12:00:00 to 2026-05-31 12:00:00"
    assert lines[1].split() == ["case", "events", "share", "per", "hour", "first", "last", "filter"]
    assert lines[2].split()[:4] == ["high", "3", "3.00%", "1.5"]
    assert lines[-2:] == ["high, 1 sample", '  {"position":4}']


def test_a_report_of_rules_has_users_and_types(capsys: pytest.CaptureFixture[str]) -> None:
    types = {f"t{number}": number for number in range(7)}
    command.print_report(report(result("ann", 21, types=types), kind="access"), json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("user")
    assert lines[2].endswith("t6 6, t5 5, t4 4, t3 3, t2 2, …")


def test_of_very_many_cases_those_with_the_most_matches_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    many = [result(f"case{number}", number) for number in range(command.SHOWN_MAX + 10)]
    command.print_report(report(*many), json=False)
    told = capsys.readouterr().out
    assert "case59 " in told
    assert "case9 " not in told
    assert "and 10 cases with fewer matches; --json lists all" in told
    command.print_report(report(*many), json=True)
    whole, *cases = map(json.loads, capsys.readouterr().out.splitlines())
    assert whole == {"kind": "filters", "events": 100, "first": "2026-05-31T12:00:00Z",
                     "last": "2026-05-31T12:00:00Z", "seed": 7}  # fmt: skip
    assert [case["name"] for case in cases] == [case.name for case in many]
    assert cases[5]["count"] == 5


def test_a_period_without_events_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    command.print_report(BacktestReport("filters", 0, None, None, 0, [result("high", 0)]), json=False)
    assert capsys.readouterr().err == "there are no events in this period\n"


def test_mistakes_are_found_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("value >\n")
    code, _, error = run_command("pipeline", "backtest", str(tmp_path / "a.txt"))
    assert code == 2
    assert "a.txt, line 1: is no filter" in error
    (tmp_path / "a.txt").write_text("value > 1\n")
    for more, problem in (
        (["--node", "nowhere:x"], "option 'node'"),
        (["--where", "value >"], "option 'where'"),
        (["--since", "soon"], "--since"),
    ):
        code, _, error = run_command("pipeline", "backtest", str(tmp_path / "a.txt"), *more)
        assert code == 2
        assert problem in error
