"""`tidings request` and `tidings reply`: in memory, and once with a real node and processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from cli.commands import run_command
from cli.test_node import begin
from node.peers import ANSWER_S_MAX, Start

import tidings
from tidings import Event
from tidings.cli.request import Answerer
from tidings.errors import RequestFailed
from tidings.filters import Filter
from tidings.processes import shell

T = TypeVar("T")


@pytest.fixture(scope="module")
def address(start_shared: Start) -> str:
    return start_shared("--port", "0").address()


def answered(answerer: Answerer, *requests: Event) -> list[Event | str]:
    """The replies to requests that are made one after the other, or the texts of their errors."""

    async def ask(bus: tidings.Bus, request: Event) -> Event | str:
        try:
            return await bus.request(request, timeout_s=ANSWER_S_MAX)
        except RequestFailed as failed:
            return f"{failed.error}: {failed.problem}"

    async def talk() -> list[Event | str]:
        async with tidings.open() as bus:
            wanted = Filter("type = 'sum' AND reply_to IS NOT NULL")
            serving = asyncio.ensure_future(answerer.serve(bus, wanted, len(requests), None))
            await until_subscribed(bus)
            replies = [await ask(bus, request) for request in requests]
            await serving
            return replies

    return run(talk())


async def until_subscribed(bus: tidings.Bus) -> None:
    while (await bus.status())["subscriptions"] == 0:
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_reply_has_the_given_attributes(capsys: pytest.CaptureFixture[str]) -> None:
    answerer = Answerer("sum.reply", {"total": 3}, None, is_event=False, json=False)
    (reply,) = answered(answerer, Event("sum", a=1, b=2))
    assert isinstance(reply, Event)
    assert (reply.type, reply.attributes, reply.body) == ("sum.reply", {"total": 3}, None)
    assert capsys.readouterr().out.endswith(" sum a=1 b=2\n")


@pytest.mark.parametrize(
    ("command", "body", "content_type"),
    [
        ("cat >/dev/null; printf 'three\\n'", b"three\n", "text/plain"),
        ("cat >/dev/null; printf '\\377'", b"\xff", "application/octet-stream"),
        ("cat >/dev/null", None, None),
    ],
)
def test_the_output_of_a_command_is_the_body_of_the_reply(
    command: str, body: bytes | None, content_type: str | None
) -> None:
    answerer = Answerer("sum.reply", {}, command, is_event=False, json=False)
    (reply,) = answered(answerer, Event("sum"))
    assert isinstance(reply, Event)
    assert (reply.body, reply.content_type) == (body, content_type)


def test_a_command_may_print_the_reply_itself_and_finds_the_request_on_its_input() -> None:
    command = """sed 's/.*"a":\\([0-9]*\\).*/{"type": "total", "value": \\1}/'"""
    answerer = Answerer("sum.reply", {}, command, is_event=True, json=False)
    replies = answered(answerer, Event("sum", a=7), Event("sum", a=8))
    assert [(one.type, one["value"]) for one in replies if isinstance(one, Event)] == [
        ("total", 7),
        ("total", 8),
    ]


@pytest.mark.parametrize(
    ("command", "is_event", "problem"),
    [
        ("exit 3", False, "CommandFailed: exit code 3"),
        ("echo nonsense", True, "CodecError: $: JSON is malformed: invalid character (byte 4)"),
    ],
)
def test_who_asks_gets_the_error_of_a_command_and_the_next_request_is_processed(
    command: str, is_event: bool, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answerer = Answerer("sum.reply", {}, command, is_event, json=True)
    replies = answered(answerer, Event("sum"), Event("sum"))
    assert replies == [problem] * 2
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["outcome"], one["problem"]) for one in told] == [("failed", problem.partition(": ")[2])] * 2
    assert answerer.counts == {"failed": 2}


def test_without_a_request_the_service_ends_when_its_time_is_up() -> None:
    async def serve() -> None:
        async with tidings.open() as bus:
            await Answerer("a", {}, None, is_event=False, json=False).serve(bus, Filter(), None, 0.0)

    run(serve())


def test_a_command_that_is_cancelled_ends_with_all_that_it_has_started() -> None:
    async def cancel() -> None:
        running = asyncio.ensure_future(shell("sleep 1000 & wait", b"", subprocess.PIPE))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(cancel())


def test_requests_and_replies_over_a_node(address: str) -> None:
    service = begin(
        "reply", "shout", "-c", "tr a-z A-Z", "--where", "n = 1", "--count", "2", "--node", address
    )
    assert service.stderr is not None
    assert service.stderr.readline() == "waiting for requests; Ctrl-C ends\n"
    code, output, _ = run_command("request", "shout", "n=1", "--body", "--node", address)
    assert (code, '"TYPE":"SHOUT"' in output) == (0, True)
    code, output, _ = run_command("request", "shout", "n=1", "--json", "--node", address)
    assert (code, json.loads(output)["type"]) == (0, "shout.reply")
    output, _ = service.communicate(timeout=ANSWER_S_MAX)
    assert (service.returncode, output.count("replied: ")) == (0, 2)


def test_without_a_reply_in_time_the_exit_code_is_1(address: str) -> None:
    code, output, errors = run_command("request", "nobody", "--timeout", "0.01", "--node", address)
    assert (code, output, errors) == (1, "", "tidings: no answer to nobody within 0.01 s\n")


def test_options_that_exclude_or_need_each_other_are_named() -> None:
    assert run_command("request", "a", "--body", "--json")[0] == 2
    assert run_command("reply", "a", "--event")[2] == "tidings: --event needs --command\n"
