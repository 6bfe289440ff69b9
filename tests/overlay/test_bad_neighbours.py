"""Neighbours that lie or ask for too much: refused or contained, counted, and of no harm to others."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from overlay.network import Network

from tidings.errors import FilterError, Refused
from tidings.event.relayed import FirstNode
from tidings.overlay import keeping, linking, pruning, relaying, table, wholeness
from tidings.overlay.intake import Intake
from tidings.overlay.numbers import Numbers
from tidings.overlay.records import LinkRecord, NodeRecord


def line() -> Network:
    """liar - b - c."""
    return Network(("liar", "b"), ("b", "c"))


def say(net: Network, operation: str, **arguments: Any) -> list[Any]:
    """Have the liar ask b for something; the reply, or the error."""
    link = net.neighbour("liar", "b").link
    assert link is not None
    told: list[Any] = []
    link.connection.request(operation, arguments).then(told.append, told.append)
    link.flush()
    net.run(1)
    return told


def works(net: Network) -> bool:
    """Whether b and c still are one network."""
    got = net.app("c").subscribe("type = 'probe'")
    net.run()
    net.app("b").publish(1, type="probe")
    net.run()
    return got.values == [1]


@pytest.mark.parametrize("text", ["x >", "x = 'a", "(" * 1_000 + "x = 1", "x = 1 " + "OR x = 2 " * 100_000])
def test_an_absurd_filter_is_refused_by_its_place_and_is_not_in_the_table(text: str) -> None:
    net = line()
    (error,) = say(net, "link.table", add=[(text, False)], done=True)
    assert isinstance(error, FilterError | Refused)
    assert net.table("b", of="liar") == []
    (error,) = say(net, "link.offers", add=[(text, False)], done=True)
    assert isinstance(error, FilterError | Refused)
    assert works(net)


def test_more_filters_than_a_neighbour_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ENTRIES_MAX", 3)
    net = line()
    (error,) = say(net, "link.table", add=[(f"x = {number}", False) for number in range(9)], done=True)
    assert isinstance(error, Refused)
    assert (error.code, len(net.table("b", of="liar"))) == ("limit", 3)
    assert works(net)


def test_more_offers_than_a_neighbour_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.overlay.tables.OFFERS_MAX", 3)
    assert pruning.OFFERS_MAX > 3
    net = line()
    (error,) = say(net, "link.offers", add=[(f"x = {number}", False) for number in range(9)], done=True)
    assert isinstance(error, Refused)
    assert error.code == "limit"
    assert works(net)


def refused(net: Network, reason: str) -> bool:
    """Whether b refuses what the liar relays, for this reason, and delivers none of it."""
    got = [net.app(name).subscribe("x > 0") for name in "bc"]
    net.run()
    net.app("liar").publish(1, 2, delivery="transient")
    net.run()
    return net.count("b", "relays_refused", reason) == 2 and not any(one.values for one in got)


def test_an_event_with_the_source_of_another_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = line()
    monkeypatch.setattr(relaying, "at_node", lambda _source, _node: "alice@c")
    assert refused(net, "source")


@pytest.mark.parametrize(("of", "reason"), [("c", "way"), ("b", "own")])
def test_events_of_a_node_to_which_the_neighbour_is_not_the_way_are_refused(
    monkeypatch: pytest.MonkeyPatch, of: str, reason: str
) -> None:
    net = line()
    forged, volatile = net[of].broker.node, Numbers.volatile

    def lie(self: Numbers, batch: Any) -> tuple[FirstNode, int]:
        first, number = volatile(self, batch)
        return FirstNode(forged, first.epoch, is_volatile=True), number

    monkeypatch.setattr(Numbers, "volatile", lie)
    assert refused(net, reason)


def test_a_neighbour_that_confirms_what_it_was_not_sent_frees_nothing() -> None:
    net = line()
    net.app("liar").subscribe("x > 0", durable="mine")
    net.run()
    neighbour = net.neighbour("b", "liar")
    net.part("liar", "b")
    net.app("b").publish(1, 2)
    net.run(0.5)
    assert neighbour.cursor is not None
    consumer = neighbour.cursor.consumer
    assert isinstance(consumer, relaying.LinkConsumer)
    consumer.confirm([1_000, 1_000])
    consumer.acknowledge(1_000)
    assert neighbour.cursor.levels == [0, 0, 0]
    assert net["b"].broker.cursors.trimmed == 0


def test_a_neighbour_that_never_confirms_counts_as_away_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So what is kept for it has limits; others are not concerned, and it gets the rest when it confirms."""
    monkeypatch.setattr(keeping, "CONFIRM_S", 10.0)
    monkeypatch.setattr(keeping, "STALLED_S", 4.0)
    net = Network(("liar", "b"), ("b", "c"), away_bytes=200, reroute_s=inf)
    lied, other = (net.app(name).subscribe("x > 0") for name in ("liar", "c"))
    net.run()
    liar, durable = net["liar"].broker, Intake.durable
    monkeypatch.setattr(
        Intake, "durable", lambda self, mark: None if self._broker is liar else durable(self, mark)
    )
    source = net.app("b")
    for value in range(1, 41):
        source.publish(value)
        net.run(0.53)  # not in step with those who look after it
    assert other.values == list(range(1, 41))
    assert net.count("b", "neighbours_stalled") == 1
    assert net.count("b", "away_dropped") > 10
    cursor = net.neighbour("b", "liar").cursor
    assert cursor is not None
    assert cursor.released > 10, "the store need not keep them"
    net.run(keeping.CONFIRM_S + 2 * keeping.STALLED_S)
    assert net.count("b", "neighbours_stalled") == 2, "it has another try"
    monkeypatch.undo()
    net.run(10)
    source.publish(41)
    net.run(10)
    assert lied.values == sorted(set(lied.values))
    assert lied.values[-1] == 41
    assert len(lied.values) + net.count("b", "away_dropped") >= 41, "what it lacks was given up"
    assert net.neighbour("b", "liar").is_up


