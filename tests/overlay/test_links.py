"""The links of a node as a set: requests to one neighbour, to all, and to all but one."""

from __future__ import annotations

from typing import Any

from overlay.network import Network

from tidings.errors import Disconnected
from tidings.replies import Deferred


def outcomes(net: Network, replies: list[Deferred[Any]]) -> list[Any]:
    """Return the replies, or the errors, after a while."""
    told: list[Any] = []
    for reply in replies:
        reply.then(told.append, told.append)
    net.run(1)
    return told


QUESTION = "link.heard", {"about": "nobody", "path": []}


def test_a_request_goes_to_one_neighbour_to_all_or_to_all_but_one() -> None:
    net = Network(("b", "a"), ("b", "c"), ("b", "d"))
    links = net["b"].core.overlay.neighbours
    a, c = net.neighbour("b", "a"), net.neighbour("b", "c")
    assert len(outcomes(net, [a.send(*QUESTION)])) == 1
    assert len(outcomes(net, links.send(*QUESTION))) == 3
    assert len(outcomes(net, links.send(*QUESTION, but=c))) == 2
    assert all("silent_s" in told for told in outcomes(net, links.send(*QUESTION)))


def test_a_request_to_a_neighbour_that_is_cut_fails_and_those_to_others_do_not() -> None:
    net = Network(("b", "a"), ("b", "c"))
    links, a = net["b"].core.overlay.neighbours, net.neighbour("b", "a")
    net.cut("a", "b")
    net.run(2)
    (error,) = outcomes(net, [a.send(*QUESTION)])
    assert isinstance(error, Disconnected)
    assert len(outcomes(net, links.send(*QUESTION))) == 1
