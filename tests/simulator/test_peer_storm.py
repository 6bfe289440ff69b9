"""Storms over several nodes, seed by seed: what holds in them, and what they find in nodes that err."""

from __future__ import annotations

from typing import Any

import pytest
from effort import often

from tidings.log.sinks import Sinks
from tidings.peers.dialling import OutboundConnection
from tidings.peers.outbound_stream import OutboundStream
from tidings.peers.peer_client import PeerClient
from tidings.protocol.broker import Broker
from tidings.protocol.ledger import Ledger
from tidings.simulator import peer_storm
from tidings.simulator.peer_storm import PeerStorm

SEEDS = range(often(6))
SHORT_S = 6.0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_accepted_at_any_node_is_dealt_with_once_wherever_it_is(seed: int) -> None:
    verdict = peer_storm(seed)
    assert verdict.accepted
    assert verdict.settled


def test_much_of_what_can_happen_does() -> None:
    verdicts = [peer_storm(seed, SHORT_S) for seed in range(1_000_000, 1_000_005)]
    for name in ("forwarded", "handed", "published", "batches", "faults"):
        assert sum(getattr(verdict, name) for verdict in verdicts) > 10, name
    assert max(verdict.dialled for verdict in verdicts) > 6  # more than once for each


def test_the_same_seed_is_the_same_storm_and_another_one_is_not() -> None:
    first, second, other = peer_storm(7, 3.0), peer_storm(7, 3.0), peer_storm(8, 3.0)
    assert first == second
    assert first.trace != other.trace


def test_the_nodes_of_a_storm_have_a_log_and_sinks_and_know_each_other() -> None:
    run = PeerStorm(1, 3)
    for node in run.nodes:
        told = node.broker.status()
        assert [one["state"] for one in told["peers"]] == ["there", "there"]
        assert {"log", "sinks", "forwarding"} <= told.keys()


def count_nothing(_self: Ledger, _origin: Any, _counter: int) -> int:
    return 0


def settle_all(self: OutboundStream) -> None:
    """Take what was under way for had, when the way there breaks."""
    for held in self.stream.cut():
        self._forwarder.outgoing.settle_held(held, None)


def pass_over(*_arguments: Any, **_named: Any) -> None:
    """Do nothing, where something should be done."""


def rest_for_ever(self: OutboundConnection, problem: str, verdict: Any = None) -> None:
    LOST(self, problem, verdict)
    self._dialling.timers.cancel(self._timer)


def publish_some(self: Sinks, session: Any, origin: Any, pieces: list[Any]) -> None:
    PUBLISH(self, session, origin, [] if pieces[0].number % 3 else pieces)


LOST = OutboundConnection.lost
PUBLISH = Sinks._publish
FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "promises too early": (Broker, "promise", property(lambda _self: 0), "is safe|dealt with|twice|logged"),
    "forgets what it has counted": (Ledger, "count_up", count_nothing, "is safe|twice"),
    "takes what it has sent for had": (OutboundStream, "give_back", settle_all, "dealt with"),
    "drops acknowledgements of peers": (PeerClient, "_settle_accepted", pass_over, "still waits"),
    "does not dial again": (OutboundConnection, "lost", rest_for_ever, "are there|gets it|still waits"),
    "publishes a batch in part": (Sinks, "_publish", publish_some, "are logged"),
}  # fmt: skip


def storms(count: int) -> None:
    for seed in range(count):
        peer_storm(seed, SHORT_S)


@pytest.mark.parametrize("fault", FAULTS)
def test_nodes_that_err_are_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong, finding = FAULTS[fault]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError, match=finding) as failed:
        storms(20)
    (note,) = failed.value.__notes__
    assert note.startswith("seed ")
