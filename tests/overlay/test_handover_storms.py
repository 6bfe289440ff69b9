"""Clients that move in networks that lose links and nodes: each event is delivered once, in its order.

The checker is tried on built-in faults: what was had not told apart, at the node and at the client, and a
former node that does not wait for what is on its way to it.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from effort import SEED, often
from overlay.network import Listening, Network

from tidings.errors import TidingsError
from tidings.overlay.waiting import Settling
from tidings.protocol.arrivals import _WaitingCursor
from tidings.protocol.subscriber import ClientSubscription
from tidings.replies import resolved

NODES = "1234"
STEPS = 40
END_S = 90.0
FAULT_RUNS = 20
"""Runs in which a built-in fault must show."""


class Storm:
    """Two movers that publish and subscribe, and one who stays; `calm`: links and nodes stay, too."""

    def __init__(self, seed: int, calm: bool) -> None:
        self.chance = chance = random.Random(seed)
        edges = {(chance.choice(NODES[:place]), name) for place, name in enumerate(NODES) if place}
        others = [edge for edge in combinations(NODES, 2) if edge not in edges]
        self.edges = sorted(edges | set(chance.sample(others, chance.choice((0, 1)))))
        self.net = Network(*self.edges, seed=seed, reroute_s=2.0)
        self.apps = {name: self.net.app(chance.choice(NODES), name) for name in ("m", "n", "stays")}
        self.got = {name: app.subscribe("x > 0", durable="d") for name, app in self.apps.items()}
        self.live = {name: app.subscribe("x > 0") for name, app in self.apps.items()}
        self.net.run(3.0)
        self.calm = calm
        self.sent = 0
        self.done = 0
        self.cuts: list[tuple[str, str]] = []
        self.moving: set[str] = set()

    def run(self) -> None:
        """Let things happen, then heal all and check what came."""
        for _ in range(STEPS):
            self.happen()
            for _ in range(self.chance.choice((1, 5, 20))):
                self.sent += 1
                app = self.chance.choice(list(self.apps.values()))
                app.publish(self.sent)
                self.net.run(self.chance.choice((0.0, 0.01, 0.05)))
            self.net.run(self.chance.choice((0.0, 0.2, 1.0, 3.0)))
        for edge in self.cuts:
            self.net.heal(*edge)
        self.net.run(END_S)
        self.check()

    def happen(self) -> None:
        match self.chance.choice(("move", "move", "move", "cut", "heal", "crash")):
            case "move":
                self.move(self.chance.choice(("m", "n")), self.chance.choice(NODES))
            case "cut" if not self.calm and not self.cuts:
                self.cuts.append(self.chance.choice(self.edges))
                self.net.cut(*self.cuts[-1])
            case "heal" if self.cuts:
                self.net.heal(*self.cuts.pop())
            case "crash" if not self.calm:
                node = self.net[self.chance.choice(NODES)]
                node.crash()
                self.net.run(self.chance.choice((0.1, 0.5, 5.0)))
                node.start()
            case _:
                pass

    def move(self, name: str, to: str) -> None:
        app = self.apps[name]
        if name in self.moving:
            return
        self.moving.add(name)
        app.follows = True

        def over(outcome: Any) -> None:
            self.moving.discard(name)
            self.done += outcome is None
            assert outcome is None or isinstance(outcome, TidingsError)

        app.connection.move(to).then(over, over)
        app.pump()

    def check(self) -> None:
        published = self.published()
        for name, listening in self.got.items():
            self.check_one(name, listening, published)
        if self.calm:
            for name, listening in self.live.items():
                self.check_one(f"{name} (live)", listening, published)

    def published(self) -> dict[str, list[int]]:
        """The events of each publisher, in its order, by its own copy at the one who stays."""
        by_source: dict[str, list[int]] = {}
        for event in self.got["stays"].got:
            assert event.origin is not None
            by_source.setdefault(event.origin.system or "", []).append(event["x"])
        assert sorted(one for values in by_source.values() for one in values) == list(range(1, self.sent + 1))
        return by_source

    def check_one(self, name: str, listening: Listening, published: dict[str, list[int]]) -> None:
        for system, values in published.items():
            found = [one["x"] for one in listening.got if one.origin and one.origin.system == system]
            lost, twice = sorted(set(values) - set(found)), [one for one in found if found.count(one) > 1]
            assert not lost, (name, system, "lost", lost)
            assert not twice, (name, system, "twice", sorted(set(twice)))
            assert found == sorted(found), (name, system, "order")


@pytest.mark.parametrize("seed", range(SEED, SEED + often(20, at_least=8)))
def test_clients_that_move_get_each_event_once_and_in_order(seed: int) -> None:
    storm = Storm(seed, calm=True)
    storm.run()
    assert storm.done


@pytest.mark.parametrize("seed", range(SEED, SEED + often(30, at_least=12)))
def test_durable_subscriptions_move_through_any_weather(seed: int) -> None:
    Storm(seed, calm=False).run()


def does_not_tell_apart(patch: pytest.MonkeyPatch) -> None:
    really = _WaitingCursor.finish
    patch.setattr(_WaitingCursor, "finish", lambda self, _had: really(self, {}))


def does_not_recognise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientSubscription, "move", ClientSubscription.forget_positions)


@pytest.mark.parametrize("fault", [does_not_tell_apart, does_not_recognise])
def test_the_checker_finds_built_in_faults(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    for seed in range(SEED, SEED + FAULT_RUNS):
        try:
            Storm(seed, calm=True).run()
        except AssertionError:
            return
    pytest.fail("no run has found it")


def moved_behind_a_slow_disk() -> list[int]:
    """What a mover gets if much waits for its node when it moves, at a neighbour that reads slowly."""
    net = Network(("a", "d"), ("b", "d"), ("c", "d"), reroute_s=60.0)
    app, publisher = net.app("a", "m"), net.app("c", "p")
    got = app.subscribe("x > 0", durable="d")
    net.run()
    net.cut("a", "d")
    publisher.publish(*range(1, 21))
    net.run(1.0)
    net["d"].read_s = 5.0
    net.heal("a", "d")
    while not net.neighbour("a", "d").is_up:
        net.run(0.01)
    told: list[Any] = []
    app.follows = True
    while told[-1:] != [None]:  # the link may break once more, as nothing came over it while it was cut
        tried = len(told)
        app.connection.move("b").then(told.append, told.append)
        app.pump()
        while len(told) == tried:
            net.run(0.1)
    net.run(30.0)
    publisher.publish(21)
    net.run()
    return got.values


def test_a_node_waits_for_what_is_on_its_way_to_it_before_it_hands_a_client_over() -> None:
    assert moved_behind_a_slow_disk() == list(range(1, 22))


def test_events_on_their_way_would_be_lost_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settling, "wait", lambda _self, _neighbour: resolved(None))
    assert moved_behind_a_slow_disk() != list(range(1, 22))
