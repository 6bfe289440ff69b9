"""Storms over channels find the mistakes that are built in."""

from __future__ import annotations

import pytest

from tidings.channels.description import ChannelOrder
from tidings.simulator.channel_faults import CHANNEL_FAULTS, ChannelFault
from tidings.simulator.channel_storm import ChannelPlan, channel_storm

FOUND: list[tuple[ChannelFault, ChannelOrder, int]] = [
    ("twice", "fifo", 0),
    ("had-again", "total", 2),
    ("unnamed", "causal", 10),
    ("early-release", "causal", 10),
    ("lone-sequencer", "total", 3),
    ("early-arrival", "total", 3),
]
"""Faults, an order for which each is found, and the seed of a storm that finds it."""
FOUND_WITHIN = 40
"""Further storms in which each must show, if what nodes do by chance has changed since."""


@pytest.mark.parametrize("seed", [107, 110, 142])
def test_a_member_that_was_cut_off_gets_what_was_kept_for_it_by_another_node(seed: int) -> None:
    """Its node had joined over a link that was cut, and did not join again when that was back."""
    verdict = channel_storm(seed, 30.0, ChannelPlan("causal"))
    assert verdict.delivered == 3 * verdict.sent


@pytest.mark.parametrize(("fault", "order", "seed"), FOUND)
def test_a_built_in_mistake_is_found_and_gone_afterwards(
    fault: ChannelFault, order: ChannelOrder, seed: int
) -> None:
    def storms() -> None:
        for one in (seed, *range(FOUND_WITHIN)):
            channel_storm(one, 30.0, ChannelPlan(order), fault)

    with pytest.raises(AssertionError, match=r"got|order"):
        storms()
    assert channel_storm(3, 5.0, ChannelPlan(order)).sent


def test_each_mistake_is_tried() -> None:
    assert {fault for fault, _, _ in FOUND} == {*CHANNEL_FAULTS} - {""}
