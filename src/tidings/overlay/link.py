"""A link: one connection between two nodes, on which each is a client of the other.

The node that dials is a client by itself. The frames of the other direction travel inside REVERSE frames: a
stream of bytes, cut wherever it is convenient. So at each end a link has two cores, the `Connection` by which
this node is a client of its neighbour, and the `Session` by which the neighbour is a client of this one.
Requests, subscriptions, credit and resumption are those of every client. One of the two cores has the
transport, and carries the other:

| end | the transport is that of | what goes through the tunnel |
| --- | --- | --- |
| dialled | the connection | the session, which the broker has without a port (`TunnelledSession`) |
| accepted | the session | the connection (`TunnelledConnection`) |
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.protocol.access import PeerInfo
from tidings.protocol.broker import Broker
from tidings.protocol.connection import Connection
from tidings.protocol.frames import encode_reverse_head
from tidings.protocol.session import Session

PIECE_SIZE = 64 << 10
"""Bytes in one REVERSE frame at most."""
BULK_ROOM = 64 << 10
"""Bytes that may wait to be sent to a neighbour before forwarded events wait with their streams."""


def wrapped(frames: list[bytes]) -> list[bytes]:
    """Return these frames in REVERSE frames, each as its head and then what it holds.

    Frames are held whole, save long ones: so the other end need not put their pieces together.
    """
    pieces: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for frame in frames:
        if size and size + len(frame) > PIECE_SIZE:
            pieces += [encode_reverse_head(size), *held]
            held, size = [], 0
        while len(frame) > PIECE_SIZE:
            pieces += [encode_reverse_head(PIECE_SIZE), frame[:PIECE_SIZE]]
            frame = frame[PIECE_SIZE:]
        held.append(frame)
        size += len(frame)
    return [*pieces, encode_reverse_head(size), *held] if size else pieces


class TunnelledSession:
    """The session of a neighbour that this node has dialled; its frames leave with those of the connection.

    `touch` has the driver send; `ended` is called when the session has ended and its last words have left.
    """

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        caller: PeerInfo,
        touch: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._ended = ended
        self.session = broker.connect(broker.now, caller)
        broker.tunnels[self.session] = touch
        connection.reverse = self

    def receive(self, data: bytes) -> None:
        """Bytes of the neighbour as a client have arrived."""
        self.session.receive(data, self._broker.now)

    def output(self) -> list[bytes]:
        """The frames for the neighbour that may be sent now, wrapped; called if the transport takes them."""
        frames: list[bytes] = []
        while more := self.session.output():
            frames += more
        if self.session.is_closed and not len(self.session.outbox):
            self._ended()
        return wrapped(frames)

    def lost(self) -> None:
        """The connection is gone, or goes on without the neighbour as a client."""
        self._connection.reverse = NoReverse()
        self._broker.tunnels.pop(self.session, None)
        self.session.lost(self._broker.now)


class NoReverse:
    """The end of a tunnel that is not used any more: what is still under way is dropped."""

    def receive(self, _data: bytes) -> None:
        """Drop it."""

    def output(self) -> list[bytes]:
        """Send nothing."""
        return []


class TunnelledConnection:
    """The connection to a neighbour that has dialled this node; its frames leave in those of the session.

    `ended` is called when the neighbour, or this node, has ended it.
    """

    def __init__(self, connection: Connection, session: Session, ended: Callable[[], None]) -> None:
        self.connection = connection
        self._session = session
        self._ended = ended
        connection.connect(session.broker.now)

    def receive(self, data: bytes) -> None:
        """Bytes of the neighbour as a node have arrived."""
        self.connection.receive(data, self._session.broker.now)

    def flush(self) -> None:
        """Send what the connection has to say; forwarded events when little else waits to be sent."""
        connection, session = self.connection, self._session
        self._post(connection.output(with_bulk=False))
        while connection.has_bulk and session.outbox.size < BULK_ROOM and not session.is_closed:
            self._post(connection.output())
        if connection.has_bulk:
            session.await_room(self)
        if connection.is_given_up:
            self._ended()

    def _post(self, frames: list[bytes]) -> None:
        if frames:
            self._session.post(b"".join(wrapped(frames)))

    def release(self) -> None:
        """The session has sent some of what waits."""
        self.flush()

    def lost(self) -> None:
        """The session is gone."""
        self.connection.lost(self._session.broker.now)
