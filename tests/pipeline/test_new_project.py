"""A project that `tidings pipeline init` has written: two files that run as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline.nodes import PATIENCE_S, reading, running
from pyspark import pipelines
from pyspark.pipelines.cli import load_pipeline_spec
from pyspark.sql import SparkSession

from tidings.errors import UserError
from tidings.pipeline.project import SPEC_FILE, TABLES_FILE, new_project_files, write_project

LINES_MAX = 30


def test_a_new_project_runs_as_it_was_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for decorator in ("table", "materialized_view"):
        monkeypatch.setattr(pipelines, decorator, lambda function: function)
    with running(tmp_path / "node") as node:
        node.publish(*[reading(float(number), number) for number in range(4)])
        folder = write_project("air-quality", tmp_path, node.address, "type = 'air.pm10' AND value > 0")
        names: dict[str, Any] = {"spark": spark}
        exec((folder / TABLES_FILE).read_text(), names)
        query = names["readings"]().writeStream.format("memory").queryName("readings")
        query.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
        assert names["means"]().collect() == [("air.pm10", 3, 2.0)]
        spark.catalog.dropTempView("readings")  # other tests share the session


def test_the_checkpoints_lie_in_the_project(tmp_path: Path) -> None:
    places = set()
    for name in ("one", "two-a.v2"):
        folder = write_project(name, tmp_path, "127.0.0.1:7300", "TRUE")
        spec = load_pipeline_spec(folder / SPEC_FILE)
        assert (spec.name, spec.storage) == (name, (folder / "checkpoints").as_uri())
        places.add(spec.storage)
    assert len(places) == 2


def test_a_new_project_is_short_and_whatever_is_given_stays_text() -> None:
    files = new_project_files("a", Path("/x y"), "127.0.0.1:7300", 'name = \'"\\{}\' OR "é😀" = 1')
    assert sum(len(text.splitlines()) for text in files.values()) <= LINES_MAX
    names: dict[str, Any] = {}
    exec(files[TABLES_FILE].partition("@dp.table")[0], names)
    assert names["OPTIONS"]["where"] == 'name = \'"\\{}\' OR "é😀" = 1'


@pytest.mark.parametrize("name", ["", "a b", "../a", "a/b", "-a", "1a", "é"])
def test_a_name_that_is_no_folder_of_its_own_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no name of a pipeline"):
        write_project(name, tmp_path, "127.0.0.1:7300", "TRUE")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(UserError, match="exists; choose another name"):
        write_project("here", tmp_path, "127.0.0.1:7300", "TRUE")
    assert list((tmp_path / "here").iterdir()) == []
