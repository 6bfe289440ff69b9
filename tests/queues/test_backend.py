"""A new kind of queues, written only against `queues/backend.py`, used as the queues of the node are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from protocol.guarded import Book, may

from queues.rig import GIVE_BACK, REJECT, Client, Rig, numbers, pass_time
from tidings.errors import Disconnected, MessageNotHeld, QueueFull, QueueNotFound
from tidings.event import Batch, Event
from tidings.event.wire import array_head
from tidings.exchange import NodeSubscription
from tidings.filters import Filter
from tidings.protocol.access import Rule
from tidings.protocol.messages import DONE
from tidings.protocol.session import Session
from tidings.queues import changes
from tidings.queues.arguments import FindRequest, GetRequest
from tidings.queues.backend import Delivered, GetReply, QueueBackend, QueueRef
from tidings.queues.description import Description
from tidings.queues.inflight import RESUME_S
from tidings.replies import Deferred, failed, resolved

MOST = 5
"""Messages that a list holds."""


class Lists(QueueBackend):
    """Queues that are lists in memory; `type="list"` makes one."""

    types = ("list",)

    def __init__(self) -> None:
        self.lists: dict[str, List] = {}
        self.is_away = False

    @property
    def absent(self) -> Sequence[str]:
        return ["the lists"] if self.is_away else []

    def resolve(self, address: str) -> QueueRef | None:
        return self.lists.get(address.removesuffix("@lists"))

    def create(self, wanted: Description) -> Deferred[Description]:
        made = self.lists[wanted.name] = List(self, wanted)
        return made.describe()

    def delete(self, queue: QueueRef) -> Deferred[None]:
        del self.lists[queue.address]
        return resolved(None)

    def search(self, sought: FindRequest) -> Deferred[list[Description]]:
        found = [one.described for one in self.lists.values() if one.described.agrees(sought.terms)]
        return resolved([] if self.is_away else found)


class List(QueueRef):
    """One of them; it numbers its messages from 1 on."""

    address = ""

    def __init__(self, lists: Lists, wanted: Description) -> None:
        self.address = wanted.name
        self._lists = lists
        self._wanted = wanted
        self.messages: dict[int, tuple[Event, int]] = {}  # and how often they were delivered
        self.held: set[int] = set()
        self.waiting: deque[tuple[GetRequest, Deferred[GetReply]]] = deque()
        self.watchers: dict[NodeSubscription, None] = {}
        self.settled: list[tuple[int, int]] = []
        self.slow: list[Deferred[None]] | None = None  # settlements that a test replies to
        self._last = 0

    @property
    def described(self) -> Description:
        held = len(self.held)
        return replace(self._wanted, messages=len(self.messages) - held, in_flight=held)

    def describe(self) -> Deferred[Description]:
        return resolved(self.described)

    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        return [self._put(event) for event in batch]

    def _put(self, event: Event) -> Deferred[None]:
        if len(self.messages) >= MOST:
            return failed(QueueFull(self.address, f"it holds {MOST} messages"))
        self._last += 1
        self.messages[self._last] = event, 0
        for watcher in self.watchers:
            if watcher.filter.matches(event):
                watcher.sink.deliver(Batch.of([event]), (0,), (None,))
        self._serve()
        return resolved(None)

    def get(self, wanted: GetRequest) -> Deferred[GetReply]:
        if self._lists.is_away:
            return failed(Disconnected("the lists are away"))
        reply: Deferred[GetReply] = Deferred()
        self.waiting.append((wanted, reply))
        self._serve()
        return reply

    def _serve(self) -> None:
        for wanted, reply in list(self.waiting):
            matches = Filter(wanted.where).matches
            free = [n for n, (event, _) in self.messages.items() if n not in self.held and matches(event)]
            if not reply.is_over and (free or wanted.wait_s == 0):
                is_taken = wanted.action == "take"
                chosen = [self._deliver(number, is_taken) for number in free[: wanted.count]]
                reply.resolve(GetReply(chosen, held_s=60.0))
            if reply.is_over:
                self.waiting.remove((wanted, reply))

    def _deliver(self, number: int, is_taken: bool) -> Delivered:
        event, times = self.messages[number]
        raw, origin = Batch.of([event]).raw[len(array_head(1)) :], event.origin
        assert origin is not None
        if is_taken:
            self.held.add(number)
            self.messages[number] = event, times + 1
        sender = origin.system, origin.epoch, origin.source
        return Delivered(number, times + 1 if is_taken else 0, times > 0, *sender, 0, raw)

    def settle(self, number: int, delivery: int, outcome: int, text: str) -> Deferred[None]:
        if self.slow is not None:
            self.slow.append(Deferred())
            return self.slow[-1]
        if number not in self.held:
            return failed(MessageNotHeld(self.address, "it was taken back"))
        self.settled.append((number, outcome))
        self.held.remove(number)
        if outcome in (DONE, REJECT):
            del self.messages[number]
        elif outcome != GIVE_BACK:
            self.messages[number] = self.messages[number][0], delivery - 1
        self._serve()
        return resolved(None)

    def renew(self, identity: str, lease_s: float) -> Deferred[float]:
        return resolved(lease_s)

    def watch(self, subscription: NodeSubscription) -> Callable[[], None]:
        self.watchers[subscription] = None
        return lambda: self.watchers.pop(subscription)

    def purge(self, filter: Filter | None) -> Deferred[int]:
        gone = [n for n, (event, _) in self.messages.items() if filter is None or filter.matches(event)]
        for number in gone:
            del self.messages[number]
        return resolved(len(gone))


# What clients do with them


class World:
    """A node with lists, and a client of it."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.lists = Lists()
        self.rig.queues.backends.append(self.lists)
        self.ann = Client(self.rig, "ann")
        self.ann.create("todo", type="list")

    @property
    def todo(self) -> List:
        return self.lists.lists["todo"]

    def user(self, name: str, *rules: Rule) -> Client:
        self.book = Book()
        self.book.users[name] = rules
        self.rig.broker.authenticator = self.book
        return Client(self.rig, f"sys-{name}", "", name)


