"""Numbered streams of a node that forwards, which share a connection with all else that it says there.

Each is opened again on every transport. Their frames are sent behind all others, in turn and a piece at a
time, so nothing else waits long for them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from tidings.errors import TidingsError
from tidings.protocol.messages import Accepted, Refusal

if TYPE_CHECKING:
    from tidings.protocol.connection import Connection

BULK_SIZE = 64 << 10
"""Bytes of forwarded events in one output, save one frame that is larger: so nothing else waits for more."""


class OutgoingStream(Protocol):
    """Sending end of one stream."""

    def opening(self) -> dict[str, Any]:
        """Return the arguments of `forward.open`, save the number of the stream."""

    def opened(self, node: str, reply: Any) -> None:
        """The node of this id has opened the stream, and says how far it has come."""

    def denied(self, error: TidingsError) -> None:
        """The node will not open the stream on this connection."""

    def accepted(self, counter: int) -> None:
        """Everything up to this number is safe there."""

    def refused(self, refusal: Refusal) -> None:
        """Some items were not taken; it is followed by the acceptance that covers them."""

    def cut(self) -> None:
        """The stream is not open any more: the connection is lost."""


class OutgoingStreams:
    """The streams of one connection, by their numbers there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams: dict[int, OutgoingStream] = {}
        self._opened = 0
        self._bulk: dict[int, deque[bytes]] = {}  # frames that wait, by stream, the next one first

    @property
    def has_frames(self) -> bool:
        """Whether frames wait to be sent."""
        return bool(self._bulk)

    def open(self, stream: OutgoingStream) -> int:
        """Open a stream, now and on each further transport; the number that it has on this connection."""
        self._connection.check()
        self._opened += 1
        self._streams[self._opened] = stream
        if self._connection.is_up:
            self._ask_for(self._opened, stream)
        return self._opened

    def open_again(self) -> None:
        """Open all streams on a new transport."""
        for number, stream in self._streams.items():
            self._ask_for(number, stream)

    def _ask_for(self, number: int, stream: OutgoingStream) -> None:
        connection = self._connection

        def opened(reply: Any) -> None:
            if self._streams.get(number) is stream:
                stream.opened(connection.node, reply)

        def denied(error: TidingsError) -> None:
            if self._streams.get(number) is stream:
                stream.denied(error)

        asked = {"stream": number, **stream.opening()}
        connection.ask_on("forward.open", asked, "forget").then(opened, denied)

    def close(self, number: int) -> None:
        """Close a stream; what of it has not left is not sent."""
        connection = self._connection
        self._bulk.pop(number, None)
        if self._streams.pop(number, None) is not None and connection.is_up and connection.failure is None:
            connection.ask_on("forward.close", {"stream": number}, "forget")

    def cut(self) -> None:
        """Note that the transport is gone, and what of the streams has not left."""
        self._bulk = {}
        for number, stream in list(self._streams.items()):
            if self._streams.get(number) is stream:
                stream.cut()

    def end(self) -> None:
        """End all streams: there will be no other transport."""
        self.cut()
        self._streams = {}

    def forward(self, number: int, frames: list[bytes]) -> None:
        """Send frames of a stream that is open, when nothing else is to be sent."""
        self._bulk.setdefault(number, deque()).extend(frames)

    def take(self) -> list[bytes]:
        """Return some frames, from each stream in turn."""
        frames: list[bytes] = []
        size = 0
        while self._bulk and size < BULK_SIZE:
            number = next(iter(self._bulk))
            waiting = self._bulk.pop(number)
            frames.append(waiting.popleft())
            size += len(frames[-1])
            if waiting:
                self._bulk[number] = waiting
        return frames

    def accepted(self, message: Accepted) -> None:
        """Tell a stream how far the node has it."""
        if message.stream in self._streams:
            self._streams[message.stream].accepted(message.counter)

    def refused(self, message: Refusal) -> None:
        """Tell a stream what the node would not have."""
        if message.stream in self._streams:
            self._streams[message.stream].refused(message)
