"""One round trip to a node: whether it answers there, which node it is, and how long that takes.

A ping logs in as any client does, so a node with security answers only clients that it lets in.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import NamedTuple, cast

from tidings.errors import CodecError, Disconnected, NoAnswer, TidingsError
from tidings.ids import new_system
from tidings.protocol.frames import FRAME_MAX, Frame, FrameReader, encode
from tidings.protocol.messages import VERSION, Bye, Failure, Hello, Ping, Pong, Welcome, error_of
from tidings.transport.credentials import CredentialsProvider
from tidings.transport.dial import ConnectTo, Hopeless
from tidings.transport.link import refusal_of

CLOSE_S_MAX = 1.0
"""Longest time for closing the connection."""


class PingAnswer(NamedTuple):
    """Answer of a node: its id, its name, and the seconds from the ping to it."""

    node: str
    name: str
    round_trip_s: float


async def ping(reach: ConnectTo, says: CredentialsProvider, timeout_s: float) -> PingAnswer:
    """Connect, ping the node, and return its answer.

    Raises Disconnected if nothing or something else listens there, NoAnswer after `timeout_s`, NotAllowed or
    Refused if the node says so instead.
    """

    def hello() -> Hello:
        user, secret = says()
        return Hello([VERSION], new_system(os.urandom), 0, user=user, secret=secret)

    pinger = Pinger(hello)
    try:
        async with asyncio.timeout(timeout_s):
            await reach(pinger)
            return await pinger.answer
    except TimeoutError:
        raise NoAnswer(f"no answer within {timeout_s:g} s") from None
    except Hopeless as hopeless:
        raise hopeless.error from None
    except TidingsError:
        raise
    except OSError as error:
        raise Disconnected(str(error) or type(error).__name__) from None
    finally:
        await pinger.close()


class Pinger(asyncio.Protocol):
    """Connection that greets a node, pings it once, and notes the answer.

    `hello` is called when there is a transport.
    """

    def __init__(self, hello: Callable[[], Hello]) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[PingAnswer] = self._loop.create_future()
        self.welcome: Welcome | None = None
        self._hello = hello
        self._frames = FrameReader(FRAME_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_gone = asyncio.Event()
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the node."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none of asyncio's classes
        self._transport.write(encode(self._hello()))

    def data_received(self, data: bytes) -> None:
        """Handle messages of the node."""
        try:
            for frame in self._frames.feed(data):
                self._hear(frame)
        except CodecError:
            self._fail(Disconnected("what listens there is no node"))

    def _hear(self, frame: Frame) -> None:
        message, _ = frame
        if isinstance(message, Welcome):
            self.welcome, self._sent_at = message, self._loop.time()
            assert self._transport is not None
            self._transport.write(encode(Ping(1)))
        elif isinstance(message, Pong) and self.welcome is not None and not self.answer.done():
            took_s = self._loop.time() - self._sent_at
            self.answer.set_result(PingAnswer(self.welcome.node, self.welcome.name, took_s))
        elif isinstance(message, Bye):
            self._fail(error_of(Failure(message.code, message.text)))

    def connection_lost(self, error: Exception | None) -> None:
        """End the wait, if the node has not answered."""
        self._transport = None
        self._is_gone.set()
        self._fail(refusal_of(error) or Disconnected(str(error or "the connection was closed")))

    def _fail(self, error: TidingsError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    async def close(self) -> None:
        """Disconnect cleanly."""
        self.answer.cancel()
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._transport.write(encode(Bye()))
            self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._is_gone.wait()
        except TimeoutError:
            self._transport.abort()
