"""Gateways that replicate the cells of a grid: what one knows of a network, the other can go on with."""

from __future__ import annotations

from collections import deque

import pytest

from tests.gateway.world import World, box, is_known
from tidings.errors import ConfigError
from tidings.event import Event
from tidings.filters import Filter
from tidings.gateway.effects import PublishEvent
from tidings.gateway.messages import Error, Reading, Redirect, Sensing, Sensor
from tidings.gateway.networks import GRACE_S, DatagramAddress
from tidings.gateway.policy import GatewayGrid, Policy
from tidings.gateway.replicas import DIGEST_S, RECORD, RESEND, SILENT_S_MAX
from tidings.steps import finish

MEMBERS = {"a": "a.example:4242", "b": "b.example:4242", "c": "c.example:4242"}
CELLS = {"a": [(0, 0)], "b": [(0, 0)], "c": [(5, 5)]}
DUST = Sensor("d1", "dust", 0, 500)
NORTH = box(1, 1, 9, 9)
READING = Reading("d1", "dust", 41)


class Grid:
    """Three gateways and the bus between them; the cell (0, 0) belongs to a and b."""

    def __init__(self) -> None:
        grid = GatewayGrid(10, MEMBERS, CELLS, replicas=2)
        self.gateways = {name: World(Policy(False, grid=grid, member=name)) for name in MEMBERS}
        self.lost: set[str] = set()  # types of events that the bus loses
        self.seen: list[Event] = []

    def __getitem__(self, name: str) -> World:
        return self.gateways[name]

    def settle(self) -> None:
        """Carry every event to all whom it concerns, until there is none."""
        due: deque[Event] = deque()
        while True:
            for world in self.gateways.values():
                due += [effect.event for effect in world.done if isinstance(effect, PublishEvent)]
                world.done.clear()
            if not due:
                return
            event = due.popleft()
            self.seen.append(event)
            for world in self.gateways.values():
                if event.type not in self.lost and Filter(world.gateway.replica_filter or "").matches(event):
                    finish(world.gateway.hear_replica(event, world.now))
                    world.carry_out(world.gateway.said())

    def advance(self, to: float) -> None:
        for world in self.gateways.values():
            world.advance(to)
        self.settle()

    def sense(self, name: str, key: object, sensing_id: str = "north") -> list[Reading]:
        """Readings come at a gateway, as its hub passes them on."""
        world = self[name]
        if world.gateway.is_elsewhere(sensing_id):
            finish(world.gateway.adopting(key, sensing_id, world.now))
            world.carry_out(world.gateway.said())
        taken = world.gateway.sensing(key, Sensing(sensing_id, [READING]), world.now)
        world.carry_out(world.gateway.said())
        self.settle()
        return taken


@pytest.fixture
def grid() -> Grid:
    grid = Grid()
    for world in grid.gateways.values():
        world.demand("type = 'dust' AND value > 30")
    grid["a"].connect("first")
    grid["a"].register("first", "north", DUST, area=NORTH)
    grid.settle()
    return grid


def test_a_network_goes_on_at_the_other_gateway_without_registering_again(grid: Grid) -> None:
    grid["b"].connect("second")
    assert grid.sense("b", "second") == [READING]
    assert grid["b"].on == {"north": {"d1": (30, 500)}}


def test_a_gateway_of_other_cells_does_not_know_it(grid: Grid) -> None:
    grid["c"].connect("second")
    assert not grid.sense("c", "second")


def test_someone_else_can_not_go_on_with_a_network(grid: Grid) -> None:
    grid["b"].connect("second", host="elsewhere")
    assert not grid.sense("b", "second")
    grid["b"].connect("third", user="mallory")
    assert not grid.sense("b", "third")
    assert grid.sense("b", DatagramAddress("host", 7)) == [READING]


def test_a_user_can_go_on_from_another_host() -> None:
    grid = Grid()
    grid["a"].connect("first", user="alice")
    grid["a"].register("first", "north", DUST, area=NORTH)
    grid.settle()
    grid["b"].connect("second", host="elsewhere", user="alice")
    assert grid.sense("b", "second") == [READING]


