"""Driver of a node's outbound connections on the loop: sockets, TLS and tasks.

All decisions are the core's (`tidings.peers.dialling`): when to dial, which peer to accept, what to send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidings.errors import TidingsError
from tidings.node import logs
from tidings.peers.dialling import LOST, Dial, HangUp, LogEvent, OutboundConnection
from tidings.transport.dial import Carrier, Hopeless, dial
from tidings.transport.link import refusal_of

if TYPE_CHECKING:
    from tidings.node.driver import Driver

CLOSE_S_MAX = 2.0
"""How long the last words to other nodes may take, and the rest that a node sends which keeps nothing."""
DRAIN_S = 0.01
"""How often it is looked whether that was sent."""


class Wire(Carrier):
    """One connection, from the attempt to make it on."""

    def __init__(self, driver: Driver, outbound: OutboundConnection) -> None:
        super().__init__(outbound)
        self._driver = driver
        self._outbound = outbound
        self._is_hung_up = False
        self._task = self._loop.create_task(self._dial(), name=f"tidings to {outbound.reach.address}")

    async def _dial(self) -> None:
        reach = self._outbound.reach
        try:
            await dial(reach.address, reach.credentials)(self)
        except Hopeless as error:
            self._lose(str(error), error.error)
        except (OSError, TidingsError) as error:
            self._lose(str(error) or type(error).__name__)

    def flush(self) -> None:
        """Write the pending output, of forwarded events as much as the transport takes."""
        super().flush()
        while self._outbound.has_bulk and self._takes_more:
            super().flush()

    @property
    def _takes_more(self) -> bool:
        return not (self._transport is None or self._is_paused or self._transport.is_closing())

    def _lose(self, problem: str, verdict: TidingsError | None = None) -> None:
        if not self._is_hung_up:
            self._is_hung_up = True
            self._driver.do(self._outbound.reach.address, self._outbound.lost, problem, verdict)

    async def hang_up(self) -> None:
        """End it; what was taken by the transport is written out first, if that is soon."""
        self._is_hung_up = True
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._hang_up(CLOSE_S_MAX)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report who is there."""
        super().connection_made(transport)
        self._act(self._outbound.answered, certified(transport))

    def data_received(self, data: bytes) -> None:
        """Hand it to the core."""
        self._act(self._outbound.receive, data)

    def _act(self, act: Callable[[Any], None], argument: object) -> None:
        is_sound = self._is_hung_up or self._driver.do(self._outbound.reach.address, act, argument)
        if not is_sound and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Report why, as far as it is known."""
        super().connection_lost(error)
        self._lose(str(error or LOST), refusal_of(error))


class Dialler:
    """Driver of a node's outbound connections; one for each driver of a node."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._dialling = driver.core.dialling
        self._wires: dict[OutboundConnection, Wire] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def carry_out(self) -> None:
        """Do what the core wants to be done."""
        for outbound in self._dialling.take_due():
            if outbound in self._wires:
                self._wires[outbound].flush()
        for effect in self._dialling.take_effects():
            match effect:
                case Dial(outbound):
                    self._wires[outbound] = Wire(self._driver, outbound)
                case HangUp(outbound):
                    self._hang_up(self._wires.pop(outbound))
                case LogEvent(level, event, values):
                    logs.log(level, event, **values)

    def _hang_up(self, wire: Wire) -> None:
        task = asyncio.get_running_loop().create_task(wire.hang_up())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Part from all.

        A node that keeps nothing has no other time to send what waits, so it takes a moment for that.
        """
        core = self._driver.core
        if not core.queues.lasts:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S_MAX):
                    while core.forwarding.has_work:
                        await asyncio.sleep(DRAIN_S)
        core.hang_up()
        self.carry_out()
        if self._ending:
            await asyncio.wait(self._ending)


def certified(transport: asyncio.BaseTransport) -> str | None:
    """Return the name in the other end's certificate; None where there is no TLS."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return None
    from tidings.transport.tls import common_name

    return common_name(certificate) or ""
