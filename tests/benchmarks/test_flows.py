"""Pieces of the benchmark of back-tests; the whole runs on the Spark of the pipeline's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from log.parting import part_of

pytest.importorskip("pyspark")

from benchmarks import flows
from benchmarks.flows import Stage, one_process, seal
from tidings import Event, Filter
from tidings.log.segment_folder import Folder
from tidings.pipeline.backtest.cases import Case, Cases


def stage_in(home: Path) -> Stage:
    parts = [part_of([Event("t", x=x) for x in range(5)], first) for first in (1, 6, 11)]
    cases = Cases("filters", (Case("a", Filter("x > 3")), Case("b", Filter("x > 9"))))
    return Stage(home, cases, parts, "127.0.0.1:1")


def test_one_process_counts_the_matches_of_each_case(tmp_path: Path) -> None:
    whole_s, build_s, counts = one_process(stage_in(tmp_path))
    assert counts == [3, 0]
    assert whole_s >= build_s


def test_all_events_are_sealed_in_files_of_about_that_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "FILE_EVENTS", 10)
    stage = stage_in(tmp_path)
    seal(stage, "node")
    claims = [file.claim for file in Folder(stage.folder).files()]
    assert [(claim.first, claim.last) for claim in claims] == [(1, 10), (11, 15)]
