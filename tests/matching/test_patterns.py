"""Filters found by clues, by levels of topics and by literals: they match what they match by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidings import Event, Filter
from tidings.errors import FilterError
from tidings.event import Batch
from tidings.filters.patterns import needed_by_like, needed_by_matches, prepare_like
from tidings.filters.text import write_literal
from tidings.matching import Index, clues, patterns
from tidings.matching import index as index_module

NAMES = ["subject", "type", "a", "source", "id"]

names = st.sampled_from(NAMES)
words = st.sampled_from(["a", "a", "a", "b", "ab", "aba", "abba-abba", "$a", "ü", "", "x" * 70])
dotted = st.lists(words.filter(bool), min_size=1, max_size=4).map(".".join).filter(lambda one: len(one) < 256)
slashed = st.lists(words, min_size=1, max_size=4).map("/".join)
subjects = st.one_of(dotted, slashed, words, st.text("ab./$", max_size=12))


@st.composite
def topics(draw: st.DrawFn) -> str:
    separator, one, rest = draw(st.sampled_from([".*>", "/+#"]))
    levels = draw(st.lists(st.sampled_from(["a", "b", "ab", "$a", one, one]), max_size=4))
    levels += draw(st.sampled_from([[], [rest], ["a"], [one]]))
    return separator.join(levels or [rest])


likes = st.lists(st.sampled_from(["%", "_", "a", "b", "ab", ".", "abba", "x" * 70]), max_size=5).map("".join)
unders = st.lists(st.sampled_from(["a", "b", "a%", "_", "ab"]), min_size=1, max_size=3).map(".".join)


def quoted(text: str) -> str:
    return write_literal(text)


patterned = st.one_of(
    st.builds("TOPIC({}, {})".format, names, topics().map(quoted)),
    st.builds("TOPIC({}, {})".format, names, topics().map(quoted)),
    st.builds("{} LIKE {}".format, names, likes.map(quoted)),
    st.builds("UNDER({}, {})".format, names, unders.map(quoted)),
    st.builds("IS_A({}, {})".format, names, st.sampled_from(["'a'", "'a.b'", "'a', 'b.a'"])),
    st.builds(
        "{}({}, {})".format,
        st.sampled_from(["CONTAINS", "ENDS_WITH", "STARTS_WITH"]),
        names,
        subjects.map(quoted),
    ),
    st.builds("MATCHES({}, {})".format, names, st.sampled_from(["'ab'", "'^a.*b$'", "'ab?a+'", "'b|a'"])),
)
plain = st.one_of(
    st.builds("{} = {}".format, names, subjects.map(quoted)),
    st.builds("{} IN ({}, {})".format, names, subjects.map(quoted), st.sampled_from(["'a'", "3"])),
    st.builds("n {} {}".format, st.sampled_from(["<", ">=", "="]), st.integers(0, 3)),
    st.sampled_from(["n < m", "a IS NULL", "subject IS NOT NULL", "NOT (subject = 'a')"]),
)
leaves = st.one_of(patterned, patterned, patterned, plain)


def joined(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(conditions, min_size=2, max_size=3)
    return st.one_of(
        parts.map(" AND ".join),
        parts.map(lambda texts: "(" + " OR ".join(texts) + ")"),
        conditions.map("NOT ({})".format),
    )


def made(text: str) -> Filter | None:
    try:
        return Filter(text)
    except FilterError:  # such as a topic with an empty level
        return None


filters: st.SearchStrategy[Filter] = st.recursive(leaves, joined, max_leaves=5).map(made).filter(bool)  # type: ignore[assignment]  # filter tells no types
values = st.one_of(subjects, subjects, subjects, st.integers(0, 3), st.booleans())


def event(kind: str, subject: str | None, attributes: dict[str, Any], source: str | None) -> Event:
    return Event(kind or "t", attributes, subject=subject or None, source=source or None)


simple_names = st.text("ab", min_size=1, max_size=3)
events = st.builds(
    event,
    st.one_of(dotted, simple_names),
    st.none() | subjects,
    st.fixed_dictionaries({}, optional={"a": values, "n": st.integers(0, 3), "m": st.integers(0, 3)}),
    st.none() | simple_names,
)
same_source = st.builds(event, dotted, st.none() | subjects, st.just({"n": 1}), st.just("a"))


def wanted(held: dict[int, Filter], one: Event) -> list[int]:
    return sorted(key for key, filter in held.items() if filter.matches(one))


SIZES: list[dict[str, Any]] = [{"plain_max": 0, "capacity": 16, "pending_max": 4}, {"plain_max": 1000}]


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    if not index_module._is_prepared:
        index_module.prepare()


@pytest.mark.parametrize("sizes", SIZES)
@given(some=st.lists(filters, max_size=30), shown=st.lists(events, max_size=6))
def test_an_event_matches_the_keys_whose_filters_say_so(
    sizes: dict[str, Any], some: list[Filter], shown: list[Event]
) -> None:
    held = dict(enumerate(some))
    index: Index[int] = Index(**sizes)
    for key, one in held.items():
        index.add(key, one)
    assert len(index) == len(held)
    assert [sorted(index.match(one)) for one in shown] == [wanted(held, one) for one in shown]
    assert [sorted(keys) for keys in index.match_batch(shown)] == [wanted(held, one) for one in shown]


@pytest.mark.parametrize("sizes", SIZES)
@given(some=st.lists(filters, max_size=30), shown=st.lists(same_source, max_size=5))
def test_the_rows_of_a_batch_are_found_from_its_bytes_and_from_its_events(
    sizes: dict[str, Any], some: list[Filter], shown: list[Event]
) -> None:
    shown = shown * index_module.ROWS_COMPILED
    held = dict(enumerate(some))
    index: Index[int] = Index(**sizes)
    by_key = defaultdict(list)
    for key, one in held.items():
        index.add(key, one)
        for row, event in enumerate(shown):
            if one.matches(event):
                by_key[key].append(row)
    batch = Batch.of(shown)
    for one in (batch, Batch(batch.raw, batch.origin)):
        matches = index.match_rows(one)
        assert {key: list(rows) for key, rows in matches.items()} == by_key
        assert len(matches.keys) == len(by_key)


def topics_and_patterns() -> Iterator[tuple[str, list[str]]]:
    """All patterns of up to three levels and a few names, and all topics of up to four, by separator."""
    for separator, one, rest in ((".", "*", ">"), ("/", "+", "#")):
        stems = [stem for size in (1, 2, 3) for stem in product(("a", "$a", one), repeat=size)]
        closed = [separator.join(stem) for stem in stems]
        yield separator, [*closed, *(f"{pattern}{separator}{rest}" for pattern in closed), rest]


def test_every_topic_is_taken_by_the_patterns_that_say_so() -> None:
    held: dict[int, Filter] = {}
    subjects: list[str] = []
    for separator, some in topics_and_patterns():
        held |= {len(held) + n: Filter("TOPIC(subject, :p)", p=p) for n, p in enumerate(some)}
        names = ("a", "$a", "b", "")
        subjects += [separator.join(one) for size in range(1, 5) for one in product(names, repeat=size)]
    subjects = [subject for subject in subjects if subject]
    check_all(held, [Event("t", subject=subject) for subject in subjects])


def test_every_text_is_taken_by_the_literals_it_has() -> None:
    texts = ["".join(some) for size in range(1, 6) for some in product("ab", repeat=size)]
    texts += [f"{text}{'x' * 64}" for text in texts[:10]]
    conditions = [
        "CONTAINS(s, '{}')",
        "ENDS_WITH(s, '{}')",
        "s LIKE '%{}%'",
        "s LIKE '%{}_%a'",
        "s LIKE '_{}'",
    ]
    filters = [Filter(condition.format(text)) for condition in conditions for text in texts]
    held = dict(enumerate(filters))
    check_all(held, [Event("t", s=f"{head}{text}") for text in texts for head in ("", "a", "ba")])


def test_every_name_is_under_the_topics_that_say_so() -> None:
    unders = [".".join(some) for size in (1, 2, 3) for some in product(("a", "b%", "_"), repeat=size)]
    held = {key: Filter("UNDER(s, :p)", p=pattern) for key, pattern in enumerate(unders)}
    names = [".".join(some) for size in range(1, 5) for some in product(("a", "b", "bc"), repeat=size)]
    check_all(held, [Event("t", s=name) for name in names])


def check_all(held: dict[int, Filter], shown: list[Event]) -> None:
    """An index has each filter twice, and loses one of each; it must say what the filters say."""
    index: Index[int] = Index(plain_max=0)
    for key, one in held.items():
        index.add(key, one)
        index.add(-1 - key, one)
    for key in held:
        index.remove(-1 - key)
    rows: dict[int, list[int]] = defaultdict(list)
    for row, (one, keys) in enumerate(zip(shown, index.match_batch(shown), strict=True)):
        assert sorted(keys) == wanted(held, one), one
        for key in keys:
            rows[key].append(row)
    raw = Batch.of(shown).raw
    assert {key: list(found) for key, found in index.match_rows(Batch(raw)).items()} == rows


class ComingAndGoing(RuleBasedStateMachine):
    """An index and a dict are told the same things; they must always agree."""

    sizes: dict[str, Any] = SIZES[0]

    def __init__(self) -> None:
        super().__init__()
        self.index: Index[int] = Index(**self.sizes)
        self.held: dict[int, Filter] = {}

    @rule(key=st.integers(0, 20), one=filters)
    def add(self, key: int, one: Filter) -> None:
        self.index.add(key, one)
        self.held[key] = one

    @rule(key=st.integers(0, 20))
    def remove(self, key: int) -> None:
        if key in self.held:
            del self.held[key]
            self.index.remove(key)
        else:
            with pytest.raises(KeyError):
                self.index.remove(key)

    @rule(shown=st.lists(events, min_size=1, max_size=4))
    def match(self, shown: list[Event]) -> None:
        got = [sorted(keys) for keys in self.index.match_batch(shown)]
        assert got == [wanted(self.held, one) for one in shown]

    @invariant()
    def knows_what_it_holds(self) -> None:
        assert len(self.index) == len(self.held)
        assert self.index.unindexed == sum(map(self.index.is_unindexed, self.held))

    def teardown(self) -> None:
        for key in self.held:
            self.index.remove(key)
        assert not self.index._patterns._names, "nothing stays behind"


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=often(50), stateful_step_count=25)


class FewComingAndGoing(ComingAndGoing):
    sizes: dict[str, Any] = SIZES[1]


TestFewComingAndGoing = FewComingAndGoing.TestCase
TestFewComingAndGoing.settings = settings(max_examples=often(50), stateful_step_count=25)


# What is asked


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Filter]:
    """The filters that were asked about an event, in their order."""
    told: list[Filter] = []
    matches: Callable[[Filter, Event], bool] = Filter.matches

    def telling(self: Filter, one: Event) -> bool:
        told.append(self)
        return matches(self, one)

    monkeypatch.setattr(Filter, "matches", telling)
    return told


SHAPES = [
    ("TOPIC(subject, 's{}.*')", 0),
    ("TOPIC(subject, '*.r{}')", 0),
    ("TOPIC(subject, '+/r{}/#')", 0),
    ("TOPIC(subject, '*.r{}') AND n > 0", 1),
    ("type = 't' AND TOPIC(subject, '*.r{}')", 1),
    ("TOPIC(subject, '*.*') AND correlation_id = 'c{}'", 1),
    ("CONTAINS(subject, 'r{}!')", 0),
    ("ENDS_WITH(subject, '.r{}')", 0),
    ("subject LIKE '%r{}'", 0),
    ("subject LIKE '_%r{}' OR id = 'i{}'", 1),
    ("UNDER(subject, 's{}.r%')", 1),
    ("MATCHES(subject, 's{}[.]')", 1),
    ("id = 'i{}'", 0),
]


@pytest.mark.parametrize(("shape", "most", "count"), [(*SHAPES[0], 10_000), *((*s, 500) for s in SHAPES)])
@pytest.mark.parametrize("plain_max", [0, 100_000])
def test_of_very_many_patterns_an_event_asks_only_those_that_it_may_match(
    shape: str, most: int, count: int, plain_max: int, asked: list[Filter]
) -> None:
    index: Index[int] = Index(plain_max=plain_max)
    for key in range(count):
        index.add(key, Filter(shape.replace("{}", f"{key:05}")))
    assert index.unindexed == 0
    for subject in ("s00007.r00042", "s00007/r00042/x", "s00007.r00042!"):
        shown = Event("t", n=1, subject=subject, correlation_id="c00005", id="i00003")
        for match in (index.match, lambda one: index.match_rows(Batch.of([one])).keys):
            asked.clear()
            found = match(shown)
            assert len(asked) <= most + len(found)
            assert len(found) <= 2
            assert len(found) or subject != "s00007.r00042" or "/" in shape or "!" in shape


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "a + 1 > 2",
        "NOT (subject LIKE '%a%')",
        "subject LIKE '%_'",
        "DISTANCE(x, y, 0, 0) < 5",
        "TOPIC(subject, '*.*') AND a < b",
        "UNDER(subject, '%.x')",
        "n > 1 AND a < b",
        "up = TRUE AND a < b",
        "n = 1 AND a < b OR a < c",
        "id <> 'x'",
        "subject LIKE '%a%' OR a < b",
        "MATCHES(subject, '[a-z]+')",
    ],
)
def test_what_nothing_tells_is_unindexed(text: str) -> None:
    index: Index[str] = Index()
    index.add("left", Filter(text))
    index.add("other", Filter("x > 1"))
    assert index.unindexed == 1
    assert index.is_unindexed("left")
    assert not index.is_unindexed("other")
    index.add("left", Filter("x > 2"))
    assert index.unindexed == 0


@pytest.mark.parametrize(
    "text",
    [
        "type = 'x' AND a < b",
        "n IN (1, 2) AND a < b",
        "(n = 1 OR type = 'x') AND a < b",
        "n = 1 AND a < b OR x > 3",
        "x > 1",
        "",
        "FALSE",
        "TOPIC(subject, '*.*')",
    ],
)
def test_what_ranges_values_and_clues_tell_is_not(text: str) -> None:
    index: Index[str] = Index()
    index.add("told", Filter(text))
    assert index.unindexed == 0


def test_many_with_one_clue_that_demand_a_value_too_are_found_by_the_value(asked: list[Filter]) -> None:
    index: Index[int] = Index(plain_max=0)
    for key in range(1000):
        index.add(key, Filter("TOPIC(subject, '*.x') AND correlation_id = :id", id=f"c{key}"))
    assert index.match(Event("t", subject="a.x", correlation_id="c900")) == [900]
    assert len(asked) <= index_module.CROWD_MAX + 1


def test_a_filter_with_several_clues_has_each_row_once_and_in_order() -> None:
    index: Index[str] = Index()
    index.add("any", Filter("CONTAINS(s, 'a') OR ENDS_WITH(s, 'b') OR TOPIC(r, '*.c')"))
    shown = [
        Event("t", s="b"),
        Event("t", s="ab", r="x.c"),
        Event("t", s="x"),
        Event("t", s="xa"),
        Event("t", r="y.c"),
    ]
    assert index.match_rows(Batch.of(shown)).rows.tolist() == [0, 1, 3, 4]
    assert index.match(shown[1]) == ["any"]


def test_levels_that_no_pattern_has_any_more_are_given_back() -> None:
    index: Index[int] = Index()
    index.add(-1, Filter("TOPIC(s, 'a.*')"))
    for key in range(100):
        index.add(key, Filter("TOPIC(s, :topic)", topic=f"a.*.x{key}.*.>"))
    for key in range(100):
        index.remove(key)
    levels = index._patterns._names["s"]._tables[clues.ClueTable.DOTS]
    assert levels._deepest == 2
    nodes = [levels._root]
    for node in nodes:
        nodes += [*node.children.values(), *([node.any] if node.any else [])]
    assert len(nodes) == 3


def test_a_filter_that_needs_too_many_clues_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clues, "CLUES_MAX", 3)
    index: Index[str] = Index()
    index.add("many", Filter(" OR ".join(f"CONTAINS(s, 'x{n}')" for n in range(4))))
    assert index.is_unindexed("many")
    assert index.match(Event("t", s="ax3")) == ["many"]


def test_an_event_with_few_attributes_is_asked_for_its_own_where_very_many_have_clues() -> None:
    index: Index[int] = Index()
    for key in range(patterns.SCANNED_NAMES_MAX + 10):
        index.add(key, Filter(f"CONTAINS(a{key}, 'x')"))
    index.add(-1, Filter("ENDS_WITH(type, 't')"))
    one = Event("t", a3="axb", a5="b", other="x")
    assert sorted(index.match(one)) == [-1, 3]
    batch = Batch(Batch.of([one] * 20).raw)
    assert {key: list(rows) for key, rows in index.match_rows(batch).items()} == {
        -1: list(range(20)),
        3: list(range(20)),
    }


def test_what_fits_texts_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "KNOWN_CLUES_MAX", 8)
    index: Index[int] = Index()
    for key in range(10):
        index.add(key, Filter("CONTAINS(s, :part)", part=str(key)))
    for number in range(100):
        assert sorted(index.match(Event("t", s=str(number)))) == sorted({int(digit) for digit in str(number)})
    assert len(index._patterns._names["s"].known) <= 8
    index.match(Event("t", s="7" * (patterns.KNOWN_LENGTH_MAX + 1)))
    assert all(len(text) <= patterns.KNOWN_LENGTH_MAX for text in index._patterns._names["s"].known)


def test_a_text_that_is_longer_than_its_place_tells_is_read_from_the_event() -> None:
    index: Index[str] = Index()
    index.add("end", Filter("ENDS_WITH(s, 'end')"))
    long = "x" * (1 << 20) + "end"
    batch = Batch(Batch.of([Event("t", s=long), Event("t", s="end")] * 8).raw)
    assert {key: list(rows) for key, rows in index.match_rows(batch).items()} == {"end": list(range(16))}


def test_bytes_that_are_no_text_raise_nothing() -> None:
    index: Index[str] = Index()
    index.add("end", Filter("ENDS_WITH(s, 'end')"))
    raw = Batch.of([Event("t", s="an end")] * 16).raw
    broken = raw.replace(b"an end", b"\xff\xffxend", 1)
    assert {key: list(rows) for key, rows in index.match_rows(Batch(broken)).items()} == {
        "end": list(range(16))
    }


def test_a_copy_has_trees_deeper_than_copying_goes() -> None:
    import copy
    import pickle

    index: Index[str] = Index()
    index.add("deep", Filter("TOPIC(s, :topic)", topic=".".join(["*"] + ["a"] * 490)))
    index.add("asked", Filter("CONTAINS(s, 'a.a') AND n > 1"))
    one = Event("t", s=".".join(["b"] + ["a"] * 490), n=2)
    for twin in (copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
        assert sorted(twin.match(one)) == ["asked", "deep"]
        twin.remove("deep")
        assert twin.match(one) == ["asked"]
    assert sorted(index.match(one)) == ["asked", "deep"]


def test_patterns_need_no_numba() -> None:
    code = """
