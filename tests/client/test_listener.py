"""Callbacks that fail: the error is logged, answered, and goes to the application at once."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Awaitable, Callable

import pytest

import tidings
from client.nodes import run
from tidings import Event
from tidings.client import Bus
from tidings.client.listener import OnError
from tidings.client.requests import FAILURE_LENGTH_MAX, failure_event
from tidings.errors import NoAnswer, RequestFailed


def fail(event: Event) -> None:
    raise ZeroDivisionError(f"can't divide {event['n']}")


async def for_ever() -> None:
    await asyncio.Event().wait()


async def listen(
    bus: Bus, on_error: OnError | None = None, body: Callable[[], Awaitable[None]] = for_ever
) -> None:
    """Listen with a callback that fails at the first event."""
    async with bus.listen("", fail, on_error=on_error):
        await bus.publish("t", n=1)
        await body()


def test_what_a_callback_raises_leaves_the_block_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(ZeroDivisionError, match="can't divide 1"):
                await listen(bus)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
            assert (await bus.status())["subscriptions"] == 0

    run(work())
    assert "a callback failed on an event of type t" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_with_on_error_the_listening_goes_on() -> None:
    async def work() -> None:
        failed: list[tuple[int, str]] = []
        done = asyncio.Event()

        async def note(event: Event, error: Exception) -> None:
            failed.append((event["n"], type(error).__name__))
            if event["n"] == 2:
                done.set()

        async with tidings.open() as bus, bus.listen("", fail, on_error=note):
            await bus.publish_all([Event("t", n=n) for n in range(3)])
            await done.wait()
        assert failed == [(n, "ZeroDivisionError") for n in range(3)]

    run(work())


def test_what_on_error_raises_leaves_the_block() -> None:
    def refuse(_event: Event, error: Exception) -> None:
        raise LookupError from error

    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(LookupError):
                await listen(bus, refuse)

    run(work())


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_client_that_asked_gets_an_error_reply(goes_on: bool) -> None:
    async def serve(bus: Bus, ready: asyncio.Event) -> None:
        on_error = (lambda *_: None) if goes_on else None
        async with bus.listen("type = 'div'", fail, on_error=on_error):
            ready.set()
            await for_ever()

    async def work() -> None:
        async with tidings.open() as bus:
            ready = asyncio.Event()
            serving = asyncio.create_task(serve(bus, ready))
            await ready.wait()
            with pytest.raises(RequestFailed, match="ZeroDivisionError: can't divide 7") as caught:
                await bus.request("div", n=7)
            assert (caught.value.error, caught.value.problem) == ("ZeroDivisionError", "can't divide 7")
            assert "Traceback" not in str(caught.value)
            if goes_on:
                serving.cancel()
            with pytest.raises(asyncio.CancelledError if goes_on else ZeroDivisionError):
                await serving

    run(work())


def test_an_answer_to_a_queue_is_an_event_that_says_what_failed() -> None:
    async def work() -> None:
        async with tidings.open() as bus, bus.listen("type = 'div'", fail, on_error=lambda *_: None):
            answers = await bus.create_queue("answers")
            await bus.publish("div", n=3, reply_to="answers", correlation_id="c")
            answer = await answers.get()
            assert (answer.type, answer["error"]) == ("tidings.error", "ZeroDivisionError")
            assert answer.correlation_id == "c"

    run(work())


def test_a_passive_listener_that_fails_leaves_the_answer_to_others() -> None:
    async def work() -> None:
        async with (
            tidings.open() as bus,
            bus.listen("", fail, passive=True, on_error=lambda *_: None),
            bus.listen("type = 'ask'", lambda ask: bus.reply(ask, "answer", n=0)),
        ):
            assert (await bus.request("ask", n=1)).type == "answer"

    run(work())


def test_an_error_reply_that_can_t_be_sent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        failed = asyncio.Event()
        async with (
            tidings.open() as bus,
            bus.listen("type = 'div'", fail, on_error=lambda *_: failed.set()),
        ):
            await bus.publish("div", n=3, reply_to="no such queue")
            await failed.wait()

    run(work())
    assert "no error reply could be sent for div" in caplog.text


def test_a_block_that_is_cancelled_from_elsewhere_stays_cancelled() -> None:
    async def idle(bus: Bus) -> None:
        async with bus.listen("", fail):
            await for_ever()

    async def work() -> None:
        async with tidings.open() as bus:
            task = asyncio.create_task(idle(bus))
            while (await bus.status())["subscriptions"] == 0:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(idle(bus), 0.01)

    run(work())


def test_an_error_of_the_block_itself_comes_before_that_of_the_callback() -> None:
    async def other() -> None:
        with pytest.raises(asyncio.CancelledError):
            await for_ever()
        raise LookupError

    async def none() -> None:
        with pytest.raises(asyncio.CancelledError):
            await for_ever()

    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(LookupError):
                await listen(bus, body=other)
            with pytest.raises(ZeroDivisionError):
                await listen(bus, body=none)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(work())


def test_without_await_the_error_is_raised_at_the_end_of_the_block() -> None:
    with tidings.blocking.open() as bus:
        failed = threading.Event()

        def note(_event: Event, _error: Exception) -> None:
            failed.set()

        with bus.listen("", fail, on_error=note):
            bus.publish("t", n=1)
            failed.wait()
        with pytest.raises(ZeroDivisionError), bus.listen("", fail), pytest.raises(RequestFailed):
            bus.request("div", n=1)


def test_an_error_reply_has_the_text_of_the_error_and_not_too_much_of_it() -> None:
    answer = failure_event(ValueError("\ud800" + "x" * FAILURE_LENGTH_MAX))
    assert len(answer["problem"]) == FAILURE_LENGTH_MAX
    assert answer["problem"].startswith("?x")
    copy = pickle.loads(pickle.dumps(RequestFailed("ValueError", "no")))
    assert (copy.error, copy.problem, isinstance(copy, NoAnswer)) == ("ValueError", "no", False)
