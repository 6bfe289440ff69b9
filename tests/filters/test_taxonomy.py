from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import FilterError
from tidings.filters.taxonomy import TERM_LENGTH_MAX, Taxonomy, implied_by_is_a, prepare_is_a

TOML = """
[air]
narrower = ["particles", "ozone"]
synonyms = ["luft"]

[particles]
narrower = ["pm10", "pm2_5"]

["air.soot"]
synonyms = ["russ"]
"""

names = st.sampled_from(["a", "b", "ab", "\U0010ffff", "\ud7ff"])
terms = st.lists(names, min_size=1, max_size=3).map(".".join)


@given(st.lists(terms, min_size=1, max_size=4), st.lists(names | st.just(""), max_size=4).map(".".join))
def test_is_a_takes_the_terms_and_their_dotted_subtypes(wanted: list[str], text: str) -> None:
    values, exact = implied_by_is_a(*wanted)
    expected = any(text == term or text.startswith(f"{term}.") for term in wanted)
    assert exact
    assert prepare_is_a(*wanted)(text) == expected == (text in values)


@pytest.mark.parametrize("term", ["", "a.", "a..b", "a" * (TERM_LENGTH_MAX + 1)])
def test_what_can_be_no_type_can_be_no_term(term: str) -> None:
    with pytest.raises(ValueError, match="is no term: it has"):
        prepare_is_a("air", term)


@pytest.fixture
def taxonomy(tmp_path: Path) -> Taxonomy:
    return load(tmp_path, "air.toml", TOML)


def load(folder: Path, name: str, text: str) -> Taxonomy:
    path = folder / name
    path.write_text(text)
    return Taxonomy.load(path)


def test_a_term_stands_for_itself_its_synonyms_and_all_below(taxonomy: Taxonomy) -> None:
    assert taxonomy.expand("air") == (
        *("air", "luft", "particles", "pm10", "pm2_5", "ozone"),
        *("air.soot", "russ"),
    )
    assert taxonomy.expand("particles") == ("particles", "pm10", "pm2_5")


def test_a_synonym_stands_for_the_same_as_its_term(taxonomy: Taxonomy) -> None:
    assert taxonomy.expand("luft")[0] == "luft"
    assert set(taxonomy.expand("luft")) == set(taxonomy.expand("air"))


def test_an_unknown_term_stays_as_it_is(taxonomy: Taxonomy) -> None:
    assert taxonomy.expand("water") == ("water",)
    assert taxonomy.expand("air.ozone") == ("air.ozone",)


def test_dots_count_where_the_broader_term_is_not_written() -> None:
    taxonomy = Taxonomy({"gas.ozone": {"synonyms": ["o3"]}})
    assert taxonomy.expand("gas") == ("gas", "gas.ozone", "o3")


def test_json_says_the_same_as_toml(tmp_path: Path, taxonomy: Taxonomy) -> None:
    content = {
        "air": {"narrower": ["particles", "ozone"], "synonyms": ["luft"]},
        "particles": {"narrower": ["pm10", "pm2_5"]},
        "air.soot": {"synonyms": ["russ"]},
    }
    assert load(tmp_path, "air.json", json.dumps(content)).expand("air") == taxonomy.expand("air")


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.fixed_dictionaries(
            {},
            optional={
                "narrower": st.lists(st.sampled_from("abcdef"), max_size=2),
                "synonyms": st.lists(st.sampled_from("abcdef"), max_size=1),
            },
        ),
        max_size=6,
    )
)
def test_expansion_is_what_can_be_reached_and_cycles_are_refused(
    content: dict[str, dict[str, list[str]]],
) -> None:
    narrower = {(term, other) for term, entry in content.items() for other in entry.get("narrower", [])}
    same = {(term, other) for term, entry in content.items() for other in entry.get("synonyms", [])}
    steps = narrower | same | {(other, term) for term, other in same}
    reached = {term: reach(term, steps) for term in "abcdef"}
    if any(term in reached[other] for term, other in narrower):
        with pytest.raises(FilterError, match=r"can't be narrower than itself: \w > "):
            Taxonomy(content)
    else:
        taxonomy = Taxonomy(content)
        assert {term: set(taxonomy.expand(term)) for term in "abcdef"} == reached


def reach(term: str, steps: set[tuple[str, str]]) -> set[str]:
    found = {term}
    while more := {b for a, b in steps if a in found} - found:
        found |= more
    return found


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.toml", "[air]\nnarrower = [", "at end of document"),
        ("t.toml", "[air]\nnarrower = 5 5", "at line 2, column"),
        ("t.toml", "[air]\nnarrower = ['a', 5]", "$.air.narrower[1]: must be a string"),
        ("t.toml", "[air]\nnarrower = 'a'", "$.air.narrower: must be a list of terms"),
        ("t.toml", "air = 5", "$.air: must be a table with narrower and synonyms"),
        ("t.toml", "[air.pm10]\nnarrower = []", "$.air.pm10: no such key; a dotted name is quoted"),
        ("t.toml", "['air.']", '$["air."]: it has an empty name between its dots'),
        ("t.toml", "['a.b']\nsynonyms = ['']", '$["a.b"].synonyms[0]: it has an empty name'),
        ("t.toml", "[a]\nnarrower = ['b']\n[b]\nnarrower = ['a']", "can't be narrower than itself: "),
        ("t.toml", "['a.b']\nsynonyms = ['a']", "can't be narrower than itself: "),
        ("t.json", '{"air": {}, "air": {}}', "'air' stands twice in one object"),
        ("t.json", '{"air": {"narrower": [1,]}}', "line 1 column"),
        ("t.json", "[]", "$: must hold terms by name"),
        ("t.json", "[" * 100_000, "nested too deeply"),
        ("t.toml", "a = " + "[" * 100_000, "nested too deeply"),
        ("t.yaml", "", "a taxonomy is a .toml or .json file"),
    ],
)
def test_a_mistake_is_told_with_file_and_place(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        load(tmp_path, name, text)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert problem in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes(b"\xff")
    with pytest.raises(FilterError, match="can't decode"):
        Taxonomy.load(tmp_path / "t.toml")


def test_a_deep_taxonomy_is_no_trouble() -> None:
    content = {f"t{number}": {"narrower": [f"t{number + 1}"]} for number in range(20_000)}
    assert len(Taxonomy(content).expand("t0")) == 20_001