def test_what_is_put_is_got_and_settled() -> None:
    world = World()
    ann = world.ann
    ann.put("todo", 1, 2)
    first, second = ann.get("todo", 5)
    assert (numbers([first, second]), ann.accepted) == ([1, 2], 2)
    ann.settle(DONE, first)
    ann.settle(GIVE_BACK, second)
    world.rig.run()
    assert (ann.accepted, ann.refusals) == (4, [])
    (again,) = ann.get("todo")
    assert (again.n, again.delivery, again.redelivered) == (2, 2, True)


def test_what_the_backend_refuses_is_refused_with_its_error() -> None:
    world = World()
    world.ann.put("todo", *range(MOST + 1))
    hand, *_ = world.ann.get("todo")
    world.todo.held.clear()
    world.ann.settle(DONE, hand)
    world.rig.run()
    codes = [(first, code) for first, _, code in world.ann.refusals]
    assert codes == [(MOST + 1, "queue-full"), (MOST + 2, "not-yours")]


@pytest.mark.parametrize("at_once", [1, 10])
def test_nothing_is_accepted_before_the_backend_has_replied(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "AT_ONCE", at_once)
    world = World()
    world.ann.put("todo", 1, 2, 3)
    hands = world.ann.get("todo", 3)
    world.todo.slow = []
    world.ann.settle(DONE, *hands)
    world.rig.run()
    assert (len(world.todo.slow), world.ann.accepted) == (3, 3)
    for reply in world.todo.slow[1:]:
        reply.resolve(None)
    world.rig.run()
    assert world.ann.accepted == 3
    world.todo.slow[0].fail(MessageNotHeld("todo", "it was taken back"))
    world.rig.run()
    assert (world.ann.accepted, world.ann.refusals) == (6, [(4, 4, "not-yours")])


def test_who_waits_gets_what_is_put_next_and_who_cancels_does_not() -> None:
    world = World()
    bob = Client(world.rig, "bob")
    unwanted = world.ann.wait("todo")
    waiting = bob.wait("todo", where="n > 1")
    world.ann.ask("get.cancel", number=unwanted)
    world.ann.put("todo", 1, 2)
    world.rig.run()
    assert numbers(bob.got(waiting) or []) == [2]
    assert world.ann.got(unwanted) is None
    assert world.todo.held == {2}


def test_a_client_that_comes_back_in_time_is_told_again_and_one_that_does_not_gives_back() -> None:
    world = World()
    world.ann.put("todo", 1)
    number = world.ann.wait("todo")
    world.rig.run()
    world.ann.lose()
    world.ann.come()
    world.ann.request_again(number, "get", queue="todo", wait_s=None)
    world.rig.run()
    assert numbers(world.ann.got(number) or []) == [1]
    world.ann.lose()
    pass_time(world.rig, RESUME_S + 0.1)
    assert (world.todo.settled, world.todo.held) == ([(1, GIVE_BACK)], set())


def test_a_message_of_a_backend_and_one_of_the_node_are_held_side_by_side() -> None:
    world = World()
    world.ann.create("mine")
    world.ann.put("todo", 1)
    world.ann.put("mine", 2)
    hands = [*world.ann.get("todo"), *world.ann.get("mine")]
    assert len(world.rig.queues.in_flight.held) == 2
    world.ann.settle(DONE, *hands)
    world.rig.run()
    assert (world.ann.refusals, world.rig.queues.in_flight.held) == ([], {})


