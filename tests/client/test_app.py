"""Apps: handlers that run together on one bus, and what they are stopped by."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tidings
from client.nodes import node, run
from tidings import App, Event
from tidings.client import Bus, Message
from tidings.client.app import AppPart
from tidings.errors import FilterError, QueueNotFound, RequestFailed, UserError


@asynccontextmanager
async def running(app: App, bus: Bus, subscriptions: int = 0) -> AsyncIterator[None]:
    """Run an app beside the block; it has begun when there are so many subscriptions."""
    stop = asyncio.Event()
    task = asyncio.create_task(app.run(bus, stop=stop))
    while (await bus.status())["subscriptions"] < subscriptions and not task.done():
        pass
    try:
        yield
    finally:
        stop.set()
        await task


def test_an_app_works_listens_and_serves() -> None:
    app = App()
    done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    @app.work("jobs", concurrency=2)
    async def paint(message: Message) -> None:
        await app.bus.publish("painted", n=message["n"])

    @app.on("type = 'painted'")
    async def note(event: Event) -> None:
        done.put_nowait((event.type, event["n"]))

    @app.serve("div")
    def divide(request: Event) -> Mapping[str, object]:
        return {"value": request["a"] / request["b"]}

    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs")
            async with running(app, bus, 2):
                await queue.put("job", n=1)
                assert await done.get() == ("painted", 1)
                assert (await bus.request("div", a=1, b=2))["value"] == 0.5
                with pytest.raises(RequestFailed):
                    await bus.request("div", a=1, b=0)
            assert await queue.is_empty()
        with pytest.raises(UserError, match="an app has a bus while it runs"):
            _ = app.bus

    run(work())
    assert app.parts == [
        AppPart("work", "paint", "jobs", 2),
        AppPart("on", "note", "type = 'painted'", 1),
        AppPart("serve", "divide", "div", 1),
    ]


def test_an_app_connects_to_an_address(tmp_path: Path) -> None:
    async def work() -> None:
        app, done = App(), asyncio.Event()
        app.work("jobs")(lambda _: asyncio.sleep(0, done.set()))
        async with node(tmp_path) as address, tidings.connect(address) as bus:
            await (await bus.create_queue("jobs")).put("job")
            await app.run(address, stop=done)

    run(work())


def test_a_queue_that_is_not_there_is_named_with_what_to_do_before_anything_runs() -> None:
    app = App()

    @app.work("jobs")
    async def paint(_message: Message) -> None:
        raise AssertionError

    @app.work("jbos")
    async def dry(_message: Message) -> None: ...

    @app.on("", dead="lost")
    async def hear(_event: Event) -> None: ...

    async def work() -> None:
        async with tidings.open() as bus:
            await (await bus.create_queue("jobs")).put("job")
            with pytest.raises(QueueNotFound) as raised:
                await app.run(bus)
            assert str(raised.value) == (
                "queue 'jbos': there is no such queue for handler dry; create it with "
                "'tidings queue create jbos' or 'await bus.create_queue('jbos')'"
            )
            await bus.create_queue("jbos")
            with pytest.raises(QueueNotFound, match=r"'lost'.* for handler hear; create it"):
                await app.run(bus)

    run(work())


# -- events that fail


def test_a_handler_of_events_is_tried_again_and_then_skips_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, calls = App(), list[int]()
    seen: asyncio.Queue[int] = asyncio.Queue()

    @app.on("type = 'reading'", attempts=3, pause_s=0, skip=(KeyError,))
    async def read(event: Event) -> None:
        calls.append(event["n"])
        if event["n"] == 1:
            raise RuntimeError("not now")
        if event["n"] == 2:
            raise KeyError("never")
        seen.put_nowait(event["n"])

    async def work() -> None:
        async with tidings.open() as bus, running(app, bus, 1):
            for n in (1, 2, 3):
                await bus.publish("reading", n=n)
            assert await seen.get() == 3

    run(work())
    assert calls == [1, 1, 1, 2, 3]
    said = [text.removeprefix("handler read failed with reading in attempt ") for text in caplog.messages]
    assert said == [
        "1; it is tried again",
        "2; it is tried again",
        "3; it is skipped",
        "1; it is skipped",
    ]


def test_events_that_are_given_up_go_to_a_queue_with_the_reason() -> None:
    app = App()

    @app.on("type = 'reading'", dead="lost", durable="reader")
    def read(event: Event) -> None:
        raise RuntimeError(f"no {event['n']}")

    async def work() -> None:
        async with tidings.open() as bus:
            lost = await bus.create_queue("lost")
            async with running(app, bus, 1):
                await bus.publish("reading", n=7, delivery="reliable", body=b"x")
                letter = await lost.get()
                assert (letter["n"], letter["dead.reason"], letter.body) == (7, "RuntimeError: no 7", b"x")

    run(work())


class Reading(tidings.Typed, type="reading"):
    value: float


class Answer(tidings.Typed, type="answer"):
    n: int


def test_a_handler_of_a_class_gets_instances_and_what_does_not_fit_is_given_up() -> None:
    app = App()
    values: asyncio.Queue[float] = asyncio.Queue()

    @app.on(Reading, where="value > 40 OR value IS NULL", dead="lost", attempts=3)
    async def read(reading: Reading) -> None:
        values.put_nowait(reading.value)

    @app.serve("count")
    def count(_request: Event) -> Answer:
        return Answer(3)

    async def work() -> None:
        async with tidings.open() as bus:
            lost = await bus.create_queue("lost")
            async with running(app, bus, 2):
                for value in (38.5, 41.2):
                    await bus.publish(Reading(value))
                assert await values.get() == 41.2
                await bus.publish("reading", other=1)
                assert (await lost.get())["dead.reason"].startswith("CodecError: ")
                assert (await bus.request("count"))["n"] == 3

    run(work())
    assert app.parts[0].target == str(tidings.Filter("type = 'reading' AND (value > 40 OR value IS NULL)"))


def test_an_event_whose_handler_is_cut_off_by_the_end_comes_again() -> None:
    app = App()
    begun: asyncio.Queue[int] = asyncio.Queue()

    @app.on("type = 'job'", durable="worker")
    async def paint(event: Event) -> None:
        begun.put_nowait(event["n"])
        if event["n"] == 2:
            await asyncio.Event().wait()

    async def work() -> None:
        async with tidings.open() as bus:
            stop = asyncio.Event()
            task = asyncio.create_task(app.run(bus, stop=stop, grace_s=0))
            while (await bus.status())["subscriptions"] < 1:
                pass
            for n in (1, 2):
                await bus.publish("job", n=n, delivery="reliable")
            assert [await begun.get(), await begun.get()] == [1, 2]
            stop.set()
            await task
            async with bus.subscribe("type = 'job'", durable="worker") as jobs:
                assert (await anext(jobs))["n"] == 2

    run(work())


# -- the end


def test_signals_stop_an_app_and_two_of_them_cancel_it() -> None:
    for signals, left in ((1, 0), (2, 1)):
        app = App()

        @app.work("jobs")
        async def paint(_message: Message, signals: int = signals) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            if signals == 2:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()

        async def work(app: App = app, left: int = left) -> None:
            async with tidings.open() as bus:
                queue = await bus.create_queue("jobs")
                await queue.put("job")
                await app.run(bus, grace_s=None)
                assert (await queue.describe()).messages == left

        run(work())


def test_a_part_that_fails_stops_the_others_and_its_error_is_raised() -> None:
    app = App()
    begun, go_on, is_done = asyncio.Event(), asyncio.Event(), list[int]()

    @app.work("jobs")
    async def paint(message: Message) -> None:
        begun.set()
        await go_on.wait()
        is_done.append(message["n"])

    @app.work("others")
    async def dry(_message: Message) -> None: ...

    async def work() -> None:
        async with tidings.open() as bus:
            jobs = await bus.create_queue("jobs")
            await bus.create_queue("others")
            await jobs.put("job", n=1)
            task = asyncio.create_task(app.run(bus))
            await begun.wait()
            await bus.delete_queue("others")
            assert not task.done()
            go_on.set()
            with pytest.raises(QueueNotFound, match="others"):
                await task
            assert is_done == [1]
            assert await jobs.is_empty()

    run(work())


def test_an_app_runs_once_at_a_time_and_not_without_handlers() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            with pytest.raises(UserError, match="the app has no handler yet"):
                await App().run(bus)
            app = App()
            app.serve("div")(print)
            async with running(app, bus, 1):
                with pytest.raises(UserError, match="the app runs already"):
                    await app.run(bus)

    run(work())


def test_an_app_in_another_thread_does_without_signals() -> None:
    app, failures = App(), list[Exception]()
    stop = threading.Event()
    app.serve("div")(print)

    async def work() -> None:
        async with tidings.open() as bus:
            try:
                await app.run(bus)
            except UserError as error:
                failures.append(error)
            stop.set()
            await app.run(bus, stop=stop, signals=False)

    thread = threading.Thread(target=lambda: run(work()))
    thread.start()
    thread.join()
    assert [str(error) for error in failures] == [
        "only the main thread receives signals; use signals=False and stop= in this one"
    ]


@pytest.mark.parametrize(
    ("add", "error", "said"),
    [
        (lambda app: app.on("value => 40"), FilterError, "line 1, column 7"),
        (lambda app: app.on(Reading, where="valeu > 40"), FilterError, "Reading has no attribute valeu"),
        (lambda app: app.on("type = 'a'", where="b"), UserError, "where goes with a class of events"),
        (lambda app: app.on(concurrency=0), UserError, "concurrency .* not 0"),
        (lambda app: app.on(attempts=0), UserError, "attempts .* not 0"),
        (lambda app: app.on(pause_s=-1), UserError, "pause_s=-1"),
        (lambda app: app.on(skip=3), UserError, "skip must be a class of errors"),
        (
            lambda app: app.on(durable="a", concurrency=2),
            UserError,
            "acknowledged in order; ",
        ),
        (lambda app: app.on(durible="a"), UserError, "unknown option durible; the options are acknowledge, "),
        (lambda app: app.work("jobs", concurency=2), UserError, "unknown option concurency"),
        (lambda app: app.serve("div", concurrency=0), UserError, "concurrency .* not 0"),
    ],
)
def test_what_no_app_can_do_is_refused_where_it_is_written(add: Any, error: Any, said: str) -> None:
    app = App()
    with pytest.raises(error, match=said):
        add(app)(print)
    with pytest.raises(UserError, match="the handler must be a function"):
        app.work("jobs")(None)  # type: ignore[type-var]
    assert app.parts == []
