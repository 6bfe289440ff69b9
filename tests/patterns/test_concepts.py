"""Patterns whose steps are made with a taxonomy."""

from __future__ import annotations

import pytest

from tidings import Pattern
from tidings.errors import PatternError
from tidings.filters import Taxonomy
from tidings.patterns import step


def test_units_and_terms_of_a_taxonomy_are_written_out_in_steps() -> None:
    taxonomy = Taxonomy({"air": {"narrower": ["luft"]}})
    text = "a[IS_A(type, 'air') AND value > 50 '%'] THEN b[value > a.value] WITHIN 5 s"
    pattern = Pattern(text, taxonomy=taxonomy)
    assert "IS_A(type, 'air', 'luft')" in str(pattern)
    assert "unit = '‰' AND value > 500" in str(pattern)
    assert Pattern(str(pattern)) == pattern
    with pytest.raises(PatternError, match="line 1, column 28: there is no unit 'bogus'"):
        Pattern("a[type = 'x' AND value > 5 'bogus']", taxonomy=taxonomy)
    with pytest.raises(PatternError, match="where a step is made"):
        Pattern(step("a", "value > 5"), taxonomy=taxonomy)


@pytest.mark.parametrize(
    ("unit", "problem"), [("florin", "florin"), ("K", "K")], ids=["unknown", "of another kind"]
)
def test_a_step_with_a_wrong_unit_is_refused_with_its_place(unit: str, problem: str) -> None:
    text = f"a[type = 'A']\nTHEN b[value > 50 'µg/m³' AND value < 9 '{unit}'] WITHIN 1 min"
    with pytest.raises(PatternError, match=problem) as caught:
        Pattern(text, taxonomy=Taxonomy())
    assert str(caught.value).startswith("line 2, column ")
