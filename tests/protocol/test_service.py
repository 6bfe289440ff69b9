"""What a service beside the broker hears, and how the requests that it takes are answered."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec import Struct

from protocol.rig import Rig, persistent
from tidings.errors import QueueFull
from tidings.protocol.messages import Acknowledge, Bye, Put, Reply
from tidings.protocol.service import LATER, IncomingRequest, Service
from tidings.protocol.session import Session
from tidings.replies import Deferred
from tidings.store.interface import Operation


class Word(Struct, frozen=True):
    """What an echo is asked for."""

    word: str


class Echo(Service):
    """A service that answers, later if it is asked to, and writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.later: list[IncomingRequest] = []
        self.deferred: list[Deferred[str]] = []
        self.operations = {
            "echo": (Word, self._echo),
            "echo.later": (Word, self._later),
            "echo.full": (Word, self._full),
            "echo.deferred": (Word, self._deferred),
        }

    def _echo(self, _asked: IncomingRequest, wanted: Word) -> str:
        return wanted.word

    def _later(self, asked: IncomingRequest, _wanted: Word) -> Any:
        self.later.append(asked)
        return LATER

    def _deferred(self, _asked: IncomingRequest, _wanted: Word) -> Deferred[str]:
        self.deferred.append(Deferred())
        return self.deferred[-1]

    def _full(self, _asked: IncomingRequest, wanted: Word) -> None:
        raise QueueFull(wanted.word, "no room")

    def greeted(self, session: Session) -> None:
        self.heard.append("greeted")

    def parted(self, session: Session, is_clean: bool) -> None:
        self.heard.append("parted cleanly" if is_clean else "parted")

    def finish_tick(self) -> None:
        self.heard.append("tick")

    def durable(self, mark: int) -> None:
        self.heard.append("durable")

    def failed(self, lost: list[Operation]) -> list[Operation]:
        self.heard.append("failed")
        return lost

    def wake(self, now: float) -> None:
        self.heard.append(f"woken at {now}")


def rig_with(echo: Echo) -> Rig:
    """A node with an echo."""
    rig = Rig()
    rig.broker.add(echo)
    return rig


def test_an_operation_is_answered_with_what_it_returns() -> None:
    ann = rig_with(Echo()).peer()
    assert ann.ask("echo", word="hello").result == "hello"


def test_an_operation_that_raises_is_answered_with_a_typed_failure() -> None:
    ann = rig_with(Echo()).peer()
    reply = ann.ask("echo.full", word="jobs")
    assert reply.error is not None
    assert (reply.error.code, reply.error.details["queue"]) == ("queue-full", "jobs")


def test_arguments_that_do_not_fit_are_refused_and_the_connection_stays() -> None:
    ann = rig_with(Echo()).peer()
    reply = ann.ask("echo", word=1)
    assert reply.error is not None
    assert reply.error.code == "protocol"
    assert not ann.got(Bye)


def test_an_operation_that_nobody_has_is_not_found() -> None:
    reply = rig_with(Echo()).peer().ask("echo.backwards")
    assert reply.error is not None
    assert reply.error.code == "not-found"


def test_an_operation_may_be_answered_later() -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    ann.request("echo.later", word="x")
    rig.run()
    assert ann.got(Reply) == []
    echo.later[0].answer("now", 0)
    rig.run()
    assert [reply.result for reply in ann.got(Reply)] == ["now"]


def test_an_answer_waits_for_what_it_depends_on() -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    ann.request("echo.later", word="x")
    ann.publish(persistent(1))
    echo.later[0].answer("now", rig.broker.mark)
    rig.tick()
    assert ann.got(Reply) == []
    rig.sync()
    assert [reply.result for reply in ann.got(Reply)] == ["now"]


def test_an_answer_comes_after_what_was_done_before_it_is_safe() -> None:
    rig = rig_with(Echo())
    ann = rig.peer()
    ann.publish(persistent(1))
    ann.request("echo", word="x")
    rig.tick()
    assert ann.got(Reply) == []
    rig.sync()
    assert [reply.result for reply in ann.got(Reply)] == ["x"]


def test_an_answer_to_a_client_that_is_gone_is_passed_over() -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    ann.request("echo.later", word="x")
    ann.lose()
    echo.later[0].answer("now", 0)
    echo.later[0].fail(QueueFull("jobs", "no room"))
    rig.run()
    assert ann.got(Reply) == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_service_hears_of_clients_that_come_and_go(clean: bool) -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    if clean:
        ann.send(Bye())
    ann.lose()
    heard = [one for one in echo.heard if one.startswith(("greeted", "parted"))]
    assert heard == ["greeted", "parted cleanly" if clean else "parted"]


def test_a_service_does_not_hear_of_those_who_never_said_hello() -> None:
    echo = Echo()
    rig_with(echo).connect().lose()
    assert echo.heard == []


def test_a_service_hears_what_became_of_commits() -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    echo.heard.clear()
    ann.publish(persistent(1))
    rig.tick()
    rig.sync()
    assert echo.heard == ["tick", "durable"]
    ann.publish(persistent(2))
    rig.tick()
    rig.fail()
    assert echo.heard[-1] in ("failed", "parted")
    assert "failed" in echo.heard


def test_the_broker_is_woken_when_a_service_has_something_to_do() -> None:
    echo = Echo()
    rig = rig_with(echo)
    assert rig.broker.wake_at == inf
    rig.broker.timers.at(1_009.0, lambda now: echo.heard.append(f"too late, at {now}"))
    rig.broker.timers.at(1_005.0, echo.wake)
    assert rig.broker.wake_at == 1_005.0
    rig.broker.wake(1_006.0)
    assert echo.heard[-1] == "woken at 1006.0"


def test_an_operation_that_returns_a_reply_is_answered_when_that_is_there() -> None:
    echo = Echo()
    rig = rig_with(echo)
    ann = rig.peer()
    ann.request("echo.deferred", word="x")
    ann.request("echo.deferred", word="y")
    rig.run()
    assert ann.got(Reply) == []
    echo.deferred[1].fail(QueueFull("jobs", "no room"))
    echo.deferred[0].resolve("now")
    rig.run()
    refused, done = ann.got(Reply)
    assert refused.error is not None
    assert (refused.error.code, done.result) == ("queue-full", "now")


class Second(Service):
    """A service that adds what it is told to."""

    def __init__(self, *added: Any) -> None:
        self.operations = {one: (Word, print) for one in added if isinstance(one, str)}
        self.frames = {one: print for one in added if not isinstance(one, str)}


@pytest.mark.parametrize("added", ["echo", "subscribe", "status", Put, Acknowledge])
def test_a_service_that_adds_what_is_there_already_is_refused(added: Any) -> None:
    rig = rig_with(Echo())
    before = list(rig.broker.services)
    with pytest.raises(ValueError, match="Second adds what is there already"):
        rig.broker.add(Second("new", added))
    assert rig.broker.services == before
    assert "new" not in rig.broker.operations
