"""`tidings pipeline`: what is typed, told and packed. Running it on a node is tested beside the pipeline."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from cli.commands import run_command
from effort import IS_SOAK
from msgspec.structs import replace
from typer.main import get_command

from tidings.cli.app import app
from tidings.cli.pipeline import print_tables, print_total, spark_config
from tidings.pipeline import executor_archive
from tidings.pipeline.city.pipeline import CITY
from tidings.pipeline.city.rules import Common, TypeLimits
from tidings.pipeline.city.settings import CitySettings
from tidings.pipeline.known import RunReport
from tidings.pipeline.running import BatchProgress, Total

pytest.importorskip("pyspark")
from tidings.pipeline.city.alarms import COLUMNS as ALARM_COLUMNS
from tidings.pipeline.city.readings import COLUMNS, REASONS

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()


def table(first: str) -> list[list[str]]:
    """The rows of the table in the document whose first heading is this, as cells."""
    found = re.search(rf"^\| {first} \|.*\n\|[- |]+\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
    assert found, first
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def names(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


# -- the document


def test_the_document_has_every_option_of_the_command() -> None:
    command = get_command(app).commands["pipeline"].commands["run"]  # type: ignore[attr-defined]
    options = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    told = set(names([row[0] for row in table("option")]))
    assert options - told == {"--json", "--help"} & options
    assert told <= options


def test_the_document_has_every_reason_rule_column_and_setting() -> None:
    assert tuple(names([row[0] for row in table("reason")])) == REASONS
    rules = set(names([row[0] for row in table("key")]))
    assert rules == {*Common.__struct_fields__, *TypeLimits.__struct_fields__}
    tables = {names([row[0]])[0]: row[1] for row in table("table")}
    assert all(re.search(rf"\b{name}\b", tables["raw"]) for name in COLUMNS)
    told = " ".join(row[2] for row in table("type"))
    assert all(re.search(rf"\b{name}\b", told) for name in ALARM_COLUMNS.keys() - {"type", "time"})
    assert all(re.search(rf"\b{name}\b", DOCUMENT) for name in CitySettings.__struct_fields__)


# -- wrong things typed


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["town"], "there is no pipeline 'town'; the pipelines are agents and city"),
        (["city", "--where", "value => 3"], "option 'where': line 1, column 7"),
        (["city", "--node", "127.0.0.1:port"], "option 'node'"),
        (["city", "--window", "soon"], "'soon' is no time"),
        (["city", "--trigger", "often"], "'often' is no time"),
        (["city", "--cell-size", "0"], "cell_size: must be above 0"),
        (["city", "--rules", "missing.toml"], "missing.toml"),
        (["city", "--silent-by", "moon"], "neither clock nor time"),
        (["agents", "--limits", "speed=1"], "'speed' is no limit; there are starts, restarts"),
        (["city", "--limits", "starts=1"], "--limits is no option of the pipeline 'city'"),
        (["city", "--starting", "yesterday"], "startingOffsets"),
        (["city", "--conf", "cores=3"], "spark.KEY=VALUE"),
        (["city", "--archive", "missing.zip"], "tidings pipeline pack"),
        (["city", "--node", "127.0.0.1:1"], "no node answers"),
        (["city", "--node", "127.0.0.1:1", "--continuous"], "no node answers"),
        (["city", "--node", "127.0.0.1:7300", "--password-file", "secret"], "needs the option 'user'"),
    ],
)
def test_what_can_not_be_is_told_before_spark_is_started(arguments: list[str], problem: str) -> None:
    code, output, errors = run_command("pipeline", "run", *arguments)
    assert (code, output) == (2, "")
    assert problem in errors


def test_a_dry_run_of_the_query_tells_what_would_be_read() -> None:
    typed = ("pipeline", "run", "city", "--continuous", "--dry-run", "--node", "10.0.0.1:7300", "--json")
    code, output, _ = run_command(*typed)
    told = json.loads(output)
    assert code == 0
    assert told["source"]["node"] == told["sink"]["node"] == "10.0.0.1:7300"
    _, output, _ = run_command(*typed, "--allow-loss")
    assert json.loads(output)["source"] == {**told["source"], "failOnDataLoss": "false"}


def test_notes_on_the_filter_are_printed_before_spark_is_started() -> None:
    where = ("--where", "value BETWEEN 5 AND 1")
    code, _, errors = run_command("pipeline", "run", "city", "--continuous", "--dry-run", *where)
    assert code == 0
    assert "note: value BETWEEN 5 AND 1: 5 is greater than 1; write BETWEEN 1 AND 5\n" in errors


def test_a_project_is_written_with_the_node_and_filter_that_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ("pipeline", "init", "air", "--node", "10.0.0.1:7300", "--where", "type = 'air'")
    code, output, _ = run_command(*typed)
    assert code == 0
    assert "cd air\n  spark-pipelines run" in output
    tables = (tmp_path / "air" / "transformations" / "tables.py").read_text()
    assert "10.0.0.1:7300" in tables
    assert "type = 'air'" in tables
    code, _, errors = run_command(*typed)
    assert (code, errors) == (2, "tidings: air exists; choose another name, or remove it\n")
    code, _, errors = run_command("pipeline", "init", "water", "--where", "a => 3")
    assert code == 2
    assert not (tmp_path / "water").exists()


ONLY_SPARK = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv[1:] = {typed}
from tidings.cli import main
main()
"""
MODULES = {"google-re2": "re2"}
"""Modules that have another name than their distribution."""


