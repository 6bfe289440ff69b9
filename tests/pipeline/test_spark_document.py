"""What docs/spark.md says is so: the table of options, and the examples with what they print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pipeline.nodes import running
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidings.errors import ConfigError
from tidings.pipeline.options import LEASE_S, NAMES, read_options
from tidings.pipeline.shape import SET_BY_NODES, shape_of

DOCUMENT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
OPTION = re.compile(r"^\| `(?P<name>\w+)` \| (?P<uses>[a-z, ]+) \| (?P<default>.*?) ?\| .+ \|$", re.MULTILINE)
EXAMPLE = re.compile(r"^```py\n(?P<code>.*?)^```\n(?:```\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
REFUSED = re.compile(r"^\| (?P<columns>`[^|]+`) \|", re.MULTILINE)
ADDRESS = "127.0.0.1:7300"


def test_the_table_has_every_option_with_what_it_is_for() -> None:
    told = {row["name"]: tuple(row["uses"].split(", ")) for row in OPTION.finditer(DOCUMENT)}
    assert told == NAMES
    assert list(told) == list(NAMES)


def test_the_table_has_the_defaults() -> None:
    told = {row["name"]: row["default"] for row in OPTION.finditer(DOCUMENT)}
    batch, stream = (read_options({"node": ADDRESS}, use) for use in ("batch", "stream"))  # type: ignore[arg-type]
    assert told["startingOffsets"] == f"`{batch.starting.word}`, of a stream `{stream.starting.word}`"
    assert told["endingOffsets"] == f"`{batch.ending.word}`"
    assert told["failOnDataLoss"] == f"`{str(batch.fails_on_loss).lower()}`"
    assert told["pushdown"] == f"`{str(batch.pushdown).lower()}`"
    assert told["skipCorrupt"] == f"`{str(batch.skips_corrupt).lower()}`"
    assert told["lease"] == f"`{LEASE_S:g}`, of a durable one none"
    assert told["mode"] == ("`failfast`" if batch.strict else "`permissive`")


@pytest.mark.usefixtures("spark")
def test_the_columns_that_the_document_says_are_refused_are_refused() -> None:
    table = DOCUMENT.partition("| refused in a write |")[2].partition("\n\n")[0]
    schemas = [one for row in REFUSED.finditer(table) for one in re.findall("`(.+?)`", row["columns"])]
    for schema in schemas:
        with pytest.raises(ConfigError, match=r"^column "):
            shape_of(StructType.fromDDL(schema), type="t")
    assert {schema.partition(" ")[0] for schema in schemas} > set(SET_BY_NODES)


def test_the_examples_print_what_the_document_shows(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark}
    shown = 0
    with running(tmp_path / "node") as node:
        for example in EXAMPLE.finditer(DOCUMENT):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(example["code"].replace(ADDRESS, node.address), names)
            if example["output"] is not None:
                shown += 1
                assert printed.getvalue().rstrip("\n") == example["output"].rstrip("\n")
    assert shown == 7
