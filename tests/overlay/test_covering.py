"""The covering set: everything wanted is announced, by as few filters as covering allows, in net changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.filters.conditions import dense_filters, events, filters
from tidings import Event, Filter
from tidings.overlay import covering, merging, piles
from tidings.overlay.covering import Announced, AnnouncedChanges, CoveringSet, digest_of, number_of
from tidings.steps import finish

Texts = Counter[tuple[str, bool]]


def text_of(announced: Announced) -> tuple[str, bool]:
    return str(announced.filter), announced.passive


def texts_of(announced: Iterable[Announced]) -> Texts:
    return Counter(map(text_of, announced))


def settled(covering_set: CoveringSet) -> AnnouncedChanges:
    finish(covering_set.steps())
    return covering_set.take_changes()


def made(*wanted: str, passive: Iterable[str] = ()) -> CoveringSet:
    """A set in which each filter is wanted under its text."""
    made = CoveringSet()
    for text in wanted:
        made.add(text, Filter(text))
    for text in passive:
        made.add(text, Filter(text), passive=True)
    settled(made)
    return made


def shown(announced: Iterable[Announced]) -> list[str]:
    return sorted(str(one.filter) + (" (passive)" if one.passive else "") for one in announced)


# Properties

ranges = st.builds(
    "{} BETWEEN {} AND {}".format, st.sampled_from("abc"), st.integers(0, 3), st.integers(3, 6)
)
kinds = st.builds("type = '{}'".format, st.sampled_from(["a", "b"]))
topics = st.builds("TOPIC(t, '{}')".format, st.sampled_from(["x.*", "x.>", "*.y", "x/+", "x/#", "#"]))
likes = st.builds("t LIKE '{}'".format, st.sampled_from(["x%", "%y", "%x%", "x%y", "_.y"]))
strings = st.builds("t = '{}'".format, st.sampled_from(["x.y", "x.z", "x/y", "z.y", "y"]))
lists = st.builds("t IN ('{}', '{}')".format, st.sampled_from(["x.y", "y"]), st.sampled_from(["z.y", "x.z"]))
parts = st.one_of(ranges, kinds, topics, likes, strings, lists)
related_filters = st.lists(parts, min_size=1, max_size=3).map(" AND ".join).map(Filter)
"""Filters that often cover each other."""
any_filters = st.one_of(related_filters, related_filters, filters, dense_filters)
related_events = st.builds(
    lambda kind, attributes: Event(kind, attributes),
    st.sampled_from(["a", "b"]),
    st.fixed_dictionaries(
        {
            "a": st.integers(0, 6),
            "b": st.integers(0, 6),
            "c": st.integers(0, 6),
            "t": st.sampled_from(["x.y", "x.z", "x/y", "z.y", "y", "q"]),
        }
    ),
)


def stands_for(wide: Announced, narrow: Announced) -> bool:
    return wide.passive <= narrow.passive and wide.filter.covers(narrow.filter)


def upwards(start: Announced, wanted: list[Announced]) -> list[Announced]:
    """All that cover one, maybe by way of others: `covers` is not sure of everything that follows."""
    found, fresh = [start], [start]
    while fresh:
        one = fresh.pop()
        more = [other for other in wanted if other not in found and stands_for(other, one)]
        found += more
        fresh += more
    return found


class Covering(RuleBasedStateMachine):
    """Filters come and go under keys, while steps and changes are taken at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.set = CoveringSet()
        self.wanted: dict[int, Announced] = {}
        self.neighbour: Texts = Counter()

    @rule(key=st.integers(0, 12), filter=any_filters, passive=st.sampled_from([False, False, True]))
    def add(self, key: int, filter: Filter, passive: bool) -> None:
        self.set.add(key, filter, passive)
        self.wanted[key] = Announced(filter, passive)

    @precondition(lambda self: self.wanted)
    @rule(which=st.integers(0))
    def remove(self, which: int) -> None:
        key = list(self.wanted)[which % len(self.wanted)]
        self.set.remove(key)
        del self.wanted[key]

    @rule(count=st.integers(1, 5))
    def work(self, count: int) -> None:
        for _ in zip(range(count), self.set.steps(), strict=False):
            pass

    @rule()
    def take(self) -> None:
        changes = self.set.take_changes()
        added, removed = texts_of(changes.added), texts_of(changes.removed)
        assert not added & removed, "changes are net"
        assert removed <= self.neighbour
        self.neighbour = self.neighbour - removed + added
        assert max(self.neighbour.values(), default=1) == 1
        assert self.neighbour == texts_of(self.set)
        assert len(self.set) == len(self.neighbour)
        assert self.set.digest == digest_of(sum(map(number_of, self.set)))

    @rule(sampled=st.lists(st.one_of(events, related_events), min_size=1, max_size=10))
    def settle(self, sampled: list[Event]) -> None:
        finish(self.set.steps())
        self.take()
        wanted, announced = list(self.wanted.values()), list(self.set)
        for one in wanted:
            above = upwards(one, wanted)
            assert not one.filter.normal or any(
                stands_for(shown, other) for shown in announced for other in above
            )
        for one in announced:
            unmerged = [other for other in announced if other is not one and other in wanted]
            assert not any(stands_for(other, one) for other in unmerged)
        for event in sampled:
            for passive in (False, True):
                assert any(one.filter.matches(event) for one in wanted if one.passive <= passive) == any(
                    one.filter.matches(event) for one in announced if one.passive <= passive
                )

    @invariant()
    def what_is_left_is_what_would_be_there(self) -> None:
        if not self.set.is_due and not self.wanted:
            assert not self.set._entries
            assert not self.set._merging
            assert not self.set._units
            for roots in self.set._roots.values():
                assert not any((roots._wide, roots._narrow, roots._residues, roots._strings))