import sys
from tidings import Event, Filter
from tidings.event import Batch
from tidings.matching import Index
index = Index()
for key in range(100):
    index.add(key, Filter(f"TOPIC(subject, '*.r{key}') AND x > 1"))
assert index.match(Event("t", x=3, subject="a.r7")) == [7]
assert index.match_rows(Batch.of([Event("t", x=3, subject="a.r7")] * 20)).keys == [7]
print([name for name in ("numba", "numpy") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


# The literals that patterns need


@given(st.text("ab%_!", max_size=12), st.text("ab%_", max_size=12))
def test_what_is_like_a_pattern_has_the_literal_it_needs(pattern: str, text: str) -> None:
    try:
        holds = prepare_like(pattern, "!")
    except ValueError:
        return
    needed, at_end, is_all = needed_by_like(pattern, "!")
    has_it = text.endswith(needed) if at_end else needed in text
    assert has_it or not holds(text)
    assert not is_all or holds(text) is has_it


@given(st.text("ab.*+?^$()[]|{}\\1", max_size=10), st.text("ab.1", max_size=10))
def test_what_an_expression_finds_has_the_literal_it_needs(pattern: str, text: str) -> None:
    index: Index[int] = Index()
    try:
        one = Filter("MATCHES(s, :pattern)", pattern=pattern)
    except FilterError:
        return
    assert needed_by_matches(pattern).text in text or not one.matches(Event("t", s=text))
    index.add(1, one)
    assert bool(index.match(Event("t", s=text))) is one.matches(Event("t", s=text))


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("abc", "abc"),
        ("^abc.*defg$", "defg"),
        ("abc+d", "abc"),
        ("abc?d", "ab"),
        (r"a\.b(c)", "a.b"),
        ("a|b", ""),
    ],
)
def test_the_literal_of_an_expression(pattern: str, literal: str) -> None:
    assert needed_by_matches(pattern).text == literal
