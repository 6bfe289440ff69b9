"""Every example in the tables of docs/filters.md, run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tidings import Event, Filter
from tidings.event.json import from_json
from tidings.filters.functions import FUNCTIONS
from tidings.filters.tokens import COMPARISONS, KEYWORDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "filters.md"
ROW = re.compile(r"^\| `(?P<filter>.+)` \| `(?P<taken>\{.*\})` \| `(?P<refused>\{.*\})` \|$", re.MULTILINE)
ROWS = [(row["filter"], row["taken"], row["refused"]) for row in ROW.finditer(DOCUMENT.read_text())]


def event(members: str) -> Event:
    return from_json(json.dumps({"type": "t"} | json.loads(members)))


@pytest.mark.parametrize(("text", "taken", "refused"), ROWS)
def test_the_example_takes_the_first_event_and_not_the_second(text: str, taken: str, refused: str) -> None:
    filter = Filter(text)
    assert filter.matches(event(taken))
    assert not filter.matches(event(refused))
    assert Filter(str(filter)) == filter
    assert filter.simplify().matches(event(taken))


def test_every_operator_and_function_has_an_example() -> None:
    examples = " ".join(text for text, _, _ in ROWS)
    words = set(re.findall(r"[A-Z_]+|[<>=!+\-*/]+", examples))
    assert words >= (KEYWORDS - {"FALSE"}) | COMPARISONS | FUNCTIONS.keys() | set("+-*/")
