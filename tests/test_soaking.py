"""The long run has every test that does more at a greater effort, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from soaking import TESTS, outcome, scaled_names

HERE = Path(__file__)
MODULE = """
from effort import ANSWER_S, IS_SOAK, often
from guarantees.test_kills import KILLS
from guarantees.mortal import MortalNode

SEEDS = range(often(12))
LIMIT_S = ANSWER_S
TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=often(3))

@pytest.fixture
def many():
    return list(SEEDS)

def size():
    return 100 if IS_SOAK else 10

@pytest.mark.parametrize("seed", SEEDS)
def test_by_parameter(seed): storm(seed)

def test_by_fixture(many): ...

@pytest.mark.usefixtures("many")
def test_by_name_of_fixture(): ...

def test_by_function(): assert size()

def test_by_another_module(): kill(KILLS)

def test_once(seed): wait(LIMIT_S, MortalNode)
"""


@pytest.fixture
def names(tmp_path: Path) -> frozenset[str]:
    (tmp_path / "test_it.py").write_text(MODULE)
    return scaled_names(tmp_path / "test_it.py")


@pytest.mark.parametrize("way", ["parameter", "fixture", "name_of_fixture", "function", "another_module"])
def test_a_test_that_uses_the_effort_is_in_the_long_run(names: frozenset[str], way: str) -> None:
    assert f"test_by_{way}" in names


def test_a_model_with_its_own_number_of_examples_is_in_the_long_run(names: frozenset[str]) -> None:
    assert "TestQueues" in names


def test_a_test_that_does_the_same_at_every_effort_is_left_out(names: frozenset[str]) -> None:
    assert not {"test_once", "LIMIT_S", "MortalNode"} & names


def test_every_file_that_uses_the_effort_has_something_to_run() -> None:
    uses = re.compile(r"^from effort import .*\b(often|IS_SOAK)\b", re.MULTILINE)
    using = [path for path in TESTS.rglob("test_*.py") if uses.search(path.read_text()) and path != HERE]
    assert len(using) > 30
    for path in using:
        assert any(name.startswith(("test_", "Test", "_machine")) for name in scaled_names(path)), path


def test_the_outcome_names_seed_commit_counts_and_failures() -> None:
    failed = SimpleNamespace(nodeid="tests/test_it.py::test_by_fixture")
    text = outcome({"passed": [None] * 1200, "failed": [failed]}, "abc1234", 61.4)
    assert "TIDINGS_EFFORT=" in text
    assert "TIDINGS_SEED=" in text
    assert " at commit abc1234, in" in text
    assert "in\n61 minutes" in text
    assert "1,200 passed, 1 failed.\n- `tests/test_it.py::test_by_fixture`\n" in text
