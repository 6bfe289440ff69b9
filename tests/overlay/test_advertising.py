"""Advertisements: filters go only to where something is published that they may match."""

from __future__ import annotations

from math import inf

from overlay.network import Network


def test_a_filter_goes_only_towards_an_advertisement_that_it_overlaps() -> None:
    net = Network(("n1", "n2"), ("n2", "n3"), offers_all=False)
    far = net.app("n1").subscribe("x > 5")
    net.run()
    assert net.table("n2", of="n1") == net.table("n3", of="n2") == []
    source = net.app("n3")
    source.advertise("x > 0")
    net.run()
    assert net.table("n2", of="n1") == net.table("n3", of="n2") == ["x > 5"]
    source.publish(3, 7)
    net.run()
    assert far.values == [7]
    assert net.count("n3", "relayed") == 1


def test_filters_that_overlap_no_advertisement_stay_where_they_are() -> None:
    net = Network(("a", "b"), ("b", "c"), offers_all=False)
    app = net.app("a")
    for bound in range(10):
        app.subscribe(f"type = 't{bound}'")
    net.app("c").advertise("type = 't3'")
    net.run()
    assert net.table("c", of="b") == ["type = 't3'"]
    assert net.table("a", of="b") == []


def test_a_withdrawn_advertisement_takes_the_filters_back_that_only_it_needed() -> None:
    net = Network(("a", "b"), ("b", "c"), offers_all=False)
    app, source = net.app("a"), net.app("c")
    app.subscribe("type = 't' AND x > 5")
    app.subscribe("type = 'u'")
    both, one = source.advertise("type IN ('t', 'u')"), source.advertise("type = 't' AND x > 0")
    net.run()
    wanted = ["type = 't' AND x > 5", "type = 'u'"]
    assert net.table("c", of="b") == wanted
    both.end()
    net.run()
    assert net.table("c", of="b") == net.table("b", of="a") == wanted[:1]
    one.end()
    net.run()
    assert net.table("c", of="b") == net.table("b", of="a") == []


def test_an_event_that_follows_an_advertisement_in_force_is_not_lost() -> None:
    net = Network(*((f"n{one}", f"n{one + 1}") for one in range(5)), offers_all=False)
    far = net.app("n0").subscribe("x > 5")
    net.run()
    source = net.app("n5")
    source.advertise("x > 0")
    told = source.ask("in_force", of_offers=True)
    while not told:
        net.run(0.001)
    source.publish(7, delivery="transient")
    net.run()
    assert far.values == [7]


def test_a_network_recovers_its_tables_after_cuts_and_restarts() -> None:
    net = Network(("a", "b"), ("b", "c"), offers_all=False, reroute_s=inf)
    far = net.app("a").subscribe("x > 5", durable="mine")
    net.app("c").advertise("x > 0")
    net.run()
    net["b"].crash()
    net.run(5)
    net["b"].start()
    net.run(60)
    net.app("c").publish(7)
    net.run()
    assert far.values == [7]
    assert net.table("c", of="b") == ["x > 5"]


def test_a_source_learns_of_demand_at_other_nodes_but_not_of_passive_ones() -> None:
    net = Network(("a", "b"), ("b", "c"))
    source = net.app("c").advertise("x > 0")
    app = net.app("a")
    app.subscribe("x > 0", passive=True)
    net.run()
    assert source.filters == []
    demanding = app.subscribe("x > 5")
    net.run()
    assert source.filters == ["x > 5"]
    demanding.end()
    net.run()
    assert source.filters == []
