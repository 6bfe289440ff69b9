"""Announcing: what a neighbour has refused is sent again, soon at first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidings.errors import Refused
from tidings.filters import Filter
from tidings.overlay.announcing import Announcer
from tidings.replies import Deferred


class Neighbour:
    """A connection on which each request waits for the test to answer it."""

    def __init__(self) -> None:
        self.asked: list[Deferred[Any]] = []

    def request(self, *_: object) -> Deferred[Any]:
        self.asked.append(Deferred())
        return self.asked[-1]


def test_what_is_refused_is_sent_again_after_times_that_double_until_it_is_taken() -> None:
    waits: list[tuple[float, Callable[[], None]]] = []
    neighbour = Neighbour()
    announcer = Announcer("link.table", lambda *about: waits.append(about), lambda _problem: None)
    announcer.up(neighbour, "")  # type: ignore[arg-type]
    announcer.add(1, Filter("x > 1"), passive=False)
    for _ in range(8):
        refuse(announcer, neighbour)
        waits[-1][1]()
    assert [wait for wait, _ in waits] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    send(announcer)
    neighbour.asked[-1].resolve({})
    assert announcer.state == "known"
    announcer.add(2, Filter("y > 1"), passive=False)
    refuse(announcer, neighbour)
    assert waits[-1][0] == 0.2


def send(announcer: Announcer) -> None:
    for _ in announcer.steps():
        pass
    assert announcer.flush()


def refuse(announcer: Announcer, neighbour: Neighbour) -> None:
    send(announcer)
    neighbour.asked[-1].fail(Refused("exists", "the link stands by"))
