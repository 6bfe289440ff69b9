from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.filters.intervals import EVERYTHING, Intervals, points, prefixed
from tidings.filters.topics import implied_by_topic, implied_by_under, prepare_topic, prepare_under

names = st.sampled_from(["a", "b", "ab", "$a", "\U0010ffff", "\ud7ff"])
maybe_empty = names | st.just("")


def subjects(separator: str) -> st.SearchStrategy[str]:
    other = st.sampled_from(["a.b", "a/b"])
    return st.lists(maybe_empty | other, max_size=5).map(separator.join)


dotted_patterns = st.builds(
    lambda levels, rest: ".".join([*levels, *rest]),
    st.lists(names | st.just("*"), max_size=4),
    st.sampled_from([[], [">"]]),
).filter(bool)
slashed_patterns = st.builds(
    lambda levels, rest: "/".join([*levels, *rest]),
    st.lists(maybe_empty | st.just("+"), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(lambda pattern: any(sign in pattern for sign in "/+#"))


def takes_dotted(pattern: list[str], levels: list[str]) -> bool:
    """The oracle for NATS's spelling: one level at a time."""
    match pattern, levels:
        case [], []:
            return True
        case [">"], [_, *_]:
            return True
        case [first, *pattern_rest], [level, *rest]:
            return first in ("*", level) and takes_dotted(pattern_rest, rest)
    return False


def takes_slashed(pattern: list[str], levels: list[str]) -> bool:
    """The oracle for MQTT's spelling, apart from topics that begin with `$`."""
    match pattern, levels:
        case ([], []) | (["#"], _):
            return True
        case [first, *pattern_rest], [level, *rest]:
            return first in ("+", level) and takes_slashed(pattern_rest, rest)
    return False


@given(dotted_patterns, subjects("."))
def test_dotted_patterns_agree_with_a_recursive_matcher(pattern: str, subject: str) -> None:
    assert prepare_topic(pattern)(subject) == takes_dotted(pattern.split("."), subject.split("."))


@given(slashed_patterns, subjects("/"))
def test_slashed_patterns_agree_with_a_recursive_matcher(pattern: str, subject: str) -> None:
    hidden = subject.startswith("$") and pattern.startswith(("+", "#"))
    expected = takes_slashed(pattern.split("/"), subject.split("/")) and not hidden
    assert prepare_topic(pattern)(subject) == expected


@given(dotted_patterns | slashed_patterns, subjects(".") | subjects("/"))
def test_what_a_pattern_takes_lies_in_the_implied_set(pattern: str, subject: str) -> None:
    values, exact = implied_by_topic(pattern)
    holds = prepare_topic(pattern)(subject)
    assert subject in values or not holds
    if exact:
        assert holds == (subject in values)


@pytest.mark.parametrize(
    ("pattern", "values", "exact"),
    [
        ("a.b", points(["a.b"]), True),
        ("a.b.>", prefixed("a.b."), True),
        (">", EVERYTHING, True),
        ("a.*.c", prefixed("a."), False),
        ("*", EVERYTHING, False),
        ("a/b", points(["a/b"]), True),
        ("a/#", points(["a"]).union(prefixed("a/")), True),
        ("#", prefixed("$").complement(), True),
        ("+/a", prefixed("$").complement(), False),
        ("a/+/#", prefixed("a/"), False),
    ],
)
def test_the_implied_set_of_a_topic_is_its_literal_head(pattern: str, values: Intervals, exact: bool) -> None:
    assert implied_by_topic(pattern) == (values, exact)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        (
            "city.*.air.>",
            ["city.graz.air.pm10", "city.graz.air.pm10.fine"],
            ["city.graz.air", "city.air.x.y"],
        ),
        ("city/+/air/#", ["city/graz/air", "city/graz/air/pm10/fine"], ["city/air", "city/graz/x/air"]),
        ("+/monitor", ["x/monitor", "/monitor"], ["$SYS/monitor"]),
        ("#", ["", "a", "a/b", "a.b"], ["$SYS/load"]),
        ("$SYS/#", ["$SYS", "$SYS/load"], ["SYS"]),
        ("sport/+", ["sport/"], ["sport"]),
        ("a.*", ["a.b/c"], ["a/b"]),
        ("a/+", ["a/b.c"], ["a.b"]),
    ],
)
def test_topics_are_taken_as_nats_and_mqtt_say(pattern: str, taken: list[str], left: list[str]) -> None:
    takes = prepare_topic(pattern)
    assert [subject for subject in taken + left if takes(subject)] == taken


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "no empty level"),
        ("a..b", "no empty level"),
        ("a.>.b", "> may stand only at the end"),
        ("a/#/b", "# may stand only at the end"),
        ("sens*.a", "stand for whole levels"),
        ("a/b#", "stand for whole levels"),
        ("c++", "stand for whole levels"),
        ("a/*/b", r"with / between levels \+ is any level and # the rest, not \*"),
        ("a/>", "not >"),
    ],
)
def test_a_bad_topic_pattern_is_refused_with_its_reason(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        prepare_topic(pattern)


def test_a_long_subject_is_cut_no_further_than_the_pattern_goes() -> None:
    assert prepare_topic("a.>")("a." * 1_000_000)
    assert not prepare_topic("a.*")("a." * 1_000_000)


@given(st.lists(names, min_size=1, max_size=4), subjects("."))
def test_under_takes_the_node_its_parents_and_all_below(path: list[str], subject: str) -> None:
    found = subject.split(".")
    shorter = min(len(path), len(found))
    pattern = ".".join(path)
    assert prepare_under(pattern)(subject) == (path[:shorter] == found[:shorter])
    values, exact = implied_by_under(pattern)
    assert exact
    assert (subject in values) == prepare_under(pattern)(subject)


@given(
    st.lists(st.text("ab%_", min_size=1, max_size=3), min_size=1, max_size=3).map(".".join),
    st.lists(st.text("ab", max_size=3), max_size=4).map(".".join),
)
def test_under_with_wildcards_never_takes_what_is_not_implied(pattern: str, subject: str) -> None:
    values, exact = implied_by_under(pattern)
    holds = prepare_under(pattern)(subject)
    assert subject in values or not holds
    if exact:
        assert holds == (subject in values)


def test_under_is_swiftmqs_hierarchy() -> None:
    takes = prepare_under("iit.sales")
    topics = ["iit", "iit.sales", "iit.sales.US", "iit.sales.EU.x", "iit.projects", "iit.salesmen", "i", ""]
    assert [topic for topic in topics if takes(topic)] == topics[:4]
    assert implied_by_under("iit.sales") == (points(["iit", "iit.sales"]).union(prefixed("iit.sales.")), True)


def test_under_takes_wildcards_in_each_name() -> None:
    takes = prepare_under("iit.s%s._S")
    topics = [
        "iit.sales.US",
        "iit",
        "iit.sales",
        "iit.sales.US.x",
        "iit.projects.US",
        "iit.sales.EU",
        "iit.sa.les",
    ]
    assert [topic for topic in topics if takes(topic)] == topics[:4]
    assert implied_by_under("iit.s%s._S") == (points(["iit"]).union(prefixed("iit.s")), False)


def test_under_can_escape_its_wildcards() -> None:
    takes = prepare_under("a!_b.c", "!")
    assert takes("a_b.c.d")
    assert not takes("axb.c")
    assert implied_by_under("a!_b.c", "!")[1]


@pytest.mark.parametrize("pattern", ["", "a.", ".a", "a..b"])
def test_under_refuses_empty_names(pattern: str) -> None:
    with pytest.raises(ValueError, match="empty name"):
        prepare_under(pattern)
