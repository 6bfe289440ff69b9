"""Groups of agents in virtual time: what must hold does, and mistakes that are built in are found."""

from __future__ import annotations

import pytest
from effort import SEED, often

from tidings.simulator.agents import FAULTS, AgentFault, SwarmFailure, detection_costs, swarm


def test_no_useful_agent_ends_no_orphan_outlives_its_bound_and_the_money_adds_up() -> None:
    for seed in range(SEED, SEED + often(50, at_least=20)):
        report = swarm(seed)
        assert report.orphan_s_max <= report.bound_s


def test_a_larger_swarm_over_many_locations() -> None:
    assert swarm(SEED, agents=100, locations=30).agents > 50


@pytest.mark.parametrize("fault", [one for one in FAULTS if one])
def test_a_mistake_that_is_built_in_is_found(fault: AgentFault) -> None:
    def look() -> None:
        for seed in range(60):
            swarm(seed, fault=fault)

    with pytest.raises(SwarmFailure, match=r"seed \d+: "):
        look()


def test_a_run_is_repeated_by_its_seed() -> None:
    assert swarm(7) == swarm(7)


@pytest.mark.parametrize("participants", [1, 2, 10, 100])
def test_the_costs_are_those_of_the_formulas(participants: int) -> None:
    for cost in detection_costs(participants, survivors=participants - 1, hops=3):
        assert cost.counted == cost.formula, cost.way
