"""Common part of all ends that dial a node: it reads frames, and notices a node that has fallen silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar

from tidings.errors import CodecError, TidingsError
from tidings.protocol.frames import REPLY_MAX, FrameReader, encode
from tidings.protocol.messages import Bye, Hello, Ping, Pong, ProtocolMessage, Welcome

WELCOME_S_MAX = 10.0
"""How long a node may take to answer HELLO."""
SILENT_S_MAX = 20.0
"""How long a node may be silent before it is asked; as long again, and it is given up."""


class KeepAlive:
    """The part of a client's core that is about the connection, whatever is said on it."""

    handlers: ClassVar[Mapping[type[ProtocolMessage], Callable[[Any, Any, bytes], None]]]
    """What is done with each message that a node may send, beside PING and PONG."""

    def __init__(self) -> None:
        self.is_up = False  # WELCOME has come
        self.is_given_up = False  # the driver is to end the transport
        self.trouble: TidingsError | None = None  # why, as far as that is known
        self.received_at = -inf  # when bytes have come, be it a part of a frame only
        self.on_pong: Callable[[int], None] = lambda _number: None
        """Called with the number of each ping that the node has answered."""
        self._reader = FrameReader(REPLY_MAX)
        self._frames: list[bytes] = []
        self._heard_at: float | None = None  # None while there is no transport
        self._is_asked = False

    def _begin(self, hello: Hello, now: float) -> None:
        """A transport is there: this is the first word."""
        self._reader = FrameReader(REPLY_MAX)  # WELCOME has all refusals that were not seen
        self._heard_at, self._is_asked, self.is_given_up = now, False, False
        self._frames = [encode(hello)]

    def receive(self, data: bytes, now: float) -> None:
        """Bytes have arrived; what is no answer of a node ends the connection."""
        self.received_at = now
        try:
            for message, events in self._reader.feed(data):
                if self.is_given_up:
                    return
                self._heard_at, self._is_asked = now, False
                self._take(message, events)
        except CodecError as error:
            self.is_given_up, self.trouble = True, error

    def _take(self, message: ProtocolMessage, events: bytes) -> None:
        handler = self.handlers.get(type(message))
        is_in_turn = isinstance(message, Bye) or self.is_up is not isinstance(message, Welcome)
        if is_in_turn and handler is not None:
            handler(self, message, events)
        elif is_in_turn and isinstance(message, Ping):
            self._frames.append(encode(Pong(message.number)))
        elif is_in_turn and isinstance(message, Pong):
            self.on_pong(message.number)
        else:
            raise CodecError("$", f"{type(message).__name__} is not for a client now")

    def ping(self, number: int) -> None:
        """Ask the node to answer; see `on_pong`. Its own pings to find silence have the number 0."""
        if self.is_up:
            self._frames.append(encode(Ping(number)))

    def _end(self) -> bool:
        """The transport is gone; whether the node had welcomed us on it."""
        was_up, self.is_up, self._heard_at = self.is_up, False, None
        self._frames = []
        return was_up

    @property
    def wake_at(self) -> float | None:
        """When `wake` is to be called; None while there is no transport."""
        if self._heard_at is None:
            return None
        return self._heard_at + (SILENT_S_MAX * (1 + self._is_asked) if self.is_up else WELCOME_S_MAX)

    def wake(self, now: float) -> None:
        """Time has passed: ask a silent node whether it is there, and give up one that does not answer."""
        if self.wake_at is None or now < self.wake_at:
            return
        if self.is_up and not self._is_asked:
            self._is_asked = True
            self._frames.append(encode(Ping()))
        else:
            self.is_given_up = True
