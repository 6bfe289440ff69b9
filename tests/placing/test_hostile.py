"""What a neighbour sends in place of results and state: refused, whatever it is."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from overlay.network import Network
from placing.line import AB, at, line, publish, spans

from tidings import Pattern
from tidings.errors import Refused, TidingsError
from tidings.patterns import KeyRuns, Row
from tidings.patterns.matcher import encode_key
from tidings.patterns.reporting import MatchSummary
from tidings.placing.placement import PlacedResult, Placement, check_state

PATTERN = Pattern("a[type = 'A'] THEN b[n > a.n] WITHIN 9 s BY k RETURN a.n, b.n AS 'pair'")
ROW = Row(5, "n", 1, 1, (3,))
GOOD = msgspec.msgpack.encode(PlacedResult(encode_key(("x",)), MatchSummary(5, 5, 1, ((0, 1, ROW),))))


class _Client:
    """A watch that only keeps what it is told."""

    pattern = PATTERN

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, found: list[Any], unused: list[Any]) -> None:
        self.told += [*found, *unused]


def placement() -> Placement:
    return Placement("id", _Client())  # type: ignore[arg-type]  # as much of a watch as is used


def state() -> bytes:
    runs = KeyRuns(PATTERN.compiled)
    runs.offer(ROW)
    runs.advance(5)
    return runs.encode()


def broken(data: bytes) -> st.SearchStrategy[bytes]:
    """Bytes cut short, with junk behind them, or with one changed."""
    places = st.integers(0, len(data) - 1)
    changed = st.tuples(places, st.integers(0, 255)).map(
        lambda one: data[: one[0]] + bytes([one[1]]) + data[one[0] + 1 :]
    )
    return st.one_of(places.map(lambda at: data[:at]), st.binary(min_size=1).map(data.__add__), changed)


@settings(max_examples=often(300), deadline=None)
@given(broken(GOOD))
def test_a_broken_result_is_refused_or_is_a_result_of_the_pattern(data: bytes) -> None:
    with contextlib.suppress(Refused):
        placement().take([(1, data)])


@settings(max_examples=often(300), deadline=None)
@given(broken(state()))
def test_broken_state_is_refused_or_is_state_of_the_pattern(data: bytes) -> None:
    with contextlib.suppress(Refused):
        check_state(PATTERN, {encode_key(("x",)): data}, 0.0)


@pytest.mark.parametrize(
    "result",
    [
        PlacedResult(encode_key(("x",)), MatchSummary(5, 5, 1, ((7, 1, ROW),))),
        PlacedResult(encode_key(("x", "y")), MatchSummary(5, 5, 1, ((0, 1, ROW),))),
        PlacedResult(encode_key(("x",)), MatchSummary(5, 5, 1, ((0, 1, Row(5, "n", 1, 1, ())),))),
        PlacedResult(encode_key(("x",)), MatchSummary(1 << 62, 1 << 62, 1, ())),
    ],
    ids=["a step that is none", "another key", "other values", "a time beyond all calendars"],
)
def test_a_result_that_the_pattern_can_not_have_is_refused(result: PlacedResult) -> None:
    with pytest.raises(Refused, match="no result of this pattern"):
        placement().take([(1, msgspec.msgpack.encode(result))])


def test_results_that_were_dropped_on_the_way_are_a_gap() -> None:
    one = placement()
    one.take([(1, GOOD), (5, GOOD), (5, GOOD)])
    reasons = [told[1] for told in one.watch.told if isinstance(told[0], Row)]  # type: ignore[attr-defined]
    assert reasons == ["too many matches wait"]
    assert one.had == 5


def ask(net: Network, node: str, other: str, operation: str, **arguments: Any) -> str:
    """What a node answers to its neighbour: the code of the error, or nothing."""
    told: list[Any] = []
    link = net.neighbour(node, other).link
    assert link is not None
    link.connection.request(operation, arguments).then(told.append, told.append)
    link.flush()
    net.run(1)
    return getattr(told[0], "code", "refused") if isinstance(told[0], TidingsError) else ""


def test_a_neighbour_gets_no_pattern_of_others_and_state_that_nobody_awaits_is_refused() -> None:
    net = line()
    source = net.app("n3")
    source.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    (placed,) = net["n3"].core.placing.placements
    about = {"id": placed.id, "moves": 99, "first": True, "done": True}
    assert ask(net, "n2", "n3", "link.compute.state", **about) == "exists"
    assert ask(net, "n2", "n1", "link.compute.recall", id=placed.id) == "not-found"
    assert ask(net, "n2", "n3", "link.compute", id="new", pattern=AB, steps=["type = 'A'"]) == "protocol"
    assert ask(net, "n2", "n3", "link.compute", id="new", pattern="a[", steps=[]) == "refused"
    assert ask(net, "n3", "n2", "link.compute.found", id="other", results=[]) == "not-found"
    publish(source, at("A", 0), at("B", 1), at("A", 400, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 0, 1)]
