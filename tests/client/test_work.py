"""Workers: what a handler's outcome does to its message, and how a worker ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

import tidings
from client.jobs import rest, with_jobs
from client.nodes import Clock, node, proxy_of, run, run_with_clock
from tidings import Event
from tidings.client import Bus, Message, Queue
from tidings.client.work import Outcomes
from tidings.errors import Disconnected, QueueNotFound, UserError
from tidings.queues.dead_letters import DEAD


async def dead(bus: Bus) -> list[tuple[int, str]]:
    """The dead letters, and why they are."""
    letters = await (await bus.create_queue(DEAD, deliveries_max=None)).get_all()
    return [(letter["n"], letter["dead.reason"]) for letter in letters]


async def begun(started: asyncio.Queue[int], count: int) -> list[int]:
    """The numbers of so many jobs that have begun."""
    return sorted([await started.get() for _ in range(count)])


# -- outcomes


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("options", [{}, {"timeout_s": 0}, {"prefetch": 0}])
def test_a_handler_that_returns_acknowledges(concurrency: int, options: dict[str, Any]) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        done: list[int] = []

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            done.append(message["n"])

        outcomes = await queue.work(handle, concurrency=concurrency, count=20, **options)
        assert sorted(done) == list(range(20))
        assert outcomes == Outcomes(20, 0, 0)
        assert await rest(queue) == [(20, 1), (21, 1)]

    with_jobs(22, work)


def test_only_messages_that_match_are_taken() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        done: list[int] = []
        await queue.work(lambda message: done.append(message["n"]), "n > 2", timeout_s=0)
        assert done == [3, 4]
        assert await rest(queue) == [(0, 1), (1, 1), (2, 1)]

    with_jobs(5, work)


def test_a_handler_that_raises_releases_until_the_queue_makes_a_dead_letter_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async def handle(message: Message) -> None:
            if message["n"] == 1:
                raise RuntimeError("no paint")

        assert await queue.work(handle, pause_s=0, count=5) == Outcomes(2, 3, 0)
        assert await dead(bus) == [(1, "RuntimeError: no paint")]

    with_jobs(3, work, deliveries_max=3)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all(text.startswith("handler handle failed with message ") for text in said)
    assert said[0].endswith("of queue 'jobs' in delivery 1; the message was released")


@pytest.mark.parametrize("reject", [ValueError, (KeyError, ValueError)])
def test_an_error_that_is_to_be_rejected_makes_a_dead_letter_at_once(
    reject: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidings")  # pytest-xdist can't pass on half a character

    async def work(bus: Bus, queue: Queue) -> None:
        def handle(message: Message) -> None:
            if message["n"] == 1:
                raise ValueError("half a \ud800 character")

        assert await queue.work(handle, reject=reject, timeout_s=0) == Outcomes(2, 0, 1)
        assert await dead(bus) == [(1, "ValueError: half a ? character")]

    with_jobs(3, work)


def test_a_worker_has_a_limit_of_deliveries_of_its_own() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        def handle(message: Message) -> None:
            raise RuntimeError(f"delivery {message.deliveries}")

        outcomes = await queue.work(handle, deliveries_max=2, pause_s=0, count=4)
        assert outcomes == Outcomes(0, 2, 2)
        assert sorted(await dead(bus)) == [(n, "RuntimeError: delivery 2") for n in (0, 1)]

    with_jobs(2, work)


def test_a_message_that_the_handler_has_settled_is_left_so() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async def handle(message: Message) -> None:
            await (message.acknowledge, partial(message.reject, "bad"), message.release)[message["n"]]()
            if message["n"] == 0:
                raise RuntimeError("after it was done")

        assert await queue.work(handle, count=3) == Outcomes(1, 1, 1)
        assert await dead(bus) == [(1, "bad")]
        assert await rest(queue) == [(2, 2)]

    with_jobs(3, work)


def test_a_handler_that_cancels_itself_has_failed_and_the_worker_goes_on() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        async def handle(message: Message) -> None:
            if message["n"] == 0 and message.deliveries == 1:
                raise asyncio.CancelledError

        assert await queue.work(handle, pause_s=0, count=3) == Outcomes(2, 1, 0)

    with_jobs(2, work)


@given(st.lists(st.lists(st.sampled_from("rxd"), max_size=4), max_size=8), st.integers(1, 3))
@settings(max_examples=often(15), deadline=None)
def test_each_message_is_done_rejected_or_used_up_as_its_handler_says(
    fates: list[list[str]], concurrency: int
) -> None:
    """Each letter is what becomes of one delivery: released, rejected or done; then it is done."""

    async def work(bus: Bus, queue: Queue) -> None:
        done: list[int] = []

        async def handle(message: Message) -> None:
            fate = (*fates[message["n"]], "d")[: message.deliveries][-1]
            await asyncio.sleep(0)
            if fate != "d":
                raise {"r": RuntimeError, "x": ValueError}[fate]
            done.append(message["n"])

        await queue.work(handle, concurrency=concurrency, reject=ValueError, pause_s=0, timeout_s=0)
        lost = [n for n, fate in enumerate(fates) if ends_badly(fate)]
        assert sorted(done) == [n for n in range(len(fates)) if n not in lost]
        assert sorted(n for n, _ in await dead(bus)) == lost
        assert (await queue.describe()).messages == 0

    logging.getLogger("tidings").disabled = True
    try:
        with_jobs(len(fates), work, deliveries_max=3)
    finally:
        logging.getLogger("tidings").disabled = False


def ends_badly(fate: list[str]) -> bool:
    """Whether a message with at most three deliveries becomes a dead letter."""
    told = next((one for one in fate[:3] if one != "r"), None)
    return told == "x" or (told is None and len(fate) >= 3)


# -- threads


def test_a_plain_function_runs_in_threads_side_by_side() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        together = threading.Barrier(3)
        threads: set[int] = set()

        def handle(_message: Message) -> None:
            together.wait()  # would never end if the calls came one after the other
            threads.add(threading.get_ident())

        assert await queue.work(handle, concurrency=3, count=6) == Outcomes(6, 0, 0)
        assert len(threads) == 3
        assert threading.get_ident() not in threads

    with_jobs(6, work)


class Painter:
    """Handlers that are neither functions nor coroutine functions."""

    def __init__(self) -> None:
        self.done: list[int] = []

    async def __call__(self, message: Message) -> None:
        self.done.append(message["n"])

    async def paint(self, message: Message) -> None:
        await self(message)


def test_whatever_can_be_called_is_a_handler() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        one = Painter()

        def stops(_message: Message) -> None:
            raise StopIteration

        for handler in (one, one.paint, lambda message: one(message), partial(Painter.paint, one)):
            await queue.work(handler, count=1)
        assert one.done == [0, 1, 2, 3]
        assert await queue.work(stops, count=1) == Outcomes(0, 1, 0)

    with_jobs(5, work)


# -- the end


def test_a_stop_lets_running_handlers_finish_and_gives_back_the_rest_unopened() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        stop, go_on, started = asyncio.Event(), asyncio.Event(), asyncio.Queue[int]()

        async def handle(message: Message) -> None:
            started.put_nowait(message["n"])
            await go_on.wait()

        working = asyncio.create_task(queue.work(handle, concurrency=2, stop=stop))
        assert await begun(started, 2) == [0, 1]
        stop.set()
        await queue.describe()
        assert not working.done()
        go_on.set()
        assert await working == Outcomes(2, 0, 0)
        assert await rest(queue) == [(n, 1) for n in range(2, 9)]

    with_jobs(9, work)


def test_no_message_is_begun_once_stop_is_set() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        stop = asyncio.Event()

        async def handle(_message: Message) -> None:
            stop.set()

        assert await queue.work(handle, stop=stop) == Outcomes(1, 0, 0)
        assert await rest(queue) == [(n, 1) for n in range(1, 9)]

    with_jobs(9, work)


@pytest.mark.parametrize("options", [{}, {"timeout_s": 1_000}])
def test_a_worker_that_waits_ends_when_it_is_stopped(options: dict[str, Any]) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        stop = asyncio.Event()
        working = asyncio.create_task(queue.work(print, concurrency=3, stop=stop, **options))
        while (await queue.describe()).waiting == 0:
            pass
        stop.set()
        assert await working == Outcomes(0, 0, 0)
        assert (await queue.describe()).waiting == 0

    with_jobs(0, work)


def test_handlers_that_take_longer_than_the_grace_are_cancelled_and_their_messages_released() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        stop, started = asyncio.Event(), asyncio.Queue[int]()

        async def handle(message: Message) -> None:
            started.put_nowait(message["n"])
            await asyncio.Event().wait()

        working = asyncio.create_task(queue.work(handle, concurrency=2, stop=stop, grace_s=0))
        assert await begun(started, 2) == [0, 1]
        stop.set()
        assert await working == Outcomes(0, 2, 0)
        assert await rest(queue) == [(0, 2), (1, 2), (2, 1)]

    with_jobs(3, work)


def test_a_worker_that_is_cancelled_releases_all() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        started, is_over = asyncio.Queue[int](), threading.Event()

        def handle(message: Message) -> None:
            loop.call_soon_threadsafe(started.put_nowait, message["n"])
            is_over.wait()

        loop = asyncio.get_running_loop()
        working = asyncio.create_task(queue.work(handle))
        assert await begun(started, 1) == [0]
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        is_over.set()  # a plain function goes on; what it returns counts no more
        assert await rest(queue) == [(0, 2), (1, 1), (2, 1)]

    with_jobs(3, work)


def test_an_event_of_threading_stops_a_worker() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        stop = threading.Event()
        assert await queue.work(lambda _: stop.set(), stop=stop, prefetch=0) == Outcomes(1, 0, 0)

    with_jobs(1, work)


def test_signals_stop_a_worker_and_are_given_back() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        before = signal.getsignal(signal.SIGTERM)

        async def handle(_message: Message) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        assert await queue.work(handle, signals=True, prefetch=0) == Outcomes(1, 0, 0)
        assert signal.getsignal(signal.SIGTERM) is before
        assert await rest(queue) == [(1, 1)]

    with_jobs(2, work)


def test_a_second_signal_cancels_the_handlers_and_releases_their_messages() -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        before = signal.getsignal(signal.SIGINT)
        was_cancelled: list[int] = []

        async def handle(message: Message) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is before  # the third one is not ours
            try:
                await asyncio.Event().wait()
            finally:
                was_cancelled.append(message["n"])

        assert await queue.work(handle, signals=True, grace_s=None) == Outcomes(0, 1, 0)
        assert was_cancelled == [0]
        assert await rest(queue) == [(0, 2), (1, 1)]

    with_jobs(2, work)


def test_signals_are_for_the_main_thread() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs")
            with pytest.raises(UserError, match="only the main thread receives signals; use signals=False"):
                await queue.work(print, signals=True)
            await queue.describe()  # by now a worker would wait
            assert (await queue.describe()).waiting == 0

    thread = threading.Thread(target=lambda: failures.append(run(work())))
    failures: list[None] = []
    thread.start()
    thread.join()
    assert failures == [None]


def test_a_queue_that_is_not_there_or_deleted_ends_the_worker() -> None:
    async def work(bus: Bus, queue: Queue) -> None:
        async def handle(_message: Message) -> None:
            await bus.delete_queue("jobs")

        with pytest.raises(QueueNotFound, match="jobs"):
            await queue.work(handle, concurrency=2)
        with pytest.raises(QueueNotFound, match="jobs"):
            await queue.work(print)

    with_jobs(1, work)


def test_a_worker_ends_with_the_bus() -> None:
    async def work() -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs")
            working = asyncio.create_task(queue.work(print))
            await bus.status()
        with pytest.raises(Disconnected):
            await working

    run(work())


# -- warnings


def test_a_handler_that_blocks_the_loop_is_warned_of_by_name() -> None:
    warnings: list[str] = []

    async def work(_bus: Bus, queue: Queue) -> None:
        warned = threading.Event()

        class Notice(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "blocks the event loop" in record.getMessage():
                    warnings.append(record.getMessage())
                    warned.set()

        async def paint(_message: Message) -> None:
            assert warned.wait(60)

        notice = Notice()
        logging.getLogger("tidings").addHandler(notice)
        try:
            assert await queue.work(paint, count=1) == Outcomes(1, 0, 0)
        finally:
            logging.getLogger("tidings").removeHandler(notice)

    with_jobs(1, work)
    (said,) = warnings
    assert said.startswith("handler paint blocks the event loop, in line ")
    assert "test_work.py" in said


def test_a_handler_that_takes_longer_than_a_message_may_be_held_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(clock: Clock) -> None:
        async with tidings.open() as bus:
            queue = await bus.create_queue("jobs", redelivery_s=10.0)
            await queue.put("job", n=1)

            async def handle(_message: Message) -> None:
                clock.ahead_s += 11.0

            for options in ({}, {"timeout_s": 0}):
                await queue.work(handle, count=1, **options)  # type: ignore[arg-type]
                await queue.put("job", n=1)

    run_with_clock(work)
    said = [text for text in caplog.messages if "takes" in text or "took" in text]
    assert len(said) == 2
    assert "than queue 'jobs' lets a message be held" in said[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, r"concurrency .* within 1\.\.10000, not 0"),
        ({"prefetch": -1}, "prefetch .* not -1"),
        ({"count": 0}, "count .* not 0"),
        ({"deliveries_max": 0}, "deliveries_max .* not 0"),
        ({"pause_s": -1}, "pause_s=-1"),
        ({"pause_s": None}, "pause_s .* not None"),
        ({"grace_s": "long"}, "grace_s='long'"),
        ({"timeout_s": -1}, "timeout_s=-1"),
        ({"reject": "ValueError"}, "reject must be a class of errors .* not 'ValueError'"),
        ({"reject": (ValueError, 3)}, "reject must be a class of errors"),
        ({"handler": None}, "the handler must be a function or coroutine function, not None"),
    ],
)
def test_what_no_worker_can_do_is_refused(options: dict[str, Any], said: str) -> None:
    async def work(_bus: Bus, queue: Queue) -> None:
        with pytest.raises(UserError, match=said):
            await queue.work(**{"handler": print, **options})

    with_jobs(0, work)


# -- what it costs


def test_a_worker_makes_hardly_more_calls_than_a_loop_by_hand() -> None:
    counted: dict[str, int] = {}

    async def handle(_message: Message) -> None: ...

    async def by_hand(queue: Queue) -> None:
        async with queue.messages() as messages:
            async for message in messages:
                await handle(message)
                if message["n"] == 299:
                    break

    async def by_work(queue: Queue) -> None:
        await queue.work(handle, count=300)

    async def work(_bus: Bus, queue: Queue) -> None:
        for loop in (by_hand, by_hand, by_work):  # the first time, more is done
            await queue.put_all(Event("job", n=n) for n in range(300))
            counted[loop.__name__] = await calls_of(loop(queue))

    with_jobs(0, work)
    assert counted["by_work"] * 0.95 < counted["by_hand"]


async def calls_of(work: Awaitable[None]) -> int:
    """How many functions are called while this runs, of Python and C."""
    count = 0

    def note(_frame: object, what: str, _argument: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(note)
    try:
        await work
    finally:
        sys.setprofile(None)
    return count


# -- lost connections, and without await


def test_a_worker_goes_on_after_cuts_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    async def work() -> None:
        proxy = proxy_of(tmp_path)
        async with (
            node(tmp_path) as address,
            proxy,
            tidings.connect(address) as other,
            tidings.connect(proxy.address, random=lambda: 0.0) as bus,
        ):
            source = await other.create_queue("jobs")
            await source.put_all(Event("job", n=n) for n in range(60))
            done: list[int] = []

            async def handle(message: Message) -> None:
                done.append(message["n"])
                if message["n"] % 10 == 3:
                    proxy.reset()

            await (await bus.queue("jobs")).work(handle, concurrency=3, prefetch=7, count=60)
            assert sorted(done) == list(range(60))
            assert await source.is_empty()

    run(work())


def test_a_worker_without_await_gets_messages_that_need_none() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs")
        queue.put_all(Event("job", n=n) for n in range(4))
        together, done = threading.Barrier(2), list[int]()

        def handle(message: tidings.blocking.Message) -> None:
            if message["n"] == 3:
                raise ValueError("bad")
            if message["n"] == 2:
                message.acknowledge()
            together.wait() if message["n"] < 2 else done.append(message["n"])

        assert queue.work(handle, concurrency=2, reject=ValueError, count=4) == Outcomes(3, 0, 1)
        assert done == [2]


def test_signals_stop_a_worker_without_await() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs")
        queue.put("job", n=1)

        def handle(_message: object) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        assert queue.work(handle, signals=True) == Outcomes(1, 0, 0)


def test_a_second_signal_interrupts_a_worker_without_await() -> None:
    is_over = threading.Event()

    def handle(_message: object) -> None:
        # Of two signals for the process the second may come to another thread, and the main one sleeps on.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        is_over.wait()

    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs")
        queue.put("job", n=1)
        try:
            with pytest.raises(KeyboardInterrupt):
                queue.work(handle, signals=True)
        finally:
            is_over.set()
