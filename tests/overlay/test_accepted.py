"""Queues across a link that the other node has made: both nodes use those of each other."""

from __future__ import annotations

from typing import Any

from overlay.network import App, Network

from tidings.event import Event
from tidings.overlay.link import BULK_ROOM
from tidings.protocol.messages import DONE
from tidings.protocol.outgoing_streams import BULK_SIZE
from tidings.protocol.session import SILENT_S_MAX
from tidings.simulator.world import Conditions

SLOW = Conditions(bytes_per_s=400_000)


class Desk(App):
    """An application that uses queues."""

    def create(self, queue: str, **more: Any) -> None:
        told = self.ask("queue.create", name=queue, **more)
        self.world.clock.run(self.world.clock.now + 0.5)
        assert isinstance(told[0], dict), told

    def put(self, queue: str, *values: int) -> None:
        for value in values:
            self.connection.put(queue, Event("job", {"x": value}))
        self.pump()

    @property
    def is_accepted(self) -> bool:
        return self.connection.publications.is_empty


def desk(network: Network, node: str) -> Desk:
    made = Desk(network.world, f"desk-{node}-{len(network.world.notes)}", network[node])
    network.run(0.5)
    return made


def contents(network: Network, node: str, queue: str = "jobs") -> list[int]:
    """What is in a queue of a node, in order."""
    (found,) = (one for one in network[node].queues if one.name == queue)
    return [found.shelf[number].event["x"] for number in found.shelf]


def peers(network: Network, node: str) -> dict[str, str]:
    return {one["name"]: one["state"] for one in network[node].broker.status()["peers"]}


def shed_and_house() -> tuple[Network, Desk, Desk]:
    """The shed dials the house, which knows no address of it; the shed has a queue."""
    network = Network(("shed", "house"))
    shed, house = desk(network, "shed"), desk(network, "house")
    shed.create("jobs")
    return network, shed, house


def test_a_node_that_has_made_a_link_is_a_peer_of_the_one_that_accepted_it() -> None:
    network, _, _ = shed_and_house()
    assert peers(network, "house") == {"shed": "there"}
    assert peers(network, "shed") == {"house": "there"}
    network.cut("shed", "house")
    network.run(2 * SILENT_S_MAX + 10.0)  # the node may have to find out by itself
    assert peers(network, "house") == {"shed": "away"}


def test_its_queues_are_found_described_put_into_and_got_from() -> None:
    network, _, house = shed_and_house()
    found = house.ask("queue.find", name="jobs", scope="remote")
    described = house.ask("queue.describe", queue="jobs@shed")
    house.put("jobs@shed", 1, 2)
    network.run()
    assert [one["node"] for one in found[0]] == ["shed"]
    assert described[0]["name"] == "jobs"
    assert contents(network, "shed") == [1, 2]
    assert house.is_accepted
    got = house.ask("get", queue="jobs@shed", count=1, wait_s=1.0)
    network.run()
    ((number, delivery, *_),) = got[0]["messages"]
    house.connection.settle(number, delivery, DONE)
    house.pump()
    network.run()
    assert contents(network, "shed") == [2]
    assert house.is_accepted


def test_all_of_that_goes_over_one_connection() -> None:
    network, shed, house = shed_and_house()
    house.create("letters")
    house.put("jobs@shed", 1)
    shed.put("letters@house", 2)
    network.run()
    assert (contents(network, "shed"), contents(network, "house", "letters")) == ([1], [2])
    assert (network["shed"].dialled, network["house"].dialled) == (1, 0)


def test_what_is_put_while_the_link_is_cut_arrives_once_when_the_other_node_has_made_it_again() -> None:
    network, _, house = shed_and_house()
    house.put("jobs@shed", 1)
    network.run()
    network.cut("shed", "house")
    house.put("jobs@shed", *range(2, 50))
    network.run(150.0)  # the node that has accepted the link notices its silence
    assert house.is_accepted
    assert contents(network, "shed") == [1]
    network.heal("shed", "house")
    network.run(30.0)
    assert contents(network, "shed") == list(range(1, 50))


def test_what_waits_for_such_a_node_goes_on_after_either_was_killed() -> None:
    network, _, house = shed_and_house()
    network.cut("shed", "house")
    network.run()
    house.put("jobs@shed", *range(20))
    network.run()
    network["house"].crash()
    network["house"].start()
    network.run()
    assert peers(network, "house") == {"shed": "away"}
    house = desk(network, "house")
    house.put("jobs@shed", 20)
    network.run()
    assert house.is_accepted  # it is safe though the shed is away
    network["shed"].crash()
    network["shed"].start()
    network.heal("shed", "house")
    network.run(30.0)
    assert contents(network, "shed") == list(range(21))


def test_messages_in_flight_over_an_accepted_link_stay_so_while_it_is_cut_for_a_moment() -> None:
    network, shed, house = shed_and_house()
    shed.put("jobs", 1)
    got = house.ask("get", queue="jobs@shed", count=1, wait_s=1.0)
    network.run()
    ((number, delivery, *_),) = got[0]["messages"]
    network.cut("shed", "house")
    house.connection.settle(number, delivery, DONE)
    house.pump()
    network.heal("shed", "house")
    network.run(30.0)
    assert contents(network, "shed") == []
    assert house.is_accepted


def test_a_node_that_is_removed_is_no_peer_any_more() -> None:
    network, _, house = shed_and_house()
    network["shed"].crash()
    network.run(60.0)
    told = house.ask("topology.remove", node="shed")
    network.run()
    assert told == [None]
    assert peers(network, "house") == {}


def test_two_nodes_that_dial_each_other_are_one_peer_each() -> None:
    network = Network(("shed", "house"), ("house", "shed"))
    for near, far in (("shed", "house"), ("house", "shed")):
        assert peers(network, near) == {far: "there"}


def test_what_is_asked_does_not_wait_for_what_is_forwarded() -> None:
    """Over a link that takes half a minute for the messages, an answer comes in two seconds."""
    network = Network(("shed", "house"))
    shed, house = desk(network, "shed"), desk(network, "house")
    house.create("jobs")
    fill(shed, house, "house")
    network.world.network.link("shed", "house").conditions = SLOW
    network.run(5.0)
    assert len(contents(network, "house", "b")) < 50
    described = shed.ask("queue.describe", queue="jobs@house")
    network.run(2.5)
    assert not described[0].get("is_away")
    assert contents(network, "house", "b")  # streams take turns
    network.run(40.0)
    assert [contents(network, "house", queue) for queue in ("a", "b")] == [list(range(100))] * 2


def test_over_a_link_that_was_accepted_forwarded_events_wait_with_their_streams() -> None:
    network, shed, house = shed_and_house()
    fill(house, shed, "shed")
    network.world.network.link("shed", "house").conditions = SLOW
    neighbour = network.neighbour("house", "shed")
    for _ in range(100):
        network.run(0.05)
        assert neighbour.link is not None
        assert neighbour.link.session.outbox.size < BULK_ROOM + 2 * BULK_SIZE
        assert neighbour.link.connection.output(with_bulk=False) == []
    network.run(40.0)
    assert [contents(network, "shed", queue) for queue in ("a", "b")] == [list(range(100))] * 2


def fill(near: Desk, far: Desk, node: str) -> None:
    """Put more into two queues of the far node than goes over a slow link in half a minute."""
    for queue in ("a", "b"):
        far.create(queue)
        for value in range(100):
            near.connection.put(f"{queue}@{node}", Event("job", {"x": value}, body=bytes(60_000)))
    near.pump()
