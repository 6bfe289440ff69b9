"""Last values of a network: a subscriber at any node gets those of all nodes, and then what comes after."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import pytest
from effort import SEED, often
from overlay.network import App, BusyStar, Listening, Network

from tidings.errors import Refused
from tidings.ids import NUMBER_MAX
from tidings.overlay import reading
from tidings.protocol.elsewhere import UpTo


def line(**more: Any) -> Network:
    return Network(("a", "b"), ("b", "c"), reroute_s=inf, **more)


def held(listening: Listening) -> list[tuple[str | None, str | None, int]]:
    """What came: source, subject and value, in the order of sources."""
    return sorted((one.source, one.subject, one["x"]) for one in listening.got)


def say(app: App, subject: str, *values: int, **more: Any) -> None:
    app.publish(*values, subject=subject, **more)


@pytest.mark.parametrize("is_known_there", [False, True])
def test_the_last_values_of_all_nodes_come_to_a_subscriber_at_any_of_them(is_known_there: bool) -> None:
    """Whether or not events have come to its node before."""
    net = line()
    sources = {name: net.app(name, name.upper()) for name in "abc"}
    if is_known_there:
        net.app("a").subscribe("")
        net.app("c").subscribe("")
        net.run()
    for number, app in enumerate(sources.values()):
        say(app, "hall", 10 * number, 10 * number + 1)
        say(app, "attic", 10 * number + 2)
    net.run()
    expected = {"a": ("A", "B@b", "C@c"), "b": ("A@a", "B", "C@c"), "c": ("A@a", "B@b", "C")}
    for name, names in expected.items():
        listening = net.app(name).subscribe("", last=True)
        net.run()
        values = [[(one, "attic", 10 * n + 2), (one, "hall", 10 * n + 1)] for n, one in enumerate(names)]
        assert held(listening) == [each for some in values for each in some]
        listening.got.clear()
        say(sources["c"], "hall", 99, 21)
        net.run()
        assert listening.values == [99, 21]
        listening.end()


def test_only_what_matches_comes_and_the_newest_of_each_thing_counts() -> None:
    net = line()
    source = net.app("c", "oven")
    say(source, "hall", 5, 1, delivery="transient")
    say(source, "attic", 7)
    net.run()
    listening = net.app("a").subscribe("x > 2", last=True)
    net.run()
    assert held(listening) == [("oven@c", "attic", 7), ("oven@c", "hall", 5)]


def test_last_values_are_those_of_a_node_that_has_started_again() -> None:
    net = line()
    reader, source = net.app("b"), net.app("c", "oven")
    reader.subscribe("", durable="reads")
    net.run()
    say(source, "hall", 1, 2)
    net.run()
    for name in "bc":
        net[name].crash()
        net[name].start()
    net.run(10)
    listening = net.app("a").subscribe("", last=True)
    net.run()
    assert held(listening) == [("oven@c", "hall", 2)]


def test_many_last_values_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_SIZE", 100)
    net = line()
    for name in "bc":
        app = net.app(name, name.upper())
        for number in range(50):
            say(app, f"s{number}", number)
    net.run()
    listening = net.app("a").subscribe("", last=True)
    net.run()
    assert listening.values.count(0) == 2
    for source in ("B@b", "C@c"):
        assert [one["x"] for one in listening.got if one.source == source] == list(range(50)), (
            "in their order"
        )
    for name in "bc":
        assert net[name].core.overlay.reading._kept == {}, "nothing is left of it"


@pytest.mark.parametrize("has_cuts", [False, True])
def test_what_comes_while_nodes_are_asked_comes_once_behind_the_last_values(has_cuts: bool) -> None:
    """Four nodes at which programs publish all the time, subscribers that begin, and links that are cut."""
    for seed in range(SEED, SEED + often(3)):
        star = BusyStar(seed, has_cuts)
        net, random, sources = star.net, star.random, star.sources
        sent = dict.fromkeys(((app.name, kind) for app in sources for kind in ("x", "y")), 0)
        begun: list[Beginning] = []
        for step in range(120):
            source, kind = random.choice(sources), random.choice("xy")
            sent[source.name, kind] += 1
            is_lost = kind == "y" and not has_cuts  # a link that is cut loses it
            say(
                source,
                "s",
                sent[source.name, kind],
                type=kind,
                delivery="transient" if is_lost else "reliable",
            )
            if step % 12 == 6:
                begun.append(Beginning(net.app(random.choice("abcd")), step, dict(sent)))
            star.wait()
        star.heal()
        net.run(40 if has_cuts else 5)
        for one in begun:
            one.check(sent)


class Beginning:
    """A subscription with last values, and what was sent before it."""

    def __init__(self, app: App, step: int, before: dict[tuple[str, str], int]) -> None:
        app.subscribe(f"type = 'other{step}'")  # which is being announced
        self._got = app.subscribe(f"x > {-step}", last=True)  # no other filter covers it
        self._before = before
        self._told: list[dict[str, Any]] = []
        self._got.subscription.begun.then(self._told.append)

    def check(self, sent: dict[tuple[str, str], int]) -> None:
        """Check that all came from some event on, once and in order; of missing nodes some."""
        (told,) = self._told
        by_key: dict[tuple[str, str], list[int]] = {key: [] for key in sent}
        for one in self._got.got:
            by_key[(one.source or "").partition("@")[0], one.type].append(one["x"])
        for key, last in sent.items():
            values = by_key[key]
            assert all(value < after for value, after in pairwise(values)), (key, values)
            if key[0][0] not in told.get("missing", []):
                assert values == list(range(last + 1 - len(values), last + 1)), (key, values, last)
                assert values or not self._before[key], key


def test_nodes_are_asked_behind_what_is_announced_to_them() -> None:
    """The filter waits for the answer to an earlier one, and what is published meanwhile is not lost."""
    net = line()
    app, source = net.app("a"), net.app("c", "oven")
    app.subscribe("type = 'other'")
    listening = app.subscribe("x > 0", last=True)
    for value in range(1, 200):
        say(source, "hall", value, delivery="transient")
        net.run(0.001)
    net.run()
    assert listening.values == list(range(listening.values[0], 200))


def test_a_node_that_can_not_be_asked_is_missing_and_what_is_known_of_it_comes() -> None:
    net = line()
    net.app("a").subscribe("type = 'x'")
    net.run()
    source = net.app("c", "oven")
    say(source, "hall", 1)
    say(source, "attic", 2, type="y")
    net.run()
    net.cut("b", "c")
    net.run(10)
    listening = net.app("a").subscribe("", last=True)
    told: list[Any] = []
    listening.subscription.begun.then(told.append)
    net.run()
    assert told[0]["missing"] == ["c"]
    assert held(listening) == [("oven@c", "hall", 1)], "of what this node has had"
    net.heal("b", "c")
    net.run(10)
    say(source, "hall", 3)
    net.run()
    assert listening.values == [1, 3]


def test_a_silent_node_is_missing_after_a_while_and_events_go_on() -> None:
    net = line()
    source = net.app("b", "oven")
    net.part("b", "c")
    listening = net.app("a").subscribe("", last=True)
    told: list[Any] = []
    listening.subscription.begun.then(told.append)
    say(source, "hall", 1)
    net.run(reading.ANSWER_S + 1)
    assert told[0]["missing"] == ["c"]
    assert listening.values == [1]


def test_a_subscription_that_ends_meanwhile_leaves_nothing_behind() -> None:
    net = line()
    app, source = net.app("a"), net.app("c", "oven")
    say(source, "hall", 1)
    net.run()
    listening = app.subscribe("", last=True)
    listening.end()
    net.run()
    assert listening.got == []
    again = app.subscribe("", last=True)
    net.run()
    assert again.values == [1]


# What bad input gets


def answered(net: Network, monkeypatch: pytest.MonkeyPatch, **answer: Any) -> Listening:
    """What a subscriber at c gets when b says this of its last values."""

    def lie(self: reading.KeptReading, start: int, node: str) -> reading.ValuesPage:
        page = page_of(self, start, node)
        return reading.ValuesPage(**{"up_to": page.up_to, "parts": page.parts, **answer})

    page_of = reading.KeptReading.page
    monkeypatch.setattr(reading.KeptReading, "page", lie)
    listening = net.app("c").subscribe("x > 0", last=True)
    told: list[Any] = []
    listening.subscription.begun.then(told.append)
    net.run(10)
    assert told, "the subscription has begun nonetheless"
    listening.told = told[0]  # type: ignore[attr-defined]
    return listening


def part(source: str, net: Network) -> reading.ValuesPart:
    """The last value of a program at b, under another source."""
    app = net.app("b", "liar")
    say(app, "hall", 1)
    net.run()
    (batch,) = net["b"].broker.publishing.recent
    return reading.ValuesPart("sys", 1, source, batch.raw)


def test_a_value_with_the_source_of_another_node_is_refused_and_its_node_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Network(("b", "c"))
    listening = answered(net, monkeypatch, parts=[part("oven@a", net)])
    assert (listening.got, listening.told) == ([], {**listening.told, "missing": ["b"]})  # type: ignore[attr-defined]
    assert net.count("c", "relays_refused", "source") == 1


def test_a_value_that_was_not_asked_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("b", "c"))
    app = net.app("b", "liar")
    say(app, "hall", -1)
    net.run()
    (batch,) = net["b"].broker.publishing.recent
    lie = reading.ValuesPart("sys", 1, "liar@b", batch.raw)
    assert answered(net, monkeypatch, parts=[lie]).got == []
    assert net.count("c", "relays_refused", "not-allowed") == 1


def test_bytes_that_are_no_events_make_their_node_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("b", "c"))
    lie = reading.ValuesPart("sys", 1, "liar@b", b"\x91\x00")
    assert answered(net, monkeypatch, parts=[lie]).told["missing"] == ["b"]  # type: ignore[attr-defined]


def test_numbers_of_an_epoch_that_has_not_begun_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("b", "c"))
    app = net.app("b", "oven")
    listening = answered(net, monkeypatch, up_to=UpTo(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX))
    assert listening.told["missing"] == ["b"]  # type: ignore[attr-defined]
    say(app, "hall", 1, 2)
    net.run()
    assert listening.values == [1, 2]


def test_pages_that_lead_nowhere_end(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network(("b", "c"))
    answered(net, monkeypatch, parts=[part("liar@b", net)], next=0)


def test_too_many_requests_of_a_neighbour_wait_and_a_reading_that_is_over_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "READS_MAX", 2)
    net = line()
    say(net.app("c", "oven"), "hall", 1)
    net.run()
    begun = [net.app("a").subscribe("", last=True) for _ in range(5)]
    net.run(10)
    assert [one.values for one in begun] == [[1]] * 5
    link = net.neighbour("b", "c").link
    assert link is not None
    told: list[Any] = []
    asked = {"to": net["c"].broker.node, "reading": "x", "start": 3, "sides": list(sides(net))}
    link.connection.request("link.values", asked).then(told.append, told.append)
    link.flush()
    net.run()
    assert isinstance(told[0], Refused)
    assert told[0].code == "not-found"


def sides(net: Network) -> tuple[int, int]:
    found = net["b"].core.overlay.routing.sides(net["c"].broker.node)
    assert found is not None
    return found


def test_readings_that_are_not_finished_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_SIZE", 1)
    monkeypatch.setattr(reading, "READINGS_MAX", 3)
    net = line()
    source = net.app("c", "oven")
    for number in range(3):
        say(source, f"s{number}", number)
    net.run()
    link = net.neighbour("b", "c").link
    assert link is not None
    for number in range(9):
        asked = {"to": net["c"].broker.node, "reading": str(number), "sides": list(sides(net))}
        link.connection.request("link.values", asked)
    link.flush()
    net.run()
    kept = net["c"].core.overlay.reading._kept
    assert [name for _, name in kept] == ["6", "7", "8"]
    net.run(reading.READING_S)
    assert kept == {}
