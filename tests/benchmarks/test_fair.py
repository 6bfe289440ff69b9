"""The canary: whatever one client does within the limits, another one gets its answers.

One node for all rows, without security and with it; another one takes its place if it does not recover. With
TIDINGS_EFFORT above 1 the rows have their whole sizes, and a node with compiled code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from effort import IS_SOAK, patience
from typer.testing import CliRunner

from benchmarks import arena, fair
from benchmarks.arena import Outcome, Pace
from benchmarks.fair_rows import ROWS
from benchmarks.steady import Kept
from tidings.cli.app import app
from tidings.errors import UserError
from tidings.node import compiled

ANSWER_S = patience(15.0 if IS_SOAK else 5.0)
"""An answer that takes longer counts as lost: generous, as machines that run tests are busy."""
ATTACK_S = patience(10.0)
"""The most that a row may take in its quick size; on a quiet machine none takes a third of it."""
RATE_S = 0.8
"""How long the rate of the node is looked for, at full load; here it need not be found well."""
MEMORY_MB_MAX = fair.MEMORY_MB if IS_SOAK else 100.0
"""What a row may leave in the memory of a node, caches of the allocator and all."""
LOADED_MB = {} if IS_SOAK else {"collapses": 60.0}
"""What libraries take beside that, which a node loads with the first such request."""
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


LIMITS = ("limit", "incomplete", "queue-not-found", "protocol", "event not-yours")
"""Refusals that rows meet: limits and what follows one, a queue that is not there, what is bad by intent."""


SETTINGS = {"with users": True} if not IS_SOAK else {"without users": False, "with users": True}
"""Whether the node has users: then a share is a user's, otherwise a session's."""


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS.keys())
def keeper(request: pytest.FixtureRequest) -> Iterator[tuple[fair.ArenaKeeper, bool]]:
    """One node for all rows, with its good clients."""
    secured: bool = request.param
    pace = Pace(part=1 / 3 if IS_SOAK else 1 / 30, answer_s=ANSWER_S)
    with (
        pytest.MonkeyPatch.context() as patch,
        fair.ArenaKeeper(secured, IS_SOAK and compiled.is_installed(), pace) as kept,
    ):
        patch.setattr(fair, "QUICK_ATTACK_S", ATTACK_S)
        patch.setattr(arena, "RATE_S", arena.RATE_S if IS_SOAK else RATE_S)
        yield kept, secured


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_good_client_gets_its_answers_whatever_another_does(
    keeper: tuple[fair.ArenaKeeper, bool], name: str
) -> None:
    arenas, secured = keeper
    made = arenas.get(ROWS[name])
    found = fair.run_row(made, ROWS[name], secured, quick=not IS_SOAK)
    seen, tally = found.outcome, found.outcome.tally
    assert name == "idle" or tally[EVIDENCE.get(name, "answered")] > 0, tally
    refused = {key for key in tally if key.startswith("refused ")} - {f"refused {code}" for code in LIMITS}
    assert not refused, f"the row was not done as it was meant: {tally}"
    assert seen.asked > 0
    assert seen.unanswered == 0, f"the canary was not answered: {found.line}"
    assert seen.share is not None, "the node has sent a good publisher away"
    assert made.wait_well(ANSWER_S), "the node does not serve any more"
    left_mb = seen.memory_after_mb - seen.memory_before_mb
    assert left_mb < MEMORY_MB_MAX + LOADED_MB.get(name, 0.0), found.line


def outcome(**changes: Any) -> Outcome:
    """What is seen where all is well, but for the changes."""
    well = Outcome(
        longest_s=0.01,
        unanswered=0,
        longest_store_s=0.02,
        unstored=0,
        asked=100,
        share=1.0,
        took_s=1.0,
        tally=Counter(answered=3),
        memory_before_mb=100.0,
        memory_peak_mb=120.0,
        memory_after_mb=110.0,
        starved_s=0.0,
    )
    return replace(well, **changes)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"longest_s": 0.251}, ["round trip"]),
        ({"unanswered": 1}, ["round trip"]),
        ({"share": 0.94}, ["share"]),
        ({"share": None}, ["share"]),
        ({"unstored": 1}, ["stored"]),
        ({"memory_peak_mb": 613.0}, ["memory"]),
    ],
)
def test_each_goal_that_was_not_reached_is_named(changes: dict[str, Any], missed: list[str]) -> None:
    found = fair.Found(ROWS["idle"], False, 1e6, outcome(**changes))
    assert found.missed == missed
    assert (", ".join(missed) or "reached") in found.line


def test_an_outcome_is_json_with_its_tally() -> None:
    told = fair.Found(ROWS["idle"], True, 1e6, outcome()).as_dict()
    assert json.loads(msgspec.json.encode(told)) == told
    assert told["tally"] == {"answered": 3}


def test_each_row_has_the_same_sizes_whole_and_quick_and_none_is_larger_quick() -> None:
    for row in ROWS.values():
        assert row.sizes.keys() == row.quick.keys()
        assert all(row.quick[name] <= size for name, size in row.sizes.items())


def test_the_part_of_its_rate_that_a_publisher_keeps_is_one_at_the_most() -> None:
    assert Kept(due=0, done=0).share == 1.0
    assert Kept(due=100, done=95).share == 0.95
    assert Kept(due=100, done=120).share == 1.0


def test_the_command_lists_its_rows_and_refuses_one_that_there_is_not() -> None:
    listed = CliRunner().invoke(app, ["bench", "fair", "--rows"])
    assert all(name in listed.output for name in ROWS)
    refused = CliRunner().invoke(app, ["bench", "fair", "--only", "nothing"])
    assert isinstance(refused.exception, UserError)
    assert "--only: 'nothing' is not one of idle, interest" in str(refused.exception)
