"""Events cross nodes: each subscriber gets what it wants, once, wherever it was published."""

from __future__ import annotations

from overlay.network import Network


def test_an_event_reaches_a_subscriber_two_nodes_away() -> None:
    net = Network(("a", "b"), ("b", "c"))
    far = net.app("c").subscribe("x > 5")
    net.run()
    net.app("a").publish(3, 7, 9)
    net.run()
    assert far.values == [7, 9]


def test_transient_events_cross_too() -> None:
    net = Network(("a", "b"), ("b", "c"))
    near, far = net.app("a").subscribe(), net.app("c").subscribe("x > 5")
    net.run()
    net.app("a").publish(3, 7, 9, delivery="transient")
    net.run()
    assert far.values == [7, 9]
    assert near.values == [3, 7, 9]


def test_an_event_is_delivered_once_at_each_node_where_links_form_a_ring() -> None:
    net = Network(("a", "b"), ("b", "c"), ("c", "a"))
    apps = {name: net.app(name).subscribe() for name in net.names}
    net.run()
    net.app("a").publish(1)
    net.app("b").publish(2, delivery="transient")
    net.run()
    assert {name: sorted(one.values) for name, one in apps.items()} == {name: [1, 2] for name in net.names}
    states = [one.status(0)["state"] for name in net.names for one in net[name].core.overlay]
    assert sorted(states) == ["stands by"] * 2 + ["up"] * 4


def test_two_nodes_that_dial_each_other_have_one_link() -> None:
    net = Network(("a", "b"), ("b", "a"))
    far = net.app("b").subscribe()
    net.run()
    net.app("a").publish(1, 2)
    net.run()
    assert far.values == [1, 2]
    assert [len(list(net[name].core.overlay)) for name in net.names] == [1, 1]
    assert net.neighbour("a", "b").is_up
    assert net.neighbour("b", "a").is_up


def test_a_filter_is_announced_once_a_hop_and_covers_narrower_ones() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app = net.app("a")
    app.subscribe("x > 0")
    net.run()
    app.subscribe("x > 5")
    net.run()
    assert net.table("b", of="a") == net.table("c", of="b") == ["x > 0"]
    net.app("c").publish(-1, 3)
    net.run()
    assert [one.values for one in app.subscriptions] == [[3], []]
    assert net.count("c", "relayed") == 1, "what nobody wants stays at its first node"


def test_unsubscribing_leaves_nothing_behind() -> None:
    net = Network(("a", "b"), ("b", "c"))
    wide = net.app("a").subscribe("x > 0")
    net.run()
    wide.end()
    net.run()
    assert net.table("b", of="a") == net.table("c", of="b") == []
    assert not net["b"].broker.exchange.subscriptions


def test_uncovering_a_filter_loses_no_event() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app, source = net.app("a"), net.app("c")
    wide, narrow = app.subscribe("x > 0"), app.subscribe("x > 5")
    net.run()
    source.publish(*[7] * 20)
    wide.end()
    for _ in range(20):
        net.run(0.01)
        source.publish(7)
    net.run()
    assert net.table("c", of="b") == ["x > 5"]
    assert narrow.values == [7] * 40


def test_a_durable_subscription_gets_what_was_published_elsewhere_while_it_was_away() -> None:
    net = Network(("a", "b"), ("b", "c"))
    app = net.app("c", "reader")
    app.subscribe("x > 0", durable="mine")
    net.run()
    app.crash()
    net.app("a").publish(1, 2, 3)
    net.run()
    app.start()
    again = app.subscribe("x > 0", durable="mine")
    net.run()
    assert again.values == [1, 2, 3]


def test_what_is_published_during_a_cut_comes_once_and_in_order_afterwards() -> None:
    net = Network(("a", "b"), ("b", "c"))
    far = net.app("c").subscribe("x > 0", durable="mine")
    source = net.app("a")
    net.run()
    source.publish(1, 2)
    net.cut("b", "c")
    source.publish(3, 4)
    net.run(10)
    assert far.values[:2] == [1, 2] or far.values == []
    net.heal("b", "c")
    source.publish(5)
    net.run(60)
    assert far.values == [1, 2, 3, 4, 5]


def test_a_node_that_is_killed_between_cut_links_loses_no_reliable_event() -> None:
    net = Network(("a", "b"), ("b", "c"))
    far = net.app("c").subscribe("x > 0", durable="mine")
    source = net.app("a")
    net.run()
    net.cut("b", "c")
    source.publish(1, 2, 3)
    net.run(5)
    net["b"].crash()
    source.publish(4)
    net.run(1)
    net["b"].start()
    net.heal("b", "c")
    source.publish(5)
    net.run(120)
    assert far.values == [1, 2, 3, 4, 5]


def test_an_unchanged_table_is_not_sent_again_after_a_cut() -> None:
    net = Network(("a", "b"))
    app = net.app("a")
    for bound in range(50):
        app.subscribe(f"type = 't{bound}' AND x > {bound}")
    net.run()
    told = net.neighbour("a", "b").announcer.told
    net.cut("a", "b")
    net.run(30)
    net.heal("a", "b")
    net.run(60)
    assert net.neighbour("a", "b").is_up
    assert len(net.table("b", of="a")) == 50
    assert net.neighbour("a", "b").announcer.told == told


def test_the_source_of_an_event_names_its_node_elsewhere() -> None:
    net = Network(("a", "b"), ("b", "c"))
    near, far = net.app("a").subscribe(), net.app("c").subscribe()
    net.run()
    net.app("a", "alice").publish(1)
    net.run()
    assert [event.source for event in near.got] == ["alice"]
    assert [event.source for event in far.got] == ["alice@a"]


def test_an_event_is_in_the_log_of_its_first_node_only() -> None:
    net = Network(("a", "b"))
    net.app("b").subscribe("", durable="mine")
    net.run()
    net.app("a").publish(1, delivery="persistent")
    net.run()
    logged = {name: net[name].broker.position_logged for name in net.names}
    assert logged["a"] == 1
    assert logged["b"] == 0


def test_history_is_that_of_the_own_node_and_what_comes_later_that_of_all() -> None:
    net = Network(("a", "b"), ("b", "c"))
    near, far = net.app("a"), net.app("c")
    near.publish(1, 2, delivery="persistent")
    far.publish(3, 4, delivery="persistent")
    net.run()
    history = net.app("a").subscribe("", since=1)
    net.run()
    assert history.values == [1, 2], "what is stored at c is in the log of c alone"
    far.publish(5, delivery="persistent")
    near.publish(6, delivery="persistent")
    net.run()
    assert sorted(history.values) == [1, 2, 5, 6]
