"""Groups of agents in virtual time: what must hold does, and mistakes that are built in are found."""

from __future__ import annotations

from typing import get_args

import pytest
from effort import SEED, often

from tidings.simulator.agent_costs import detection_costs
from tidings.simulator.agents import AgentFault, SwarmFailure, swarm


def test_no_useful_agent_ends_no_orphan_outlives_its_bound_and_the_money_adds_up() -> None:
    """10,000 runs in the long run; a third of them have agents that compute for ten leases."""
    reasons = set()
    for seed in range(SEED, SEED + often(1_000)):
        report = swarm(seed)
        assert report.orphan_s_max <= report.bound_s
        assert report.ended_s_max <= report.ended_bound_s
        reasons.add(report.reason)
    assert reasons == {"condition", "time"}


def test_a_thousand_agents_over_a_hundred_locations_end_within_a_delay_and_grace() -> None:
    report = swarm(SEED, agents=1_000, locations=100)
    assert report.agents > 800
    assert 0 < report.ended_s_max <= report.ended_bound_s == 7
    assert report.orphan_s_max <= report.bound_s == 35


@pytest.mark.parametrize("fault", [one for one in get_args(AgentFault) if one])
def test_a_mistake_that_is_built_in_is_found(fault: AgentFault) -> None:
    def look() -> None:
        for seed in range(60):
            swarm(seed, fault=fault)

    with pytest.raises(SwarmFailure, match=r"\(seed \d+\)"):
        look()


def test_a_run_is_repeated_by_its_seed() -> None:
    assert swarm(7) == swarm(7)


@pytest.mark.parametrize("participants", [1, 2, 10, 100])
def test_the_costs_are_those_of_the_formulas(participants: int) -> None:
    for cost in detection_costs(participants, survivors=participants - 1, hops=3):
        assert cost.counted == cost.formula, cost.way