def test_the_spark_extra_is_enough_for_the_command(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    node, spark = ({re.split(r"[^\w-]", line)[0] for line in extras[name]} for name in ("node", "spark"))
    missing = {MODULES.get(name, name) for name in node - spark - {"numpy"}}  # PySpark brings numpy
    assert missing == {"numba", "re2", "uvloop", "websockets"}
    for typed in (["pipeline", "run", "city", "--continuous", "--dry-run"], ["pipeline", "init", "air"]):
        code = ONLY_SPARK.format(missing=missing, typed=typed)
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_settings_of_spark_are_taken_as_they_are_typed() -> None:
    assert spark_config(["spark.a=b=c", "spark.d="], None) == {"spark.a": "b=c", "spark.d": ""}


# -- what is told


def test_a_batch_and_the_total_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BatchProgress(
        batch=3, rows=2000, rows_s=1000.4, published={"alarms": 2}, rejected={"late": 5}, lag=17, seconds=2.0
    )
    assert (
        CITY.report.line(progress)
        == "batch 3 · 2,000 readings · 1,000/s · lag 17 · 2 alarms · rejected: 5 late"
    )
    total = Total()
    total.add(progress)
    total.add(progress)
    print_total(CITY.report, total, json=False)
    assert capsys.readouterr().out == "4,000 readings in 2 batches, 4 alarms\n  rejected, late: 10\n"


def test_values_that_do_not_fit_are_told_by_source(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BatchProgress(
        batch=0, rows=9, rows_s=1, published={}, rejected={}, lag=0, seconds=1.0, mismatches={"trades": 3}
    )
    assert RunReport("trades").line(progress).endswith("lag 0 · null, don't fit: 3 of trades")
    total = Total()
    total.add(progress)
    total.add(progress)
    print_total(RunReport("trades"), total, json=False)
    assert capsys.readouterr().out == "18 trades in 2 batches\n  null, don't fit: 6 of trades\n"


def test_readings_that_are_all_in_one_cell_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BatchProgress(
        batch=0,
        rows=2,
        rows_s=1,
        published={"alarms": 0},
        rejected={},
        lag=0,
        seconds=2.0,
        notes={"one_cell": True},
    )
    assert CITY.report.line(progress).endswith("0 alarms · all in one cell")
    total = Total()
    total.add(progress)
    total.add(replace(progress, notes={"one_cell": None}))
    print_total(CITY.report, total, json=False)
    told = "all readings are in one cell, though their places differ: choose a smaller --cell-size\n"
    assert capsys.readouterr().out.endswith(told)
    total.add(replace(progress, notes={"one_cell": False}))
    total.add(progress)
    print_total(CITY.report, total, json=False)
    found = {"raw": 5, "clean": 3, "rejected": {}, "aggregates": 1, "alarms": {}, "one_cell": True}
    assert "cell" not in capsys.readouterr().out
    print_tables(CITY.report, found, "here", json=False)
    assert told in capsys.readouterr().out


def test_the_tables_are_told_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"raw": 5, "clean": 3, "rejected": {"late": 2}, "aggregates": 1, "alarms": {"alarm.max": 1}}
    found["one_cell"] = None
    print_tables(CITY.report, found, "here", json=False)
    assert capsys.readouterr().out.splitlines() == [
        "5 readings: 3 believed, 2 rejected",
        "  rejected, late: 2",
        "1 rows of aggregates, 1 alarms",
        "  alarm.max: 1",
        "the tables are in here",
    ]
    print_tables(CITY.report, found, "here", json=True)
    assert json.loads(capsys.readouterr().out)["clean"] == 3


# -- the archive


IMPORTS = """
import sys
import pyspark_tidings, tidings.pipeline.batch, tidings.pipeline.stream, tidings.pipeline.sink
import tidings.pipeline.city.silence
print(pyspark_tidings.DefaultSource.name(), tidings.__file__)
"""


def spark_packages() -> list[str]:
    """What every executor has: the Python that comes with Spark."""
    import pyspark

    return sorted(map(str, (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")))


@pytest.mark.slow
def test_the_archive_is_all_that_a_bare_python_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not IS_SOAK:
        monkeypatch.setattr(executor_archive, "COMPRESSION", 0)  # else that takes most of the time
    code, output, _ = run_command("pipeline", "pack", str(tmp_path / "city.zip"), "--json")
    assert code == 0
    assert json.loads(output)["size"] == (tmp_path / "city.zip").stat().st_size
    with zipfile.ZipFile(tmp_path / "city.zip") as archive:
        archive.extractall(tmp_path / "packages")
    found = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS],
        env={"PYTHONPATH": ":".join([str(tmp_path / "packages"), *spark_packages()])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.split() == ["tidings", str(tmp_path / "packages" / "tidings" / "__init__.py")], (
        found.stderr
    )


def test_the_small_archive_leaves_out_what_executors_often_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, _ = run_command("pipeline", "pack", str(tmp_path / "small.zip"), "--small")
    assert code == 0
    assert "tidings, msgspec" in output
    with zipfile.ZipFile(tmp_path / "small.zip") as archive:
        inside = archive.namelist()
    tops = {name.partition("/")[0] for name in inside}
    assert {"tidings", "pyspark_tidings", "msgspec"} <= tops
    assert not {"pyarrow", "pandas", "numpy"} & tops
    assert not [name for name in inside if "__pycache__" in name]
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    config = spark_config(["spark.a=b"], tmp_path / "small.zip")
    assert str(ROOT / "src") in os.environ["PYTHONPATH"].split(os.pathsep)
    assert os.environ["PYTHONPATH"].endswith("/elsewhere")
    assert config["spark.archives"] == f"{tmp_path / 'small.zip'}#{config['spark.executorEnv.PYTHONPATH']}"


def test_an_archive_that_can_not_be_written_is_told_by_its_name(tmp_path: Path) -> None:
    code, _, errors = run_command("pipeline", "pack", str(tmp_path / "nowhere" / "city.zip"), "--small")
    assert code == 2
    assert "nowhere" in errors
