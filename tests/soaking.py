"""The long run: `TIDINGS_EFFORT=10 python -m pytest -n 4 -vv -p tests.spreading -p tests.soaking`.

Only the tests that do more at a greater effort are run: properties of hypothesis, and all that use `often` or
`IS_SOAK` of `tests/effort.py`, themselves, through a fixture or through another name of a module of tests.
The others would only repeat what `make test` has shown. At the end the outcome is printed, and written to
`build/soak.md`, as `docs/results.md` has it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from effort import EFFORT, SEED

TESTS = Path(__file__).parent
REPORT = TESTS.parent / "build" / "soak.md"
SCALING = frozenset({"often", "IS_SOAK"})
"""The names of `tests/effort.py` by which a test does more at a greater effort."""
_BEGIN = pytest.StashKey[tuple[float, str]]()
"""When the run began, and with which commit: another may be there at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest before hypothesis reads its options: one seed repeats the whole run."""
    config.stash[_BEGIN] = time.monotonic(), _commit()
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest when it knows all tests."""
    left_out = [item for item in items if not is_scaled(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if is_scaled(item)]


def is_scaled(item: pytest.Item) -> bool:
    """Whether a test does more at a greater effort."""
    if not isinstance(item, pytest.Function):
        return False
    if getattr(item.obj, "is_hypothesis_test", False):
        return True
    names = {item.originalname, *item.fixturenames}
    if item.cls is not None:
        names.add(item.cls.__name__)
    return not names.isdisjoint(scaled_names(item.path))


@cache
def scaled_names(path: Path) -> frozenset[str]:
    """Top-level names of a module of tests that depend on the effort."""
    tree = ast.parse(path.read_text())
    found = set(_imported(tree))
    bound = [(names, _used(statement)) for statement in tree.body if (names := set(_bound(statement)))]
    while more := {name for names, used in bound if not used.isdisjoint(found) for name in names} - found:
        found |= more
    return frozenset(found)


def _imported(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            scaled = SCALING if statement.module == "effort" else _scaled_elsewhere(statement.module)
            yield from (one.asname or one.name for one in statement.names if one.name in scaled)


def _scaled_elsewhere(module: str) -> frozenset[str]:
    path = TESTS.joinpath(*module.removeprefix("tests.").split(".")).with_suffix(".py")
    return scaled_names(path) if path.is_file() else frozenset()


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement gives a meaning to, or an attribute."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield _root(node)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _used(statement: ast.stmt) -> set[str]:
    """Names that a statement reads, and fixtures that a function of it asks for."""
    used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
    texts = (node.value for node in ast.walk(statement) if isinstance(node, ast.Constant))
    return used | {text for text in texts if isinstance(text, str)}  # `usefixtures` has them as texts


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Called by pytest at the end, in the process that started the workers."""
    began, commit = config.stash[_BEGIN]
    text = outcome(terminalreporter.stats, commit, (time.monotonic() - began) / 60)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text)
    terminalreporter.write_sep("=", f"for docs/results.md, also in {REPORT.relative_to(TESTS.parent)}")
    terminalreporter.write(text)


def outcome(stats: Mapping[str, Sequence[Any]], commit: str, minutes: float) -> str:
    """What was run, what came of it, and the names of tests that failed."""
    kinds = {kind: stats.get(kind, []) for kind in ("passed", "failed", "error", "skipped")}
    counts = ", ".join(f"{len(reports):,} {kind}" for kind, reports in kinds.items() if reports)
    failed = [report.nodeid for report in (*kinds["failed"], *kinds["error"])]
    lines = [
        f"`make soak` with `TIDINGS_EFFORT={EFFORT:g}` and `TIDINGS_SEED={SEED}` at commit {commit}, in",
        f"{minutes:.0f} minutes on {os.cpu_count()} cores: {counts or 'nothing was run'}.",
        *(f"- `{name}`" for name in failed),
    ]
    return "\n".join(lines) + "\n"


def _commit() -> str:
    """The commit that was tested, with a note if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
