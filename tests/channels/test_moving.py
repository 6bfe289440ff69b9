"""Members that move: whatever is on its way, each of them gets each event of the channel once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from channels.test_trees import create, join, lists, send
from effort import SEED, often
from msgspec.structs import replace
from overlay.network import App, Listening, Network

from tidings.errors import MoveRefused

SLOW_S = 1.0
"""Delay of the link between the centre and A; all others have next to none."""


def delay(net: Network, one: str, other: str, seconds: float) -> None:
    """Let a link take so long."""
    link = net.world.network.link(one, other)
    link.conditions = replace(link.conditions, delay_s=seconds)


class Star:
    """Centre D; the agent at A, others at B and C, all of them members."""

    def __init__(self, **more: Any) -> None:
        self.net = Network(("a", "d"), ("b", "d"), ("c", "d"), suspect_s=30.0, reroute_s=60.0)
        self.apps = {name: self.net.app(name, f"at-{name}") for name in "abc"}
        self.channel = create(self.net, self.apps["c"], delivery="reliable")
        self.members = {
            name: join(self.net, app, self.channel, **({"durable": name} if more else {}))
            for name, app in self.apps.items()
        }
        delay(self.net, "a", "d", SLOW_S)

    def move(self, name: str, to: str) -> list[Any]:
        told: list[Any] = []
        self.apps[name].follows = True
        self.apps[name].connection.move(to).then(told.append, told.append)
        self.apps[name].pump()
        return told

    def send(self, name: str, *values: int) -> None:
        send(self.apps[name], self.channel, *values)

    @property
    def got(self) -> list[list[int]]:
        return [one.values for one in self.members.values()]


@pytest.fixture(params=[False, True], ids=["live", "durable"])
def star(request: pytest.FixtureRequest) -> Star:
    return Star(**({"durable": True} if request.param else {}))


def test_an_event_on_its_way_to_the_former_node_comes_once(star: Star) -> None:
    star.send("c", 1)
    star.net.run(0.03)
    told = star.move("a", "b")
    star.net.run(0.01)
    star.send("a", 2)
    star.net.run(20.0)
    assert told == [None]
    assert star.apps["a"].node is star.net["b"]
    assert [sorted(one) for one in star.got] == [[1, 2]] * 3
    assert lists(star.net, star.channel) == {"b": {"d"}, "c": {"d"}, "d": {"b", "c"}}


def test_a_member_moves_on_at_once_and_nothing_is_sent_on_the_way(star: Star) -> None:
    star.send("c", 1)
    star.net.run(0.03)
    told = star.move("a", "b")
    while not told:
        star.net.run(0.01)
    told += star.move("a", "c") or []
    star.net.run(20.0)
    assert star.apps["a"].node is star.net["c"]
    assert star.got == [[1]] * 3
    assert not any(star.net[name].broker.arrivals for name in "abcd")
    assert lists(star.net, star.channel) == {"b": {"d"}, "c": {"d"}, "d": {"b", "c"}}


def test_a_member_goes_and_comes_back(star: Star) -> None:
    star.send("c", 1)
    told = star.move("a", "b")
    while not told:
        star.net.run(0.01)
    star.send("b", 2)
    told = star.move("a", "a")
    star.send("c", 3)
    star.net.run(20.0)
    assert told == [None]
    assert [sorted(one) for one in star.got] == [[1, 2, 3]] * 3
    assert lists(star.net, star.channel)["a"] == {"d"}


def test_two_movers_and_one_who_stays(star: Star) -> None:
    second, stays = star.net.app("a", "second"), star.net.app("a", "stays")
    others = [join(star.net, app, star.channel, durable="x") for app in (second, stays)]
    star.apps["second"] = second
    star.net.run(5.0)
    star.send("c", 1)
    star.net.run(0.03)
    first = star.move("a", "b")
    star.net.run(0.5)
    star.send("c", 3)
    star.net.run(0.01)
    told = star.move("second", "b")
    star.net.run(30.0)
    assert first == told == [None]
    assert star.got == [[1, 3]] * 3
    assert [one.values for one in others] == [[1, 3]] * 2


@pytest.mark.parametrize("seed", range(SEED, SEED + often(20, at_least=8)))
def test_members_that_move_get_each_event_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    nodes = "1234"
    edges = sorted((chance.choice(nodes[:place]), name) for place, name in enumerate(nodes) if place)
    net = Network(*edges, seed=seed)
    apps = {name: net.app(chance.choice(nodes), name) for name in ("m", "n", "stays")}
    channel = create(net, apps["stays"], delivery="reliable")
    members: dict[str, Listening] = {
        f"{name}{kind}": join(net, app, channel, **({"durable": "d"} if kind else {}))
        for name, app in apps.items()
        for kind in ("", " durable")
    }
    for edge in edges:
        delay(net, *edge, chance.choice((0.001, 0.02, 0.2)))
    sent: dict[str, list[int]] = {name: [] for name in apps}
    moving: set[str] = set()
    for number in range(1, 151):
        name = chance.choice(("m", "n"))
        if chance.random() < 0.2 and name not in moving:
            begin(apps[name], chance.choice(nodes), name, moving)
        sender = chance.choice(list(apps))
        send(apps[sender], channel, number)
        sent[sender].append(number)
        net.run(chance.choice((0.0, 0.01, 0.1, 0.5)))
    net.run(60.0)
    for name, member in members.items():
        for sender, numbers in sent.items():
            assert [one for one in member.values if one in numbers] == numbers, (edges, name, sender)


def begin(app: App, to: str, name: str, moving: set[str]) -> None:
    moving.add(name)
    app.follows = True
    app.connection.move(to).then(lambda _none: moving.discard(name), lambda _error: moving.discard(name))
    app.pump()


@pytest.mark.parametrize("order", ["causal", "total"])
def test_a_member_for_whom_events_may_be_held_does_not_move(order: str) -> None:
    net = Network(("a", "b"))
    app = net.app("a")
    channel = create(net, app, delivery="reliable", order=order)
    join(net, app, channel)
    told: list[Any] = []
    app.connection.move("b").then(told.append, told.append)
    app.pump()
    net.run(5.0)
    (refused,) = told
    assert isinstance(refused, MoveRefused)
    assert "causal or total" in str(refused)
