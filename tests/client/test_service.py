"""Services: a handler answers requests with its result or its error, until the service is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

import tidings
from client.nodes import run
from tidings import Event, Filter
from tidings.client import Bus
from tidings.client.requests import FAILURE
from tidings.errors import NotAllowed, RequestFailed, UserError

Work = Callable[[Bus], Awaitable[None]]


def with_service(handler: Any, work: Work, type: Filter | str = "div", **options: Any) -> None:
    """Run a test beside a service, which is stopped after it."""

    async def within() -> None:
        async with tidings.open() as bus:
            stop = asyncio.Event()
            serving = asyncio.create_task(bus.serve(type, handler, stop=stop, **options))
            await work(bus)
            stop.set()
            await serving

    run(within())


async def divide(request: Event) -> Mapping[str, object]:
    return {"value": request["a"] / request["b"]}


def test_a_request_is_answered_with_what_the_handler_returns() -> None:
    async def work(bus: Bus) -> None:
        answer = await bus.request("div", a=84, b=2)
        assert (answer.type, answer["value"]) == ("div.answer", 42)

    with_service(divide, work)
    with_service(lambda request: Event("div.answer", value=request["a"] // request["b"]), work)


def test_a_handler_that_returns_nothing_answers_that_it_is_done() -> None:
    async def work(bus: Bus) -> None:
        answer = await bus.request("div")
        assert (answer.type, dict(answer.attributes)) == ("div.answer", {})

    with_service(lambda _: None, work)


def test_a_filter_says_which_requests_are_meant() -> None:
    async def work(bus: Bus) -> None:
        assert (await bus.request("div", a=1, b=2, subject="one"))["value"] == 0.5

    with_service(divide, work, Filter("type = 'div' AND subject = 'one'"))


@pytest.mark.parametrize("handler", [divide, lambda request: {"value": request["a"] // request["b"]}])
def test_an_error_of_the_handler_is_raised_by_the_request_and_the_service_goes_on(
    handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bus: Bus) -> None:
        with pytest.raises(RequestFailed, match="ZeroDivisionError: ") as raised:
            await bus.request("div", a=1, b=0)
        assert raised.value.error == "ZeroDivisionError"
        assert (await bus.request("div", a=4, b=2))["value"] == 2

    with_service(handler, work)
    (said,) = caplog.messages
    assert said.endswith("failed with div; the requester gets an error reply")


def test_a_result_that_is_no_answer_is_an_error_that_names_the_handler() -> None:
    async def count(_request: Event) -> Any:
        return 3

    async def work(bus: Bus) -> None:
        with pytest.raises(RequestFailed, match="handler count returned int; it must return an Event"):
            await bus.request("div")

    with_service(count, work)


def test_an_error_reply_that_another_client_has_made_is_understood() -> None:
    async def work(bus: Bus) -> None:
        async def answer(request: Event) -> None:
            await bus.reply(request, FAILURE, problem=7)

        async with bus.listen("type = 'mul'", answer):
            with pytest.raises(RequestFailed, match=r": error: 7$"):
                await bus.request("mul")

    with_service(divide, work)


def test_an_event_that_expects_no_answer_is_handled_too() -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def hear(event: Event) -> None:
        heard.put_nowait(event["n"])
        raise RuntimeError

    async def work(bus: Bus) -> None:
        while heard.empty():  # the service may not have subscribed yet
            await bus.publish("div", n=1)
            await bus.status()

    with_service(hear, work)


def test_requests_are_answered_side_by_side() -> None:
    together = threading.Barrier(3)

    def meet(_request: Event) -> None:
        together.wait()  # would never end if the calls came one after the other

    async def work(bus: Bus) -> None:
        await asyncio.gather(*(bus.request("div") for _ in range(6)))

    with_service(meet, work, concurrency=3)


def test_an_answer_that_the_node_refuses_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise NotAllowed("no")

    async def work(bus: Bus) -> None:
        monkeypatch.setattr(Bus, "reply", refuse)
        serving = asyncio.create_task(bus.serve("mul", divide))
        asking = asyncio.create_task(bus.request("mul", a=1, b=1))
        while not caplog.messages:
            await bus.status()
        asking.cancel()
        serving.cancel()
        await asyncio.wait([asking, serving])
        monkeypatch.undo()

    with_service(divide, work)
    assert caplog.messages == ["the answer of handler divide to mul can't be sent"]


def test_a_stop_lets_a_running_handler_answer() -> None:
    async def work() -> None:
        stop, begun = asyncio.Event(), asyncio.Event()

        async def answer(_request: Event) -> Mapping[str, object]:
            begun.set()
            await stop.wait()
            return {"n": 1}

        async with tidings.open() as bus:
            serving = asyncio.create_task(bus.serve("div", answer, stop=stop))
            asking = asyncio.create_task(bus.request("div"))
            await begun.wait()
            stop.set()
            assert (await asking)["n"] == 1
            await serving
            assert (await bus.status())["subscriptions"] == 1  # for answers

    run(work())


def test_a_second_signal_cancels_the_handlers_of_a_service() -> None:
    async def work() -> None:
        async def answer(_request: Event) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

        async with tidings.open() as bus:
            asking = asyncio.create_task(bus.request("div"))
            await bus.serve("div", answer, signals=True, grace_s=None)
            asking.cancel()

    run(work())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency .* not 0"),
        ({"grace_s": -1}, "grace_s=-1"),
        ({"handler": "divide"}, "the handler must be a function .* not 'divide'"),
    ],
)
def test_what_no_service_can_do_is_refused(options: dict[str, Any], said: str) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(UserError, match=said):
                await bus.serve("div", **{"handler": divide, **options})

    run(work())


def test_a_service_without_await_answers_and_is_stopped() -> None:
    stop = threading.Event()

    def answer(request: Event) -> Mapping[str, object]:
        if request["last"]:
            stop.set()
        return {"n": request["n"] + 1}

    with tidings.blocking.open() as bus:
        asked: list[int] = []

        def ask() -> None:
            while not bus.status()["subscriptions"]:
                pass
            while not stop.is_set():
                asked.append(bus.request("inc", n=1, last=len(asked) == 1, timeout_s=60)["n"])

        asking = threading.Thread(target=ask)
        asking.start()
        bus.serve("inc", answer, stop=stop)
        asking.join()
        assert asked == [2, 2]
