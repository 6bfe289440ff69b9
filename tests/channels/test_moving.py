"""Members that move: whatever is on its way, each of them gets each event of the channel once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from channels.test_trees import create, join, lists, send
from effort import SEED, often
from msgspec.structs import replace
from overlay.network import App, Listening, Network

from tidings.channels import service
from tidings.channels.causal import CausalOrder, ChannelArrival, OrderVerdict, encode_names, mark_of
from tidings.channels.description import ChannelOrder
from tidings.channels.ordering import Ordering
from tidings.channels.reaching import MISS_S, REACH_S, Reaching
from tidings.errors import Disconnected, TidingsError
from tidings.exchange import NodeSubscription
from tidings.overlay import handover
from tidings.overlay.carrying import HeldBack
from tidings.replies import resolved

SLOW_S = 1.0
"""Delay of the link between the centre and A; all others have next to none."""


def delay(net: Network, one: str, other: str, seconds: float) -> None:
    """Let a link take so long."""
    link = net.world.network.link(one, other)
    link.conditions = replace(link.conditions, delay_s=seconds)


class Star:
    """Centre D; the agent at A, others at B and C, all of them members."""

    def __init__(self, order: ChannelOrder = "fifo", seed: int = 1, **more: Any) -> None:
        edges = ("a", "d"), ("b", "d"), ("c", "d")
        self.net = Network(*edges, seed=seed, suspect_s=30.0, reroute_s=60.0)
        self.apps = {name: self.net.app(name, f"at-{name}") for name in "abc"}
        self.channel = create(self.net, self.apps["c"], delivery="reliable", order=order)
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


@pytest.fixture(params=["fifo", "causal", "total"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["live", "durable"])
def star(request: pytest.FixtureRequest, order: ChannelOrder) -> Star:
    return Star(order, **({"durable": True} if request.param else {}))


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
    star.net.run(30.0)
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


def cut_off_when_it_is_finished(order: ChannelOrder, seed: int, cut_s: float) -> tuple[Star, list[Any]]:
    """Let the node that a member leaves be cut off when the other one has all, before it answers."""
    star = Star(order, seed, durable=True)
    told = star.move("a", "b")
    while not any(one["name"] == "a" for one in star.net["b"].broker.status()["durables"]):
        star.net.run(0.1)
    arrival = next(iter(star.net["b"].broker.arrivals._arrivals.values()))
    while not arrival.is_finished:
        star.net.run(0.1)
    star.net.cut("a", "d")
    star.net.run(cut_s)
    star.net.heal("a", "d")
    star.net.run(60.0 + cut_s)
    return star, told


@pytest.mark.parametrize("cut_s", [5.0, 100.0])
def test_a_node_that_could_not_say_that_it_has_a_client_forgets_it_when_it_can_be_reached(
    order: ChannelOrder, cut_s: float
) -> None:
    cut_offs = (cut_off_when_it_is_finished(order, seed, cut_s) for seed in range(1, 20))
    star, told = next(one for one in cut_offs if one[1] != [None])  # of some the answer comes all the same
    assert isinstance(told[0], TidingsError)
    assert star.apps["a"].node is star.net["a"]
    assert [one["name"] for one in star.net["b"].broker.status()["durables"]] == ["b"]
    star.send("c", 1)
    star.net.run(20.0)
    assert star.got == [[1]] * 3


def test_a_move_that_is_over_is_not_taken_back_when_the_former_node_starts_again() -> None:
    star = Star(durable=True)
    told = star.move("a", "b")
    while not told:
        star.net.run(0.1)
    star.net["a"].crash()
    star.net["b"].crash()  # so the client is away when its subscription could be forgotten
    star.net["a"].start()
    assert not handover.UNSURE.known(star.net["a"].broker.state)
    star.net.run(5.0)
    star.net["b"].start()
    star.send("c", 1)
    star.net.run(20.0)
    assert told == [None]
    assert star.got == [[1]] * 3


@pytest.mark.parametrize("is_cut", [False, True], ids=["at once", "while it takes back"])
def test_a_node_that_ends_in_the_middle_of_a_move_takes_back_after_its_next_start(is_cut: bool) -> None:
    star = Star(durable=True)
    star.move("a", "b")
    while not star.net["b"].broker.arrivals:
        star.net.run(0.1)
    arrival = next(iter(star.net["b"].broker.arrivals._arrivals.values()))
    while not arrival.is_finished:
        star.net.run(0.1)
    if is_cut:
        star.net.cut("a", "d")
        star.net.run(30.0)
    star.net["a"].crash()
    star.net.run(5.0)
    star.net["a"].start()
    star.net.run(5.0)
    if is_cut:
        star.net.heal("a", "d")
    star.net.run(100.0)
    assert [one["name"] for one in star.net["b"].broker.status()["durables"]] == ["b"]
    star.net["a"].crash()
    star.net["a"].start()
    assert not handover.UNSURE.known(star.net["a"].broker.state)  # it is over for good
    star.net.run(5.0)
    star.send("c", 1)
    star.net.run(20.0)
    assert star.got == [[1]] * 3


@pytest.mark.parametrize("seed", range(SEED, SEED + often(20, at_least=4)))
def test_members_that_move_get_each_event_once_and_in_order(seed: int, order: ChannelOrder) -> None:
    chance = random.Random(seed)
    nodes = "1234"
    edges = sorted((chance.choice(nodes[:place]), name) for place, name in enumerate(nodes) if place)
    net = Network(*edges, seed=seed)
    apps = {name: net.app(chance.choice(nodes), name) for name in ("m", "n", "stays")}
    channel = create(net, apps["stays"], delivery="reliable", order=order)
    members: dict[str, Listening] = {
        f"{name}{kind}": join(net, app, channel, **({"durable": "d"} if kind else {}))
        for name, app in apps.items()
        for kind in ("", " durable")
    }
    for edge in edges:
        delay(net, *edge, chance.choice((0.001, 0.02, 0.2)))
    sent: dict[str, list[int]] = {name: [] for name in apps}
    past: dict[int, set[int]] = {}  # what the sender of an event had got or sent, and what came before that
    moving: set[str] = set()
    for number in range(1, 151):
        name = chance.choice(("m", "n"))
        if chance.random() < 0.2 and name not in moving:
            begin(apps[name], chance.choice(nodes), name, moving)
        sender = chance.choice(list(apps))
        known = [*members[sender].values, *sent[sender]]
        past[number] = {one for near in known for one in (near, *past[near])}
        send(apps[sender], channel, number)
        sent[sender].append(number)
        net.run(chance.choice((0.0, 0.01, 0.1, 0.5)))
    net.run(60.0)
    for name, member in members.items():
        for sender, numbers in sent.items():
            assert [one for one in member.values if one in numbers] == numbers, (edges, name, sender)
        if order == "total":
            assert member.values == members["stays"].values, (edges, name)
        for place, number in enumerate(member.values if order == "causal" else ()):
            assert past[number] <= set(member.values[:place]), (edges, name, number)


def begin(app: App, to: str, name: str, moving: set[str]) -> None:
    moving.add(name)
    app.follows = True
    app.connection.move(to).then(lambda _none: moving.discard(name), lambda _error: moving.discard(name))
    app.pump()


def does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ordering, "reach", lambda _self, _channel, _told, is_coming: resolved(None))


def does_not_tell_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service, "beyond", lambda _told, batch: list(range(len(batch))))


def storms(seeds: range, order: ChannelOrder) -> None:
    for seed in seeds:
        test_members_that_move_get_each_event_once_and_in_order(seed, order)


class NotHeldBack(HeldBack):
    """A member to whom events are delivered on."""

    def __init__(self, member: NodeSubscription, node: str) -> None:
        pass

    def go_on(self) -> None:
        pass


def delivers_while_it_hands_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handover, "HeldBack", NotHeldBack)


@pytest.mark.parametrize(
    ("fault", "order"),
    [
        (does_not_wait, "total"),  # on a tree that does not change causal order comes by itself
        (does_not_tell_apart, "causal"),
        (does_not_tell_apart, "total"),
        (delivers_while_it_hands_over, "causal"),
        (delivers_while_it_hands_over, "total"),
    ],
)
def test_faults_in_the_hand_over_of_ordered_channels_are_found_out(
    fault: Callable[[pytest.MonkeyPatch], None], order: ChannelOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        storms(range(100, 140), order)


def test_what_a_member_sends_while_it_moves_is_taken_at_a_node_without_other_members(
    order: ChannelOrder,
) -> None:
    net = Network(("a", "d"), ("d", "b"))
    mover, stays = net.app("a", "mover"), net.app("d", "stays")
    channel = create(net, mover, delivery="reliable", order=order)
    members = [join(net, app, channel, durable="m") for app in (mover, stays)]
    mover.follows = True
    told: list[Any] = []
    mover.connection.move("b").then(told.append, told.append)
    send(mover, channel, 1, 2)
    net.run(20.0)
    send(mover, channel, 3)
    net.run()
    assert told == [None]
    assert [one.values for one in members] == [[1, 2, 3]] * 2
    assert lists(net, channel) == {"b": {"d"}, "d": {"b"}}


def test_who_comes_does_not_wait_until_what_others_send_there_is_agreed() -> None:
    net = Network(("a", "d"), ("d", "b"))
    apps = [net.app("a"), net.app("b")]
    channel = create(net, apps[0], delivery="reliable", order="total")
    for app in apps:
        join(net, app, channel)
    net.cut("a", "d")
    send(apps[1], channel, 1)
    net.run(1.0)
    there = net["b"].core.channels
    come, leave = (there.reach(channel, there.progress(channel), is_coming) for is_coming in (True, False))
    assert come.is_over
    assert not leave.is_over
    net.heal("a", "d")
    net.run(15.0)
    assert leave.is_over


def test_the_sequencers_node_may_be_left_by_its_last_member() -> None:
    net = Network(("a", "d"), ("d", "b"))
    mover, stays = net.app("a", "mover"), net.app("d", "stays")
    channel = create(net, mover, delivery="reliable", order="total")
    member = join(net, stays, channel)
    join(net, mover, channel)
    mover.follows = True
    mover.connection.move("b")
    mover.pump()
    net.run(10.0)
    send(stays, channel, 1)
    net.run(0.5)
    assert member.values == [1]


def test_a_member_that_stays_after_all_gets_what_came_meanwhile(order: ChannelOrder) -> None:
    star = Star(order)
    told = star.move("a", "b")
    star.net.run(1.0)
    star.net["b"].crash()
    star.send("c", 1, 2)
    star.net.run(60.0)
    star.net["b"].start()
    star.net.run(30.0)
    (refused,) = told
    assert isinstance(refused, Disconnected)
    assert star.apps["a"].node is star.net["a"]
    assert star.members["a"].values == [1, 2]


def test_transient_events_that_are_lost_hold_nobody_up_for_long() -> None:
    reaching, order = Reaching(), CausalOrder[str]()
    lost, due = mark_of("x", 1, is_volatile=True), mark_of("x", 1, is_volatile=False)
    reply = reaching.wait("c", {lost: 3, due: 2}, is_coming=True, now=0.0)
    reaching.look("c", order, MISS_S)
    assert not reply.is_over
    order.arrive(ChannelArrival("x", 1, is_volatile=False, last=2), "x", 1, 0.0)
    reaching.look("c", order, MISS_S - 1)
    assert not reply.is_over
    reaching.look("c", order, MISS_S)
    assert reply.is_over
    late = ChannelArrival("x", 1, is_volatile=True, last=3)
    assert order.arrive(late, "late", 1, MISS_S) is OrderVerdict.DROP


def test_a_client_stays_if_the_events_that_it_had_do_not_come_to_the_other_node() -> None:
    reaching, told = Reaching(), list[Any]()
    reaching.wait("c", {mark_of("x", 1, is_volatile=False): 1}, True, 0.0).then(told.append, told.append)
    reaching.look("c", CausalOrder[str](), REACH_S)
    assert isinstance(told[0], Disconnected)
    assert "c" not in reaching


@pytest.mark.parametrize(
    ("marks", "error"),
    [
        (b"\xc1", TidingsError),  # no marks
        (
            encode_names({mark_of("ghost", 1, is_volatile=False): 5}),
            Disconnected,
        ),  # of events that never come
    ],
    ids=["broken", "forged"],
)
def test_a_node_that_lies_about_its_client_keeps_it_and_the_channel_goes_on(
    marks: bytes, error: type[TidingsError], monkeypatch: pytest.MonkeyPatch
) -> None:
    star = Star("causal", durable=True)
    with monkeypatch.context() as patch:
        patch.setattr(star.net["a"].core.channels.ordering, "progress", lambda _channel: marks)
        told = star.move("a", "b")
        star.net.run(REACH_S + 30.0)
    assert isinstance(told[0], error)
    assert star.apps["a"].node is star.net["a"]
    assert not len(star.net["b"].broker.arrivals)
    star.send("c", 1)
    star.net.run(5.0)
    assert star.got == [[1]] * 3
    star.move("a", "b")
    star.net.run(20.0)
    assert star.apps["a"].node is star.net["b"]
