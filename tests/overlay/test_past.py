"""The past of a network: a subscriber gets what all nodes have stored since a time, and then what comes."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest
from effort import SEED, often
from overlay.network import App, BusyStar, Listening, Network

from tidings.event import Batch
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.overlay import reading
from tidings.protocol import cursors, past, stored_pages
from tidings.protocol.broker import Broker
from tidings.protocol.stored_pages import StoredPiece
from tidings.protocol.subscriber import Wanted
from tidings.store.interface import StoredBatch


def line(**more: Any) -> Network:
    return Network(("a", "b"), ("b", "c"), reroute_s=inf, **more)


def wall_us(net: Network) -> int:
    return int(net["a"].broker.wall * 1e6)


def say(app: App, *values: int, **more: Any) -> None:
    app.publish(*values, **{"delivery": "persistent", **more})


def told(listening: Listening) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    listening.subscription.begun.then(answers.append)
    (answer,) = answers
    return answer


def say_at_each(net: Network, rounds: int) -> list[int]:
    """Have something published at each node in turn, a little later each time; what was."""
    apps = [net.app(name, name.upper()) for name in "abc"]
    for number in range(3 * rounds):
        say(apps[number % 3], number)
        net.run(0.1)
    return list(range(3 * rounds))


def test_what_all_nodes_have_stored_comes_in_the_order_of_time_and_then_what_is_new() -> None:
    net = line()
    since_us = wall_us(net)
    sent = say_at_each(net, 4)
    for name in "abc":
        listening = net.app(name).subscribe("", since_us=since_us)
        net.run()
        assert listening.values == sent
        assert "missing" not in told(listening)
        say(net.app("c", f"late-{name}"), len(sent))
        net.run()
        sent.append(len(sent))
        assert listening.values == sent


def test_only_what_was_stored_since_then_and_matches_comes() -> None:
    net = line()
    say_at_each(net, 2)
    since_us = wall_us(net)
    source = net.app("c", "oven")
    say(source, 50, 60, 70)
    say(source, 80, type="y")
    net.run()
    listening = net.app("a").subscribe("type = 'x' AND x > 50", since_us=since_us)
    net.run()
    assert listening.values == [60, 70]
    assert {event.source for event in listening.got} == {"oven@c"}


def test_what_this_node_has_of_others_comes_from_them_and_once() -> None:
    net = line()
    net.app("a").subscribe("", durable="keeps")
    net.run()
    since_us, sent = wall_us(net), say_at_each(net, 3)
    assert net["a"].broker.position == len(sent), "it has stored them all, or the test shows nothing"
    listening = net.app("a", "reader").subscribe("", since_us=since_us)
    net.run()
    assert listening.values == sent


@pytest.mark.parametrize("credit", [1, 7])
def test_a_slow_client_gets_it_page_by_page(credit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_pages, "PAGE_SIZE", 100)
    net = line()
    since_us = wall_us(net)
    for name in "bc":
        say(net.app(name, name), *range(40))
    net.run()
    app = net.app("a")
    listening = Listening(app, Wanted("", since_us=since_us), credit)
    app.pump()
    net.run(10)
    for source in ("b@b", "c@c"):
        assert [event["x"] for event in listening.got if event.source == source] == list(range(40))


def test_reliable_events_come_while_a_node_still_has_them_and_transient_ones_do_not() -> None:
    net = line()
    net.app("c").subscribe("", durable="away").end()
    net.run()
    since_us = wall_us(net)
    source = net.app("c", "oven")
    say(source, 1, delivery="reliable")
    say(source, 2, delivery="transient")
    say(source, 3)
    net.run()
    listening = net.app("a").subscribe("", since_us=since_us)
    net.run()
    assert listening.values == [1, 3]


@pytest.mark.parametrize("has_cuts", [False, True])
def test_past_and_present_meet_without_gap_or_overlap(
    has_cuts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four nodes at which programs publish all the time, subscribers that begin, and links that are cut."""
    monkeypatch.setattr(stored_pages, "PAGE_SIZE", 300)
    for seed in range(SEED, SEED + often(3)):
        star = BusyStar(seed, has_cuts)
        net, random, sources = star.net, star.random, star.sources
        since_us, sent = wall_us(net), dict.fromkeys((app.name for app in sources), 0)
        begun: list[Listening] = []
        for step in range(100):
            source = random.choice(sources)
            sent[source.name] += 1
            say(source, sent[source.name])
            if step % 12 == 6:
                begun.append(net.app(random.choice("abcd")).subscribe(f"x > {-step}", since_us=since_us))
            star.wait()
        star.heal()
        net.run(60)
        for one in begun:
            check(one, sent)


def check(listening: Listening, sent: dict[str, int]) -> None:
    """Check that all came, once and in the order of each program; of missing nodes what was known of them."""
    missing = told(listening).get("missing", [])
    by_source: dict[str, list[int]] = {name: [] for name in sent}
    for event in listening.got:
        by_source[(event.source or "").partition("@")[0]].append(event["x"])
    for name, values in by_source.items():
        assert all(value < after for value, after in pairwise(values)), (name, values)
        if name[0] not in missing:
            assert values == list(range(1, sent[name] + 1)), (name, values)
    assert listening.missed == []


def test_a_node_that_can_not_be_asked_is_missing_and_what_is_known_of_it_comes() -> None:
    net = line()
    net.app("a").subscribe("type = 'x'", durable="keeps")
    net.run()
    since_us = wall_us(net)
    say(net.app("c", "oven"), 1)
    say(net.app("b", "lamp"), 2, type="y")
    net.run()
    net.cut("b", "c")
    net.run(10)
    listening = net.app("a", "reader").subscribe("", since_us=since_us)
    net.run(10)
    assert told(listening)["missing"] == ["c"]
    assert listening.values == [1, 2]
    net.heal("b", "c")
    net.run(10)
    say(net.app("c", "oven2"), 3)
    net.run()
    assert listening.values == [1, 2, 3]


