"""Forwarders on the loop of a node: one for each transmission queue that has something in it.

Each has connections of its own, so a queue that is full, or slow, holds up no other. What is decided is
decided by the cores (`tidings.peers.forwarder`, `tidings.protocol.forwarding`); a connection that can't be
made, or was lost, is made again after a pause, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from tidings.backoff import Backoff
from tidings.errors import TidingsError
from tidings.exchange import Subscription
from tidings.node import logs
from tidings.node.driver import Driver
from tidings.peers.forwarder import Forwarder
from tidings.peers.transmission import Outgoing
from tidings.peers.upstream import Order, Upstream
from tidings.protocol.forwarding import Sender
from tidings.transport.carrier import Carrier
from tidings.transport.credentials import Says
from tidings.transport.dial import Dial, Hopeless

FORWARDERS_MAX = 1_000
"""Forwarders at one time; further queues wait until one has nothing to do."""
IDLE_S = 60.0
"""How long a forwarder stays at least when its queue is empty."""
CLOSE_S_MAX = 2.0
"""How long the last words to other nodes may take, and the rest that a node sends which keeps nothing."""
DRAIN_S = 0.01
"""How often it is looked whether that was sent."""


class Reach(NamedTuple):
    """How another node is reached, what is said there, and whom a certificate of it has to name."""

    dial: Dial
    says: Says | None = None
    name: str | None = None


class Wire(Carrier):
    """One stream on a socket; dialled, and dialled again when it is lost, until `end`."""

    def __init__(self, sender: Sender[Any], reach: Reach, tell: Callable[[str], None]) -> None:
        """`tell` is called with each thing that goes wrong, and with nothing when something has come."""
        super().__init__(sender)
        self._sender = sender
        self._reach = reach
        self._tell = tell
        self._backoff = Backoff(random.random)
        self._task = self._loop.create_task(self._run(), name="tidings forwarding")

    async def _run(self) -> None:
        while True:
            try:
                await self._reach.dial(self)
            except (OSError, TidingsError, Hopeless) as error:
                self._tell(str(error) or type(error).__name__)
            else:
                await self._is_gone.wait()
            await asyncio.sleep(self._backoff.next_s())

    async def end(self) -> None:
        """Say what is left to say, and be gone."""
        self.flush()
        self._task.cancel()
        await self._hang_up(CLOSE_S_MAX)
        await asyncio.wait([self._task])

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to talk, if it is the right node."""
        self._take_up(transport)
        shown = certified(transport)
        if self._reach.name is not None and shown not in (None, self._reach.name):
            self._tell(f"its certificate is that of {shown!r}")
            cast("asyncio.Transport", transport).abort()
            return
        self._talk()

    def data_received(self, data: bytes) -> None:
        """Hand it to the core."""
        was_up = self._sender.is_up
        self._tell("")
        self._sender.receive(data, self._loop.time())
        if self._sender.is_up and not was_up:
            self._backoff.reset()
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Let the task dial again."""
        self._let_go()
        self._tell(str(self._sender.trouble or error or "the connection was lost"))
        self._sender.lost()
        self._is_gone.set()


class Run:
    """One forwarder and its wires."""

    def __init__(self, driver: Driver, outgoing: Outgoing, reach: Reach, order: Order) -> None:
        self.outgoing = outgoing
        self.forwarder = Forwarder(outgoing, order, reach.says)
        self.forwarder.tell = self._soon
        self.was_idle = False
        self._driver = driver
        self._reach = reach
        self._loop = asyncio.get_running_loop()
        self._wires: dict[Sender[Any], Wire] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._soon()

    def _soon(self) -> None:
        """Have what the forwarder says carried out when the loop runs next."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._carry)

    def _carry(self) -> None:
        self._is_due = False
        wanted = self.forwarder.senders
        for sender in [one for one in self._wires if one not in wanted]:
            self._end(self._wires.pop(sender))
        for sender in wanted:
            if sender not in self._wires:
                self._wires[sender] = Wire(sender, self._reach, self._told)
        for wire in self._wires.values():
            wire.flush()

    def _told(self, problem: str) -> None:
        """Something has come from the other node, or something is wrong with the way there."""
        self._driver.time()
        if problem and not self.forwarder.is_closed:
            if problem != self.outgoing.error:
                logs.warning("can't forward", queue=self.outgoing.queue.name, problem=problem)
            self.outgoing.error = problem
            self.outgoing.tell_all()
        elif self.forwarder.is_attended:
            self.outgoing.error = ""
        self._driver.schedule()

    def _end(self, wire: Wire) -> None:
        task = self._loop.create_task(wire.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Forward no more."""
        self.forwarder.close()
        self._carry()
        if self._ending:
            await asyncio.wait(self._ending)


class Forwarding:
    """See the module; made with the node, and `close`d before its driver.

    `reach` finds the peer of a name, None if there is none; `is_there` tells whether that one is there.
    """

    def __init__(
        self,
        driver: Driver,
        reach: Callable[[str], Reach | None],
        is_there: Callable[[str], bool],
    ) -> None:
        self._driver = driver
        self._transmission = transmission = driver.core.transmission
        self._reach = reach
        self._upstream: tuple[Outgoing, Reach, Order] | None = None
        self._runs: dict[Outgoing, Run] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(IDLE_S, self._look)
        driver.core.forwarded.way_back = self._way_back
        transmission.begin = self._begin
        transmission.is_there = is_there

    def go_upstream(self, upstream: Upstream | None) -> None:
        """Have what is published go on to another node; or to none any more, what waits for it being kept."""
        if upstream is None:
            self._transmission.unbind()
            return
        outgoing = self._transmission.bind(upstream.filter)
        self._upstream = outgoing, Reach(upstream.dial, upstream.says), upstream.order
        self._begin(outgoing)

    def _way_back(self, node: str) -> Subscription | None:
        """The subscription by which what is published goes to the node of this id."""
        outgoing = None if self._upstream is None else self._upstream[0]
        return outgoing.queue.binding if outgoing is not None and outgoing.node == node else None

    def _begin(self, outgoing: Outgoing) -> None:
        """Let a queue be emptied, if its messages can go anywhere."""
        if self._is_closed or outgoing in self._runs:
            return
        found = self._find(outgoing)
        if found is None or len(self._runs) >= FORWARDERS_MAX:
            outgoing.error = "there is no such peer" if found is None else "too many others are forwarded"
            outgoing.tell_all()
            return
        reach, order = found
        self._runs[outgoing] = Run(self._driver, outgoing, reach, order)

    def _find(self, outgoing: Outgoing) -> tuple[Reach, Order] | None:
        if self._upstream is not None and outgoing is self._upstream[0]:
            return self._upstream[1:]
        reach = self._reach(outgoing.peer) if outgoing.target else None
        return None if reach is None else (reach, "oldest")

    def _look(self) -> None:
        """End the forwarders that had nothing to do for as long as they may stay; called every IDLE_S."""
        self._timer = self._loop.call_later(IDLE_S, self._look)
        for outgoing, run in list(self._runs.items()):
            is_kept = self._upstream is not None and outgoing is self._upstream[0]
            if run.forwarder.is_closed or (run.was_idle and run.forwarder.is_idle and not is_kept):
                del self._runs[outgoing]
                task = self._loop.create_task(run.close())
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            run.was_idle = run.forwarder.is_idle

    async def close(self) -> None:
        """Forward no more; what is under way goes on when the node is started again.

        One that keeps nothing has no other time to send what waits, so it takes a moment for that.
        """
        self._timer.cancel()
        if not self._driver.core.queues.lasts:
            await self._drain()
        self._is_closed = True
        runs, self._runs = list(self._runs.values()), {}
        await asyncio.gather(*(run.close() for run in runs), *self._ending)

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S_MAX):
                while any(map(_has_work, self._runs.values())):
                    await asyncio.sleep(DRAIN_S)


def _has_work(run: Run) -> bool:
    return not run.forwarder.is_closed and not run.forwarder.is_idle


def certified(transport: asyncio.BaseTransport) -> str | None:
    """Whom the certificate of the other end names; None where there is no TLS."""
    told = transport.get_extra_info("peercert")
    if not told:
        return None
    from tidings.transport.tls import common_name

    return common_name(told) or ""
