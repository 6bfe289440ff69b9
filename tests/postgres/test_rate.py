"""Rates of queues in a database: all nodes together deliver no more than a queue's rate allows.

The rate is such that a token comes once in a lifetime; a test lets that time pass for one queue by a change
of the moment at which its tokens were counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import psycopg
import pytest
from effort import often

from postgres.rig import GIVE_BACK, Client, Node, job, numbers
from postgres.server import Server
from tidings.filters import Filter
from tidings.postgres.catalog import Known
from tidings.postgres.connection import UnitOfWork
from tidings.postgres.readers import PostgresReader
from tidings.postgres.taking import QueueWalk, is_served
from tidings.queues.arguments import GetRequest

SLOW = 0.001
BRISK = 20.0
Pass = Callable[[float], None]


@pytest.fixture
def let_pass(server: Server) -> Pass:
    """Let the time of a slow queue pass for so many tokens."""

    def let_pass(tokens: float) -> None:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute(
                "UPDATE tidings.rates SET counted_us = counted_us - %s::bigint", (int(tokens / SLOW * 1e6),)
            )

    return let_pass


def filled(node: Node, count: int, rate: float = SLOW) -> None:
    node.create(rate=rate)
    node.put(Client(), *(job(number) for number in range(count)))


@pytest.mark.parametrize("where", ["", "number >= 0"])
def test_all_nodes_take_from_one_bucket(start: Callable[..., Node], let_pass: Pass, where: str) -> None:
    a, b = start("a"), start("b")
    filled(a, 5)
    assert a.describe().rate == SLOW
    assert numbers(a.get(where=where, count=5)) == [0]
    assert b.get(where=where, count=5) == a.get(where=where, count=5) == []
    let_pass(0.5)
    assert b.get(where=where, count=5) == []
    let_pass(0.5)
    assert numbers(b.get(where=where, count=5)) == [1]
    let_pass(7)  # a bucket holds one token of so low a rate
    assert numbers(a.get(where=where, count=5)) == [2]
    assert b.get(where=where) == []


def test_nodes_that_take_at_the_same_time_get_each_token_once(
    start: Callable[..., Node], let_pass: Pass
) -> None:
    nodes = [start(name) for name in "abc"]
    filled(nodes[0], often(20))
    for number in range(often(10)):
        asked = [(node, node.ask(count=9)) for node in nodes]
        got = [hand for node, answered in asked if node.wait(answered) for hand in answered.hands]
        assert numbers(got) == [number]
        let_pass(1)


def test_a_burst_is_what_the_rate_allows_in_a_tenth_of_a_second(node: Node) -> None:
    filled(node, 20, rate=100.0)
    assert len(node.get(count=20)) >= 10


@pytest.mark.parametrize("where", ["", "number >= 0"])
def test_readers_that_wait_are_woken_when_there_are_tokens(start: Callable[..., Node], where: str) -> None:
    a, b = start("a"), start("b")
    filled(a, 9, BRISK)
    b.way("jobs")
    asked = [(node, node.ask(where=where, wait_s=None)) for node in (a, b, a, b, a, b, a, b, a)]
    got = [hand for node, answered in asked if node.wait(answered) for hand in answered.hands]
    assert sorted(map(str, numbers(got))) == sorted(map(str, range(9)))
    assert (a.describe().messages, a.describe().in_flight, a.describe().waiting) == (0, 9, 0)


def test_a_reader_without_a_token_waits_until_its_time_is_up(node: Node) -> None:
    filled(node, 2)
    node.get()
    assert node.get(wait_s=0.01) == []
    assert node.describe().waiting == 0


def test_reading_needs_no_tokens_and_goes_on_while_others_wait_for_one(node: Node) -> None:
    filled(node, 2)
    node.get()
    taker, copier = node.ask(wait_s=None), node.ask(action="read", where="number = 7", wait_s=None)
    node.until(lambda: node.describe().waiting == 2)
    assert numbers(node.get(action="read", count=5)) == [1]
    node.put(Client("other"), job(7))
    node.until(lambda: copier.is_there)
    assert numbers(copier.hands) == [7]
    assert not taker.is_there


def test_a_filter_that_nothing_matches_takes_no_token(node: Node) -> None:
    filled(node, 2)
    assert node.get(where="number = 7", count=5) == []
    assert numbers(node.get(where="number = 1", count=5)) == [1]


def test_a_message_that_comes_back_needs_another_token(node: Node, let_pass: Pass) -> None:
    filled(node, 1)
    (hand,) = node.get()
    node.settle(hand, GIVE_BACK)
    assert node.get() == []
    let_pass(1)
    assert node.get()[0].delivery == 2


def test_a_clock_that_is_set_back_costs_no_more_than_one_token(node: Node, let_pass: Pass) -> None:
    filled(node, 3)
    node.get()
    let_pass(-1000)
    assert node.get() == []
    let_pass(1)
    assert numbers(node.get()) == [1]


def test_a_search_that_pauses_goes_on_when_there_are_tokens(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.postgres.taking.PAGE", 2)
    monkeypatch.setattr("tidings.postgres.taking.PAGES_MAX", 1)
    filled(node, 12, BRISK)
    asked = [node.ask(where=f"number >= {least}", wait_s=None) for least in (11, 10, 9, 0, 0)]
    for answered in asked:
        node.wait(answered)
    got = [number for answered in asked for number in numbers(answered.hands)]
    assert len(set(got)) == 5
    assert {9, 10, 11} < set(got)


@pytest.mark.parametrize("wait_s", [0.0, None])
def test_a_search_ends_when_others_have_the_tokens_unless_its_reader_waits(wait_s: float | None) -> None:
    reader = PostgresReader("jobs", GetRequest(queue="jobs", wait_s=wait_s), Filter("number = 7"))
    reader.is_searching, reader.place = True, 5
    QueueWalk(cast(UnitOfWork, None), cast(Known, None), [reader], room=0).run(9)
    assert is_served(reader) is (wait_s == 0)
    assert (reader.place, reader.seen) == (5, 0)


def test_a_deleted_queue_takes_its_tokens_along(server: Server, node: Node) -> None:
    filled(node, 2)
    node.get()
    waiting = node.ask(wait_s=None)
    node.delete()
    node.until(lambda: waiting.is_there)
    filled(node, 2)
    assert len(node.get()) == 1
    with psycopg.connect(server.conninfo) as connection:
        assert connection.execute("SELECT count(*) FROM tidings.rates").fetchone() == (1,)


def test_tables_of_a_node_that_knew_no_rates_get_them(server: Server, start: Callable[..., Node]) -> None:
    node = Node(server.conninfo)
    node.create("old")
    node.put(Client(), job(1), name="old")
    node.close()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("DROP TABLE tidings.rates")
    again = start("b")
    assert numbers(again.get("old")) == [1]
    filled(again, 2)
    assert numbers(again.get(count=2)) == [0]
