"""The requests of a client that wait: how many there may be, and that what ends something always can."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.clients import Client, run, spoken
from protocol.rig import Rig
from tidings.errors import Refused, TidingsError
from tidings.protocol.calls import CALLS_MAX, Call, Calls
from tidings.protocol.messages import Failure, Reply, Request


class Caller(Calls):
    """Calls, and how they were answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[Any, TidingsError | None]] = []

    def ask(self, operation: str, on_cut: Any = "again") -> Call:
        call = self.add(operation, {}, on_cut)
        call.then(
            lambda result: self.answers.append((result, None)),
            lambda error: self.answers.append((None, error)),
        )
        return call

    def fill(self, operation: str, on_cut: Any = "again") -> list[Call]:
        return [self.ask(operation, on_cut) for _ in range(CALLS_MAX)]


def test_gets_that_wait_leave_room_for_all_other_requests() -> None:
    calls = Caller()
    calls.fill("get")
    with pytest.raises(Refused, match="limit"):
        calls.ask("get")
    calls.fill("queue.describe")
    with pytest.raises(Refused, match="limit"):
        calls.ask("unsubscribe")


def test_other_requests_that_wait_leave_room_for_gets() -> None:
    calls = Caller()
    calls.fill("status")
    calls.fill("get")


def test_what_was_begun_can_be_ended_however_many_requests_wait() -> None:
    calls = Caller()
    calls.fill("get")
    calls.fill("status")
    calls.ask("rollback")
    calls.ask("get.cancel")


def test_gets_that_are_cancelled_take_no_room_from_others() -> None:
    calls = Caller()
    for call in calls.fill("get"):
        calls.cancel(call.number)
        calls.ask("get.cancel")
    calls.fill("status")


def test_a_request_that_is_over_leaves_its_room() -> None:
    calls = Caller()
    for operation in ("get", "status"):
        first, second, *_ = calls.fill(operation)
        calls.take(Reply(first.number))
        calls.take(Reply(first.number))  # an answer that comes twice makes no room twice
        calls.cancel(second.number)
        calls.cancel(second.number)
        calls.ask(operation)
        calls.ask(operation)
        with pytest.raises(Refused, match="limit"):
            calls.ask(operation)


def test_a_cut_leaves_the_room_of_what_is_not_sent_again() -> None:
    calls = Caller()
    calls.fill("get", "again")
    calls.fill("status", "fail")
    calls.cut()
    assert len(calls.answers) == CALLS_MAX
    calls.fill("status")
    with pytest.raises(Refused, match="limit"):
        calls.ask("get")


def test_when_there_will_be_no_answers_there_is_room_again() -> None:
    calls = Caller()
    calls.fill("get")
    calls.fail(Refused("shutdown", "no more"))
    calls.fill("get")
    calls.fill("status")


def test_what_was_ended_before_a_cut_is_no_error_after_it() -> None:
    calls = Caller()
    call = calls.ask("unsubscribe")
    calls.cut()
    calls.take(Reply(call.number, None, Failure("not-found", "gone")))
    assert calls.answers == [(None, None)]


def test_a_client_with_as_many_gets_as_may_wait_comes_back_with_its_subscription() -> None:
    rig = Rig()
    client = Client(rig)
    client.subscribe()
    run(client)
    for _ in range(CALLS_MAX):
        client.hear_of(client.core.request("get", {"queue": "jobs"}, "again"))
    client.core.output()
    client.cut()
    client.connect(rig)
    client.send()
    rig.run()
    client.hear()
    asked = [message.operation for message in spoken(client) if isinstance(message, Request)]
    assert asked == ["subscribe"] + ["get"] * CALLS_MAX
