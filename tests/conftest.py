"""What holds for all tests.

Where CI=true is set a skipped test is a failed one, unless `skips.txt` beside this file names it and says
why: a check that silently stopped running is worse than none.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING

import pytest
from effort import ANSWER_S, IS_SOAK, TEST_S, often
from hypothesis import HealthCheck, settings
from quick_java import QUICK_JAVA, QUICK_PYTHON, QUICK_SPARK

from tidings.node.compiled import CACHE, CACHE_VARIABLE, lasting_place

if TYPE_CHECKING:
    from node.peers import Start

EXAMPLES = 50
"""Generated examples of a property at an effort of 1, unless it says otherwise."""
MEMORY = Path("/dev/shm")  # where Linux has files in memory
MEMORY_MIN = 2 << 30
"""Bytes that must be free there to be used for the files of tests."""
SKIPS = Path(__file__).with_name("skips.txt")

# Tests never measure time, and a busy machine is no failure: no deadline.
_SLOW_IS_FINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tidings", max_examples=often(EXAMPLES), **_SLOW_IS_FINE)
settings.load_profile("tidings")

# Many tests keep small stores and sync them again and again, which takes some hundred times as long on a disk
# as in memory. That syncs are asked for is seen by tests that trace the calls; the long run has a disk.
if not IS_SOAK and MEMORY.is_dir() and disk_usage(MEMORY).free > MEMORY_MIN:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# How long benchmarks wait for their programs.
os.environ.setdefault("TIDINGS_BENCH_WAIT_S", str(ANSWER_S))

# For every Spark that a test starts.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
if not IS_SOAK:
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", QUICK_SPARK)
    os.environ.setdefault("TESTS_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", str(QUICK_PYTHON))

# `tidings node compile`, which `scripts/setup` runs, has compiled for all tests and the programs they start.
if (place := lasting_place(None)) is not None:
    os.environ.setdefault(CACHE_VARIABLE, str(place / CACHE))

# While tests are collected nearly nothing becomes garbage, and each look for it takes longer than the last.
gc.disable()
atexit.register(gc.unfreeze)  # extension modules complain of what is still there at the end

# Many tests start programs: what was compiled for one of them is there for the next, whatever the machine is
# set to.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What runs in the background was started with SIGINT ignored by the shell, and perhaps SIGHUP by nohup. Every
# program that a test starts would inherit that, and go on for ever when a test stops it so. A signal that has
# a handler here is as usual there.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest when it knows all tests: each has a limit, so that none hangs a whole run."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


def pytest_collection_finish() -> None:
    """Called by pytest before the first test: the collector looks at none of what is there any more."""
    gc.freeze()
    gc.enable()


def allowed_skips() -> list[str]:
    """Node ids, or beginnings of them, that may be skipped; the reason stands behind each in the file."""
    lines = SKIPS.read_text().splitlines() if SKIPS.exists() else []
    ids = (line.partition("#")[0].strip() for line in lines)
    return [node_id for node_id in ids if node_id]


def is_forbidden_skip(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Whether this run must not skip what the report says was skipped. An expected failure is no skip."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return False
    return not report.nodeid.startswith(tuple(allowed_skips()))


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skipped report into a failed one that keeps the reason of the skip."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was skipped and tests/skips.txt does not name it: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest after each phase of each test.

    It parses the source of a failed one. If the collector then finds a task with an error, that is logged
    with a traceback, for which Python 3.11 parses, too; a parser within a parser is a SystemError, and ends
    the run.
    """
    gc.disable()
    try:
        report = yield
    finally:
        gc.enable()
    if is_forbidden_skip(report):
        fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Called by pytest for each file and folder of tests: a whole module may skip itself."""
    report = yield
    if is_forbidden_skip(report):
        fail(report)
    return report


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts nodes as processes of their own; those still running at the end of the test are killed."""
    from node.peers import starting

    yield from starting()


@pytest.fixture(scope="module")
def start_shared() -> Iterator[Start]:
    """Starts nodes that the tests of a module share."""
    from node.peers import starting

    yield from starting()
