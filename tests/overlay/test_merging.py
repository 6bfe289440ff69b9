"""Merging: alike filters are announced as one, which matches what they match and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from overlay.network import Network

from tests.filters.conditions import dense_filters, events, filters
from tidings import Event, Filter
from tidings.overlay import merging
from tidings.overlay.covering import CoveringSet
from tidings.overlay.merging import RUN_MAX, TEXT_LENGTH_MAX, Merging, Unit, taken_apart
from tidings.overlay.pruning import Pruning
from tidings.steps import Steps, finish

ranges = st.builds("{} BETWEEN {} AND {}".format, st.sampled_from("xy"), st.integers(0, 6), st.integers(3, 9))
ends = st.builds("{} {} {}".format, st.sampled_from("xy"), st.sampled_from(["<", ">="]), st.integers(0, 9))
points = st.builds("{} = {}".format, st.sampled_from("xy"), st.integers(0, 9))
lists = st.builds("x IN ({}, {})".format, st.integers(0, 4), st.integers(5, 9))
kinds = st.builds("type = '{}'".format, st.sampled_from("abc"))
others = st.sampled_from(["flag", "flag = FALSE", "t LIKE '%a'", "t = 'a'", "y IS NULL", "y <> 3"])
alike_filters = (
    st.lists(st.one_of(ranges, ends, points, points, lists, kinds, kinds, others), min_size=1, max_size=3)
    .map(" AND ".join)
    .map(Filter)
)
"""Filters that are often alike."""
any_filters = st.one_of(alike_filters, alike_filters, alike_filters, filters, dense_filters)
alike_events = st.builds(
    lambda kind, attributes: Event(kind, attributes),
    st.sampled_from("abc"),
    st.fixed_dictionaries(
        {"x": st.integers(-1, 10)},
        optional={"y": st.integers(-1, 10), "flag": st.booleans(), "t": st.sampled_from(["a", "ba", "b"])},
    ),
)
sampled_events = st.lists(st.one_of(alike_events, alike_events, events), min_size=1, max_size=20)


SMALL = {"RUN_MEAN": 2, "RUN_MAX": 3, "CROWD_MAX": 4, "ATTRIBUTES_MAX": 2}
with_limits = pytest.mark.parametrize("limits", [{}, SMALL], ids=["usual limits", "small limits"])


@contextmanager
def patched(limits: dict[str, int]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(merging, name, value)
        yield


def changed(made: Merging, shown: dict[Unit, None]) -> None:
    """Take the changes of what is announced into account, each of which must be one."""
    for emitted in made.settle():
        if emitted is not None and emitted.is_new:
            assert emitted.unit not in shown
            shown[emitted.unit] = None
        elif emitted is not None:
            del shown[emitted.unit]


def matched(filters: Iterable[Filter], event: Event) -> bool:
    return any(one.matches(event) for one in filters)


def check_announced(
    there: Iterable[Unit], shown: Iterable[Unit], sampled: Iterable[Event], is_exact: bool = True
) -> None:
    """Check that as many filters as are wanted, or fewer, match what these do, and nothing else if exact."""
    for passive in (False, True):
        wanted = [unit.filter for unit in there if unit.passive is passive]
        announced = [unit.filter for unit in shown if unit.passive is passive]
        assert len(announced) <= len(wanted)
        for one in wanted:
            assert any(other.covers(one) for other in announced)
        for event in sampled:
            assert matched(announced, event) >= matched(wanted, event)
            assert not is_exact or matched(announced, event) == matched(wanted, event)


@with_limits
@settings(max_examples=often(200))
@given(
    st.lists(st.tuples(any_filters, st.booleans(), st.booleans()), max_size=20),
    st.lists(st.integers(0)),
    sampled_events,
)
def test_merged_filters_match_exactly_what_was_wanted_whatever_comes_and_goes(
    limits: dict[str, int], coming: list[tuple[Filter, bool, bool]], going: list[int], sampled: list[Event]
) -> None:
    with patched(limits):
        made = Merging()
        shown: dict[Unit, None] = {}
        there: dict[Unit, None] = {}

        def check() -> None:
            changed(made, shown)
            check_announced(there, shown, sampled)

        for filter, passive, is_checked in coming:
            if filter.normal:
                unit = Unit(filter, filter.normal, passive)
                made.add(unit)
                there[unit] = None
            if is_checked:
                check()
        check()
        for number in going:
            if there:
                unit = list(there)[number % len(there)]
                del there[unit]
                made.remove(unit)
                if number % 2:
                    check()
        check()
        for unit in list(there):
            del there[unit]
            made.remove(unit)
        check()
        assert not shown
        assert not made


@with_limits
@given(
    st.lists(alike_filters.filter(lambda one: bool(one.normal)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_merged_filters_do_not_depend_on_the_order_in_which_they_came(
    limits: dict[str, int], wanted: list[Filter], random: object
) -> None:
    with patched(limits):
        unique = {str(one): one for one in wanted}
        found = []
        for _ in range(2):
            made = CoveringSet()
            order = sorted(unique)
            random.shuffle(order)  # type: ignore[attr-defined]
            for text in order:
                made.add(text, unique[text])
                if len(text) % 2:
                    finish(made.steps())
            finish(made.steps())
            made.take_changes()
            found.append((sorted(str(one.filter) for one in made), made.digest))
        assert found[0] == found[1]


@given(any_filters, sampled_events)
def test_a_filter_that_is_taken_apart_matches_the_same(filter: Filter, sampled: list[Event]) -> None:
    pieces = taken_apart(filter)
    assert pieces
    assert all(taken_apart(piece) == (piece,) for piece in pieces)
    for event in sampled:
        assert matched(pieces, event) == filter.matches(event)


@with_limits
@given(st.lists(alike_filters.filter(lambda one: bool(one.normal)), max_size=12))
def test_a_merged_filter_means_the_same_to_the_node_that_reads_its_text(
    limits: dict[str, int], wanted: list[Filter]
) -> None:
    with patched(limits):
        for one in merged_units(wanted):
            read = Filter(str(one.filter))
            assert str(read) == str(one.filter)
            assert read.normal == one.filter.normal


def merged_units(wanted: Iterable[Filter]) -> list[Unit]:
    made = Merging()
    shown: dict[Unit, None] = {}
    for one in wanted:
        made.add(Unit(one, one.normal, False))
    changed(made, shown)
    return list(shown)


def merged(*texts: str) -> list[str]:
    return sorted(str(unit.filter) for unit in merged_units(map(Filter, texts)))


# Rules


def test_filters_that_differ_in_one_attribute_are_one() -> None:
    assert merged("x = 1", "x = 2") == ["x IN (1, 2)"]
    assert merged("x > 10", "x = 10") == ["x >= 10"]
    assert merged("x BETWEEN 0 AND 5", "x BETWEEN 5 AND 9") == ["x BETWEEN 0 AND 9"]
    assert merged("t = 'a' AND x = 2", "x = 1 AND t = 'a'") == ["t = 'a' AND x IN (1, 2)"]
    assert merged("flag", "flag = FALSE") == ["flag IN (FALSE, TRUE)"]


def test_merged_filters_that_differ_in_one_attribute_are_merged_again() -> None:
    texts = [f"type = '{kind}' AND x = {value}" for kind in "ab" for value in (1, 2)]
    assert merged(*texts) == ["type IN ('a', 'b') AND x IN (1, 2)"]
    assert merged(*texts[:3]) == ["type = 'a' AND x IN (1, 2)", "type = 'b' AND x = 1"]


def test_filters_that_differ_in_more_are_left_as_they_are() -> None:
    for texts in (
        ["type = 'a' AND x = 1", "type = 'b' AND x = 2"],
        ["x = 1", "x = 2 AND y = 3"],
        ["x = 1", "y = 1"],
        ["t LIKE '%a' AND x = 1", "t LIKE '%b' AND x = 2"],
        ["type = 'a' AND x = 1 OR y = 1", "type = 'a' AND x = 2 OR y = 1"],
        ["x = 1", "x IN (2, 4)"],
    ):
        assert merged(*texts) == sorted(texts)


def test_passive_filters_are_merged_apart() -> None:
    made = CoveringSet()
    for value in range(4):
        made.add(value, Filter(f"x = {value}"), passive=value > 1)
    finish(made.steps())
    added = made.take_changes().added
    assert sorted((str(one.filter), one.passive) for one in added) == [
        ("x IN (0, 1)", False),
        ("x IN (2, 3)", True),
    ]


def test_a_text_that_is_demanded_and_wanted_passively_is_announced_as_demanding() -> None:
    made = CoveringSet()
    for low, high, passive in ((0, 5, False), (5, 10, False), (0, 6, True), (4, 10, True)):
        made.add((low, high), Filter(f"x BETWEEN {low} AND {high}"), passive)
    finish(made.steps())
    announced = {}
    for one in made.take_changes().added:
        assert str(one.filter) not in announced
        announced[str(one.filter)] = one.passive
    demanded = [Filter(text) for text, passive in announced.items() if not passive]
    assert all(matched(demanded, Event("e", x=value)) for value in range(11))


def test_a_change_of_one_filter_among_many_changes_one_or_two_merged_ones() -> None:
    made = CoveringSet()
    for number in range(2_000):
        made.add(number, Filter(f"type = 'reading' AND device = 'd{number}'"))
    finish(made.steps())
    assert len(made.take_changes().added) < 2_000 / 10
    for number in range(0, 400, 7):
        made.remove(number)
        finish(made.steps())
        changes = made.take_changes()
        assert len(changes.added) <= 2
        assert len(changes.removed) <= 2
        made.add(number, Filter(f"type = 'reading' AND device = 'd{number}'"))
        finish(made.steps())
        back = made.take_changes()
        assert [back.added, back.removed] == [changes.removed, changes.added]


def test_a_filter_that_joins_many_is_compared_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Merging()
    shown: dict[Unit, None] = {}
    for number in range(1_000):
        filter = Filter(f"type = 't{number}' AND x = {number} AND y = 1")
        made.add(Unit(filter, filter.normal, False))
    changed(made, shown)
    assert len(shown) == 1_000
    compared: list[Unit] = []
    real = Unit.is_alike

    def counted(self: Unit, other: Unit, name: str) -> bool:
        compared.append(other)
        return real(self, other, name)

    monkeypatch.setattr(Unit, "is_alike", counted)
    filter = Filter("type = 't500' AND x = 1000 AND y = 1")
    made.add(Unit(filter, filter.normal, False))
    changed(made, shown)
    assert len(compared) == 1


def test_runs_that_are_too_long_are_announced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_begins_run", lambda _span, _again: False)
    assert len(merged(*(f"x = {number}" for number in range(RUN_MAX)))) == 1
    assert len(merged(*(f"x = {number}" for number in range(RUN_MAX + 1)))) == RUN_MAX + 1


def test_filters_whose_merged_text_would_be_too_long_are_announced_one_by_one() -> None:
    long = "a" * (TEXT_LENGTH_MAX // 2)
    assert len(merged(f"t = '{long}b'", f"t = '{long}c'")) == 2
    assert len(merged(f"t = '{long[:100]}b'", f"t = '{long[:100]}c'")) == 1


def test_runs_begin_at_the_same_filters_in_each_life_of_a_node() -> None:
    begins = [number for number in range(100) if merging._begins_run(((1, f"d{number}", 0), ()), 0)]
    assert begins == [6, 15, 31, 42, 53, 71, 77, 91, 97]


# Networks


def test_a_merged_filter_replaces_another_in_one_message() -> None:
    net = Network(("a", "b"))
    app = net.app("b")
    app.subscribe("x = 1")
    net.run()
    told = net.neighbour("b", "a").announcer.told
    second = app.subscribe("x = 2")
    net.run()
    assert net.table("a", of="b") == ["x IN (1, 2)"]
    assert net.neighbour("b", "a").announcer.told == told + 1
    second.end()
    net.run()
    assert net.table("a", of="b") == ["x = 1"]
    assert net.neighbour("b", "a").announcer.told == told + 2


def test_a_merged_filter_goes_on_only_as_far_as_its_pieces_are_advertised() -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"), offers_all=False)
    app = net.app("a")
    app.subscribe("type = 't'")
    app.subscribe("type = 'u'")
    net.app("c").advertise("type = 't'")
    net.app("d").advertise("type IN ('t', 'u')")
    net.run()
    assert net.table("b", of="a") == ["type IN ('t', 'u')"]
    assert net.table("c", of="b") == ["type = 't'"]
    assert net.table("d", of="b") == ["type IN ('t', 'u')"]
    more = net.app("c").advertise("type = 'u'")
    net.run()
    assert net.table("c", of="b") == ["type IN ('t', 'u')"]
    more.end()
    net.run()
    assert net.table("c", of="b") == ["type = 't'"]


class Told:
    """What is announced by pruning, under its keys."""

    def __init__(self) -> None:
        self.filters: dict[object, tuple[Filter, bool]] = {}
        self.steps: list[Steps[None]] = []

    def add(self, key: object, filter: Filter, passive: bool) -> None:
        self.filters[key] = filter, passive

    def remove(self, key: object) -> None:
        del self.filters[key]

    def prepare(self, steps: Steps[None]) -> None:
        self.steps.append(steps)

    def step(self) -> None:
        """Take a step of the first that are prepared."""
        if next(self.steps[0], self) is self:
            del self.steps[0]

    def finish(self) -> None:
        while self.steps:
            self.step()


pieced_filters = st.lists(st.one_of(lists, lists, points, kinds), min_size=1, max_size=2).map(" AND ".join)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.one_of(pieced_filters.map(Filter), st.just(Filter())),
            st.sampled_from([0, 0, 1, 2, 2, 3]),
            st.sampled_from([0, 1, 2, 100]),
        )
    ),
    st.lists(alike_events, min_size=20, max_size=20),
)
def test_what_is_wanted_and_offered_is_announced_whatever_comes_and_goes(
    changes: list[tuple[int, Filter, int, int]], sampled: list[Event]
) -> None:
    told = Told()
    pruning = Pruning(told)  # type: ignore[arg-type]
    wanted: dict[int, Filter] = {}
    offered: dict[str, Filter] = {}
    for key, filter, what, steps in [*changes, (0, Filter("x = 1"), 0, 1_000)]:
        if what == 0:
            pruning.add(key, filter, passive=False)
            wanted[key] = filter
        elif what == 1 and key in wanted:
            pruning.remove(key)
            del wanted[key]
        elif what == 2:
            pruning.offer(str(filter))
            offered[str(filter)] = filter
        elif offered:
            text = sorted(offered)[key % len(offered)]
            pruning.withdraw(text)
            del offered[text]
        for _ in range(steps):
            if told.steps:
                told.step()
        if told.steps:
            continue  # what has come is half worked out, and more comes
        announced = [filter for filter, _ in told.filters.values()]
        for one in announced:
            assert any(one.overlaps(offer) for offer in offered.values())
        for event in sampled:
            if matched(offered.values(), event):
                assert matched(announced, event) == matched(wanted.values(), event)
            elif matched(announced, event):
                assert matched(wanted.values(), event)


def test_a_filter_is_announced_piece_by_piece_as_offers_come_and_go() -> None:
    told = Told()
    pruning = Pruning(told)  # type: ignore[arg-type]
    seen = []
    pruning.add("key", Filter("x IN (2, 7)"), passive=False)
    for change, text in (
        (pruning.offer, "x = 2"),
        (pruning.offer, "x = 7"),
        (pruning.withdraw, "x = 2"),
        (pruning.offer, ""),
        (pruning.withdraw, ""),
        (pruning.withdraw, "x = 7"),
    ):
        change(text)
        told.finish()
        seen.append([str(filter) for filter, _ in told.filters.values()])
    assert seen == [["x = 2"], ["x IN (2, 7)"], ["x = 7"], ["x IN (2, 7)"], ["x = 7"], []]
