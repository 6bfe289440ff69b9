"""Ports: connections as asyncio sees them, over TCP, Unix sockets and pipes.

A port only carries: bytes in to the driver, frames out to the peer, and word of a peer that is slow or gone.
TCP_NODELAY is set by asyncio and uvloop for every TCP connection.

Who made the port says whether those who come through it are the node's own. It is never concluded from what
the system has of a connection: of one that has been reset it has nothing.

A pipe connects two protocols of one loop, for a client in the node's own process: what one writes, the other
has when the loop runs next. All is as over a socket, without the system in between. Nothing holds up who
writes, as no more is ever under way than the protocol's own window and credit allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable
from errno import EADDRINUSE
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tidings.errors import UserError
from tidings.node.dialling import certified
from tidings.node.driver import Driver
from tidings.protocol.access import PeerInfo
from tidings.protocol.frames import encode
from tidings.protocol.messages import Bye
from tidings.protocol.session import Session

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidings.transport.udp import UdpServer

UNKNOWN = "unknown"
"""Host of a connection that was gone before its address could be read."""
BACKLOG = 4_096
"""Connections that may wait to be accepted."""
WRITE_BUFFER_MAX = 256 << 10
"""Bytes handed to the system and not taken by it, from which on frames stay in the outbox."""
PART_S_MAX = 5.0
"""How long a connection that is closed may take to read the rest."""
HANDSHAKE_S_MAX = 10.0
"""How long a handshake of TLS may take."""
DESCRIPTORS_SPARE = 100
"""File descriptors that are not for connections: the store, the loop, the ports themselves."""
CONNECTIONS_MIN = 100
"""Connections that must be possible, unless fewer are wanted: a node that turns nearly all away is no use."""


class Port(asyncio.Protocol):
    """One connection; `is_own`: nobody but the owner of the node can have made it."""

    __slots__ = ("_connections_max", "_driver", "_is_own", "_session", "_transport", "is_paused")

    def __init__(self, driver: Driver, connections_max: int, is_own: bool = False) -> None:
        self._driver = driver
        self._is_own = is_own
        self._connections_max = connections_max
        self._session: Session | None = None  # while the connection is there and was not refused
        self._transport: asyncio.Transport
        self.is_paused = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_MAX)
        if self._driver.is_closed:
            self._refuse("shutdown", "the node stops")
        elif self._driver.connections >= self._connections_max:
            self._refuse("limit", f"this node has {self._connections_max} connections, and accepts no more")
        else:
            caller = PeerInfo("unix") if self._is_own else caller_of(transport)
            self._session = self._driver.connect(self, caller)

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._driver.receive(self._session, data)

    def pause_writing(self) -> None:
        """Called when the peer does not take what was written."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """Called when it does again."""
        self.is_paused = False
        if self._session is not None:
            self._driver.resume(self._session)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            self._driver.lost(session)

    # What the driver calls

    def send(self, frames: list[bytes]) -> None:
        """Write frames: joined, since a copy costs less than a system call with many pieces."""
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def pause_reading(self, is_paused: bool) -> None:
        """Leave what the peer sends to the system, or read on."""
        pause_reading(self._transport, is_paused)

    def part(self) -> None:
        """Close when everything written has left, or at once if the peer has stopped to read."""
        if self.is_paused:
            self._transport.abort()
        else:
            close_soon(self._transport)

    def _refuse(self, code: str, text: str) -> None:
        self._driver.broker.count("turned_away", reason=code)
        self.send([encode(Bye(code, text))])
        self.part()


def close_soon(transport: asyncio.Transport) -> None:
    """Close a connection when everything written has left, or after PART_S_MAX anyway."""
    if not transport.is_closing():
        transport.close()
        asyncio.get_running_loop().call_later(PART_S_MAX, transport.abort)


def pause_reading(transport: asyncio.Transport, is_paused: bool) -> None:
    """Leave what the other end sends to the system, or read on."""
    if not transport.is_closing():
        (transport.pause_reading if is_paused else transport.resume_reading)()


def caller_of(transport: asyncio.BaseTransport) -> PeerInfo:
    """Return the remote end: its address, and the name in its certificate if it has shown one."""
    name: Any = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return PeerInfo(UNKNOWN, UNKNOWN)  # gone already: without a certificate, too
    return PeerInfo(f"{name[0]}:{name[1]}", name[0], certified(transport) or None)


async def listen_tcp(
    make: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    context: SSLContext | None = None,
    kind: str = "",
) -> tuple[asyncio.Server, str]:
    """Listen on a TCP port, 0 for a free one, with TLS if there is a context for it.

    Return the server, which accepts connections when it is started, and its place, `HOST:PORT`. UserError,
    which names the kind of port, if it can't be had.
    """
    limits: dict[str, Any] = {}
    if context is not None:
        limits = {"ssl_handshake_timeout": HANDSHAKE_S_MAX, "ssl_shutdown_timeout": PART_S_MAX}
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(
            make, host, port, backlog=BACKLOG, start_serving=False, ssl=context, **limits
        )
    except OSError as error:
        raise not_listening(f"{kind}{host}:{port}", error) from None
    return server, place_of(server, host)


async def listen_udp(
    make: Callable[[], asyncio.Protocol], host: str, port: int, context: SSLContext | None = None
) -> UdpServer:
    """Listen on a UDP port for connections, with TLS if there is a context for it; UserError without it."""
    from tidings.transport.udp import UdpServer

    server = UdpServer(make, context, HANDSHAKE_S_MAX, PART_S_MAX)
    try:
        await server.bind(host, port)
    except OSError as error:
        raise not_listening(f"UDP {host}:{port}", error) from None
    return server


def not_listening(place: str, error: OSError) -> UserError:
    """Return why a port can't be had."""
    problem = str(error.strerror).rpartition("): ")[2]  # asyncio says the address again before it
    hint = "; choose another one, or 0 for a free one" if error.errno == EADDRINUSE else ""
    return UserError(f"can't listen on {place}: {problem}{hint}")


