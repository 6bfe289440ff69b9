"""What the documents say is run: code with its output, commands with theirs, and the tests they name."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from tidings.cli.app import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (?P<feature>.+?) \| (?P<name>.+?) \| (?P<test>.+?) \|$", re.MULTILINE)


class Example(NamedTuple):
    line: int
    code: str
    output: str | None


def examples(text: str) -> Iterator[Example]:
    """The blocks of Python in a document; output is the unnamed block that follows at once."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip_longest(blocks, blocks[1:]):
        if block[1] == "python":
            shown = following and not following[1] and not text[block.end() : following.start()].strip()
            yield Example(text.count("\n", 0, block.start()) + 2, block[2], following[2] if shown else None)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` of the console blocks in a document, with the output below it."""
    for block in BLOCK.finditer(text):
        if block[1] == "console":
            for part in re.split(r"^\$ ", block[2], flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield command, output


def printed_by(example: Example, names: dict[str, Any]) -> str:
    """Run the code; the last expression of the block is shown as an interpreter would show it."""
    tree = ast.parse(example.code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "example", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "example", "eval"), names)
            if value is not None:
                printed.write(f"{value!r}\n")
    return printed.getvalue()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_print_what_the_document_shows(document: Path) -> None:
    names: dict[str, Any] = {}
    for example in examples(document.read_text()):
        printed = printed_by(example, names)
        if example.output is not None:
            assert printed == example.output, f"{document.name}, line {example.line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_print_what_the_document_shows(document: Path) -> None:
    for command, output in commands(document.read_text()):
        name, *arguments = shlex.split(command)
        assert name == "tidings", command
        assert CliRunner().invoke(app, arguments).output == output, command


def test_the_readme_shows_code_with_its_output_by_line_25() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    first = next(examples("\n".join(lines)))
    assert lines[0] == "# tidings"
    assert first.line <= 25
    assert first.output


def test_the_commands_to_set_up_are_targets_of_the_makefile() -> None:
    text, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert set(targets) >= {"run", "test"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*DOCUMENTS, *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


# -- the list of features


def features() -> list[re.Match[str]]:
    rows = ROW.finditer((ROOT / "docs" / "features.md").read_text())
    return [row for row in rows if row["feature"] not in ("feature", "---")]


def test_a_feature_has_both_a_name_and_a_test_or_neither() -> None:
    for row in features():
        if row["name"] == "—":
            assert row["test"] == "—", row[0]
        else:
            assert re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", row["test"]), row[0]


def test_every_test_named_for_a_feature_exists() -> None:
    for row in features():
        for name in re.findall(r"`([^`]+)`", row["test"]):
            file, _, function = name.partition("::")
            assert re.search(rf"^ *def {function}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), row[
                0
            ]


def test_every_row_of_a_feature_has_three_columns() -> None:
    text = (ROOT / "docs" / "features.md").read_text()
    table_lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(ROW.match(line) for line in table_lines)
