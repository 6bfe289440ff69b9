"""Groups in a database of which one client takes all messages: in order, and nobody else has any."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

import psycopg
import pytest
from effort import often
from node.peers import run, running

import tidings
from postgres.rig import DONE, GIVE_BACK, UNOPENED, Client, Hand, Node, job, numbers
from postgres.server import Server
from tidings.client.put import planned
from tidings.event import Event
from tidings.postgres.readers import CandidateRow, PostgresReader
from tidings.postgres.taking import unbroken
from tidings.queues.arguments import GetRequest

Start = Callable[..., Node]


def of(group: str | None, *places: int) -> list[Event]:
    return [planned(job(place, group=group or ""), None, None, group) for place in places]


def test_an_owner_gets_all_messages_of_a_group_and_others_get_none(start: Start) -> None:
    a, b = start("a"), start("b")
    a.create()
    a.put(Client(), *of("x", 1), *of("y", 2), *of("x", 3, 4), *of(None, 5))
    hands = a.get(owner="ann", count=10)
    assert numbers(hands) == [1, 2, 3, 4, 5]
    a.put(Client("other"), *of("x", 6))
    for hand in hands[:-2]:
        a.settle(hand, DONE)
        assert b.get(count=10) == b.get(owner="bob", count=10) == []
    waiting = b.ask(count=10, wait_s=None)
    a.settle(hands[3], DONE)
    b.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == [6]


def test_an_owner_goes_on_where_it_was_and_no_other_of_the_same_node_does(node: Node) -> None:
    node.create()
    node.put(Client(), *of("x", 1, 2, 3, 4, 5))
    assert numbers(node.get(owner="ann", count=2)) == [1, 2]
    assert node.get(owner="bob", count=2) == node.get(count=2) == []
    assert numbers(node.get(owner="ann", count=2)) == [3, 4]
    assert numbers(node.get(owner="ann", count=2)) == [5]


def test_one_message_of_a_group_that_was_got_alone_has_no_owner(node: Node) -> None:
    node.create()
    node.put(Client(), *of("x", 1, 2))
    (hand,) = node.get(owner="ann")
    node.settle(hand, UNOPENED)
    node.get()
    assert node.get(owner="ann", count=5) == []


def test_a_group_is_followed_over_several_pages(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.postgres.taking.PAGE", 2)
    monkeypatch.setattr("tidings.postgres.taking.PAGES_MAX", 2)
    node.create()
    node.put(Client(), *of("x", 1, 2, 3), *of("y", 4), *of("x", 5, 6), *of("y", 7))
    assert numbers(node.get(owner="ann", count=9)) == [1, 2, 3, 4]
    assert numbers(node.get(owner="ann", count=9)) == [5, 6, 7]


@pytest.mark.parametrize("outcome", [GIVE_BACK, UNOPENED])
def test_a_message_that_an_owner_gives_back_is_the_next_when_all_others_are_settled(
    node: Node, outcome: int
) -> None:
    node.create()
    node.put(Client(), *of("x", 1, 2, 3))
    first, second = node.get(owner="ann", count=2)
    node.settle(first, outcome)
    assert node.get(count=9) == node.get(owner="bob", count=9) == []
    node.settle(second, DONE)
    assert numbers(node.get(owner="bob", count=9)) == [1, 3]


def test_a_group_ends_for_an_owner_at_the_first_message_that_does_not_match(node: Node) -> None:
    node.create()
    node.put(Client(), *of("x", 1, 2, 9, 3), *of("y", 4))
    assert numbers(node.get(owner="ann", where="number < 9", count=9)) == [1, 2, 4]


def test_a_message_that_pauses_keeps_an_owner_waiting(node: Node) -> None:
    node.create(retry_s=[1e6])
    node.put(Client(), *of("x", 1, 2, 3))
    first, _ = node.get(owner="ann", count=2)
    node.settle(first, GIVE_BACK)
    assert node.get(owner="ann", count=9) == []


def test_an_owner_gets_no_more_than_the_rate_allows(node: Node) -> None:
    node.create(rate=0.001)
    node.put(Client(), *of("x", 1, 2, 3))
    assert numbers(node.get(owner="ann", count=9)) == [1]


def test_messages_that_follow_a_lost_one_are_lost_too() -> None:
    reader = PostgresReader("jobs", GetRequest(queue="jobs", count=9), None, "ann")
    for number, follows in ((1, None), (2, 1), (3, None), (4, 2), (5, 3)):
        reader.take(CandidateRow(number, number, 0, follows=follows))
    assert unbroken(dict.fromkeys(reader.taken, reader), {2, 3, 4, 5}) == [3, 5]
    assert unbroken(dict.fromkeys(reader.taken, reader), {1, 2, 3, 4}) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(2))
def test_a_group_has_one_owner_whoever_takes_at_the_same_time(start: Start, seed: int) -> None:
    chance, nodes = random.Random(seed), [start(name) for name in "abc"]
    nodes[0].create(deliveries_max=None)
    nodes[0].put(Client(), *(event for place in range(12) for event in of("xyz"[place % 3], place)))
    for _ in range(often(15)):
        asked = []
        for number, node in enumerate(nodes):
            owner = chance.choice([None, f"client {number}"])
            asked.append((node, owner, node.ask(owner=owner, count=chance.randint(1, 9))))
        got = []
        for node, owner, answered in asked:
            node.wait(answered)
            got += [(node, owner, hand) for hand in answered.hands]
        check([(str(hand.event["group"]), owner, hand) for _, owner, hand in got])
        for node, _, hand in got:
            node.settle(hand, UNOPENED)


def check(got: list[tuple[str, str | None, Hand]]) -> None:
    """Each group is with one reader, which has its first messages, or one if it is no owner."""
    for group, some in groupby(sorted(got, key=itemgetter(0)), key=itemgetter(0)):
        held = [(owner, hand.event["number"]) for _, owner, hand in some]
        assert len({owner for owner, _ in held}) == 1
        assert [number for _, number in held] == list(range("xyz".index(group), 12, 3))[: len(held)]
        assert len(held) == 1 or held[0][0] is not None


def test_tables_of_a_node_that_knew_no_owners_get_them(server: Server, start: Start) -> None:
    node = Node(server.conninfo)
    node.create()
    node.put(Client(), *of("x", 1, 2))
    node.close()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("ALTER TABLE tidings.messages DROP COLUMN owner")
    assert numbers(start("b").get(owner="ann", count=9)) == [1, 2]


def test_a_client_gets_all_messages_of_a_group(server: Server) -> None:
    async def work() -> None:
        async with (
            running(name="a", postgres=server.conninfo) as node,
            tidings.connect(node.addresses[0]) as bus,
        ):
            queue = await bus.create_queue("jobs", type="postgres")
            for number in range(3):
                await queue.put("job", number=number, group="x")
            assert [message["number"] for message in await queue.get_all()] == [0, 1, 2]

    run(work())
