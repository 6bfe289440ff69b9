"""The tests in docs/testing.md are run as tests; `test_docs.py` runs the other examples of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testing.test_plugin import AUTO, LOADED, STRICTLY

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_tests_that_the_page_shows_pass(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shown = [block for block in blocks if re.search(r"^(async )?def (test_|tidings_)", block, re.MULTILINE)]
    pytester.makepyfile("\n\n".join(shown))
    result = pytester.runpytest_inprocess(*AUTO, *STRICTLY, plugins=LOADED)
    result.assert_outcomes(passed=sum(len(re.findall(r"def test_", block)) for block in shown))
