"""Storms: the node's and the client's cores under every fault at once, seed by seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from effort import often

from tidings.protocol import broker, consumer, cursors, stored_consumer
from tidings.simulator import World, storm

SEEDS = range(often(12))
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that they are reached in a short storm."""
    monkeypatch.setattr(stored_consumer, "HANDED_AHEAD", 3)
    monkeypatch.setattr(cursors, "TRIM_AFTER", 10)
    monkeypatch.setattr(consumer, "WAITING_MAX", 20)


@pytest.mark.parametrize("seed", [*SEEDS, 57])  # 57: a subscription that arrives after its client was killed
def test_nothing_promised_is_lost_nothing_comes_twice_unmarked_and_order_holds(
    seed: int, narrow: None
) -> None:
    storm(seed)


def test_a_storm_with_the_limits_as_they_are_is_weathered_too() -> None:
    verdict = storm(1_000_003)
    assert verdict.promised > 0
    assert verdict.faults > 0


def test_the_same_seed_is_the_same_storm_and_another_one_is_not() -> None:
    first, second, other = storm(7, 5.0), storm(7, 5.0), storm(8, 5.0)
    assert first == second
    assert first.trace != other.trace


def test_a_seed_means_the_same_in_another_process() -> None:
    code = "from tidings.simulator import storm; print(storm(7, 5.0).trace)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert traces == {storm(7, 5.0).trace}


def test_a_storm_that_fails_tells_its_seed_and_what_happened_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.Broker, "promise", property(lambda _self: 0))
    with pytest.raises(AssertionError, match="is safe") as failed:
        storm(7)
    (note,) = failed.value.__notes__
    assert note.startswith("seed 7; the last that happened:")
    assert "subscribed" in note


def test_a_world_keeps_the_newest_notes_and_a_digest_of_all() -> None:
    world = World(1)
    digests = {world.trace}
    for number in range(500):
        world.note("someone", "did", number)
        digests.add(world.trace)
    assert len(digests) == 501
    assert len(world.notes) < 500
    assert world.notes[-1] == "0.000000 someone did 499"
