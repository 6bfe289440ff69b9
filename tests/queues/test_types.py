"""Types of queues are plugged in: each says what it keeps, where messages stand and what a full one does."""

from __future__ import annotations

import pytest

from queues.rig import GIVE_BACK, Client, Rig, numbers
from tidings.errors import QueueError, UserError
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.queues import Description, MessageQueue, QueuedMessage, QueueManager, Sqlite, Volatile
from tidings.queues.types import load_types
from tidings.store.memory import MemoryStore, SimulatedStore


class Stack(Sqlite):
    """What came last is handed out first."""

    name = "stack"

    def place(self, message: QueuedMessage) -> int:
        return -message.number


class Ring(Volatile):
    """A full queue drops what is oldest."""

    name = "ring"

    def check_room(self, queue: MessageQueue, count: int) -> None:
        """There always is room."""

    def make_room(self, queue: MessageQueue) -> None:
        if len(queue.shelf) and queue.size >= (self.description.max_messages or 1):
            queue.drop(next(iter(queue.shelf)))


def client(**fields: object) -> Client:
    """A client of a queue on a node with two types more."""
    rig = Rig()
    rig.queues.types.update(stack=Stack, ring=Ring)
    ann = Client(rig)
    ann.create("jobs", **fields)
    return ann


def test_a_type_says_where_messages_stand() -> None:
    ann = client(type="stack")
    ann.put("jobs", 1, 2, 3)
    first, *_ = ann.get("jobs", 1)
    assert first.n == 3
    ann.settle(GIVE_BACK, first)
    ann.put("jobs", 4)
    assert numbers(ann.get("jobs", 5)) == [4, 3, 2, 1]


def test_a_type_says_whether_messages_survive() -> None:
    ann = client(type="stack")
    assert ann.describe("jobs")["persistent"] is True
    assert ann.fails("queue.create", name="other", type="stack", persistent=False).code == "queue"


def test_queues_of_a_type_come_back_where_it_is_registered() -> None:
    ann = client(type="stack")
    ann.put("jobs", 1, 2)
    ann.rig.run()
    store = SimulatedStore(ann.rig.store.disk, bytes)
    core = NodeCore(store, CoreSettings(queue_types=[Stack]), 2_000.0, bytes)
    queue = core.queues.find("jobs")
    assert [queue.shelf[number].event.values["n"] for number in queue.shelf] == [2, 1]


def test_a_queue_of_a_type_that_is_not_registered_any_more_stops_the_start() -> None:
    ann = client(type="stack")
    with pytest.raises(QueueError, match="'stack' is not registered"):
        ann.rig.restart()


def test_a_ring_drops_what_is_oldest() -> None:
    ann = client(type="ring", max_messages=2)
    ann.put("jobs", 1, 2, 3)
    ann.rig.run()
    assert ann.refusals == []
    assert numbers(ann.get("jobs", 5)) == [2, 3]


def test_a_ring_drops_nothing_for_a_transaction_that_is_rolled_back() -> None:
    ann = client(type="ring", max_messages=2)
    ann.put("jobs", 1, 2)
    ann.begin(1)
    ann.put("jobs", 3, transaction=1)
    ann.rig.run()
    assert numbers(ann.read("jobs")) == [1, 2]
    ann.commit(1)
    assert numbers(ann.read("jobs")) == [2, 3]


def test_a_node_without_a_directory_has_volatile_queues_only() -> None:
    manager = NodeCore(MemoryStore("node"), CoreSettings(lasts=False), 1_000.0, bytes).queues
    assert manager.create(Description(name="jobs")).description.type == "volatile"
    for wanted in (Description(persistent=True), Description(keep=True), Description(type="sqlite")):
        with pytest.raises(QueueError, match="no directory"):
            manager.create(wanted)


def test_types_are_loaded_by_their_place() -> None:
    assert load_types("queues.test_types:Stack, queues.test_types:Ring") == [Stack, Ring]
    assert load_types("") == []


@pytest.mark.parametrize(
    "name",
    ["nowhere:Stack", "queues.test_types", "queues.test_types:Nothing", "queues.test_types:Rig", ":Stack"],
)
def test_what_is_no_type_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UserError, match=name):
        load_types(name)


def test_the_types_of_a_node_are_its_own() -> None:
    rig = Rig()
    QueueManager(rig.broker, True, [Stack])
    assert "stack" not in rig.queues.types


def test_messages_are_marked_to_be_compressed_where_the_queue_wants_that() -> None:
    ann = client(compress=True)
    ann.create("plain")
    ann.put("jobs", 1)
    ann.put("plain", 2)
    ann.rig.run()
    assert [one.compress for one in ann.rig.store.messages()] == [True, False]
