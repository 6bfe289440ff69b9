"""Connections over UDP, as asyncio's transports have them: `dial_udp` opens one, `UdpServer` accepts them.

A driver: `reliable.py` decides what is sent. A protocol sees no difference to TCP. With a TLS context the TLS
of asyncio runs inside the stream, as it would over any transport.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from tidings.transport.datagrams import DatagramPort, widen
from tidings.transport.reliable import ReliableListener, ReliableStream

if TYPE_CHECKING:
    from ssl import SSLContext

BUFFER_HIGH = 64 << 10
"""Bytes not acknowledged from which on a protocol is paused, unless it says otherwise."""
SOCKET_BUFFER = 4 << 20
"""Bytes of datagrams that the system may hold, if it allows so many."""
SECRET_SIZE = 32

Send = Callable[[bytes], None]
MakeProtocol = Callable[[], asyncio.BaseProtocol]


class UdpTransport(asyncio.Transport):
    """One end of a connection over datagrams."""

    _start_tls_compatible = True  # as asyncio wants it of a transport inside which it is to run TLS

    def __init__(self, stream: ReliableStream, send: Send, over: Callable[[], None], **about: Any) -> None:
        """`send` sends a datagram to the other end; `over` is called when the connection is gone."""
        super().__init__(about)
        self.stream = stream
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self._has_protocol = False
        self._send = send
        self._over = over
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_flushing = self._is_closing = self._is_gone = self._is_full = False
        self._high = BUFFER_HIGH

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection, which is open, to a protocol."""
        self._protocol, self._has_protocol = protocol, True
        protocol.connection_made(self)
        self.flush_soon()

    # For the protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another one receive."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the one that receives."""
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Pause the protocol from so many bytes on, and resume it at half of that."""
        self._high = BUFFER_HIGH if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the other end has not acknowledged."""
        return self.stream.size

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send these bytes."""
        if not self._is_closing:
            self.stream.write(bytes(data))
            self.flush_soon()

    def pause_reading(self) -> None:
        """Keep what arrives, as far as there is room."""
        self.stream.pause(True)

    def resume_reading(self) -> None:
        """Receive again."""
        self.stream.pause(False)
        self.flush_soon()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def close(self) -> None:
        """Close it when all that was written has arrived."""
        if not self._is_closing:
            self._is_closing = True
            self.stream.end()
            self.flush_soon()

    def abort(self) -> None:
        """Close it at once."""
        self._is_closing = True
        if not self._is_gone:
            self._send(self.stream.reset())
            self._loop.call_soon(self._lose, None)

    def _force_close(self, _error: BaseException | None) -> None:
        """End it; what asyncio's TLS calls after an error."""
        self.abort()

    # For the port, and the clock

    def flush_soon(self) -> None:
        """Hand on what has arrived and send what may be sent, once in this turn of the loop."""
        if not self._is_flushing and not self._is_gone:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_gone:
            return
        stream, now = self.stream, self._loop.time()
        if self._has_protocol:
            for data in stream.take():
                self._give(data)
        for datagram in stream.output(now):
            self._send(datagram)
        self._tell_full()
        if stream.is_over:
            self._lose(None if stream.failure is None else ConnectionResetError(stream.failure))
        elif stream.wake_at != self._timer_at:
            self._set_timer(stream.wake_at)

    def _give(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data:
                room = protocol.get_buffer(len(data))
                size = min(len(room), len(data))  # type: ignore[arg-type]  # a buffer has a length
                cast("memoryview[int]", room)[:size] = data[:size]
                protocol.buffer_updated(size)
                data = data[size:]
        else:
            cast("asyncio.Protocol", protocol).data_received(data)

    def _tell_full(self) -> None:
        is_full = self.stream.size > (self._high // 2 if self._is_full else self._high)
        if is_full is not self._is_full and self._has_protocol:
            self._is_full = is_full
            (self._protocol.pause_writing if is_full else self._protocol.resume_writing)()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at == inf else self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, inf
        self.stream.wake(max(self._loop.time(), self.stream.wake_at))
        self._flush()

    def _lose(self, error: Exception | None) -> None:
        if not self._is_gone:
            self._is_gone = self._is_closing = True
            self._set_timer(inf)
            self._over()
            if self._has_protocol:
                self._protocol.connection_lost(error)


async def dial_udp(
    protocol: asyncio.Protocol, host: str, port: int, context: SSLContext | None = None
) -> None:
    """Connect a protocol to what listens there; OSError if nothing does."""
    loop = asyncio.get_running_loop()
    stream = ReliableStream.dialled(int.from_bytes(os.urandom(8)), loop.time())

    def hear(data: bytes, _place: Any) -> None:
        stream.receive(data, loop.time())
        made.flush_soon()
        if stream.is_open and not opened.done():
            opened.set_result(None)

    def failed(error: Exception) -> None:
        if isinstance(error, ConnectionRefusedError):
            stream.refuse()
            made.flush_soon()

    opened: asyncio.Future[None] = loop.create_future()
    datagrams = DatagramPort(hear, failed)
    await datagrams.open(remote_addr=(host, port))
    widen(datagrams.about("socket"), SOCKET_BUFFER)

    def over() -> None:
        datagrams.close()
        if not opened.done():
            opened.set_exception(ConnectionRefusedError(stream.failure or "closed"))

    about = {name: datagrams.about(name) for name in ("peername", "sockname")}
    made = UdpTransport(stream, datagrams.answer, over, **about)
    made.flush_soon()
    try:
        await opened
        if context is None:
            made.begin(protocol)
            return
        is_there = loop.create_future()
        made.begin(SSLProtocol(loop, protocol, context, is_there, server_hostname=host))
        await is_there
    except BaseException:
        made.abort()
        raise


def _passed_over(wait: asyncio.Future[None]) -> None:
    """A handshake has ended: if it has failed, the caller was told."""
    if not wait.cancelled():
        wait.exception()


class UdpServer:
    """A port at which connections over datagrams are accepted, from `start_serving` to `close`."""

    sockets = ()  # of which connections would be accepted, as servers of asyncio have them

    def __init__(
        self, make: MakeProtocol, context: SSLContext | None, handshake_s: float, shutdown_s: float
    ) -> None:
        self._make = make
        self._context = context
        self._limits: dict[str, Any] = {
            "ssl_handshake_timeout": handshake_s,
            "ssl_shutdown_timeout": shutdown_s,
        }
        self._listener = ReliableListener(os.urandom(SECRET_SIZE))
        self._made: dict[ReliableStream, UdpTransport] = {}
        self._datagrams = DatagramPort(self._hear)
        self._loop = asyncio.get_running_loop()
        self._is_serving = False

    async def bind(self, host: str, port: int) -> None:
        """Have the port; OSError if it can't be had."""
        await self._datagrams.open(local_addr=(host, port))
        widen(self._datagrams.about("socket"), SOCKET_BUFFER)

    async def start_serving(self) -> None:
        """Accept connections."""
        self._is_serving = True

    def close(self) -> None:
        """Accept no more; those that are there go on until they are over."""
        self._is_serving = False
        if not self._made:
            self._datagrams.close()

    def _hear(self, data: bytes, place: Any) -> None:
        if not self._is_serving and not self._made:
            return
        stream, answer = self._listener.receive(data, place, self._loop.time())
        if answer is not None:
            self._datagrams.send(answer, place)
        if stream is not None:
            (self._made.get(stream) or self._accept(stream, place)).flush_soon()

    def _accept(self, stream: ReliableStream, place: Any) -> UdpTransport:
        def over() -> None:
            self._listener.forget(place, stream.connection)
            del self._made[stream]
            if not self._is_serving and not self._made:
                self._datagrams.close()

        about = {"peername": place, "sockname": self._datagrams.about("sockname")}
        send = partial(self._datagrams.send, place=place)
        made = self._made[stream] = UdpTransport(stream, send, over, **about)
        protocol = self._make()
        if self._context is not None:
            wait = self._loop.create_future()
            wait.add_done_callback(_passed_over)
            protocol = SSLProtocol(
                self._loop, protocol, self._context, wait, server_side=True, **self._limits
            )
        made.begin(protocol)
        return made
