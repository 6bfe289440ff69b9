"""Announcing what many clients want: in small steps, and never less than the neighbour knows already."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any

import msgspec
import pytest
from overlay.network import Network

from tidings.filters import Filter
from tidings.ids import StoredIds
from tidings.overlay import announcing, tables
from tidings.overlay.announcing import Announcer
from tidings.overlay.linking import Greeting
from tidings.overlay.pruning import Pruning
from tidings.overlay.table import NeighbourTable
from tidings.protocol.calls import Call, OnCut
from tidings.protocol.connection import Connection
from tidings.protocol.service import IncomingRequest
from tidings.steps import Steps, finish

FILTERS = 200


def restarted(net: Network, node: str) -> None:
    net[node].crash()
    net.run(1)
    net[node].start()
    net.run(20)


def many_wanted(at: str) -> Network:
    """A line of three nodes, and many filters of durable subscriptions at one of them."""
    net = Network(("a", "b"), ("b", "c"))
    app = net.app(at)
    for number in range(FILTERS):
        app.subscribe(f"station = 's{number}' AND value > {number}", durable=f"d{number}")
    net.run(5)
    assert len(net.table("b", of=at)) == FILTERS
    return net


def test_what_is_wanted_from_a_new_neighbour_is_filed_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    net = many_wanted("c")
    filed: list[Hashable] = []
    most: list[int] = []
    add, steps = Pruning.add, Announcer.steps

    def noted(pruning: Pruning, key: Hashable, filter: Filter, passive: bool) -> None:
        filed.append(key)
        add(pruning, key, filter, passive)

    def counted(announcer: Announcer) -> Steps[None]:
        taken = steps(announcer)
        while True:
            before = len(filed)
            if next(taken, announcer) is announcer:
                return
            most.append(len(filed) - before)
            yield

    monkeypatch.setattr(Pruning, "add", noted)
    monkeypatch.setattr(Announcer, "steps", counted)
    restarted(net, "c")
    assert sum(most) == len(filed) >= FILTERS
    assert max(most) == 1


def test_a_node_that_starts_again_takes_nothing_back_while_it_works_out_what_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = many_wanted("c")
    taken: list[str] = []
    remove = NeighbourTable.remove

    def noted(table: NeighbourTable, text: str) -> bool:
        taken.append(text)
        return remove(table, text)

    monkeypatch.setattr(NeighbourTable, "remove", noted)
    monkeypatch.setattr(tables, "STEPS_MAX", 20)
    told = net.neighbour("c", "b").announcer.told
    restarted(net, "c")
    assert taken == []
    assert len(net.table("b", of="c")) == len(net.table("a", of="b")) == FILTERS
    assert told > net.neighbour("c", "b").announcer.told  # it has found the digests equal


def test_an_offer_of_everything_is_taken_in_small_steps() -> None:
    announcer = Announcer("link.table", lambda _seconds, _call: None, lambda _problem: None)
    pruning = Pruning(announcer)
    for number in range(FILTERS):
        pruning.add(number, Filter(f"x = {number}"), passive=False)
    pruning.offer("")
    assert not any(number in announcer for number in range(FILTERS))
    found = 0
    for _ in zip(announcer.steps(), range(FILTERS), strict=False):
        now = sum(number in announcer for number in range(FILTERS))
        assert now <= found + 1
        found = now
    assert found == FILTERS


def test_what_goes_before_a_new_neighbour_was_reached_is_not_announced() -> None:
    net = Network(("a", "b"), ("b", "c"), offers_all=False)
    near, far = net.app("a"), net.app("c")
    kept, gone = near.subscribe("x > 5"), near.subscribe("y > 5")
    offers = [far.advertise("x > 0"), far.advertise("y > 0")]
    net.run()
    assert net.table("c", of="b") == ["x > 5", "y > 5"]
    spreading = net["b"].core.overlay.routing.spreading
    under_way = [spreading._want_all(net.neighbour("b", "c")), spreading._offer_all(net.neighbour("b", "a"))]
    for steps in under_way:
        next(steps)  # it has looked which there are
    gone.end()
    offers[1].end()
    net.run()
    for steps in under_way:
        finish(steps)
    net.run()
    assert net.table("c", of="b") == ["x > 5"]
    assert list(net.neighbour("a", "b").wants.offers) == ["x > 0"]
    assert kept.values == []


def test_an_empty_table_has_the_digest_that_stands_for_it() -> None:
    net = Network(("a", "b"))
    table = net.neighbour("a", "b").table
    assert table is not None
    assert table.digest == announcing.EMPTY


def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """All that nodes ask of each other from now on."""
    asked: list[tuple[str, dict[str, Any]]] = []
    request = Connection.request

    def noted(connection: Connection, operation: str, arguments: Any = None, *more: Any) -> Any:
        asked.append((operation, arguments))
        return request(connection, operation, arguments, *more)

    monkeypatch.setattr(Connection, "request", noted)
    return asked


def cut_and_healed(net: Network, one: str, other: str) -> None:
    net.cut(one, other)
    net.run(1)
    net.heal(one, other)
    net.run(5)


def test_a_link_that_was_cut_needs_no_message_for_what_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("a", "b"), ("b", "c"), ping_s=60.0)
    got = net.app("a").subscribe("x > 5")
    net.app("c").subscribe("x > 7")
    app = net.app("c")
    net.run()
    before = net.table("b", of="c"), net.table("c", of="b")
    asked = asked_for(monkeypatch)
    cut_and_healed(net, "b", "c")
    between = [(operation, arguments) for operation, arguments in asked if operation.startswith("link.")]
    known = [arguments for operation, arguments in between if operation == "link.topology"]
    assert [operation for operation, _ in between if operation != "link.topology"] == ["link.hello"] * 2
    assert [list(arguments) for arguments in known if "records" not in arguments] == [["own"]] * 2
    assert (net.table("b", of="c"), net.table("c", of="b")) == before
    for node, other in ("bc", "cb"):
        neighbour = net.neighbour(node, other)
        assert neighbour.is_settled
        assert neighbour.has_offered
        assert neighbour.announcer.state == "known"
    app.publish(7)
    net.run()
    assert got.values == [7]


def test_what_changes_while_a_link_is_cut_is_announced_when_it_is_back() -> None:
    net = Network(("a", "b"), ("b", "c"), offers_all=False)
    near, far = net.app("a"), net.app("c")
    first = near.subscribe("x > 5")
    far.advertise("x > 0")
    net.run()
    net.cut("b", "c")
    net.run(1)
    first.end()
    second = near.subscribe("x > 3")
    net.run(1)
    net.heal("b", "c")
    net.run(5)
    assert net.table("c", of="b") == ["x > 3"]
    far.publish(4)
    net.run()
    assert second.values == [4]


def test_a_node_of_the_release_before_announces_what_it_wants_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One end does not know what greetings have now, and the other one is not told it."""
    net = Network(("a", "b"), ("b", "c"))
    got = net.app("a").subscribe("x > 5", durable="d")
    net.app("c").subscribe("x > 7", durable="d")
    app = net.app("c")
    net.run()
    for name in "bc":
        forget_digests(net, name)
    asked = asked_for(monkeypatch)
    cut_and_healed(net, "b", "c")
    assert {"link.table", "link.offers"} <= {operation for operation, _ in asked}
    assert not any("own" in arguments for operation, arguments in asked if operation == "link.topology")
    app.publish(7)
    net.run()
    assert got.values == [7]
    assert net.neighbour("b", "c").is_settled
    assert net.neighbour("c", "b").is_settled


