from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.filters.intervals import EVERYTHING, Intervals, compared, points
from tidings.matching import sorted_run
from tidings.matching.sorted_run import SortedRun

VALUES = st.integers(0, 9)
SETS = st.one_of(
    st.just(EVERYTHING),
    st.lists(VALUES, max_size=4).map(points),
    st.builds(compared, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), VALUES),
    st.builds(lambda low, high: compared(">", low).intersect(compared("<=", high)), VALUES, VALUES),
)
Pairs = list[tuple[int, int]]


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_run, "BLOCK_MAX", 8)
        yield


def pairs_of(values: list[int], items: list[int]) -> Pairs:
    return list(zip(values, sorted(items), strict=False))


PAIRS = st.builds(
    pairs_of, st.lists(VALUES, max_size=80), st.lists(st.integers(), min_size=80, max_size=80, unique=True)
)


def ascending(run: SortedRun, wanted: Intervals) -> list[int]:
    spans = [run.span(piece) for piece in wanted.pieces()]
    found = [list(span.ascending()) for span in spans if span is not None]
    assert [len(items) for items in found] == [len(span) for span in spans if span is not None]
    assert all(items == sorted(items) for items in found)
    return sorted(item for items in found for item in items)


@given(PAIRS, st.data())
def test_a_run_keeps_its_order_whatever_is_added_and_removed(pairs: Pairs, data: st.DataObject) -> None:
    half = len(pairs) // 2
    run, kept = SortedRun(pairs[:half]), pairs[:half]
    for value, item in data.draw(st.permutations(pairs[half:])):
        run.add(value, item)
        kept.append((value, item))
        assert list(run) == [item for _, item in sorted(kept)]
    for value, item in data.draw(st.permutations(pairs)):
        run.remove(value, item)
        kept.remove((value, item))
        assert list(run) == [item for _, item in sorted(kept)]
        assert len(run) == len(kept)


@given(PAIRS, st.lists(SETS, min_size=1, max_size=5))
def test_a_run_filled_in_the_order_of_its_items_is_as_any_other(
    pairs: Pairs, wanted: list[Intervals]
) -> None:
    run = SortedRun()
    for value, item in pairs:
        run.add_last(value, item)
    assert list(run) == [item for _, item in sorted(pairs)]
    assert run.last == (max(pairs)[1] if pairs else None)
    for each in wanted:
        assert ascending(run, each) == ascending(SortedRun(pairs), each)
    for value, item in pairs:
        run.remove(value, item)
    assert len(run) == 0


@given(PAIRS, st.lists(SETS, min_size=1, max_size=5), st.data())
def test_a_range_gives_its_items_in_their_own_order(
    pairs: Pairs, sets: list[Intervals], data: st.DataObject
) -> None:
    run, kept = SortedRun(), list(pairs)
    for value, item in data.draw(st.permutations(pairs)):
        run.add(value, item)
    for value, item in data.draw(st.permutations(pairs))[: len(pairs) // 3]:
        run.remove(value, item)
        kept.remove((value, item))
    for wanted in sets:
        assert ascending(run, wanted) == sorted(item for value, item in kept if value in wanted)


@given(PAIRS, st.data())
def test_a_run_of_one_value_ranks_its_items_as_they_stand(pairs: Pairs, data: st.DataObject) -> None:
    run = SortedRun(one_value=True)
    for _, item in data.draw(st.permutations(pairs)):
        run.add(0, item)
    for _, item in pairs[::2]:
        run.remove(0, item)
    rest = [item for _, item in pairs[1::2]]
    assert list(run) == ascending(run, EVERYTHING) == rest


def test_blocks_stay_few_when_most_of_a_run_is_removed() -> None:
    run = SortedRun([(item, item) for item in range(1000)])
    for item in range(1000):
        if item % 10:
            run.remove(item, item)
    assert list(run) == list(range(0, 1000, 10))
    assert len(run._items) <= 8 * len(run) / sorted_run.BLOCK_MAX
