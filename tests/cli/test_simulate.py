from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.protocol.broker import Broker


def run(*arguments: str, kind: str = "storm") -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", kind, *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("kind", ["storm", "queues", "overlay"])
def test_each_storm_is_told_with_its_seed(kind: str) -> None:
    code, out, _ = run("--seed", "3", "--runs", "2", "--duration-s", "1", kind=kind)
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["seed 3", "seed 4"]


def test_a_storm_over_queues_may_have_several_nodes() -> None:
    code, out, _ = run("--seed", "3", "--runs", "1", "--duration-s", "1", "--nodes", "3", kind="queues")
    assert code == 0
    assert "times dialled" in out


@pytest.mark.parametrize("kind", ["storm", "queues", "overlay"])
def test_as_json_a_storm_can_be_compared_with_another_run_of_it(kind: str) -> None:
    arguments = ("--seed", "3", "--runs", "1", "--duration-s", "1", "--json")
    first, second = run(*arguments, kind=kind), run(*arguments, kind=kind)
    assert first == second
    verdict = msgspec.json.decode(first[1])
    assert verdict["seed"] == 3
    assert len(verdict["trace"]) == 64


@pytest.mark.parametrize("kind", ["storm", "queues", "overlay"])
def test_a_storm_that_fails_is_told_and_is_the_exit_code(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "promise", property(lambda _self: 0))
    code, _, errors = run("--seed", "7", "--runs", "1", kind=kind)
    assert code == 1
    assert "seed 7: FAILED" in errors


def test_swarms_of_agents_are_told_with_the_costs_of_finding_orphans() -> None:
    code, out, _ = run("--seed", "3", "--runs", "2", "--agents", "20", kind="agents")
    lines = out.splitlines()
    assert code == 0
    assert [line.split(":")[0] for line in lines[:2]] == ["seed 3", "seed 4"]
    rows = [line.rsplit(maxsplit=2) for line in lines[3:]]
    assert rows == [
        ["active worst", "800", "800"],
        ["active best", "0", "0"],
        ["basic", "1,600", "1,600"],
        ["direct", "836", "836"],
        ["channel", "80", "80"],
    ]


def test_swarms_as_json_are_reports_and_then_costs() -> None:
    code, out, _ = run("--seed", "3", "--runs", "1", "--json", kind="agents")
    report, *costs = [msgspec.json.decode(line) for line in out.splitlines()]
    assert code == 0
    assert report["seed"] == 3
    assert report["orphan_s_max"] <= report["bound_s"]
    assert all(one["counted"] == one["formula"] for one in costs)


def test_a_swarm_that_fails_is_told_with_its_seed_and_the_others_are_run() -> None:
    code, _, errors = run("--seed", "3", "--runs", "2", "--fault", "never-over", kind="agents")
    assert code == 1
    assert [line.split(":")[0:2] for line in errors.splitlines()] == [
        ["seed 3", " FAILED"],
        ["seed 4", " FAILED"],
    ]


def test_an_experiment_prints_rows_or_means_and_writes_plots(tmp_path: Path) -> None:
    arguments = (
        "--grid",
        "nodes=3,5",
        "--grid",
        "strategy=tree,insertion",
        "--seeds",
        "2",
        "--out",
        str(tmp_path),
    )
    code, out, err = run(*arguments, "--json", kind="overlay")
    assert code == 0
    rows = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [(row["nodes"], row["strategy"], row["seed"]) for row in rows] == [
        (nodes, strategy, seed) for seed in (0, 1) for nodes in (3, 5) for strategy in ("tree", "insertion")
    ]
    assert (tmp_path / "event_cost.svg").read_text().startswith("<svg")
    assert f"plot: {tmp_path / 'event_cost.svg'}" in err
    code, out, _ = run(*arguments, kind="overlay")
    assert code == 0
    switches = [line.split() for line in out.splitlines() if line.startswith("switch_messages")]
    assert ["switch_messages", "5", "tree", "2", "22", "0"] in switches


def test_a_run_of_an_experiment_that_fails_is_told_and_is_the_exit_code(tmp_path: Path) -> None:
    code, _, err = run("--grid", "nodes=0,2", "--seeds", "1", "--out", str(tmp_path), kind="overlay")
    assert code == 1
    assert "nodes=0 seed=0: FAILED: " in err


def test_a_network_is_drawn(tmp_path: Path) -> None:
    code, _, _ = run("--svg", str(tmp_path / "net.svg"), "--nodes", "7", kind="overlay")
    assert code == 0
    assert "tree before" in (tmp_path / "net.svg").read_text()


def test_pairs_of_a_trace_are_reached_over_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    trace.write_text("0 1 2\n3600 2 3\n")
    options = ("--trace", str(trace), "--strategy", "epidemic", "--buffer", "unlimited", "--json")
    _, out, _ = run(*options, kind="adhoc")
    share = pytest.approx(5 / 6)
    assert msgspec.json.decode(out)["reached"] == {"1h": share, "6h": share, "24h": share, "end": share}
    _, out, _ = run(*options, "--start", "25%", "--at", "end", kind="adhoc")
    assert msgspec.json.decode(out)["reached"] == {"end": pytest.approx(2 / 6)}


def test_contacts_of_a_scenario_are_written_and_read_as_a_trace(tmp_path: Path) -> None:
    trace, svg = tmp_path / "trace.txt", tmp_path / "map.svg"
    options = ("--scenario", "emma", "--hosts", "8", "--duration", "0.1", "--range", "200")
    code, out, _ = run(*options, "--write", str(trace), "--svg", str(svg), kind="adhoc")
    assert code == 0
    assert "delivery" in out
    assert svg.read_text().startswith("<svg")
    assert "8 hosts" in run("--trace", str(trace), kind="adhoc")[1]


@pytest.mark.parametrize(("name", "values"), [("range", (50, 150)), ("buffer", ("9", "20"))])
def test_a_grid_runs_scenarios_of_hosts_that_move(
    tmp_path: Path, name: str, values: tuple[object, ...]
) -> None:
    fixed = ("--grid", "scenario=emma", "--grid", "hosts=8", "--grid", "duration=0.05")
    given = f"{name}={values[0]},{values[1]}"
    arguments = (*fixed, "--grid", given, "--seeds", "2", "--out", str(tmp_path), "--json")
    code, out, _ = run(*arguments, kind="adhoc")
    assert code == 0
    rows = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [(row[name], row["seed"]) for row in rows] == [(one, seed) for seed in (0, 1) for one in values]
    assert f">{name}<" in (tmp_path / "delivery.svg").read_text()


def test_storms_over_channels_are_run_for_each_order() -> None:
    code, out, _ = run("--seed", "3", "--runs", "1", "--duration-s", "5", kind="channel")
    assert code == 0
    found = [line.split(":")[1].split(",")[0].strip() for line in out.splitlines()]
    assert found == ["fifo", "causal", "total"]
    code, out, _ = run("--seed", "3", "--runs", "1", "--order", "causal", "--json", kind="channel")
    assert (code, msgspec.json.decode(out)["order"]) == (0, "causal")


def test_a_storm_that_fails_does_not_keep_channels_of_other_orders_from_theirs() -> None:
    arguments = ("--seed", "0", "--runs", "1", "--duration-s", "30", "--protocol", "broadcast")
    code, out, errors = run(*arguments, "--fault", "twice", kind="channel")
    assert code == 1
    assert len(out.splitlines()) + errors.count(": FAILED: ") == 3
    assert "FAILED" in errors