def test_a_node_that_is_lost_meanwhile_is_asked_again_and_its_rest_is_a_gap_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_pages, "PAGE_SIZE", 1)
    for is_back in (True, False):
        net = Network(("b", "c"), reroute_s=inf)
        since_us = int(net["b"].broker.wall * 1e6)
        source = net.app("c", "oven")
        for value in range(1, 7):
            say(source, value)
            net.run(0.1)
        listening = net.app("b").subscribe("", since_us=since_us)
        while not listening.got:
            net.run(0.001)
        net.cut("b", "c")
        net.run(5)
        had = len(listening.got)
        assert 0 < had < 6
        if is_back:
            net.heal("b", "c")
        net.run((past.AGAIN_S + reading.ANSWER_S) * past.TRIES_MAX)
        if is_back:
            assert (listening.values, listening.missed) == ([1, 2, 3, 4, 5, 6], [])
        else:
            (missed,) = listening.missed
            assert (missed.node, missed.last - missed.first + 1) == ("c", 6 - had)
            say(net.app("b"), 9)
            net.run()
            assert listening.values[-1] == 9, "and what is new comes"


def test_a_client_whose_connection_is_cut_meanwhile_gets_the_rest_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_pages, "PAGE_SIZE", 1)
    net = line()
    since_us, sent = wall_us(net), say_at_each(net, 4)
    app = net.app("a")
    listening = app.subscribe("", since_us=since_us)
    while not listening.got:
        net.run(0.001)
    assert len(listening.got) < len(sent)
    link = net.world.network.link(app.name, "a")
    net.world.network.cut(link)
    net.world.network.part(link)
    net.run(5)
    net.world.network.heal(link)
    net.run(10)
    assert listening.values == sent


def test_events_of_other_nodes_that_are_missed_while_the_connection_is_cut_are_a_gap() -> None:
    net = line()
    since_us, sent = wall_us(net), say_at_each(net, 1)
    app = net.app("a")
    listening = app.subscribe("", since_us=since_us)
    net.run()
    say(net.app("a", "lamp"), 8)
    net.run()
    link = net.world.network.link(app.name, "a")
    net.world.network.cut(link)
    net.world.network.part(link)
    net.run(5)
    say(net.app("c", "oven"), 10)
    say(net.app("a", "lamp2"), 9)
    net.world.network.heal(link)
    net.run(10)
    assert (listening.values, listening.gaps) == ([*sent, 8, 9], [(0, "disconnected")])


def test_what_waits_in_the_store_meanwhile_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliable events that come while the past is read, and that nobody else wants."""
    monkeypatch.setattr(stored_pages, "PAGE_SIZE", 1)
    monkeypatch.setattr(cursors, "TRIM_AFTER", 1)
    net = line()
    since_us, sent = wall_us(net), say_at_each(net, 4)
    listening = net.app("a").subscribe("x >= 0", since_us=since_us)
    source = net.app("b", "lamp")
    say(source, *range(100, 110), delivery="reliable")
    net.run()
    assert [value for value in listening.values if value < 100] == sent
    assert [value for value in listening.values if value >= 100] == list(range(100, 110))


def test_what_comes_while_the_subscription_catches_up_is_not_lost() -> None:
    """Between the end of the past and the moment from which events are sent as they come."""
    for seed in range(SEED, SEED + often(5)):
        net = Network(("a", "b"), seed=seed, reroute_s=inf)
        net["a"].read_s = 0.05
        since_us, source = int(net["a"].broker.wall * 1e6), net.app("b", "lamp")
        app = net.app("a")
        say(source, 0)
        listening = app.subscribe("", since_us=since_us)
        for value in range(1, 60):
            say(source, value)
            net.run(0.003)
        net.run()
        assert (listening.values, listening.gaps) == (list(range(60)), [])


def test_a_subscription_that_ends_meanwhile_leaves_nothing_behind() -> None:
    net = line()
    since_us, sent = wall_us(net), say_at_each(net, 2)
    app = net.app("a")
    listening = app.subscribe("", since_us=since_us)
    net.run(0.01)
    listening.end()
    net.run()
    assert listening.values in ([], sent)
    again = app.subscribe("", since_us=since_us)
    net.run()
    assert again.values == sent


# What bad input gets


def test_events_of_another_source_are_refused_and_their_node_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(("b", "c"))
    since_us = int(net["b"].broker.wall * 1e6)
    say(net.app("b", "oven"), 1)
    net.run()

    def lie(piece: StoredPiece, _node: str) -> reading.ValuesPart:
        return reading.ValuesPart("sys", 1, "oven@a", piece.batch.raw, piece.stored_us)

    monkeypatch.setattr(reading, "_part_of", lie)
    listening = net.app("c").subscribe("x > 0", since_us=since_us)
    net.run(10)
    assert (listening.got, told(listening)["missing"]) == ([], ["b"])
    assert net.count("c", "relays_refused", "source") == 1


def test_events_that_were_not_asked_for_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("b", "c"))
    since_us = int(net["b"].broker.wall * 1e6)
    say(net.app("b", "oven"), -1)
    net.run()

    def lie(_broker: Broker, _filter: Filter, stored: StoredBatch, _rows: range) -> Batch:
        return Batch(stored.raw, Origin(stored.system, stored.epoch, stored.source))

    monkeypatch.setattr(reading, "_own_stored", lie)
    listening = net.app("c").subscribe("x > 0", since_us=since_us)
    net.run(10)
    assert listening.got == []
    assert net.count("c", "relays_refused", "not-allowed") == 1
