"""New advertisements: what is published under them waits until all subscribers were heard."""

from __future__ import annotations

from math import inf

import pytest
from overlay.network import Network

from tidings.overlay import new_offers, waiting
from tidings.replies import Deferred


def line(length: int = 4) -> Network:
    """Nodes n0 - n1 - …, which offer what is declared."""
    edges = ((f"n{one}", f"n{one + 1}") for one in range(length - 1))
    return Network(*edges, offers_all=False, reroute_s=inf)


def test_what_is_published_at_once_under_a_new_advertisement_comes_once_and_in_order() -> None:
    net = line()
    far = net.app("n0").subscribe("x > 5")
    net.run()
    source = net.app("n3")
    source.advertise("x > 0")
    source.publish(7, 3, 8)
    source.publish(9)
    net.run()
    assert far.values == [7, 8, 9]
    assert net.count("n3", "relayed") == 3


def test_what_nobody_has_advertised_is_offered_by_its_type() -> None:
    net = line()
    far, other = net.app("n0").subscribe("x > 5"), net.app("n0").subscribe("type = 'other'")
    net.run()
    source = net.app("n3")
    source.publish(7, 8)
    net.run()
    source.publish(9, delivery="transient")
    net.run()
    assert far.values == [7, 8, 9]
    assert other.values == []
    assert net.table("n3", of="n2") == ["x > 5"]


def test_an_event_that_was_advertised_is_not_offered_by_its_type() -> None:
    net = line(2)
    source = net.app("n1")
    source.advertise("x > 0")
    source.publish(7)
    net.run()
    assert list(net.neighbour("n0", "n1").wants.offers) == ["x > 0"]


def test_an_advertiser_that_leaves_at_once_loses_nothing() -> None:
    net = line()
    far = net.app("n0").subscribe("x > 5")
    net.run()
    source = net.app("n3")
    offer = source.advertise("x > 0")
    source.publish(7, 8)
    offer.end()
    net.run()
    assert far.values == [7, 8]
    assert net.table("n3", of="n2") == net.table("n1", of="n0") == []


@pytest.mark.parametrize("cut", [("n0", "n1"), ("n1", "n2"), ("n2", "n3")])
def test_a_subscriber_behind_a_cut_gets_what_was_advertised_and_published_meanwhile(
    cut: tuple[str, str],
) -> None:
    net = line()
    far = net.app("n0").subscribe("x > 5", durable="mine")
    net.run()
    net.cut(*cut)
    net.run(30)
    source = net.app("n3")
    offer = source.advertise("x > 0")
    source.publish(7, 3)
    net.run(60)
    source.publish(8)
    offer.end()
    net.run(30)
    assert far.values == []
    net.heal(*cut)
    net.run(60)
    assert far.values == [7, 8]
    for node, of in (("n3", "n2"), ("n2", "n1"), ("n1", "n0")):
        assert net.table(node, of=of) == []


def test_events_wait_though_the_link_goes_before_its_neighbour_has_answered() -> None:
    net = line()
    far = net.app("n0").subscribe("x > 5", durable="mine")
    net.run()
    source = net.app("n3")
    source.advertise("x > 0")
    source.publish(7)
    net.cut("n0", "n1")
    net.run(30)
    source.publish(8)
    net.run(30)
    net.heal("n0", "n1")
    net.run(60)
    assert far.values == [7, 8]


def test_what_is_expected_to_be_wanted_demands_nothing_of_sensors() -> None:
    net = line(3)
    net.app("n0").subscribe("x > 5", durable="mine", passive=True)
    net.run()
    net.cut("n0", "n1")
    net.run(30)
    source = net.app("n2").advertise("x > 0")
    net.run(60)
    assert source.filters == []


def test_a_neighbour_that_never_answers_holds_nothing_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    net = line(2)
    far = net.app("n0").subscribe("x > 5")
    source = net.app("n1")
    source.advertise("type = 'x'")
    net.run()
    overlay = net["n0"].core.overlay
    silent: Deferred[object] = Deferred()
    arguments, _ = overlay.operations["link.in_force"]
    monkeypatch.setitem(overlay.operations, "link.in_force", (arguments, lambda *_: silent))
    monkeypatch.setitem(net["n0"].broker.operations, "link.in_force", (arguments, lambda *_: silent))
    source.advertise("type = 'y'")
    source.publish(7)
    net.run(waiting.ANSWER_S)
    assert far.values == []
    net.run(waiting.ANSWER_S * new_offers.UNANSWERED_MAX)
    assert far.values == [7]
    assert net.count("n1", "offers_unanswered") == 1


def test_very_many_types_are_offered_as_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_offers, "UNDECLARED_MAX", 3)
    net = line(2)
    far = net.app("n0").subscribe("x > 5")
    source = net.app("n1")
    for number in range(6):
        source.publish(6 + number, type=f"t{number}")
    net.run()
    assert far.values == [6, 7, 8, 9, 10, 11]
    assert len(net.neighbour("n1", "n0").offerer.covering) == 1