def place_of(server: asyncio.Server, host: str) -> str:
    """Return where a server listens, as it stands in a URL."""
    return f"{f'[{host}]' if ':' in host else host}:{server.sockets[0].getsockname()[1]}"


async def listen_unix(make: Callable[[], Port], path: Path) -> tuple[asyncio.Server, str]:
    """Take connections on a Unix socket that only this user can open; the server and its address."""
    channel = bind_unix(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(make, sock=channel, backlog=BACKLOG, start_serving=False)
    return server, f"tidings+unix://{path.absolute()}"


async def close_server(server: asyncio.Server | UdpServer) -> None:
    """Take no more connections, and close the server.

    A connection that asyncio has accepted in this turn of the loop gets its transport in the next one: if the
    server were closed by then, its socket would be left open.
    """
    loop = asyncio.get_running_loop()
    for channel in server.sockets:
        loop.remove_reader(channel.fileno())
    await asyncio.sleep(0)
    server.close()


def bind_unix(path: Path) -> socket.socket:
    """A socket bound to the path; one that a dead node left there is removed, a live one is respected."""
    if answers(path):
        raise UserError(f"{path}: another process listens there")
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
        channel.bind(str(path))
    except OSError as error:
        channel.close()
        raise UserError(f"can't listen on {path}: {error.strerror or error}") from None
    finally:
        os.umask(before)
    return channel


def answers(path: Path) -> bool:
    """Whether a process listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel, contextlib.suppress(OSError):
        channel.connect(str(path))
        return True
    return False


def raise_descriptor_limit(connections_max: int) -> int:
    """Raise the number of files this process may open as far as it can go; the connections that allows.

    UserError, with what to do, if these are too few to begin with.
    """
    try:
        import resource
    except ModuleNotFoundError:  # as on Windows, which has no such limit
        return connections_max
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + DESCRIPTORS_SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return connections_max
    needed = min(connections_max, CONNECTIONS_MIN) + DESCRIPTORS_SPARE
    if soft < needed:
        raise UserError(
            f"the system lets this process open {soft} files, and a node needs {needed} at least: raise the"
            f" limit to {wanted}, by `ulimit -n {wanted}` or, in a unit of systemd, `LimitNOFILE={wanted}`"
        )
    return min(connections_max, soft - DESCRIPTORS_SPARE)


def connect_pipe(one: asyncio.Protocol, other: asyncio.Protocol) -> None:
    """Connect two protocols of the running loop by a pipe; `one` hears of it first."""
    loop = asyncio.get_running_loop()
    ends = PipeEnd(loop, one), PipeEnd(loop, other)
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    for end in ends:
        end.protocol.connection_made(end)


class PipeEnd(asyncio.Transport):
    """One end of a pipe, as its protocol sees it."""

    peer: PipeEnd

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._loop = loop
        self._arrived: list[bytes] = []
        self._is_reading = True
        self._is_closing = False
        self._is_gone = False

    # What the protocol calls

    def write(self, data: Any) -> None:
        """Have the other end get this."""
        if not self._is_closing:
            self.peer.arrive(bytes(data))

    def close(self) -> None:
        """End the pipe when all that was written has arrived."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self.peer.hang_up)
            self._loop.call_soon(self.hang_up)

    def abort(self) -> None:
        """End it; there is nothing that could hold it up."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Give what has arrived, and go on."""
        self._is_reading = True
        if self._arrived:
            self._loop.call_soon(self._give)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        """There is no buffer."""
        return 0

    # What the other end calls

    def arrive(self, data: bytes) -> None:
        """Take data written for this end."""
        self._arrived.append(data)
        if len(self._arrived) == 1 and self._is_reading:
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        if self._arrived and self._is_reading and not self._is_gone:
            arrived, self._arrived = self._arrived, []
            self.protocol.data_received(arrived[0] if len(arrived) == 1 else b"".join(arrived))

    def hang_up(self) -> None:
        """The pipe has ended; called by either end, after what was written before."""
        self._is_closing = True
        if not self._is_gone:
            self._is_gone = True
            self.protocol.connection_lost(None)
