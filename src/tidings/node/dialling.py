"""Carries out on the loop what a node's core says of the connections that it makes: sockets, TLS and tasks.

What is decided is decided by the core (`tidings.peers.dialling`): when to dial, whom to believe, what to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from tidings.errors import TidingsError
from tidings.node import logs
from tidings.peers.dialling import LOST, Dial, HangUp, Log, Outbound
from tidings.transport.carrier import WRITE_BUFFER
from tidings.transport.dial import Hopeless, dial
from tidings.transport.link import refusal_of

if TYPE_CHECKING:
    from tidings.node.driver import Driver

CLOSE_S_MAX = 2.0
"""How long the last words to other nodes may take, and the rest that a node sends which keeps nothing."""
DRAIN_S = 0.01
"""How often it is looked whether that was sent."""


class Wire(asyncio.Protocol):
    """One connection, from the attempt to make it on."""

    def __init__(self, driver: Driver, outbound: Outbound) -> None:
        self._driver = driver
        self._outbound = outbound
        self._transport: asyncio.Transport | None = None
        self._is_paused = self._is_hung_up = False
        self._is_gone = asyncio.Event()
        name = f"tidings to {outbound.reach.address}"
        self._task = asyncio.get_running_loop().create_task(self._dial(), name=name)

    async def _dial(self) -> None:
        reach = self._outbound.reach
        try:
            await dial(reach.address, reach.credentials)(self)
        except Hopeless as error:
            self._lose(str(error), error.error)
        except (OSError, TidingsError) as error:
            self._lose(str(error) or type(error).__name__)

    def _lose(self, problem: str, verdict: TidingsError | None = None) -> None:
        if not self._is_hung_up:
            self._is_hung_up = True
            self._driver.do(self._outbound.reach.address, self._outbound.lost, problem, verdict)

    def flush(self) -> None:
        """Write what may leave now, in one piece."""
        # asyncio's transports with TLS can neither be closed twice nor be written to after that.
        if self._transport is not None and not (self._is_paused or self._transport.is_closing()):
            frames = self._outbound.output()
            if frames:
                self._transport.write(b"".join(frames))

    async def hang_up(self) -> None:
        """End it; what was taken by the transport is written out first, if that is soon."""
        self._is_hung_up = True
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._is_gone.wait()
        except TimeoutError:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell who is there."""
        # uvloop's transports are none of asyncio's classes, though they do the same.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER)
        self._act(self._outbound.answered, certified(transport))

    def data_received(self, data: bytes) -> None:
        """Hand it to the core."""
        self._act(self._outbound.receive, data)

    def _act(self, act: object, argument: object) -> None:
        assert callable(act)
        is_sound = self._is_hung_up or self._driver.do(self._outbound.reach.address, act, argument)
        if not is_sound and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell why, as far as it is known."""
        self._is_gone.set()
        self._lose(str(error or LOST), refusal_of(error))

    def pause_writing(self) -> None:
        """The node reads slowly: what is to be said stays with the core."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has read."""
        self._is_paused = False
        self.flush()


class Dialler:
    """See the module; one for each driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._dialling = driver.core.dialling
        self._wires: dict[Outbound, Wire] = {}
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
                case Log(level, event, values):
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
    """Whom the certificate of the other end names; None where there is no TLS."""
    told = transport.get_extra_info("peercert")
    if not told:
        return None
    from tidings.transport.tls import common_name

    return common_name(told) or ""
