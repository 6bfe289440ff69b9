"""The canary: a good client in a process of its own, which shows how a node treats others.

It asks and answers: one of its connections makes a request every EVERY_S, another one answers it. A third
stores an event as often, and waits until that is accepted. It goes on until the other end of its pipe is
closed, and tells what it has seen whenever it is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import tidings
from benchmarks.hostile import Place
from benchmarks.load import Pipe
from tidings.client.bus import Bus
from tidings.errors import TidingsError
from tidings.event import Event
from tidings.node.main import loop_factory

EVERY_S = 0.05
ASK, ANSWER, STORE = "canary.ask", "canary.answer", "canary.store"
LIFE_S_MAX = 600.0
"""How long a canary sings at the most."""


@dataclass
class Seen:
    """What a canary has seen: when each call was made and how long it took; None: there was no answer."""

    asked: list[tuple[float, float | None]] = field(default_factory=list)
    stored: list[tuple[float, float | None]] = field(default_factory=list)


def sing(pipe: Pipe, place: Place, answer_s: float) -> None:
    """Ask, answer and store; send Seen whenever asked, and begin anew with `clear`.

    An answer is waited for so many seconds.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_sing(pipe, place, answer_s))


async def _sing(pipe: Pipe, place: Place, answer_s: float) -> None:
    seen = Seen()
    async with (
        tidings.connect(place.address, **place.proof) as asking,
        tidings.connect(place.address, **place.proof) as answering,
        tidings.connect(place.address, **place.proof) as storing,
        answering.listen(f"type = '{ASK}'", lambda event: answering.reply(event, ANSWER)),
    ):
        await _ask(asking, answer_s)
        tasks = [
            asyncio.create_task(repeat(lambda: _ask(asking, answer_s), seen.asked)),
            asyncio.create_task(repeat(lambda: _store(storing, answer_s), seen.stored)),
        ]
        pipe.send("ready")
        await serve(pipe, seen)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(bus: Bus, answer_s: float) -> None:
    await bus.request(ASK, timeout_s=answer_s)


async def _store(bus: Bus, answer_s: float) -> None:
    await bus.publish(Event(STORE, {}, delivery="persistent"), timeout_s=answer_s)


async def repeat(act: Callable[[], Awaitable[None]], seen: list[tuple[float, float | None]]) -> None:
    """Act every EVERY_S, or when the one before is over; a call that is under way stands in the list too."""
    while True:
        began = time.monotonic()
        seen.append((began, None))
        try:
            await act()
            seen[-1] = (began, time.monotonic() - began)
        except TidingsError:
            pass  # it stays without an answer
        await asyncio.sleep(max(0.0, began + EVERY_S - time.monotonic()))


async def serve(pipe: Pipe, seen: Seen) -> None:
    """Tell what was seen as often as it is asked for, until the other end is closed."""
    deadline = time.monotonic() + LIFE_S_MAX
    while time.monotonic() < deadline:
        if not pipe.poll():
            await asyncio.sleep(EVERY_S / 5)
            continue
        try:
            word = pipe.recv()
        except EOFError:
            return
        if word == "clear":
            del seen.asked[:-1], seen.stored[:-1]
        else:
            pipe.send(seen)
