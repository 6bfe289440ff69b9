"""Neighbours that fall silent: which of them are dead, whose links are, and who is only slow."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from overlay.network import Network
from overlay.test_moving import edges, network

from tidings.overlay.liveness import FORWARDED_MAX, HOPS_MAX, paths_over
from tidings.overlay.records import LinkRecord, NodeRecord
from tidings.overlay.suspicion import ASK_S, Lose, Suspect, Suspicion, SuspicionEffect, Trust

SOON_S = 3.0
"""Time for a silent neighbour to be suspected, asked for, and gone round."""


class Rig:
    """A core of suspicion that is woken when it wants to be."""

    def __init__(self, suspect_s: float = 1.5, ping_s: float = 0.5) -> None:
        self.now = 100.0
        self.heard: dict[str, float] = {}
        self.round_trip_s = 0.0
        self.core = Suspicion(
            suspect_s, ping_s, lambda one: self.heard.get(one, -inf), lambda _: self.round_trip_s
        )

    def up(self, neighbour: str) -> None:
        self.heard[neighbour] = self.now
        self.core.link_up(neighbour, self.now)

    def run(self, seconds: float, hearing: str = "") -> list[SuspicionEffect]:
        """Let time pass; the neighbours in `hearing` are heard all the time."""
        effects: list[SuspicionEffect] = []
        until = self.now + seconds
        while self.core.wake_at <= until:
            self.now = self.core.wake_at
            self.heard |= dict.fromkeys(hearing, self.now)
            effects += self.core.wake(self.now)
        self.now = until
        return effects


def test_a_silent_neighbour_is_suspected_within_two_seconds() -> None:
    rig = Rig()
    rig.up("b")
    rig.up("c")
    assert rig.run(60.0, hearing="bc") == []
    (suspect,) = rig.run(1.9, hearing="c")
    assert isinstance(suspect, Suspect)
    assert (suspect.neighbour, suspect.is_cut) == ("b", False)
    assert 1.5 <= suspect.silent_s <= 2.0
    assert rig.core.suspected == ["b"]


@pytest.mark.parametrize(("suspect_s", "ping_s"), [(0.0, 0.5), (1.5, 0.0)])
def test_nobody_is_suspected_if_the_settings_say_so(suspect_s: float, ping_s: float) -> None:
    rig = Rig(suspect_s, ping_s)
    rig.up("b")
    assert rig.core.wake_at == inf


def test_a_time_shorter_than_two_pings_is_not_taken_at_its_word() -> None:
    rig = Rig(suspect_s=0.1)
    rig.up("b")
    assert rig.run(0.9) == []
    assert [type(one) for one in rig.run(0.5)] == [Suspect]


@pytest.mark.parametrize(
    ("answers", "cause"),
    [([0.2], "link"), ([2.0, 0.2], "link"), ([2.0], "node"), ([None, 2.0], "node"), ([None], "alone")],
)
def test_what_others_say_decides_what_is_dead(answers: list[float | None], cause: str) -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.5)
    rig.core.asked("b", len(answers))
    effects = [effect for answer in answers for effect in rig.core.answered("b", answer, rig.now)]
    assert bool(effects) is (cause == "link")
    (lose,) = effects or rig.run(0.5)
    assert isinstance(lose, Lose)
    assert (lose.neighbour, lose.cause) == ("b", cause)
    assert rig.core.suspected == []


def test_a_neighbour_is_given_up_if_nobody_can_be_asked() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.5)
    rig.core.asked("b", 0)
    assert [one.cause for one in rig.run(0.5) if isinstance(one, Lose)] == ["alone"]


def test_answers_that_do_not_come_are_not_waited_for() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.5)
    rig.core.asked("b", 2)
    rig.core.answered("b", 1.8, rig.now)
    effects = rig.run(ASK_S + 0.5)
    assert [one.cause for one in effects if isinstance(one, Lose)] == ["node"]
    assert rig.core.answered("b", 0.1, rig.now) == []


def test_a_neighbour_that_is_heard_again_was_slow() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.5)
    rig.core.asked("b", 1)
    (trust,) = rig.run(0.5, hearing="b")
    assert isinstance(trust, Trust)
    assert rig.core.answered("b", 0.1, rig.now) == []
    assert rig.run(60.0, hearing="b") == []


def test_a_neighbour_with_long_round_trips_is_given_more_time() -> None:
    rig = Rig()
    rig.round_trip_s = 3.0
    rig.up("b")
    assert rig.run(4.4) == []
    assert [type(one) for one in rig.run(0.5)] == [Suspect]
    rig.round_trip_s = 1e9
    rig.up("b")
    assert rig.run(11.4) == []
    assert [type(one) for one in rig.run(0.5)] == [Suspect]


def test_a_node_that_stood_still_suspects_nobody_for_it() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(10.0, hearing="b")
    rig.now += 30.0
    assert rig.core.wake(rig.now) == []
    assert rig.run(60.0, hearing="b") == []
    assert [type(one) for one in rig.run(1.5)] == [Suspect]


def test_a_node_that_stood_still_while_it_asked_waits_as_long_again() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.5)
    rig.core.asked("b", 1)
    rig.now += 30.0
    assert rig.core.wake(rig.now) == []
    assert [type(one) for one in rig.run(0.5, hearing="b")] == [Trust]


@pytest.mark.parametrize(("answer", "causes"), [(0.2, ["link"]), (2.0, []), (None, [])])
def test_a_link_that_is_cut_is_dead_if_another_node_hears_the_neighbour(
    answer: float | None, causes: list[str]
) -> None:
    """If none does, the neighbour may be starting again: then the setting for cut links decides."""
    rig = Rig()
    rig.up("b")
    rig.core.link_down("b", rig.now)
    (suspect,) = rig.run(1.5)
    assert isinstance(suspect, Suspect)
    assert suspect.is_cut
    rig.core.asked("b", 1)
    effects = rig.core.answered("b", answer, rig.now)
    assert [one.cause for one in effects if isinstance(one, Lose)] == causes
    assert rig.run(60.0) == []


def test_others_are_told_how_long_a_neighbour_was_silent() -> None:
    rig = Rig()
    rig.up("b")
    rig.run(1.25)
    assert rig.core.silent_s("b", rig.now) == 1.25
    assert rig.core.silent_s("c", rig.now) is None
    rig.core.link_down("b", rig.now)
    assert rig.core.silent_s("b", rig.now) is None


# Whom to ask


def record(node: str, *neighbours: str, **more: object) -> NodeRecord:
    return NodeRecord(node, node, 1, 1, tuple(LinkRecord(one, 1, **more) for one in neighbours))  # type: ignore[arg-type]


def test_questions_take_the_shortest_ways_round_a_node() -> None:
    records = {one.node: one for one in [record("b", "x", "c"), record("c", "b", "d"), record("d", "x", "c")]}
    assert list(paths_over(records, "a", ["b"], "x")) == [("b",), ("b", "c"), ("b", "c", "d")]


@pytest.mark.parametrize("more", [{"is_up": False}, {"lost": 7}])
def test_questions_take_no_link_that_is_cut_or_lost(more: dict[str, object]) -> None:
    assert list(paths_over({"b": record("b", "c", **more)}, "a", ["b"], "x")) == [("b",)]


def test_questions_end_after_so_many_links() -> None:
    records = {str(n): record(str(n), str(n + 1)) for n in range(100)}
    assert max(map(len, paths_over(records, "a", ["0"], "x"))) == HOPS_MAX


# Nodes


def counts(net: Network, node: str) -> dict[str, int]:
    """What a node has counted of its neighbours."""
    found = {what: net.count(node, f"neighbours_{what}") for what in ("suspected", "slow")}
    return found | {cause: net.count(node, "neighbours_dead", cause) for cause in ("link", "node", "alone")}


NONE = {"suspected": 0, "slow": 0, "link": 0, "node": 0, "alone": 0}


def ring() -> Network:
    """A ring of four in which the link between c and d stands by."""
    return network(("b", "a"), ("c", "b"), ("d", "a"), spare=[("d", "c")], suspect_s=1.5)


def test_quiet_neighbours_are_not_suspected() -> None:
    net = ring()
    net.run(60.0)
    assert all(counts(net, node) == NONE for node in net.names)


def test_events_go_round_a_link_that_is_silent_at_once() -> None:
    """The nodes at its ends hear each other through others, and say that only the link is dead."""
    net = ring()
    got = net.app("b").subscribe(durable="d")
    app = net.app("a")
    net.run()
    net.part("a", "b")
    app.publish(1, 2, 3)
    net.run(SOON_S)
    assert got.values == [1, 2, 3]
    assert edges(net, "d") == {("a", "d"), ("b", "c"), ("c", "d")}
    assert counts(net, "a") == counts(net, "b") == NONE | {"suspected": 1, "link": 1}
    net.heal("a", "b")
    net.run(30.0)
    app.publish(4)
    net.run()
    assert got.values == [1, 2, 3, 4]
    assert counts(net, "c") == counts(net, "d") == NONE


def test_events_go_round_a_node_that_stands_still_and_it_gets_them_when_it_goes_on() -> None:
    net = ring()
    got = {name: net.app(name).subscribe(durable="d") for name in "ac"}
    app = net.app("d")
    net.run()
    net["a"].stand_still(60.0)
    app.publish(1, 2, 3)
    net.run(SOON_S + 1.0)
    assert got["c"].values == [1, 2, 3]
    assert [counts(net, name)["node"] for name in "bd"] == [1, 1]
    net.run(60.0)
    app.publish(4)
    net.run(5.0)
    assert [one.values for one in got.values()] == [[1, 2, 3, 4]] * 2
    assert counts(net, "a")["suspected"] == 0


def test_a_node_that_stands_still_for_a_moment_is_trusted_again() -> None:
    net = ring()
    before = edges(net, "a")
    net["a"].stand_still(1.9)
    net.run(30.0)
    assert edges(net, "d") == before
    assert [counts(net, name)["slow"] for name in "bd"] == [counts(net, name)["suspected"] for name in "bd"]
    assert all(counts(net, name)[cause] == 0 for name in "abcd" for cause in ("link", "node", "alone"))


@pytest.mark.parametrize("deaf", ["a", "b"])
def test_events_go_round_a_link_that_carries_one_way_only(deaf: str) -> None:
    net = ring()
    other = "ab".replace(deaf, "")
    got = {name: net.app(name).subscribe("x > 0", durable="d") for name in "ab"}
    apps = {name: net.app(name) for name in "ab"}
    net.run()
    net.deafen(deaf, other)
    for app in apps.values():
        app.publish(1, 2, 3)
    net.run(SOON_S + 1.0)
    assert [one.values for one in got.values()] == [[1, 2, 3] * 2] * 2
    assert edges(net, "c") == {("a", "d"), ("b", "c"), ("c", "d")}
    assert counts(net, deaf)["link"] == 1


def test_the_neighbours_of_a_dead_node_make_links_round_it() -> None:
    """Nobody can be asked: each has links with the dead node only."""
    net = Network(("b", "a"), ("c", "a"), ("d", "a"))
    got = net.app("d").subscribe(durable="d")
    app = net.app("c")
    net.run()
    for name in "bcd":
        net.part("a", name)
    app.publish(1, 2, 3)
    net.run(SOON_S + 1.0)
    assert got.values == [1, 2, 3]
    assert counts(net, "c") == NONE | {"suspected": 1, "alone": 1}


def test_links_that_are_never_gone_round_are_not_when_they_are_silent() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"), reroute_s=inf)
    before = edges(net, "a")
    net.part(*next(iter(before)))
    net.run(10.0)
    assert edges(net, "a") == before


def test_a_stranger_may_not_ask_who_is_heard() -> None:
    net = Network(("a", "b"))
    told = net.app("a").ask("link.heard", about=net["b"].broker.node, path=[])
    net.run()
    assert "this is for neighbours" in str(told[0])


def test_questions_beyond_a_number_are_refused_and_those_without_answer_are_dropped() -> None:
    net = Network(("a", "b"), ("b", "c"))
    neighbour = net.neighbour("a", "b")
    assert neighbour.link is not None
    request, path = neighbour.link.connection.request, [net["c"].broker.node]
    told: list[object] = []

    def ask(count: int, add: Callable[[object], None]) -> None:
        for _ in range(count):
            request("link.heard", {"about": "z", "path": path}).then(add, add)
        neighbour.link.flush()  # type: ignore[union-attr]

    net.part("b", "c")
    ask(FORWARDED_MAX + 1, told.append)
    net.run(0.5)
    assert [str(one) for one in told] == [
        f"{FORWARDED_MAX} questions were passed on in the last second [limit]"
    ]
    net.run(2.0)
    assert len(told) == FORWARDED_MAX + 1
    net.heal("b", "c")
    net.run(30.0)
    told.clear()
    ask(1, told.append)
    net.run()
    assert told == [{"silent_s": None}]
