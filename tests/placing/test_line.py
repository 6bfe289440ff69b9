"""Patterns on a line of nodes: evaluated where all their sources are seen, with the matches of one node."""

from __future__ import annotations

from overlay.network import Network
from placing.line import AB, LATER, at, line, publish, spans, where


def test_a_pattern_is_evaluated_at_the_node_of_its_sources_and_only_matches_travel() -> None:
    net = line()
    source = net.app("n3")
    source.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    assert where(net) == "n3"
    assert net.table("n3", of="n2") == net.table("n2", of="n1") == []
    relayed = net.count("n3", "relayed")
    for second in range(100):
        publish(source, at("A", 10 * second, k="y"))
    publish(source, at("A", 2_000), at("B", 2_100), at("A", 2_200, k="z"))
    net.run()
    assert spans(matches) == [("x", 2_000, 2_100)]
    assert net.count("n3", "relayed") == relayed, "no event has crossed a link"


def test_a_partial_match_moves_with_the_pattern_and_is_completed_elsewhere() -> None:
    net = line()
    far = net.app("n3")
    far.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=LATER)
    net.run(10)
    publish(far, at("A", 0), at("X", 100, k="other"), at("A", 100, k="push"))
    net.run()
    near = net.app("n1")
    offer = near.advertise("type = 'B'")
    net.run(5)
    assert where(net) == "n1"
    publish(near, at("B", 150))
    publish(far, at("A", 500, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 0, 150)]
    offer.end()
    net.run(10)
    assert where(net) == "n3"
    publish(far, at("B", 600, k="push"), at("A", 900, k="push"))
    net.run()
    assert spans(matches) == [("x", 0, 150), ("push", 500, 600)]


def test_a_pattern_stays_where_two_sides_meet_and_goes_no_further() -> None:
    net = Network(("n1", "n2"), ("n2", "n3"), ("n2", "n4"), offers_all=False)
    left, right = net.app("n3"), net.app("n4")
    left.advertise("type = 'A'")
    right.advertise("type = 'B'")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    assert where(net) == "n2"
    publish(left, at("A", 0))
    net.run(1)
    publish(right, at("B", 10))
    net.run(1)
    assert spans(matches) == [("x", 0, 10)]
    assert net.count("n2", "relayed") == 0


def test_an_advertiser_that_waits_until_it_is_in_force_is_heard_though_the_pattern_is_elsewhere() -> None:
    net = line()
    far = net.app("n3")
    far.advertise("type = 'A'")
    matches = net.app("n1").subscribe(pattern=LATER)
    net.run(10)
    assert where(net) == "n3"
    publish(far, at("A", 0))
    net.run()
    near = net.app("n2")
    near.advertise("type = 'B'")
    told = near.ask("in_force", of_offers=True)
    while not told:
        net.run(0.001)
    publish(near, at("B", 10), at("B", 1_000, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 0, 10)]
    assert where(net) == "n2"


def test_a_pattern_that_ends_leaves_nothing_at_any_node() -> None:
    net = line()
    net.app("n3").advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    matches.end()
    net.run()
    assert [net[name].core.placing.placements for name in net.names] == [[], [], []]
    assert [net[name].broker.exchange.subscriptions for name in net.names] == [0, 0, 0]


def test_matches_wait_for_a_link_that_is_cut_and_come_once() -> None:
    net = line()
    source = net.app("n3")
    source.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    net.cut("n1", "n2")
    net.run(1)
    publish(source, at("A", 0), at("B", 1), at("A", 2), at("B", 3), at("A", 4, k="y"))
    net.run(5)
    assert spans(matches) == []
    net.heal("n1", "n2")
    net.run(20)
    assert spans(matches) == [("x", 0, 1), ("x", 2, 3)]


def test_a_standing_pattern_outlives_restarts_of_all_nodes_where_it_is() -> None:
    net = line()
    net.app("n3", "source").advertise("type IN ('A', 'B')")
    matches = net.app("n1", "client").subscribe(pattern=LATER, durable="d")
    net.run(10)
    assert where(net) == "n3"
    publish(net.app("n3"), at("A", 0), at("A", 100, k="push"))
    net.run()
    for name in ("n3", "n2", "n1"):
        net[name].crash()
        net.run(2)
        net[name].start()
        net.run(10)
    assert where(net) == "n3"
    publish(net.app("n3"), at("B", 110), at("A", 400, k="push"))
    net.run(5)
    publish(net.app("n3"), at("A", 500), at("B", 510), at("A", 900, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 0, 110), ("x", 500, 510)]


def test_a_node_that_loses_a_pattern_of_a_session_leads_to_a_gap_and_a_new_beginning() -> None:
    net = line()
    source = net.app("n3")
    source.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=AB)
    net.run(10)
    publish(source, at("A", 0))
    net.run(1)
    net["n3"].crash()
    net.run(2)
    net["n3"].start()
    net.run(20)
    assert [reason for _, reason in matches.gaps] == ["moved"]
    source = net.app("n3", "again")
    source.advertise("type IN ('A', 'B')")
    net.run(10)
    publish(source, at("B", 10), at("A", 20), at("B", 30), at("A", 900, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 20, 30)]


def test_events_that_wait_for_a_pattern_to_come_back_survive_a_restart() -> None:
    net = line()
    far = net.app("n3")
    far.advertise("type IN ('A', 'B')")
    matches = net.app("n1").subscribe(pattern=LATER, durable="d")
    net.run(10)
    publish(far, at("A", 0))
    net.run(2)
    net.cut("n2", "n3")
    net.run(0.5)
    near = net.app("n2", "near")
    near.advertise("type = 'B'")
    net.run(0.5)
    publish(near, at("B", 10))
    net.run(1)
    (held,) = [one for one in net["n2"].core.placing.placements if one.phase == "fetching"]
    assert len(held.watch.held) == 1
    net["n2"].crash()
    net["n2"].start()
    net.run(0.5)
    net.heal("n2", "n3")
    net.run(20)
    publish(near, at("B", 1_000, k="push"))
    net.run(5)
    assert spans(matches) == [("x", 0, 10)]


def test_a_pattern_waits_until_its_node_has_all_events_from_before() -> None:
    net = line()
    far, near = net.app("n3"), net.app("n1")
    far.advertise("type IN ('A', 'B')")
    offer = near.advertise("type = 'B'")
    matches = near.subscribe(pattern="a[type IN ('A', 'B')] LATE 0 s BY k")
    net.run(10)
    net.cut("n1", "n2")
    net.run(1)
    publish(far, at("A", 0), at("A", 1), at("A", 2))
    offer.end()
    net.run(2)
    net["n2"].read_s = 20.0  # what was stored meanwhile comes late, though the link is there
    net.heal("n1", "n2")
    net.run(5)
    publish(far, at("A", 3))
    net.run(60)
    assert spans(matches) == [("x", second, second) for second in range(4)]
    assert where(net) == "n3"
