from __future__ import annotations

import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidings.errors import MissingExtra
from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import EVERYTHING, points, prefixed
from tidings.filters.patterns import (
    PATTERN_LENGTH_MAX,
    implied_by_like,
    implied_by_matches,
    prepare_like,
    prepare_matches,
)

# Newlines, the last code point and those beside the surrogates are where orders and dots go wrong.
LETTERS = "ab\n\ud7ff\ue000\U0010ffff"
texts = st.text(LETTERS, max_size=12)
patterns = st.text(LETTERS + "%_%_", max_size=9)
escaped_patterns = st.lists(st.sampled_from([*LETTERS, "%", "_", "!%", "!_", "!!"]), max_size=9).map("".join)


def is_like(pattern: str, text: str, escape: str | None = None) -> bool:
    """The oracle: the pattern as a backtracking regular expression."""
    parts, at = [], 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(pattern[at], re.escape(pattern[at])))
        at += 1
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


@given(patterns, texts)
def test_like_agrees_with_the_pattern_as_a_regular_expression(pattern: str, text: str) -> None:
    assert prepare_like(pattern)(text) == is_like(pattern, text)


@st.composite
def patterns_and_near_texts(draw: st.DrawFn) -> tuple[str, str]:
    """A pattern, and a text it takes, perhaps with one character left out."""
    pattern = draw(patterns)
    fillings = {"%": st.text("ab", max_size=2), "_": st.sampled_from("ab\n")}
    text = "".join(draw(fillings.get(sign, st.just(sign))) for sign in pattern)
    gone = draw(st.integers(0, 2 * len(text)))
    return pattern, text[:gone] + text[gone + 1 :]


@given(patterns_and_near_texts())
@example(("ab%ba", "aba"))
@example(("a_%_a", "aba"))
def test_like_agrees_on_texts_that_nearly_fit(pattern_and_text: tuple[str, str]) -> None:
    pattern, text = pattern_and_text
    assert prepare_like(pattern)(text) == is_like(pattern, text)


@given(escaped_patterns, st.text(LETTERS + "%_!", max_size=10))
def test_like_with_an_escape_agrees_with_the_same_oracle(pattern: str, text: str) -> None:
    assert prepare_like(pattern, "!")(text) == is_like(pattern, text, "!")


@given(st.lists(st.sampled_from(["a", "b", "_"]), min_size=1, max_size=8), st.text("ab", max_size=40))
def test_a_run_with_gaps_is_found_wherever_it_stands(symbols: list[str], text: str) -> None:
    pattern = f"%{''.join(symbols)}%"
    assert prepare_like(pattern)(text) == is_like(pattern, text)


@given(patterns, texts)
def test_what_is_like_a_pattern_lies_in_the_implied_set(pattern: str, text: str) -> None:
    values, exact = implied_by_like(pattern)
    holds = prepare_like(pattern)(text)
    assert text in values or not holds
    if exact:
        assert holds == (text in values)


@pytest.mark.parametrize(
    ("pattern", "values", "exact"),
    [
        ("abc", points(["abc"]), True),
        ("", points([""]), True),
        ("abc%", prefixed("abc"), True),
        ("abc%%", prefixed("abc"), True),
        ("%", EVERYTHING, True),
        ("ab_c%", prefixed("ab"), False),
        ("ab%c", prefixed("ab"), False),
        ("_", EVERYTHING, False),
        ("!%a%", prefixed("%a"), True),
    ],
)
def test_the_implied_set_of_a_pattern_is_its_literal_head(pattern: str, values: object, exact: bool) -> None:
    assert implied_by_like(pattern, "!") == (values, exact)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%a%a%a%a%a%a%b", "a" * 100_000),
        ("%a_a_a_a_a_a_b%", "a" * 100_000),
        (f"%{'a_' * 498}b%", "a" * 100_000),
        (f"%{'a' * 400}%{'a' * 400}b%", "a" * 100_000),
        (f"%{'_' * 900}b", "a" * 100_000),
    ],
)
def test_no_pattern_makes_like_backtrack(pattern: str, text: str) -> None:
    assert prepare_like(pattern)(text) is False
    assert prepare_like(pattern)(text + "b") is True


