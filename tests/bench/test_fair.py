"""The canary: whatever one client does within the limits, another one gets its answers.

One node for all rows, without security and with it; another one takes its place if it does not recover. With
HYPOTHESIS_PROFILE=soak the rows have their whole sizes, and a node with compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tidings.bench import fair
from tidings.bench.arena import Pace
from tidings.bench.fair_rows import ROWS
from tidings.node import compiled

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
ANSWER_S = 15.0 if IS_SOAK else 5.0
"""An answer that takes longer counts as lost: generous, as machines that run tests are busy."""
MEMORY_MB_MAX = fair.MEMORY_MB if IS_SOAK else 100.0
"""What a row may leave in the memory of a node, caches of the allocator and all."""
EVIDENCE = {
    "leave": "left",
    "never reads": "sent",
    "arrays": "sent",
    "replay": "readers",
    "latest": "accepted events",
    "fan-out": "accepted events",
    "fan-out sessions": "accepted events",
}
"""What shows that a row has been done; of the others, requests that were answered."""


@pytest.fixture(scope="module", params=[False, True], ids=["without users", "with users"])
def keeper(request: pytest.FixtureRequest) -> Iterator[tuple[fair.ArenaKeeper, bool]]:
    """One node for all rows, with its good clients."""
    secured: bool = request.param
    pace = Pace(part=1 / 3 if IS_SOAK else 1 / 30, answer_s=ANSWER_S)
    with fair.ArenaKeeper(secured, IS_SOAK and compiled.is_installed(), pace) as kept:
        yield kept, secured


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_good_client_gets_its_answers_whatever_another_does(
    keeper: tuple[fair.ArenaKeeper, bool], name: str
) -> None:
    arenas, secured = keeper
    arena = arenas.get(ROWS[name])
    found = fair.run_row(arena, ROWS[name], secured, quick=not IS_SOAK)
    seen, tally = found.outcome, found.outcome.tally
    assert name == "idle" or tally[EVIDENCE.get(name, "answered")] > 0, tally
    assert seen.asked > 0
    assert seen.unanswered == 0, f"the canary was not answered: {found.line}"
    assert seen.share is not None, "the node has sent a good publisher away"
    assert arena.wait_well(ANSWER_S), "the node does not serve any more"
    assert seen.memory_after_mb - seen.memory_before_mb < MEMORY_MB_MAX, found.line