class CrowdedCovering(Covering):
    """The same with trees and blocks that are full at once."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(piles, "FEW", 1)
        self.patch.setattr(piles, "NODE_MAX", 3)
        self.patch.setattr(piles, "BLOCK", 2)
        self.patch.setattr(piles, "WAYS_MAX", 1)
        self.patch.setattr(merging, "RUN_MEAN", 2)
        self.patch.setattr(merging, "RUN_MAX", 3)
        self.patch.setattr(covering, "STEP", 1)
        self.patch.setattr(covering, "ROUND_MIN", 2)

    def teardown(self) -> None:
        self.patch.undo()


TestCovering = Covering.TestCase
TestCrowdedCovering = CrowdedCovering.TestCase
TestCovering.settings = settings(max_examples=often(40), stateful_step_count=40)
TestCrowdedCovering.settings = TestCovering.settings


@given(st.lists(related_filters, max_size=12), st.randoms(use_true_random=False))
def test_the_announced_filters_do_not_depend_on_the_order_in_which_they_came(
    wanted: list[Filter], random: object
) -> None:
    one, other = CoveringSet(), CoveringSet()
    for number, filter in enumerate(wanted):
        one.add(number, filter)
    order = list(enumerate(wanted))
    random.shuffle(order)  # type: ignore[attr-defined]
    for number, filter in order:
        other.add(number, filter)
        other.add(-1 - number, filter)
        settled(other)
    for number in range(len(wanted)):
        other.remove(-1 - number)
        settled(other)
    settled(one)
    assert texts_of(one) == texts_of(other)
    assert one.digest == other.digest


# Rules


def test_a_covered_filter_is_not_announced() -> None:
    assert shown(made("value > 5", "value > 7", "value > 6 AND a = 1")) == ["value > 5"]


def test_a_filter_covers_what_its_alternatives_cover_together() -> None:
    for order in (1, -1):
        wanted = ["a = 1 AND b = 2 OR a IS NOT NULL", "a = 5", "a < 3 AND b > 1"][::order]
        assert shown(made(*wanted)) == ["a = 1 AND b = 2 OR a IS NOT NULL"]


def test_filters_that_come_later_replace_those_they_cover() -> None:
    covering_set = made("type = 't' AND value > 7", "type = 't' AND value > 9", "type = 'u' AND x = 1")
    covering_set.add("wide", Filter("type = 't'"))
    changes = settled(covering_set)
    assert shown(changes.added) == ["type = 't'"]
    assert shown(changes.removed) == ["type = 't' AND value > 7"]


def test_filters_that_were_covered_are_announced_with_the_removal_of_their_cover() -> None:
    covering_set = made("value > 5", "value > 7", "value > 8", "value > 6 AND a = 1")
    covering_set.remove("value > 5")
    changes = settled(covering_set)
    assert shown(changes.added) == ["value > 6 AND a = 1", "value > 7"]
    assert shown(changes.removed) == ["value > 5"]


def test_filters_are_announced_when_all_that_covered_them_are_gone() -> None:
    covering_set = made("value > 5", "value > 7", "value > 6 AND a = 1", "value > 1")
    covering_set.remove("value > 5")
    assert not settled(covering_set)
    covering_set.remove("value > 1")
    assert shown(settled(covering_set).added) == ["value > 6 AND a = 1", "value > 7"]


def test_half_of_a_change_is_never_returned() -> None:
    wanted = [f"value > 5 AND a{number} = 1" for number in range(50)]
    covering_set = made("value > 5", *wanted)
    covering_set.remove("value > 5")
    seen = []
    for _ in covering_set.steps():
        changes = covering_set.take_changes()
        if changes:
            seen.append((shown(changes.added), shown(changes.removed)))
        assert covering_set.digest == digest_of(sum(map(number_of, covering_set)))
    assert seen == [(sorted(wanted), ["value > 5"])]


def test_steps_that_were_closed_are_resumed_by_the_next_ones() -> None:
    covering_set = made("value > 5", *(f"value > 5 AND a{number} = 1" for number in range(50)))
    covering_set.remove("value > 5")
    while covering_set.is_due:
        steps = covering_set.steps()
        next(steps)
        steps.close()
    assert len(covering_set.take_changes().added) == 50


def test_a_passive_filter_never_stands_for_a_demanding_one() -> None:
    assert shown(made("value > 7", passive=["value > 5"])) == ["value > 5 (passive)", "value > 7"]


def test_a_passive_filter_stands_for_no_demanding_one_that_had_the_same_cover() -> None:
    for order in (1, -1):
        wanted = [("value > 5", True), ("value > 7", False), ("value > 1", False)]
        covering_set = CoveringSet()
        for text, passive in wanted[::order]:
            covering_set.add(text, Filter(text), passive)
        settled(covering_set)
        covering_set.remove("value > 1")
        assert shown(settled(covering_set).added) == ["value > 5 (passive)", "value > 7"]


def test_a_demanding_filter_stands_for_passive_ones() -> None:
    covering_set = made("value > 5", passive=["value > 7"])
    assert shown(covering_set) == ["value > 5"]
    covering_set.remove("value > 5")
    assert shown(settled(covering_set).added) == ["value > 7 (passive)"]


def test_a_filter_that_turns_passive_is_announced_as_passive() -> None:
    covering_set = made("value > 5")
    covering_set.add("value > 5", Filter("value > 5"), passive=True)
    changes = settled(covering_set)
    assert (shown(changes.added), shown(changes.removed)) == (["value > 5 (passive)"], ["value > 5"])


def test_equal_filters_are_announced_until_the_last_of_them_goes() -> None:
    covering_set = CoveringSet()
    covering_set.add(1, Filter("a = 1"))
    covering_set.add(2, Filter("a = 1"))
    assert shown(settled(covering_set).added) == ["a = 1"]
    covering_set.remove(1)
    assert not settled(covering_set)
    covering_set.remove(2)
    assert shown(settled(covering_set).removed) == ["a = 1"]


def test_of_filters_that_cover_each_other_the_shortest_is_announced() -> None:
    alike = ["ab >= 1 AND ab <= 2", "ab BETWEEN 1 AND 2", "ab <= 2 AND ab >= 1", "ab BETWEEN 1.0 AND 2"]
    for first in range(len(alike)):
        assert shown(made(*alike[first:], *alike[:first])) == ["ab BETWEEN 1 AND 2"]


def test_a_filter_that_matches_nothing_is_not_announced() -> None:
    covering_set = made("a > 1 AND a < 1")
    assert shown(covering_set) == []
    covering_set.remove("a > 1 AND a < 1")
    assert not settled(covering_set)


def test_a_filter_under_a_key_is_replaced_in_one_change() -> None:
    covering_set = made("value > 5")
    covering_set.add("value > 5", Filter("value > 3"))
    changes = settled(covering_set)
    assert (shown(changes.added), shown(changes.removed)) == (["value > 3"], ["value > 5"])


def test_a_filter_that_comes_and_goes_before_any_step_changes_nothing() -> None:
    covering_set = made("value > 5")
    covering_set.add("other", Filter("value > 3"))
    covering_set.remove("other")
    assert not settled(covering_set)


def test_a_key_that_is_not_wanted_cannot_be_removed() -> None:
    covering_set = made("value > 5")
    covering_set.remove("value > 5")
    with pytest.raises(KeyError):
        covering_set.remove("value > 5")
    settled(covering_set)
    with pytest.raises(KeyError):
        covering_set.remove("value > 5")


def test_a_string_is_covered_by_the_patterns_that_it_fits() -> None:
    assert shown(made("t = 'a.b.c'", "TOPIC(t, 'a.*.c')", "t IN ('a.x.c', 'a.y.c')")) == ["TOPIC(t, 'a.*.c')"]
    assert shown(made("t LIKE '%x'", "t = 'ax'", "t = 'b'")) == ["t = 'b'", "t LIKE '%x'"]


def test_many_filters_of_one_kind_leave_few_children_behind() -> None:
    """The next root of many is found without looking at all of them."""
    texts = [f"type = 't' AND value > {number * 7919 % 1000}" for number in range(1000)]
    covering_set = made(*texts)
    (root,) = (one for one in covering_set._entries.values() if one.parent is None)
    steps = 0
    for number in range(200):
        assert len(root.children) < 30
        covering_set.remove(f"type = 't' AND value > {number}")
        steps += sum(1 for _ in covering_set.steps())
        assert shown(covering_set.take_changes().added) == [f"type = 't' AND value > {number + 1}"]
        (root,) = (one for one in covering_set._entries.values() if one.parent is None)
    assert steps < 200 * 40


@pytest.mark.parametrize(
    "text",
    [
        "type = 't{0}' AND value > 1",
        "t IN ('{0}', '{0}x')",
        "t LIKE '%{0}z'",
        "TOPIC(t, 'x.*.y{0}')",
        "a{0} > 1",
        "a > {0} AND a < {0}.5",
    ],
)
def test_a_search_among_many_compares_few(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    covering_set = made(*(text.format(number) for number in range(1_000)))
    assert len(covering_set._roots[False]) == 1_000
    compared: Counter[str] = Counter()
    real = covering._Entry.stands_for

    def counted(self: covering._Entry, other: covering._Entry) -> bool:
        compared["times"] += 1
        return real(self, other)

    monkeypatch.setattr(covering._Entry, "stands_for", counted)
    covering_set.add("new", Filter(text.format(1_001)))
    steps = sum(1 for _ in covering_set.steps())
    covering_set.remove(text.format(7))
    steps += sum(1 for _ in covering_set.steps())
    assert compared["times"] < 50
    assert steps < 50
