"""Storms over queues, seed by seed: what holds in them, and what they find in a node that errs."""

from __future__ import annotations

from typing import Any

import pytest
from effort import often

from tidings.protocol.broker import Broker
from tidings.protocol.ledger import Ledger
from tidings.protocol.publications import Publications
from tidings.queues import inflight, queue, transactions
from tidings.queues.groups import Groups
from tidings.queues.inflight import InFlightTable
from tidings.queues.service import QueueService
from tidings.simulator import queue_storm
from tidings.simulator.node import EPOCH_S, SimulatedNode
from tidings.simulator.queue_storm import QueueStorm

HOUR_S = 3_600.0
SEEDS = range(often(12))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_or_in_two_hands_and_a_transaction_is_whole(seed: int) -> None:
    verdict = queue_storm(seed)
    assert verdict.accepted
    assert verdict.settled


def test_much_of_what_can_happen_does() -> None:
    verdicts = [queue_storm(seed, 10.0) for seed in range(1_000_000, 1_000_010)]
    for name in ("refused", "handed", "marked", "committed", "faults"):
        assert sum(getattr(verdict, name) for verdict in verdicts) > 10, name


def test_clocks_are_set_ahead_and_back_in_some_storms() -> None:
    set_s: list[float] = [0.0]
    for seed in range(300):
        run = QueueStorm(seed)
        run.rage(5.0)
        set_s += [float(line.split()[-1]) for line in run.world.notes if " fault clock " in line]
        if min(set_s) < -HOUR_S and max(set_s) > HOUR_S:
            return
    pytest.fail(f"clocks were set within {min(set_s)} and {max(set_s)} s only")


def test_the_same_seed_is_the_same_storm_and_another_one_is_not() -> None:
    first, second, other = queue_storm(7, 5.0), queue_storm(7, 5.0), queue_storm(8, 5.0)
    assert first == second
    assert first.trace != other.trace


@pytest.mark.parametrize("seed", range(10))
def test_a_storm_leaves_no_transaction_and_no_lock_behind(seed: int) -> None:
    run = QueueStorm(seed)
    run.rage()
    run.calm()
    (service,) = (one for one in run.node.broker.services if isinstance(one, QueueService))
    assert not any(service._transactions._begun.values())
    assert not any(one.locks for one in run.node.queues)


def passing_over(*_arguments: Any, **_named: Any) -> None:
    """Do nothing, where something should be done."""


def count_nothing(_self: Ledger, _origin: Any, _counter: int) -> int:
    return 0


def finish_as_if_given_back(self: queue.MessageQueue, held: Any) -> None:
    self.give_back(held)


def give_back_unopened(
    self: queue.MessageQueue, held: Any, _counts: bool = True, *_more: Any, **_named: Any
) -> None:
    GIVE_BACK(self, held, False)


def hand_without_holding(self: queue.MessageQueue, held: Any) -> None:
    """Let others have it a moment later; when it comes back, have the shelf not find that out."""
    TAKE_UP(self, held)
    shelf, message = self.shelf, held.message

    def add(key: int, item: Any, order: int) -> None:
        if key not in shelf:
            type(shelf).add(shelf, key, item, order)

    shelf.add = add  # type: ignore[method-assign]
    self._manager.timers.at(
        self._broker.now + 0.01, lambda _now: self.held.get(message.number) is held and self.place(message)
    )


def enter_out_of_turn(self: Groups, message: Any, name: str) -> bool:
    self.hold(message.number, name)
    return True


def stay_locked(_self: transactions.Locks, _number: int, ended: transactions.OpenTransaction) -> bool:
    ended.is_over = False
    return False


def resume_with_nothing(self: Publications, counter: int, window: int, is_same_boot: bool) -> None:
    self._stream.cut()
    self._waiting.clear()
    RESUME(self, counter, window, is_same_boot)


def time_by_the_wall_clock(self: SimulatedNode) -> float:
    self.broker.now, self.broker.shift = EPOCH_S + self.ahead_s + self.world.clock.now, 0.0
    return self.broker.now


RESUME = Publications.resume
GIVE_BACK = queue.MessageQueue.give_back
TAKE_UP = queue.MessageQueue.take_up
FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "promises too early": (Broker, "promise", property(lambda _self: 0), "is accepted|on disk|is safe"),
    "hands out what is settled": (queue.MessageQueue, "finish", finish_as_if_given_back, "on disk|left"),
    "does not mark": (queue.MessageQueue, "give_back", give_back_unopened, "is not marked"),
    "hands out twice": (queue.MessageQueue, "take_up", hand_without_holding, "two hands|left again"),
    "takes back too early": (inflight, "RESUME_S", -1.0, "in two hands|left again"),
    "keeps no turns": (Groups, "enter", enter_out_of_turn, "of group"),
    "never takes back": (InFlightTable, "_take_back", passing_over, "in flight"),
    "forgets what it has counted": (Ledger, "count_up", count_nothing, "twice|refused, and came"),
    "loses what was put in a transaction": (
        transactions.OpenTransaction, "puts", property(lambda _self: []), "not on disk|dealt with",
    ),
    "has a client that sends nothing again": (
        Publications, "resume", resume_with_nothing, "not on disk|dealt with",
    ),
    "leaves locks behind": (transactions.Locks, "remove", stay_locked, "are there"),
    "goes by the wall clock": (
        SimulatedNode, "time", time_by_the_wall_clock, "two hands|in flight|its time|left again|believes",
    ),
}  # fmt: skip


def storms(count: int) -> None:
    for seed in range(count):
        queue_storm(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_errs_is_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong, finding = FAULTS[fault]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError, match=finding) as failed:
        storms(20)
    (note,) = failed.value.__notes__
    assert note.startswith("seed ")
