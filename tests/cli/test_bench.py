from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tidings
from tidings.cli.app import app
from tidings.cli.bench import find_checkout, write_figures
from tidings.errors import UserError

ROOT = Path(__file__).parents[2]


def test_figures_are_written_as_json_that_reads_back(tmp_path: Path) -> None:
    figures = {"filters": 1000, "rates": [{"name": "index", "events_per_s": 1.5}]}
    write_figures(tmp_path / "figures.json", figures)
    text = (tmp_path / "figures.json").read_text()
    assert json.loads(text) == figures
    assert text.count("\n") > 5


def test_the_bench_lists_its_measurements() -> None:
    result = CliRunner().invoke(app, ["bench", "--help"])
    assert result.exit_code == 0
    assert "matching" in result.output


def test_the_benchmarks_of_the_checkout_are_found_from_any_directory(tmp_path: Path) -> None:
    program = "import sys; sys.argv[1:] = ['bench', 'fair', '--rows']; from tidings.cli import main; main()"
    command = [sys.executable, "-c", program]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "fan-out" in listed.stdout


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as if it were not in a checkout."""
    monkeypatch.setattr(tidings, "__file__", str(tmp_path / "site-packages" / "tidings" / "__init__.py"))


def test_an_installed_tidings_measures_with_the_checkout_that_it_is_started_in(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert find_checkout() == ROOT


def test_where_there_is_no_checkout_the_command_says_how_to_get_one(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks").mkdir()  # of something else
    (tmp_path / "benchmarks" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["bench", "node", "--quick"])
    assert isinstance(refused.exception, UserError)
    assert "clone the repository of tidings" in str(refused.exception)
