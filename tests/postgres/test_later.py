"""Delays, pauses and groups in a queue of a database: what holds for a queue of a node holds here."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from msgspec.structs import replace

from postgres.rig import DONE, GIVE_BACK, REJECT, Client, Node, job, numbers
from postgres.server import Server
from tidings.client.put import planned
from tidings.errors import QueueError
from tidings.event import Event
from tidings.event.header import Header
from tidings.queues.description import DELAY_S_MAX

YEAR_S = 365 * 86_400.0
SOON_S = 0.05


def later(number: int, delay_s: float | None = None, group: str | None = None) -> Event:
    return planned(job(number), delay_s, None, group)


def test_a_delayed_message_is_counted_and_nobody_has_it_before_it_is_due(node: Node) -> None:
    node.create()
    node.put(Client(), later(1, YEAR_S), job(2))
    assert numbers(node.get(count=10)) == [2]
    assert numbers(node.get(count=10, action="read")) == []
    told = node.describe()
    assert (told.messages, told.in_flight, told.delayed) == (0, 1, 1)
    assert node.purge(where="number = 1") == 1


def test_a_reader_that_waits_gets_a_delayed_message_when_it_is_due(node: Node) -> None:
    node.create()
    waiting = node.ask(wait_s=None)
    node.put(Client(), later(1, SOON_S))
    node.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == [1]
    assert waiting.hands[0].delivery == 1


def test_a_delay_that_is_too_long_is_refused(node: Node) -> None:
    node.create()
    (error,) = node.put(Client(), replace(job(1), header=Header(queue_delay_s=2 * DELAY_S_MAX)))
    assert isinstance(error, QueueError)


def test_a_message_is_released_with_a_delay(node: Node) -> None:
    node.create()
    node.put(Client(), job(1), job(2))
    first, second = node.get(count=2)
    node.release(first, YEAR_S)
    node.release(second, SOON_S)
    (hand,) = node.get(wait_s=None, count=10)
    assert (*numbers([hand]), hand.delivery) == (2, 2)
    assert node.describe().delayed == 1


def test_a_queue_has_pauses_and_then_dead_letters(node: Node) -> None:
    node.create(retry_s=[SOON_S, YEAR_S])
    node.put(Client(), job(1))
    for _ in range(2):
        (hand,) = node.get(wait_s=None)
        node.settle(hand, GIVE_BACK)
    told = node.describe()
    assert (told.messages, told.delayed, told.deliveries_max) == (0, 1, 3)


def test_one_message_of_a_group_is_in_flight_wherever_its_reader_is(start: Callable[..., Node]) -> None:
    a, b = start("a"), start("b")
    a.create()
    a.put(Client(), later(1, group="x"), later(2, group="x"), later(3, group="y"), job(4))
    first, second, third = a.get(count=10)
    assert numbers([first, second, third]) == [1, 3, 4]
    assert b.get(count=10) == []
    assert a.describe().groups == 2
    waiting = b.ask(count=10, wait_s=None)
    a.settle(first, DONE)
    b.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == [2]


@pytest.mark.parametrize("where", ["", "number > 0"])
@pytest.mark.parametrize("outcome", [DONE, REJECT, GIVE_BACK])
def test_the_next_reader_gets_a_group_in_order(node: Node, outcome: int, where: str) -> None:
    node.create()
    node.put(Client(), later(1, group="x"), later(2, group="x"))
    (hand,) = node.get(where=where, count=10)
    waiting = node.ask(where=where, count=10, wait_s=None)
    assert numbers(node.get(action="read", count=10)) == [2]
    node.settle(hand, outcome)
    node.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == ([1] if outcome == GIVE_BACK else [2])


def test_a_message_that_pauses_keeps_its_group_waiting_and_one_that_is_put_for_later_does_not(
    node: Node,
) -> None:
    node.create(retry_s=[YEAR_S])
    node.put(Client(), later(1, YEAR_S, "x"), later(2, group="x"), later(3, group="x"))
    (hand,) = node.get(count=10)
    assert numbers([hand]) == [2]
    node.settle(hand, GIVE_BACK)
    assert node.get(count=10) == []


def test_tables_of_an_earlier_node_are_used_on(server: Server, start: Callable[..., Node]) -> None:
    node = Node(server.conninfo)
    node.create()
    node.put(Client(), job(1))
    node.close()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("DROP INDEX tidings.messages_group")
        connection.execute("ALTER TABLE tidings.messages DROP COLUMN queue_group")
    again = start("b")
    again.put(Client("other"), later(2, group="x"), later(3, group="x"))
    assert numbers(again.get(count=10)) == [1, 2]
