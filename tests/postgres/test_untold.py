"""Commits that were made though nobody was told, and jobs that can't be done: what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from postgres.rig import GIVE_BACK, Answered, Client, Node, job, numbers
from tidings.errors import InternalError
from tidings.ids import Origin
from tidings.postgres import taking
from tidings.postgres.connection import PostgresConnection, UnitOfWork

Start = Callable[..., Node]
whole_turn = PostgresConnection.turn


class Saboteur:
    """Breaks the connection after the commits that it is told to, before anybody hears of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.breaks: list[bool] = []  # for each turn that has answers, whether it is one
        monkeypatch.setattr(PostgresConnection, "turn", lambda link: self._turn(link))

    @contextmanager
    def _turn(self, link: PostgresConnection) -> Iterator[UnitOfWork]:
        with whole_turn(link) as turn:
            yield turn
        if turn.answers and self.breaks and self.breaks.pop(0):
            link.unconfirmed.add(turn.number)
            link.disconnect()
            raise psycopg.OperationalError("the connection is lost")


@pytest.mark.parametrize("breaks", [[True], [True, True], [False, True], [False, False, True], [True] * 3])
@pytest.mark.parametrize("where", ["", "number = 1"])
def test_what_was_committed_without_being_told_is_done_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, breaks: list[bool], where: str
) -> None:
    node.create()
    saboteur = Saboteur(monkeypatch)
    saboteur.breaks = list(breaks)
    assert node.put(Client(), job(1)) == [None]
    (hand,) = node.get(where=where)
    assert (hand.delivery, hand.redelivered) == (1, False)
    node.settle(hand)
    assert not saboteur.breaks
    assert (node.describe().messages, node.describe().in_flight) == (0, 0)


def test_a_get_that_waited_is_answered_though_the_commit_was_not_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create()
    waiting = node.ask(wait_s=None)
    node.until(lambda: node.describe().waiting == 1)
    saboteur = Saboteur(monkeypatch)
    saboteur.breaks = [True]
    assert node.put(Client(), job(1)) == [None]
    node.until(lambda: waiting.is_there)
    assert [(hand.event["number"], hand.delivery) for hand in waiting.hands] == [(1, 1)]


def test_a_queue_that_was_made_without_being_told_is_made_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    saboteur = Saboteur(monkeypatch)
    saboteur.breaks = [True]
    made = node.create()
    assert [told.id for told in node.search()] == [made.id]


def test_a_queue_that_was_deleted_without_being_told_is_deleted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create()
    saboteur = Saboteur(monkeypatch)
    saboteur.breaks = [True]
    node.delete()
    assert node.search() == []


def test_a_job_that_cannot_be_done_fails_alone(node: Node) -> None:
    node.create()
    way, done = node.way("jobs"), dict[str, object]()
    clients = [Client(name) for name in ("a", "b", "c")]
    clients[1].origin = Origin("b", 1, "no\0text")  # which no text in PostgreSQL can be
    way.describe()  # keeps the thread busy, so that the puts wait together
    for client in clients:
        (reply,) = way.put(None, client.batch([job(1)]))
        told = partial(done.__setitem__, str(client.origin.system))
        reply.then(told, told)
    node.until(lambda: len(done) == 3)
    assert (done["a"], type(done["b"]), done["c"]) == (None, InternalError, None)
    assert numbers(node.get(count=5)) == [1, 1]


def test_who_waited_is_given_nothing_that_was_taken_for_him_in_vain(node: Node) -> None:
    node.create()
    waiting = node.ask(wait_s=None)
    node.until(lambda: node.describe().waiting == 1)
    client = Client("b")
    client.origin = Origin("b", 1, "no\0text")
    (reply,) = node.way("jobs").put(None, client.batch([job(1)]))
    with pytest.raises(InternalError):
        node.wait(Answered(reply))
    assert not waiting.is_there
    node.put(Client("a"), job(2))
    node.until(lambda: waiting.is_there)
    assert numbers(waiting.hands) == [2]


def test_a_long_search_goes_on_though_things_come_back_behind_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "PAGE", 10)
    monkeypatch.setattr(taking, "PAGES_MAX", 2)
    node.create()
    node.put(Client(), *(job(number) for number in range(200)))
    (first,) = node.get()
    waiting = node.ask(where="number = 0 OR number = 1000", wait_s=None)
    late = node.ask(where="number = 199", wait_s=None)
    node.settle(first, GIVE_BACK)
    node.until(lambda: waiting.is_there and late.is_there)
    assert (numbers(waiting.hands), numbers(late.hands)) == ([0], [199])