def forget_digests(net: Network, node: str) -> None:
    """Have a node pass over the digests in greetings."""
    linking = net[node].core.overlay.linking

    def greeted(asked: IncomingRequest, greeting: Greeting) -> dict[str, Any]:
        return linking.greeted(asked, msgspec.structs.replace(greeting, has=b""))

    operations: dict[str, Any] = net[node].broker.operations  # type: ignore[assignment]
    operations["link.hello"] = Greeting, greeted


@pytest.mark.parametrize("node", ["a", "b"])
def test_a_node_that_begins_anew_on_a_link_hears_what_the_greetings_had_agreed_on(node: str) -> None:
    """As when its link stands by for a moment, of which the other end does not know."""
    net = Network(("a", "b"))
    got = {name: net.app(name).subscribe("x > 5") for name in "ab"}
    app = net.app("a")
    net.run()
    cut_and_healed(net, "a", "b")
    routing, neighbour = net[node].core.overlay.routing, net.neighbour(node, "b" if node == "a" else "a")
    routing.leave(neighbour)
    routing.join(neighbour)
    net.run(5)
    assert neighbour.has_offered
    assert neighbour.announcer.state == neighbour.offerer.state == "known"
    app.publish(7)
    net.run()
    assert [one.values for one in got.values()] == [[7], [7]]


def test_a_node_that_begins_anew_is_answered_once() -> None:
    """Else both ends would go on answering each other."""
    net = Network(("a", "b"))
    neighbour, other = net.neighbour("a", "b"), net.neighbour("b", "a")
    net["a"].core.overlay.routing.leave(neighbour)
    net["a"].core.overlay.routing.join(neighbour)
    net.run(5)
    told = [one.told for end in (neighbour, other) for one in (end.announcer, end.offerer)]
    net.run(60)
    assert [one.told for end in (neighbour, other) for one in (end.announcer, end.offerer)] == told
    assert sum(told) <= 14


class NotedConnection(Connection):
    """A connection that notes the arguments of its requests."""

    def __init__(self) -> None:
        super().__init__(StoredIds("s", 1), "s")
        self.asked: list[Any] = []

    def request(self, operation: str, arguments: Any, on_cut: OnCut = "fail") -> Call:
        self.asked.append(arguments)
        return super().request(operation, arguments, on_cut)


@pytest.mark.parametrize("is_agreed", [False, True])
def test_a_node_that_is_asked_while_it_begins_itself_asks_as_well(is_agreed: bool) -> None:
    """The neighbour may have been asked for one of its two tables only."""
    connection = NotedConnection()
    announcer = Announcer("link.offers", lambda _later_s, _do: None, lambda _problem: None)
    announcer.add(1, Filter("x > 0"), False)
    finish(announcer.steps())
    announcer.may_narrow = True
    announcer.covering.take_changes()
    announcer.up(connection, announcer.settled_digest, is_agreed)
    announcer.speak_up()
    assert announcer.flush()
    assert [one.get("anew", False) for one in connection.asked] == [not is_agreed]


def test_a_link_that_stood_by_before_its_greetings_were_used_begins_anew() -> None:
    """The digests of greetings agree, so neither end would say anything more of what it wants and offers."""
    net = Network(("a", "b"), reroute_s=inf)
    apps = {name: net.app(name) for name in "ab"}
    net.run()
    net.cut("a", "b")
    net.run(5)
    net.heal("a", "b")
    neighbour = net.neighbour("a", "b")
    while not neighbour.is_up:
        net.run(0.001)
    routing = net["a"].core.overlay.routing
    routing._haunt(neighbour)
    routing.follow_tree()
    net.run(10)
    assert (neighbour.has_offered, neighbour.announcer.state) == (True, "known")
    got = [apps[name].subscribe("x > 0") for name in "ab"]
    net.run()
    for app in apps.values():
        app.publish(1, delivery="transient")
    net.run()
    assert [one.values for one in got] == [[1, 1], [1, 1]]
