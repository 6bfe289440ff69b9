"""Causal order at one node: what passes, what is held, and what is not waited for."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.channels.causal import (
    HELD_MAX,
    HOLD_S,
    NAMES_MAX,
    CausalOrder,
    CausalState,
    ChannelArrival,
    Marks,
    OrderVerdict,
    decode_names,
    encode_names,
    mark_of,
)
from tidings.errors import CodecError


def arrival(node: str, number: int, names: Marks | None = None, volatile: bool = False) -> ChannelArrival:
    return ChannelArrival(node, 1, volatile, number, names or {})


def named(node: str, number: int, volatile: bool = False) -> Marks:
    return {mark_of(node, 1, volatile): number}


def take(order: CausalOrder[str], one: ChannelArrival, name: str, now: float = 0.0) -> list[str]:
    """What is delivered when an event arrives."""
    delivered = [name] if order.arrive(one, name, 1, now) is OrderVerdict.PASS else []
    return delivered + order.release(now)


X, Y, Z = arrival("a", 1), arrival("b", 1, named("a", 1)), arrival("c", 1)


@pytest.mark.parametrize("arriving", list(permutations("xyz")))
def test_of_x_y_after_x_and_z_which_is_free_y_never_comes_before_x(arriving: tuple[str, ...]) -> None:
    order: CausalOrder[str] = CausalOrder()
    events = {"x": X, "y": Y, "z": Z}
    delivered = "".join(one for name in arriving for one in take(order, events[name], name))
    assert delivered in {"xzy", "xyz", "zxy"}
    if "".join(arriving) in {"xzy", "xyz", "zxy"}:
        assert delivered == "".join(arriving)


def test_an_event_that_comes_after_a_held_one_of_its_node_waits_behind_it() -> None:
    order: CausalOrder[str] = CausalOrder()
    assert take(order, Y, "y") == []
    assert take(order, arrival("b", 2), "y2") == []
    assert take(order, X, "x") == ["x", "y", "y2"]


def test_only_the_last_predecessors_are_named_and_only_once() -> None:
    order: CausalOrder[str] = CausalOrder()
    for one in (X, Y, Z):
        take(order, one, "")
    assert order.send() == {**named("b", 1), **named("c", 1)}
    assert order.send() == {}


def test_a_transient_predecessor_is_a_gap_and_dropped_when_it_comes_after_all() -> None:
    order: CausalOrder[str] = CausalOrder()
    assert take(order, arrival("b", 1, named("a", 3, volatile=True), volatile=True), "y") == ["y"]
    assert order.gaps == 1
    assert order.arrive(arrival("a", 3, volatile=True), "x", 1, 0.0) is OrderVerdict.DROP
    assert take(order, arrival("a", 4, volatile=True), "x4") == ["x4"]


def test_a_predecessor_that_was_reported_as_missed_is_not_waited_for() -> None:
    order: CausalOrder[str] = CausalOrder()
    take(order, Y, "y")
    order.miss("a", 1, 5)
    assert order.release(0.0) == ["y"]


def test_who_joins_does_not_wait_for_what_was_sent_before() -> None:
    before: CausalOrder[str] = CausalOrder()
    take(before, X, "x")
    order: CausalOrder[str] = CausalOrder()
    order.learn(before.marks)
    assert take(order, Y, "y") == ["y"]


def test_a_forged_predecessor_holds_a_channel_for_a_bounded_time_and_by_a_bounded_number() -> None:
    order: CausalOrder[str] = CausalOrder()
    forged = arrival("b", 1, named("nobody", 1 << 40))
    assert take(order, forged, "y") == []
    assert order.release(HOLD_S * 2, is_whole=False) == []
    assert order.release(HOLD_S, is_whole=True) == ["y"]
    assert order.gaps == 1
    passed = [
        one
        for number in range(2, HELD_MAX + 10)
        for one in take(order, arrival("b", number, named("nobody", (1 << 40) + number)), str(number))
    ]
    assert passed
    assert len(order.held) <= HELD_MAX


def test_the_end_of_an_epoch_ends_the_waiting_for_its_events() -> None:
    order: CausalOrder[str] = CausalOrder()
    take(order, X, "x")
    assert take(order, arrival("b", 1, named("a", 2)), "y") == []
    assert take(order, ChannelArrival("a", 2, is_volatile=False, last=1), "new") == ["new", "y"]


def test_a_node_that_starts_again_goes_on_as_before() -> None:
    before: CausalOrder[str] = CausalOrder()
    take(before, X, "x")
    order: CausalOrder[str] = CausalOrder(before.state)
    assert order.send() == named("a", 1)
    assert take(CausalOrder(before.state), Y, "y") == ["y"]
    assert CausalOrder(CausalState()).send() == {}


def test_own_events_are_not_waited_for() -> None:
    order: CausalOrder[str] = CausalOrder()
    order.own("me", 1)
    assert take(order, arrival("b", 1, named("me", 77)), "y") == ["y"]


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), max_size=50))
def test_names_come_back_from_their_bytes(names: Marks) -> None:
    assert decode_names(encode_names(names)) == names


@given(st.binary(max_size=40))
def test_bytes_that_are_no_names_are_refused(junk: bytes) -> None:
    with suppress(CodecError):
        assert all(number >= 0 for number in decode_names(junk).values())


@pytest.mark.parametrize("bad", [[1], [1, -1], [1, 1 << 63], list(range(2 * NAMES_MAX + 2))])
def test_names_that_can_not_be_are_refused(bad: list[int]) -> None:
    with pytest.raises(CodecError, match=r"\$.after"):
        decode_names(msgspec.msgpack.encode(bad))


@given(st.data())
def test_events_of_many_nodes_are_delivered_in_causal_order_however_they_arrive(data: st.DataObject) -> None:
    """Nodes publish and hear of each other in any order; the oracle has the whole past of each event."""
    nodes = "abc"
    orders: dict[str, CausalOrder[str]] = {name: CausalOrder() for name in nodes}
    for name, order in orders.items():
        order.own(name, 1)
    events: dict[str, ChannelArrival] = {}
    past: dict[str, set[str]] = {}
    seen: dict[str, list[str]] = {name: [] for name in nodes}
    waiting: dict[str, list[str]] = {name: [] for name in nodes}
    counts = dict.fromkeys(nodes, 0)

    def hear(name: str) -> None:
        firsts = {events[one].node: one for one in reversed(waiting[name])}  # in the order of each sender
        one = data.draw(st.sampled_from(sorted(firsts.values())))
        waiting[name].remove(one)
        seen[name] += take(orders[name], events[one], one)

    for _ in range(data.draw(st.integers(1, 15))):
        name = data.draw(st.sampled_from(nodes))
        if waiting[name] and data.draw(st.booleans()):
            hear(name)
            continue
        counts[name] += 1
        event = f"{name}{counts[name]:02}"
        events[event] = arrival(name, counts[name], orders[name].send())
        past[event] = {one for known in seen[name] for one in (known, *past[known])}
        seen[name].append(event)
        for other in nodes:
            if other != name:
                waiting[other].append(event)
    for name in nodes:
        while waiting[name]:
            hear(name)
        assert sorted(seen[name]) == sorted(events)
        for place, event in enumerate(seen[name]):
            assert past[event] <= set(seen[name][:place])
