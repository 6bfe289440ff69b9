"""Several nodes and one queue: a message goes to one reader, and what a node held that is gone comes back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postgres.rig import GIVE_BACK, UNOPENED, Client, Node, job, numbers
from postgres.server import Server
from tidings.errors import MessageNotHeld, QueueExists, QueueFull, QueueNotFound, TidingsError
from tidings.event import Batch
from tidings.exchange import EventSink, NodeSubscription
from tidings.filters import Filter

ROOT = Path(__file__).parent.parent.parent
Start = Callable[..., Node]


def test_a_queue_that_one_node_makes_is_there_for_all(start: Start) -> None:
    first, second = start("a"), start("b")
    made = first.create(max_messages=5)
    assert second.describe().id == made.id
    assert second.create(max_messages=5).id == made.id
    with pytest.raises(QueueExists, match="max_messages is 5, not None"):
        second.create()
    second.delete()
    first.until(lambda: first.shared.resolve("jobs") is None)
    assert first.create().id != made.id


def test_what_one_node_puts_another_takes_and_settles(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    first.put(Client(), job(1), job(2))
    (mine,) = first.get()
    (other,) = second.get(count=5)
    assert numbers([mine, other]) == [1, 2]
    with pytest.raises(MessageNotHeld):
        second.settle(mine)
    second.settle(other)
    first.settle(mine, GIVE_BACK)
    (again,) = second.get(wait_s=None)
    assert (numbers([again]), again.delivery) == ([1], 2)


@pytest.mark.parametrize("where", ["", "number = 7"])
def test_who_waits_is_woken_by_the_put_of_another_node(start: Start, where: str) -> None:
    first, second = start("a"), start("b")
    first.create()
    waiting = second.ask(where=where, wait_s=None)
    second.until(lambda: second.describe().waiting == 1)
    first.put(Client(), job(7))
    second.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == [7]


def test_who_waits_is_woken_by_what_another_node_gives_back(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    first.put(Client(), job(7))
    (hand,) = first.get()
    waiting = second.ask(where="number = 7", wait_s=None)
    second.until(lambda: second.describe().waiting == 1)
    first.settle(hand, UNOPENED)
    second.until(lambda: waiting.is_there)
    assert waiting.hands[0].delivery == 1


def test_who_waits_is_woken_by_what_is_given_back_at_the_same_node(node: Node) -> None:
    node.create()
    node.put(Client(), job(7))
    (hand,) = node.get()
    waiting = node.ask(where="number = 7", wait_s=None)
    node.until(lambda: node.describe().waiting == 1)
    node.settle(hand, GIVE_BACK)
    node.until(lambda: waiting.is_there)
    assert waiting.hands[0].delivery == 2


def test_a_node_that_closes_gives_back_all_that_it_held(server: Server, start: Start) -> None:
    first, second = Node(server.conninfo, "a"), start("b")
    first.create()
    first.put(Client(), job(1), job(2))
    first.get(count=2)
    waiting = second.ask(count=2, wait_s=None)
    second.until(lambda: second.describe().waiting == 1)
    first.close()
    second.until(lambda: waiting.is_there)
    assert [(hand.delivery, hand.redelivered) for hand in waiting.hands] == [(1, True)] * len(waiting.hands)


def test_an_event_that_comes_again_by_another_node_is_put_once_also_when_it_was_taken(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    client = Client()
    batch = client.batch([job(1), job(2)])
    for node in (first, second, first):
        done = node.send(batch)
        node.until(lambda done=done: len(done) == 2)
        assert list(done.values()) == [None, None]
    assert numbers(second.take(count=9)) == [1, 2]
    done = second.send(batch)
    second.until(lambda: len(done) == 2)
    assert second.get() == []
    assert second.put(Client("sender", epoch=2), job(3)) == [None]
    assert numbers(first.get(count=9)) == [3]


def test_readers_of_one_client_are_told_of_a_queue_that_another_node_deletes(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    waiting = second.ask(wait_s=None)
    second.until(lambda: second.describe().waiting == 1)
    first.delete()
    second.until(lambda: waiting.is_there)
    assert isinstance(waiting.error, QueueNotFound)


# Watching


class Copies(EventSink):
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.numbers: list[object] = []

    def deliver(self, batch: Batch, rows: object, positions: object) -> None:
        self.numbers += [event["number"] for event in batch]


def test_who_watches_gets_a_copy_of_all_that_matches_also_of_what_was_taken_at_once(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    client, copies, own = Client(), Copies(), Copies()
    first.put(client, job(0))
    end = second.way("jobs").watch(NodeSubscription(Filter("number <> 2"), copies))
    first.way("jobs").watch(NodeSubscription(Filter(""), own))
    second.describe()  # answered after the watch, which has begun by then
    first.describe()
    greedy = first.ask(count=9, wait_s=None)
    first.put(client, job(1), job(2), job(3))
    first.until(lambda: greedy.is_there and len(own.numbers) == 3)
    second.until(lambda: len(copies.numbers) == 2)
    end()
    second.describe()
    first.put(client, job(4))
    first.until(lambda: len(own.numbers) == 4)
    second.describe()
    assert (own.numbers, copies.numbers) == ([1, 2, 3, 4], [1, 3])


# At the same time


def drain(
    node: Node, got: list[object], total: int, everybody: list[list[object]], where: str, seed: int
) -> None:
    """Take messages until all readers together have all of them; some are given back before."""
    chance = random.Random(seed)
    while sum(map(len, everybody)) < total:
        for hand in node.get(count=chance.randint(1, 20), where=where, wait_s=0.2):
            if chance.random() < 0.1:
                node.settle(hand, UNOPENED)
            else:
                node.settle(hand)
                got += numbers([hand])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", ["", "number >= 0"])
def test_each_message_goes_to_exactly_one_of_four_readers(start: Start, where: str, seed: int) -> None:
    nodes = [start(name) for name in "abcd"]
    nodes[0].create(deliveries_max=None)
    total = 300
    got: list[list[object]] = [[] for _ in nodes]
    threads = [
        threading.Thread(target=drain, args=(node, mine, total, got, where, seed * 10 + place))
        for place, (node, mine) in enumerate(zip(nodes, got, strict=True))
    ]
    for node in nodes:
        node.way("jobs")
    for thread in threads:
        thread.start()
    putter, client = start("e"), Client()
    putter.way("jobs")
    for first in range(0, total, 50):
        putter.put(client, *(job(number) for number in range(first, first + 50)))
    for thread in threads:
        thread.join()
    assert Counter(number for mine in got for number in mine) == Counter(range(total))
    assert (putter.describe().messages, putter.describe().in_flight) == (0, 0)


def test_a_limit_holds_while_several_nodes_put_at_the_same_time(start: Start) -> None:
    nodes = [start(name) for name in "abc"]
    nodes[0].create(max_messages=100)
    for node in nodes:
        node.way("jobs")
    clients = [Client(f"client-{place}") for place in range(3)]
    sent: list[list[dict[int, TidingsError | None]]] = [[], [], []]
    for number in range(60):
        for node, client, mine in zip(nodes, clients, sent, strict=True):
            mine.append(node.send(client.batch([job(number)])))
    for node, mine in zip(nodes, sent, strict=True):
        node.until(lambda mine=mine: all(mine))
    outcomes = Counter(type(done[0]) for mine in sent for done in mine)
    assert outcomes == {type(None): 100, QueueFull: 80}
    assert nodes[1].describe().messages == 100


def test_one_client_at_many_queues_and_many_clients_at_one_keep_their_order(start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    clients = [Client(f"client-{place}") for place in range(20)]
    second.way("jobs")
    sent = [
        (node, node.send(client.batch([job(number, who=client.origin.system)])))
        for number in range(10)
        for place, client in enumerate(clients)
        for node in ((first, second)[place % 2],)
    ]
    for node, done in sent:
        node.until(lambda done=done: done)
    hands = first.get(count=500)
    for client in clients:
        assert [hand.event["number"] for hand in hands if hand.system == client.origin.system] == list(
            range(10)
        )


# Killed


@contextmanager
def child(server: Server, what: str) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [sys.executable, "-m", "postgres.child", server.conninfo, what]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_the_messages_of_a_process_that_was_killed_come_back(server: Server, node: Node) -> None:
    node.create()
    node.put(Client(), *(job(number) for number in range(3)))
    with child(server, "hold") as process:
        assert process.stdout is not None
        held = [int(process.stdout.readline()) for _ in range(3)]
        assert node.get() == []
    assert held == [0, 1, 2]
    hands = node.get(count=3, wait_s=None)
    while len(hands) < 3:
        hands += node.get(count=3, wait_s=None)
    assert [(hand.event["number"], hand.delivery, hand.redelivered) for hand in hands] == [
        (number, 1, True) for number in range(3)
    ]


def test_what_a_killed_process_had_put_is_put_once_when_its_client_comes_again(
    server: Server, node: Node
) -> None:
    node.create()
    with child(server, "put") as process:
        assert process.stdout is not None
        for _ in range(20):
            accepted = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().split()
    accepted = max([accepted, *map(int, rest)])
    client = Client("child")
    everything = client.batch([job(number) for number in range(1, accepted + 9)])
    done = node.send(everything.take(range(accepted, len(everything))))  # what it was not told of, and more
    node.until(lambda: len(done) == 8)
    assert numbers(node.get(count=10_000)) == list(range(1, accepted + 9))
