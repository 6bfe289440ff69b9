"""Sensor network that speaks WebSocket: each text message is one protocol object or some, both ways.

The frames are the `websockets` library's; this joins them to the hub. The first invalid one ends the
connection, with a code that says why.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tidings.errors import MissingExtra
from tidings.gateway.hub import Hub
from tidings.gateway.intake import NetworkReader
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Error, encode
from tidings.node.http import BODY_SIZE_MAX, HttpError
from tidings.node.ports import close_soon, pause_reading
from tidings.protocol.access import PeerInfo
from tidings.steps import Steps

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.server import ServerProtocol

PING_S = 60.0
"""How long a network may be silent before it is pinged; as long again without an answer, and it is gone."""
WRITE_BUFFER_MAX = 4 << 20
"""Unread bytes from which on a network is given up: a message may name 10,000 sensors."""
PIECE_SIZE = 512
"""Bytes of frames that are read in one step: as many as 85 of them, at least 6 bytes each."""
GONE, UNSUPPORTED, INVALID, POLICY = 1001, 1003, 1007, 1008

_log = logging.getLogger("tidings.node.websocket")
_log.setLevel(logging.CRITICAL)  # the content of frames is in no log
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class WebSocket:
    """Upgraded connection, from its request on; it is its own key at the hub.

    `head` is the request as it came. If it can't be upgraded, that is answered and the connection ends, or
    HttpError is raised.
    """

    def __init__(self, hub: Hub, transport: asyncio.Transport, caller: PeerInfo, head: bytes) -> None:
        self._hub = hub
        self._transport = transport
        self._protocol = _protocol()
        self._parts = bytearray()  # of a message that is not whole yet
        self._is_asked = False
        self._is_ended = False  # by this side: later input is ignored
        self._timer: asyncio.TimerHandle | None = None
        self._protocol.receive_data(head)
        events = self._protocol.events_received()
        if not events:
            raise HttpError(400, "this is no request for a WebSocket")
        self._protocol.send_response(self._protocol.accept(events[0]))  # type: ignore[arg-type]  # a request
        self.is_open = not self._protocol.close_expected()
        self._flush()
        if self.is_open:
            hub.opened(self, caller, self._send, self._end, partial(pause_reading, transport))
            self._look_later()

    def feed(self, data: bytes) -> None:
        """Process bytes."""
        self._is_asked = False
        if self.is_open:
            self._hub.do(self, self._reading(data))
        else:
            self._protocol.receive_data(data)  # to see the end
            self._flush()

    def _reading(self, data: bytes) -> Steps[None]:
        """Read frames, of which there may be very many in few bytes."""
        for at in range(0, len(data), PIECE_SIZE):
            self._protocol.receive_data(data[at : at + PIECE_SIZE])
            for frame in self._protocol.events_received():
                if not self._is_ended:
                    yield from self._take(frame)  # type: ignore[arg-type]  # the request was the first
                    yield
            self._flush()
            yield
        if self.is_open and self._protocol.close_expected():
            self._forget()

    def lost(self) -> None:
        """Note that the connection is gone."""
        self._forget()

    def close(self, code: int, reason: str) -> None:
        """Close the connection with a code and a reason."""
        if self.is_open:
            self._is_ended = True
            self._forget()
            if not self._protocol.close_expected():
                self._protocol.fail(code, reason)
            self._flush()

    # Input

    def _take(self, frame: Frame) -> Steps[None]:
        from websockets.frames import Opcode

        if frame.opcode is Opcode.BINARY:
            self.close(UNSUPPORTED, "messages are texts")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._parts += frame.data
            if frame.fin:
                message, self._parts = bytes(self._parts), bytearray()
                yield from self._hear(message)

    def _hear(self, message: bytes) -> Steps[None]:
        """Process a whole message: its objects must be whole too."""
        try:
            message.decode()
        except UnicodeDecodeError:
            self.close(INVALID, "a text is not UTF-8")
            return
        if (yield from is_whole(message)):
            yield from self._hub.reading(self, message + b"\n")
        else:
            self._send(encode(Error("the message ends within an object")))
            self.close(INVALID, "the message ends within an object")

    # Output

    def _send(self, line: bytes) -> None:
        """Called by the hub."""
        if self.is_open and not self._protocol.close_expected():
            self._protocol.send_text(line.rstrip(b"\n"))
            self._flush()

    def _end(self) -> None:
        """Called by the hub, which needs this one no more."""
        self.close(POLICY, "the gateway has ended it")

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            else:  # the end
                close_soon(self._transport)
        if self._transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
            self._transport.abort()

    # Time

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PING_S, self.look)

    def look(self) -> None:
        """Ping the network; called every PING_S."""
        if self._is_asked:
            self._forget()
            self._transport.abort()
            return
        self._is_asked = True
        self._protocol.send_ping(b"")
        self._flush()
        self._look_later()

    def _forget(self) -> None:
        if self.is_open:
            self.is_open = False
            if self._timer is not None:
                self._timer.cancel()
            self._hub.closed(self)


def is_whole(data: bytes) -> Steps[bool]:
    """Whether the objects are whole, if not valid."""
    try:
        _is_json(data)  # one object, as mostly: this is quick
    except (msgspec.MsgspecError, RecursionError):
        intake, said = NetworkReader(), list[Said]()
        for _ in intake.read(data + b"\n", said):
            said.clear()
            yield
        return not intake.is_open
    return True


def _protocol() -> ServerProtocol:
    try:
        from websockets.server import ServerProtocol
    except ModuleNotFoundError:
        raise MissingExtra("WebSocket", "node") from None
    return ServerProtocol(max_size=BODY_SIZE_MAX, logger=_log)
