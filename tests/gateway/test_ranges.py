"""The covering tree of value ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.gateway.ranges import WHOLE, RangeNode, Ranges, RangeSpan, span_of


def shape(ranges: Ranges[str]) -> list[tuple[int, float | None, float | None]]:
    """Every node from the root down, with its depth."""
    return [] if ranges.root is None else below(ranges.root, 0)


def below(node: RangeNode[str], depth: int) -> list[tuple[int, float | None, float | None]]:
    return [(depth, *node.span.ends), *(one for child in node.below for one in below(child, depth + 1))]


def example() -> Ranges[str]:
    ranges: Ranges[str] = Ranges()
    assert ranges.add("first", span_of(1, 10))
    assert not ranges.add("second", span_of(5, 7))
    assert ranges.add("third", span_of(37, 37))
    return ranges


def test_a_range_goes_below_the_one_that_covers_it_and_another_makes_a_new_root() -> None:
    ranges = example()
    assert shape(ranges) == [(0, 1, 37), (1, 1, 10), (2, 5, 7), (1, 37, 37)]


def test_ranges_taken_away_one_by_one_leave_the_tree_as_if_they_had_never_been() -> None:
    ranges = example()
    assert ranges.remove("third")
    assert shape(ranges) == [(0, 1, 10), (1, 5, 7)]
    assert ranges.remove("first")
    assert shape(ranges) == [(0, 5, 7)]
    assert ranges.remove("second")
    assert shape(ranges) == []


def test_taking_away_what_another_covers_changes_nothing_for_the_sensors() -> None:
    ranges = example()
    assert not ranges.remove("second")
    assert shape(ranges) == [(0, 1, 37), (1, 1, 10), (1, 37, 37)]


def test_a_network_of_a_smaller_range_is_asked_for_what_it_has() -> None:
    ranges = example()
    mine = span_of(4, 8)
    assert ranges.clip(mine) == mine
    assert ranges.clip(span_of(11, 36)) is None


def test_a_range_without_ends_covers_all_others() -> None:
    ranges = example()
    assert ranges.add("all", WHOLE)
    assert not ranges.add("from", span_of(50, None))
    assert shape(ranges)[0] == (0, None, None)


def test_ranges_that_only_touch_at_an_open_end_have_nothing_in_common() -> None:
    above_eight = RangeSpan((8, 1), WHOLE.high)
    assert not above_eight.overlaps(span_of(4, 8))
    assert above_eight.overlaps(span_of(4, 8.5))


def test_equal_ranges_are_one_node_until_the_last_has_gone() -> None:
    ranges: Ranges[str] = Ranges()
    assert ranges.add("one", span_of(1, 2))
    assert not ranges.add("other", span_of(1, 2))
    assert not ranges.remove("one")
    assert ranges.remove("other")


cuts = st.tuples(st.integers(0, 12), st.integers(0, 1))
spans = st.one_of(
    st.just(WHOLE),
    st.tuples(cuts, cuts).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: RangeSpan(*pair)),
    cuts.map(lambda cut: RangeSpan(WHOLE.low, cut)),
    cuts.map(lambda cut: RangeSpan(cut, WHOLE.high)),
)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 15), spans), max_size=60)


def check(node: RangeNode[int]) -> None:
    """Children lie in their parent, know it, and none covers another."""
    for one in node.below:
        assert one.above is node
        assert one.keys
        assert node.span.covers(one.span)
        assert node.span != one.span
        assert not any(one is not other and one.span.covers(other.span) for other in node.below)
        check(one)


def clipped(asked: dict[int, RangeSpan], span: RangeSpan) -> RangeSpan | None:
    found = [part for one in asked.values() if (part := one.clip(span))]
    return RangeSpan(min(p.low for p in found), max(p.high for p in found)) if found else None


def is_asked(asked: dict[int, RangeSpan], cut: tuple[float, float]) -> bool:
    return any(span.low <= cut < span.high for span in asked.values())


@given(steps, spans)
def test_the_tree_answers_as_a_plain_list_of_ranges_does(
    steps: list[tuple[bool, int, RangeSpan]], mine: RangeSpan
) -> None:
    ranges: Ranges[int] = Ranges()
    asked: dict[int, RangeSpan] = {}
    places = [(value / 2, 0.5) for value in range(-2, 28)]
    for is_added, key, span in steps:
        before = [is_asked(asked, place) for place in places]
        changed = False
        if is_added and key not in asked:
            changed = ranges.add(key, span)
            asked[key] = span
        elif not is_added and key in asked:
            changed = ranges.remove(key)
            del asked[key]
        assert changed or before == [is_asked(asked, place) for place in places]
        assert ranges.clip(WHOLE) == clipped(asked, WHOLE)
        assert ranges.clip(mine) == clipped(asked, mine)
        if ranges.root is not None:
            assert ranges.root.above is None
            assert ranges.root.span == clipped(asked, WHOLE)
            assert ranges.root.keys or len(ranges.root.below) > 1
            check(ranges.root)