def test_a_neighbour_that_speaks_another_version_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(("b", "c"))
    monkeypatch.setattr(linking, "VERSION", linking.VERSION + 1)
    link = net.neighbour("b", "c").link
    assert link is not None
    told: list[Any] = []
    greeting = {"version": linking.VERSION - 1, "node": net["b"].broker.node, "name": "b"}
    link.connection.request("link.hello", greeting).then(told.append, told.append)
    link.flush()
    net.run()
    assert isinstance(told[0], Refused)
    assert told[0].code == "version"


def test_a_flood_of_requests_of_a_neighbour_holds_up_no_others() -> None:
    """They are done in its share of the time, one after the other."""
    net = line()
    got = net.app("c").subscribe("x > 0")
    net.run()
    link = net.neighbour("liar", "b").link
    assert link is not None
    to, sides = net["c"].broker.node, net["liar"].core.overlay.routing.sides(net["b"].broker.node)
    told: list[Any] = []
    for number in range(300):
        for operation, arguments in (
            ("link.probe", {"padding": bytes(100)}),
            ("link.topology", {"records": []}),
            ("link.in_force", {}),
            ("link.table", {"add": [(f"x = {number}", False)], "done": True}),
            ("link.values", {"to": to, "reading": str(number), "sides": sides}),
        ):
            link.connection.request(operation, arguments).then(told.append, told.append)
    link.flush()
    source = net.app("b")
    source.publish(1, 2)
    net.run(0.2)
    assert got.values == [1, 2]
    net.run(60)
    assert len(told) == 1_500, "each is answered"
    assert works(net)


def links_to(*neighbours: str) -> tuple[LinkRecord, ...]:
    return tuple(LinkRecord(one, 1, is_up=True) for one in sorted(neighbours))


def test_a_cycle_in_what_a_neighbour_says_of_the_tree_is_none_in_the_tree() -> None:
    """It invents nodes in a circle, and a link of its own to c that closes another one."""
    net = line()
    ids = {name: net[name].broker.node for name in net.names}
    invented = [NodeRecord(one, one, 1, 1, links_to(*ends)) for one, ends in
                (("x", ("y", "z", ids["liar"])), ("y", ("x", "z")), ("z", ("x", "y", ids["c"])))]  # fmt: skip
    known = {one.node: one for one in net["b"].core.overlay.topology.records}
    liar, of_c = known[ids["liar"]], known[ids["c"]]
    invented += [
        replace(liar, version=liar.version + 1, links=links_to(ids["b"], ids["c"], "x")),
        replace(of_c, version=of_c.version + 1, links=links_to(ids["b"], ids["liar"], "z")),
    ]
    say(net, "link.topology", records=to_builtins(invented))
    topology = net["b"].core.overlay.topology
    assert {"x", "y", "z"} <= set(topology.tree.nodes)
    assert len(topology.tree.edges) == len(topology.tree) - 1
    assert {topology.way(one) for one in ("x", "y", "z")} == {ids["liar"]}
    assert topology.way(ids["c"]) == ids["c"]
    assert net["c"].core.overlay.topology.clashes > 0  # it has taken itself back
    assert works(net)


def test_questions_without_end_whether_a_node_is_whole_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholeness, "QUESTIONS_MAX", 3)
    net = line()
    told = [say(net, "link.whole", sides=(1, 2)) for _ in range(5)]
    assert told[:3] == [[], [], []]  # nobody else knows such a tree
    assert [error.code for (error,) in told[3:]] == ["limit", "limit"]
    assert works(net)