def test_it_is_described_found_purged_and_deleted() -> None:
    world = World()
    world.ann.put("todo", 1, 2)
    assert world.ann.describe("todo")["messages"] == 2
    found = world.ann.ask("queue.find", name="todo", scope="both")
    assert [one["name"] for one in found] == ["todo"]
    assert world.ann.ask("queue.find", name="todo", scope="local") == []
    assert world.ann.ask("queue.purge", queue="todo", where="n = 1") == 1
    assert world.ann.ask("queue.renew", queue="todo", id="x", lease_s=3.0) == 3.0
    world.ann.ask("queue.delete", queue="todo")
    world.lists.is_away = True
    failure = world.ann.fails("queue.describe", queue="todo")
    assert (failure.code, "away: the lists" in failure.text) == ("queue-not-found", True)


def test_copies_of_what_is_put_go_to_whoever_watches() -> None:
    world = World()
    bob = Client(world.rig, "bob")
    bob.subscribe("n > 1", queue="todo")
    world.ann.put("todo", 1, 2)
    world.rig.run()
    assert bob.told == [2]
    bob.lose()
    assert not world.todo.watchers


def test_an_error_of_a_backend_that_is_away_reaches_the_client() -> None:
    world = World()
    world.lists.is_away = True
    assert "the lists are away" in world.ann.fails("get", queue="todo").text


def test_what_has_no_stand_in_takes_part_in_no_transaction_and_has_no_parts_and_no_aliases() -> None:
    world = World()
    world.ann.begin(1)
    world.ann.put("todo", 1, transaction=1)
    world.rig.run()
    assert world.ann.refusals == [(1, 1, "queue")]
    assert "elsewhere" in world.ann.fails("get", queue="todo", transaction=1).text
    assert "0 further parts" in world.ann.fails("part", queue="todo", number=1, delivery=0, index=0).text
    assert world.ann.fails("queue.alias", name="more", target="todo").code == "not-allowed"


MAY_ALL = Rule("put", queue="todo"), Rule("get", queue="todo"), Rule("manage", queue="todo")


@pytest.mark.parametrize(
    ("right", "operation", "arguments"),
    [
        ("get", "get", {}),
        ("get", "subscribe", {"number": 1, "filter": "", "credit": 1}),
        ("get", "queue.renew", {"id": "x", "lease_s": 1.0}),
        ("get", "part", {"number": 1, "delivery": 0, "index": 0}),
        ("manage", "queue.purge", {}),
        ("manage", "queue.delete", {}),
    ],
)
def test_who_lacks_the_right_is_refused(right: str, operation: str, arguments: dict[str, Any]) -> None:
    world = World()
    bob = world.user("bob", *(rule for rule in MAY_ALL if rule.action != right))
    assert bob.fails(operation, queue="todo", **arguments).code == "not-allowed"
    assert world.lists.lists


def test_who_may_put_and_get_some_messages_puts_and_gets_these() -> None:
    world = World()
    world.ann.put("todo", 1, 7)
    bob = world.user("bob", may("put", "n > 5", "todo"), may("get", "n > 5", "todo"))
    bob.put("todo", 8, 2)
    world.rig.run()
    assert bob.refusals == [(2, 2, "not-allowed")]
    assert numbers(bob.get("todo", 5)) == [7, 8]
    assert "messages" not in bob.describe("todo")  # how many of them it may get is not known here
    assert bob.fails("queue.renew", queue="todo", id="x", lease_s=1.0).code == "not-allowed"


def test_who_may_do_nothing_with_it_is_not_told_that_it_is_there() -> None:
    world = World()
    bob = world.user("bob", Rule("get", queue="other"))
    assert bob.fails("queue.describe", queue="todo").code == "queue-not-found"
    assert bob.ask("queue.find", scope="both") == []


def test_a_queue_of_the_node_goes_before_one_of_a_backend() -> None:
    world = World()
    world.rig.queues.create(Description(name="todo"))
    world.ann.put("todo", 1)
    world.rig.run()
    assert (len(world.todo.messages), world.rig.queues.find("todo").size) == (0, 1)
    with pytest.raises(QueueNotFound):
        world.rig.queues.find("nothing")


@pytest.mark.parametrize("kind", ["list", "sqlite"])
def test_who_asks_again_under_a_number_for_another_queue_gets_messages_of_that_one(kind: str) -> None:
    world = World()
    world.ann.create("other", type=kind)
    world.ann.put("todo", 1)
    world.ann.put("other", 2)
    number = world.ann.wait("todo")
    world.rig.run()
    world.ann.lose()
    world.ann.come()
    world.ann.request_again(number, "get", queue="other")
    world.rig.run()
    assert numbers(world.ann.got(number) or []) == [2]
