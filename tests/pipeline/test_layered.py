"""The layout of drawings: boxes to the right of those before them, none on another."""

from __future__ import annotations

from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.pipeline.drawing import ACROSS, DOWN, Layout, Size, lay_out

EXACT = 1e-6


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Size], dict[str, list[str]]]:
    """Boxes, and for each of them some that were there before it."""
    names = [f"n{number}" for number in range(draw(st.integers(0, 14)))]
    sides = st.floats(10, 300)
    sizes = {name: Size(draw(sides), draw(sides)) for name in names}
    after = {}
    for number, name in enumerate(names):
        earlier = (
            st.lists(st.sampled_from(names[:number]), unique=True, max_size=3) if number else st.just([])
        )
        after[name] = draw(earlier)
    return sizes, after


def laid_out(*edges: str) -> Layout:
    """The layout of boxes of one size; an edge is written as `ab`."""
    names = sorted({name for edge in edges for name in edge})
    return lay_out(
        dict.fromkeys(names, Size(10, 10)),
        {name: [edge[0] for edge in edges if edge[1] == name] for name in names},
    )


@settings(max_examples=often(60), deadline=None)
@given(graphs())
def test_boxes_lie_behind_those_before_them_inside_the_picture_and_never_on_each_other(
    graph: tuple[dict[str, Size], dict[str, list[str]]],
) -> None:
    sizes, after = graph
    layout = lay_out(sizes, after)
    assert {name: Size(*spot[2:]) for name, spot in layout.spots.items()} == sizes
    for name, spot in layout.spots.items():
        assert -EXACT <= spot.x <= layout.size.width - spot.width + EXACT
        assert -EXACT <= spot.y <= layout.size.height - spot.height + EXACT
        for one in after[name]:
            before = layout.spots[one]
            assert before.x + before.width + ACROSS <= spot.x + EXACT
    spots = list(layout.spots.values())
    for number, one in enumerate(spots):
        for other in spots[number + 1 :]:
            is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            above, below = sorted((one, other), key=lambda spot: spot.y)
            assert is_beside or above.y + above.height + DOWN <= below.y + EXACT


@settings(max_examples=often(60), deadline=None)
@given(graphs())
def test_arrows_begin_and_end_at_their_boxes_and_cross_no_other(
    graph: tuple[dict[str, Size], dict[str, list[str]]],
) -> None:
    sizes, after = graph
    layout = lay_out(sizes, after)
    assert set(layout.ways) == {(one, name) for name, others in after.items() for one in others}
    for (one, name), points in layout.ways.items():
        start, end = layout.spots[one], layout.spots[name]
        assert points[0] == (start.x + start.width, start.middle)
        assert points[-1] == (end.x, end.middle)
        for x, y in points[1:-1]:
            assert not any(
                spot.x <= x <= spot.x + spot.width and spot.y < y < spot.y + spot.height
                for spot in layout.spots.values()
            )


def test_a_row_of_boxes_is_straight_and_a_fork_lies_around_its_beginning() -> None:
    row = laid_out("ab", "bc")
    assert len({spot.middle for spot in row.spots.values()}) == 1
    fork = laid_out("ab", "ac").spots
    assert abs(fork["b"].middle + fork["c"].middle - 2 * fork["a"].middle) < EXACT


def test_an_arrow_over_a_column_goes_around_the_box_there() -> None:
    layout = laid_out("ab", "bc", "ac")
    _, *crossing, _ = layout.ways["a", "c"]
    box = layout.spots["b"]
    assert [x for x, _ in crossing] == [box.x, box.x + box.width]
    assert all(not box.y <= y <= box.y + box.height for _, y in crossing)


def test_arrows_that_need_not_cross_do_not() -> None:
    spots = laid_out("ac", "ad", "be", "bf", "cg", "dg", "eh", "fh").spots
    above = spots["a"].y < spots["b"].y
    assert all((spots[one].y < spots[other].y) == above for one in "cdg" for other in "efh" if one != "g")
