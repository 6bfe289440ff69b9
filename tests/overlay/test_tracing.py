"""Tracing says which way an event would take, by which filter, and why it does not go elsewhere."""

from __future__ import annotations

from math import inf
from typing import Any

from overlay.network import Network

from tidings.event import Event
from tidings.event.wire import encode_events


def trace(net: Network, node: str, **values: Any) -> dict[str, Any]:
    told: list[Any] = []
    app = net.app(node)
    raw = encode_events([Event("x", values)])
    app.connection.request("topology.trace", {"raw": raw}).then(told.append, told.append)
    app.pump()
    net.run()
    (found,) = told
    assert isinstance(found, dict), found
    return found


def test_a_trace_names_the_filter_of_each_hop_and_why_an_event_goes_no_further() -> None:
    net = Network(("a", "b"), ("b", "c"), ("b", "d"))
    net.app("c").subscribe("x > 5")
    net.app("a").subscribe("x > 0")
    net.run()
    found = trace(net, "a", x=7)
    (hop,) = found["hops"]
    assert found["node"] == "a"
    assert found["subscriptions"] == 1
    assert (hop["to"], hop["passed"]) == ("b", "x > 5")
    there = {one["to"]: one for one in hop["there"]["hops"]}
    assert there["c"]["there"]["subscriptions"] == 1
    assert there["d"]["why"] == "none of 0 filters matches"


def test_a_trace_ends_at_a_cut_and_publishes_nothing() -> None:
    net = Network(("a", "b"), ("b", "c"), reroute_s=inf)
    far = net.app("c").subscribe("x > 5")
    net.run()
    net.cut("b", "c")
    net.run(10)
    (hop,) = trace(net, "a", x=7)["hops"]
    assert hop["there"]["hops"] == [
        {"to": "c", "passed": "x > 5", "why": "the link is cut; a reliable event waits here"}
    ]
    net.heal("b", "c")
    net.run(60)
    assert far.values == []
