"""Examples are shorter than the same programs with nats-py or aio-pika, in benchmarks/counterparts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ROOT / "examples"
THEIRS = ROOT / "benchmarks" / "counterparts"
PROGRAMS = sorted(path.stem for path in THEIRS.glob("*.py"))

MARK = "# -- demonstration\n"
"""Above it is the part that a user writes, below it what only makes the program show itself."""


class Bare(ast.NodeTransformer):
    """Leaves imports and docstrings out."""

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        pass

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def lines(source: str) -> int:
    """Lines of code of a user's part: one for each statement, however it is wrapped, and for each `else`."""
    part, mark, _ = source.partition(MARK)
    assert mark
    bare = ast.unparse(Bare().visit(ast.parse(part)))
    return sum(bool(line.strip()) for line in bare.splitlines())


def lines_of(folder: Path, name: str) -> int:
    return lines((folder / f"{name}.py").read_text())


SOURCE = '''\
"""Text."""

import asyncio

# comment
def one(
    a: int,
) -> None:
    """Text."""
    if a:
        print(a)  # comment

    else:
        print("none")

# -- demonstration
print("below")
'''


def test_only_code_above_the_mark_is_counted() -> None:
    assert lines(SOURCE) == 5


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_shorter_than_its_counterpart(name: str) -> None:
    assert lines_of(OURS, name) < lines_of(THEIRS, name)


def test_the_documented_lines_are_those_of_the_programs() -> None:
    text = (ROOT / "docs" / "coming-from.md").read_text()
    rows = re.findall(r"^\| `(\w+)\.py` \| (\d+) \| (\d+) \|", text, re.MULTILINE)
    counted = [(name, str(lines_of(OURS, name)), str(lines_of(THEIRS, name))) for name in PROGRAMS]
    assert len(counted) == 5
    assert sorted(rows) == counted
