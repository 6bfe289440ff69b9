"""Virtual time: a clock for the loop and for a node in this process, which a test can put forward.

Time goes on as usual, and `advance` skips the waiting. It jumps from timer to timer and lets everything
happen that is due before the next jump, so a client and its node exchange their keepalives, leases are
renewed and retries are made as they would be. The rule it keeps: whatever `advance` has made due has happened
when it returns, as far as the loop, the nodes opened with this clock and their threads are concerned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from tidings.client.bus import Bus
from tidings.errors import NoAnswer, UserError
from tidings.node.driver import Driver, SteadyClock
from tidings.node.local import run_in_process
from tidings.queues.types import Volatile
from tidings.transport.dial import ConnectTo

JUMP_S_MIN = 0.001
"""Least seconds of a jump: a timer that is set again and again for now must not stop the clock."""
TURNS_MAX = 10_000
"""Turns of the loop that are waited for it to have nothing to do; a program may never be idle."""
THREAD_S = 0.0005
"""Real seconds between two looks at whether the threads of a node are done."""
RUN_S_MAX = 7 * 86_400.0
"""Seconds that `run` skips for what it waits for before it gives up."""

T = TypeVar("T")


class VirtualClock:
    """Time of an asyncio loop and of the nodes opened with it, which `advance` puts forward.

    For example::

        clock = VirtualClock()
        async with clock.open() as bus:
            ...
            await clock.advance(60)

    It takes over the loop on which a bus made by `open` is entered, until that bus is closed; all timers and
    time-outs of that loop go by it. Other loops than asyncio's own, such as uvloop, can't be used.
    """

    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, VirtualClock]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._loop: asyncio.BaseEventLoop | None = None
        self._held = 0  # how many buses hold the loop
        self._drivers: list[Driver] = []

    @classmethod
    def running(cls) -> VirtualClock | None:
        """Return the clock of the running loop, if it has one."""
        return cls._of_loops.get(asyncio.get_running_loop())

    def time(self) -> float:
        """Monotonic seconds, as `time.monotonic` returns them."""
        return time.monotonic() + self._ahead_s

    def timestamp(self) -> float:
        """Seconds since 1970, as `time.time` returns them."""
        return time.time() + self._ahead_s

    @property
    def now(self) -> datetime:
        """The current date and time in UTC."""
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def open(
        self, path: str | Path | None = None, *, name: str = "", queue_types: Sequence[type[Volatile]] = ()
    ) -> Bus:
        """Return a bus to a node in this process, as `tidings.open` does, which goes by this clock."""

        async def find(held: AsyncExitStack) -> ConnectTo:
            held.enter_context(self._holding())
            steady = SteadyClock(self.timestamp, self.time)
            node = await held.enter_async_context(run_in_process(path, queue_types, clock=steady))
            self._drivers.append(node.driver)
            held.callback(self._drivers.remove, node.driver)

            async def connect(protocol: asyncio.Protocol) -> None:
                node.attach(protocol)

            return connect

        return Bus(find, name=name)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Have the running loop go by this clock for as long as the block lasts."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise UserError(f"virtual time needs one of asyncio's own loops, not {type(loop).__name__}")
        if (self._held and loop is not self._loop) or self._of_loops.get(loop, self) is not self:
            raise UserError("a virtual clock belongs to one loop at a time, and a loop to one clock")
        self._loop, self._of_loops[loop] = loop, self
        self._held += 1
        loop.time = self.time  # type: ignore[method-assign]  # that is what it is for
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                del loop.time, self._of_loops[loop]

    # Putting it forward

    async def advance(self, seconds: float) -> None:
        """Put the clock forward, timer by timer, and return when everything due by then has happened."""
        if not seconds >= 0:
            raise UserError(f"time goes forward only: advance by 0 or more seconds, not {seconds}")
        loop = self._own_loop()
        await self._settle(loop)
        while seconds > 0:
            seconds -= self._jump(loop, seconds)
            await self._settle(loop)

    def advance_blocking(self, seconds: float) -> None:
        """Do the same for a bus of `tidings.blocking`, whose loop runs in another thread."""
        asyncio.run_coroutine_threadsafe(self.advance(seconds), self._own_loop()).result()

    async def run(self, awaitable: Awaitable[T]) -> T:
        """Return the result of an awaitable, and skip the time for which it waits.

        Raises NoAnswer if it is not done within RUN_S_MAX virtual seconds.
        """
        loop = self._own_loop()
        task = asyncio.ensure_future(awaitable)
        left = RUN_S_MAX
        try:
            await self._settle(loop)
            while not task.done() and left > 0:
                left -= self._jump(loop, left)
                await self._settle(loop)
            if not task.done():
                raise NoAnswer(f"not done within {RUN_S_MAX:g} virtual seconds: {awaitable!r}")
            return await task
        finally:
            task.cancel()

    def _own_loop(self) -> asyncio.BaseEventLoop:
        if not self._held or self._loop is None:
            raise UserError("the clock has no loop: enter a bus that its open() made first")
        return self._loop

    def _jump(self, loop: asyncio.BaseEventLoop, seconds_max: float) -> float:
        """Jump to the next timer, or by `seconds_max` if there is none before; by how much."""
        scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]  # a heap
        wait_s = scheduled[0].when() - self.time() if scheduled else seconds_max
        jump_s = min(max(wait_s, JUMP_S_MIN), seconds_max)
        self._ahead_s += jump_s
        return jump_s

    async def _settle(self, loop: asyncio.BaseEventLoop) -> None:
        """Let everything happen that is to happen now, on the loop and in the threads of the nodes."""
        ready: Any = loop._ready  # type: ignore[attr-defined]  # the callbacks of this turn and the next
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if ready:
                continue
            if all(driver.is_settled for driver in self._drivers):
                return
            await asyncio.to_thread(time.sleep, THREAD_S)