def test_a_network_can_go_back_and_forth(grid: Grid) -> None:
    grid["b"].connect("second")
    assert grid.sense("b", "second") == [READING]
    grid["a"].lose("first", "north")
    grid.advance(GRACE_S)
    assert not is_known(grid["a"].gateway, "north", "d1")
    grid["a"].connect("third")
    assert grid.sense("a", "third") == [READING]
    assert grid["a"].on == {"north": {"d1": (30, 500)}}


def test_what_is_deregistered_is_forgotten_by_both(grid: Grid) -> None:
    grid["a"].deregister("first", "north")
    grid.settle()
    grid["b"].connect("second")
    assert not grid.sense("b", "second")


def test_an_old_connection_that_ends_takes_nothing_from_the_new_gateway(grid: Grid) -> None:
    grid["b"].connect("second")
    grid.sense("b", "second")
    grid["a"].lose("first")
    grid.advance(GRACE_S)
    assert grid.sense("b", "second") == [READING]
    grid["b"].lose("second")
    grid["a"].connect("third")
    assert grid.sense("a", "third") == [READING]


def test_lost_records_are_asked_for(grid: Grid) -> None:
    grid.lost = {RECORD}
    grid["a"].register("first", "south", DUST, area=NORTH)
    grid.settle()
    grid.lost = set()
    grid["b"].connect("second")
    assert not grid.sense("b", "second", "south")
    grid.advance(DIGEST_S)
    assert grid.sense("b", "second", "south") == [READING]


def test_a_lost_notice_of_the_end_is_made_up_for(grid: Grid) -> None:
    grid.lost = {RECORD}
    grid["a"].deregister("first", "north")
    grid.settle()
    grid.lost = set()
    grid.advance(DIGEST_S)
    grid["b"].connect("second")
    assert not grid.sense("b", "second")


def test_gateways_that_know_the_same_ask_for_nothing(grid: Grid) -> None:
    grid.sense("b", DatagramAddress("host", 7))
    grid.seen.clear()
    grid.advance(10 * DIGEST_S)
    assert grid.seen
    assert not [event for event in grid.seen if event.type in (RECORD, RESEND)]


def test_the_networks_of_a_gateway_that_is_silent_for_an_hour_are_forgotten(grid: Grid) -> None:
    del grid.gateways["a"]
    grid.advance(SILENT_S_MAX + 2 * DIGEST_S)
    grid["b"].connect("second")
    assert not grid.sense("b", "second")


def test_an_event_that_is_no_record_changes_nothing(grid: Grid) -> None:
    gateway = grid["b"].gateway
    for event in (
        Event(RECORD, {"member": "a", "version": 9}, subject="north", body=b"{"),
        Event(RECORD, {"member": "a", "version": 9}, subject="north"),
        Event(RECORD, {"member": "stranger", "version": 9}, subject="north"),
        Event(RECORD, {"version": 9}, subject="north"),
        Event(RECORD, {"member": "a"}),
    ):
        finish(gateway.hear_replica(event, 0.0))
    assert gateway.is_elsewhere("north")


def test_a_network_of_a_replicated_cell_is_redirected_by_the_others(grid: Grid) -> None:
    grid["c"].connect("second")
    grid["c"].heard()
    grid["c"].register("second", "west", DUST, area=NORTH)
    assert grid["c"].heard() == [Redirect("west", MEMBERS["a"])]
    grid["b"].connect("second")
    grid["b"].register("second", "west", DUST, area=NORTH)
    assert not [said for said in grid["b"].heard() if isinstance(said, Redirect | Error)]


def test_each_cell_has_as_many_gateways_as_replicas() -> None:
    grid = GatewayGrid(10, MEMBERS, {"a": [(0, 0)]}, replicas=2)
    for x in range(20):
        assert len(set(grid.members_of((x, 0)))) == 2
    assert grid.members_of((0, 0))[0] == "a"


@pytest.mark.parametrize("replicas", [0, 4])
def test_a_number_of_replicas_that_can_not_be_is_refused(replicas: int) -> None:
    with pytest.raises(ConfigError, match="replicas"):
        GatewayGrid(10, MEMBERS, replicas=replicas)


def test_a_cell_named_by_more_gateways_than_replicas_is_refused() -> None:
    with pytest.raises(ConfigError, match="both"):
        GatewayGrid(10, MEMBERS, {"a": [(0, 0)], "b": [(0, 0)], "c": [(0, 0)]}, replicas=2)
