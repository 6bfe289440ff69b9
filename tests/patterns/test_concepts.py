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
