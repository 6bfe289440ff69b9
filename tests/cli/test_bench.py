from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.cli.bench import write_figures


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