@pytest.mark.parametrize(
    ("pattern", "escape", "problem"),
    [
        ("a!", "!", "the pattern ends with its escape character '!'"),
        ("!ab", "!", "'!' escapes only %, _ and itself, not 'a'"),
        ("a", "%", "ESCAPE takes one character that is not % or _, not '%'"),
        ("a", "_", "ESCAPE takes one character that is not % or _, not '_'"),
        ("a", "", "ESCAPE takes one character that is not % or _, not ''"),
        ("a", "!!", "ESCAPE takes one character that is not % or _, not '!!'"),
        ("a" * 1001, None, "a pattern of 1001 characters is too long: at most 1000"),
    ],
)
def test_a_bad_pattern_is_refused_with_its_reason(pattern: str, escape: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        prepare_like(pattern, escape)


def test_a_place_in_a_pattern_is_one_code_point() -> None:
    assert prepare_like("_")("\U0001f600")
    assert not prepare_like("_")("e\u0301")


@given(texts, texts)
def test_beginning_end_and_inside_are_those_of_the_string(part: str, text: str) -> None:
    begins, ends, has = (FUNCTIONS[name].prepare(part) for name in ("STARTS_WITH", "ENDS_WITH", "CONTAINS"))
    assert begins(text) == (text[: len(part)] == part)
    assert ends(text) == (part == text[len(text) - len(part) :] and len(part) <= len(text))
    assert has(text) == any(text[i : i + len(part)] == part for i in range(len(text) + 1))


def test_a_regular_expression_is_searched_for_unless_anchored() -> None:
    assert prepare_matches("b+")("abbc")
    assert not prepare_matches("^b+")("abbc")
    assert not prepare_matches("^a$")("a\n")


regexes = st.lists(
    st.sampled_from(
        ["a", "b", "\\.", "\\$", ".", "a*", "b+", "a?", "[ab]", "(a|b)", "$", "\U0010ffff", "a{2}"]
    ),
    max_size=5,
).map("".join)


@given(st.sampled_from(["^", "", "(?i)^", "^a|"]), regexes, st.text("abAB.$\n\U0010ffff", max_size=6))
def test_what_matches_lies_in_the_implied_set(start: str, rest: str, text: str) -> None:
    values, exact = implied_by_matches(start + rest)
    holds = prepare_matches(start + rest)(text)
    assert holds == (re.search((start + rest).replace("$", "\\Z").replace("\\\\Z", "\\$"), text) is not None)
    assert text in values or not holds
    if exact:
        assert holds == (text in values)


@pytest.mark.parametrize(
    ("pattern", "values", "exact"),
    [
        ("^abc", prefixed("abc"), True),
        ("^abc$", points(["abc"]), True),
        ("^a\\.b", prefixed("a.b"), True),
        ("^abc*", prefixed("ab"), False),
        ("^ab{0}", prefixed("a"), False),
        ("^ab.c", prefixed("ab"), False),
        ("^\\d", EVERYTHING, False),
        ("^ab|c", EVERYTHING, False),
        ("(?i)^ab", EVERYTHING, False),
        ("ab", EVERYTHING, False),
        ("^", EVERYTHING, True),
    ],
)
def test_an_anchored_expression_implies_its_literal_head(pattern: str, values: object, exact: bool) -> None:
    assert implied_by_matches(pattern) == (values, exact)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "not a regular expression: missing ): ("),
        (r"(a)\1", "not a regular expression: invalid escape sequence: \\1"),
        ("(?=a)", "not a regular expression: invalid perl operator: (?="),
        ("((a{1000}){1000})", "not a regular expression: "),
        ("\ud800", "not a regular expression: it has half a surrogate pair"),
        ("a" * (PATTERN_LENGTH_MAX + 1), "a pattern of 1001 characters is too long: at most 1000"),
    ],
)
def test_a_bad_expression_is_refused_with_the_reason(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        prepare_matches(pattern)


def test_no_expression_takes_more_than_linear_time() -> None:
    assert not prepare_matches("^(a+)+$")("a" * 100_000 + "b")


def test_a_string_that_is_no_unicode_is_searched_all_the_same() -> None:
    assert prepare_matches("a")("\ud800a")


def test_without_re2_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(MissingExtra, match="MATCHES") as caught:
        prepare_matches("a")
    assert caught.value.extra == "node"
