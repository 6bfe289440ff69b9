"""Nodes of releases that differ: what one of them does not know is passed over, and the network works."""

from __future__ import annotations

import msgspec
from overlay.network import Network

from tidings.overlay.linking import Greeting
from tidings.overlay.records import LinkRecord, NodeRecord

NEWEST = ("link.gap", "link.last", "link.heard", "link.probe", "node.drain")
"""Operations that the release before has not."""


def test_a_node_that_lacks_the_newest_operations_works_with_one_that_has_them() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"), settle_s=0.0, weigh_s=10.0)
    for operation in NEWEST:
        del net["b"].broker.operations[operation]  # type: ignore[attr-defined]
    net.run(30.0)
    got = {name: net.app(name).subscribe(durable="d") for name in "abc"}
    apps = {name: net.app(name) for name in "abc"}
    net.run()
    for app in apps.values():
        app.publish(1, 2, 3)
    net.run()
    assert [sorted(one.values) for one in got.values()] == [[1, 1, 1, 2, 2, 2, 3, 3, 3]] * 3
    net.part("a", "c")
    for app in apps.values():
        app.publish(4)
    net.run(10.0)
    assert [one.values[-3:] for one in got.values()] == [[4, 4, 4]] * 3


def test_what_a_later_release_adds_to_records_and_greetings_is_passed_over() -> None:
    link, record = LinkRecord("b", 7), NodeRecord("a", "a", 1, 2, (LinkRecord("b", 7),))
    told = [*msgspec.to_builtins(record), "added", {"later": 1}]
    links = 4
    told[links] = [[*msgspec.to_builtins(link), "added"]]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=NodeRecord) == record
    greeting = {"version": 1, "node": "a", "name": "a", "later": True}
    assert msgspec.convert(greeting, Greeting).node == "a"
