from __future__ import annotations

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
