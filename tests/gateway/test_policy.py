"""Gateways that share the world."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigError
from tidings.gateway.areas import AreaBox
from tidings.gateway.policy import GatewayGrid

MEMBERS = {name: f"{name}.example:4242" for name in "abcd"}
cells = st.tuples(st.integers(-50, 50), st.integers(-50, 50))


def test_a_place_lies_in_one_cell() -> None:
    grid = GatewayGrid(10, MEMBERS)
    assert grid.cell(0, 0) == (0, 0)
    assert grid.cell(9.99, 10) == (0, 1)
    assert grid.cell(-0.01, -10) == (-1, -1)


def test_cells_are_shared_out_evenly() -> None:
    grid = GatewayGrid(1, MEMBERS)
    shares = Counter(grid.members_of((x, y))[0] for x in range(40) for y in range(40))
    assert shares.keys() == MEMBERS.keys()
    assert all(300 < share < 500 for share in shares.values())


@given(cells, st.sampled_from("abcd"))
def test_when_a_gateway_leaves_only_its_own_cells_move(cell: tuple[int, int], leaver: str) -> None:
    before = GatewayGrid(1, MEMBERS).members_of(cell)[0]
    rest = {name: address for name, address in MEMBERS.items() if name != leaver}
    after = GatewayGrid(1, rest).members_of(cell)[0]
    assert after == before or before == leaver


def test_named_cells_go_to_who_is_named() -> None:
    grid = GatewayGrid(10, MEMBERS, {"a": [(0, 0)], "b": [(0, 1)]})
    assert grid.members_for("net", AreaBox(1, 1, 9, 9)) == ["a"]
    assert grid.members_for("net", AreaBox(1, 5, 9, 19)) == ["b"]


def test_a_network_without_an_area_goes_by_its_id() -> None:
    grid = GatewayGrid(10, MEMBERS)
    assert {grid.members_for(f"net {number}", None)[0] for number in range(100)} == MEMBERS.keys()
    assert grid.members_for("net 1", None) == GatewayGrid(77, dict(reversed(MEMBERS.items()))).members_for(
        "net 1", None
    )


@pytest.mark.parametrize(
    ("size", "members", "named"),
    [
        (0, MEMBERS, {}),
        (float("nan"), MEMBERS, {}),
        (1, {}, {}),
        (1, MEMBERS, {"z": [(0, 0)]}),
        (1, MEMBERS, {"a": [(0, 0)], "b": [(0, 0)]}),
    ],
)
def test_a_grid_that_can_not_be_is_refused(
    size: float, members: dict[str, str], named: dict[str, list[tuple[int, int]]]
) -> None:
    with pytest.raises(ConfigError):
        GatewayGrid(size, members, named)
