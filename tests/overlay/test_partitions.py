"""A network that falls into parts of equal size: each goes on alone, and all meet without a restart."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from overlay.network import Network

NAMES = "abcdef"
RING = [*pairwise(NAMES), ("f", "a")]


@pytest.mark.parametrize("parts", [["abc", "def"], ["ab", "cd", "ef"], ["ad", "be", "cf"]])
def test_parts_of_equal_size_go_on_alone_and_have_everything_when_they_meet(parts: list[str]) -> None:
    """In the last case no two nodes of a part were neighbours: they find each other."""
    net = Network(*RING, settle_s=10.0, reroute_s=1.0)
    got = {name: net.app(name).subscribe(f"of = '{name}' OR x >= 0", durable="d") for name in NAMES}
    apps = {name: net.app(name) for name in NAMES}
    net.run(5.0)
    apart = [(one, other) for left, right in combinations(parts, 2) for one in left for other in right]
    for pair in apart:
        net.cut(*pair)
    for name, app in apps.items():
        app.publish(ord(name))
    net.run(120.0)
    for part in parts:
        for name in part:
            assert sorted(got[name].values) == sorted(map(ord, part)), f"{name} of {parts}"
    for pair in apart:
        net.heal(*pair)
    for name, app in apps.items():
        app.publish(1_000 + ord(name))
    net.run(200.0)
    for name in NAMES:
        assert sorted(got[name].values) == sorted([*map(ord, NAMES), *(1_000 + ord(one) for one in NAMES)])
        for of in NAMES:
            mine = [value for value in got[name].values if value % 1_000 == ord(of)]
            assert mine == [ord(of), 1_000 + ord(of)]
