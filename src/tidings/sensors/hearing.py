"""Decoder of a gateway's messages: one JSON object a line.

Unknown members and messages are ignored, so that the gateway may be newer than the network.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from tidings.errors import CodecError
from tidings.gateway.messages import Ack, Error, Redirect, SubscribeSensors, UnsubscribeSensors

LINE_SIZE_MAX = 4 << 20
"""Bytes of one message of a gateway: it may name each of ten thousand sensors."""

Heard = SubscribeSensors | UnsubscribeSensors | Ack | Error | Redirect


class _Line(Struct):
    subscribe: SubscribeSensors | None = None
    unsubscribe: UnsubscribeSensors | None = None
    ack: Ack | None = None
    error: Error | None = None
    redirect: Redirect | None = None


_decode = msgspec.json.Decoder(_Line).decode


class Ear:
    """Decodes the messages of one connection. A datagram is passed whole, to `feed_whole`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Heard]:
        """Return the messages that are complete; CodecError if one is invalid, or has no end."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_SIZE_MAX:
            raise CodecError("$", f"a message of the gateway is longer than {LINE_SIZE_MAX:,} bytes")
        return [message for line in lines for message in messages_in(line)]

    def feed_whole(self, data: bytes) -> list[Heard]:
        """Return the messages of a datagram."""
        return [message for line in data.split(b"\n") for message in messages_in(line)]


def messages_in(line: bytes) -> Iterator[Heard]:
    """Yield the message on a line, if it is known."""
    if not line.strip():
        return
    try:
        decoded = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError("$", f"no message of a gateway: {error}") from None
    for message in (decoded.subscribe, decoded.unsubscribe, decoded.ack, decoded.error, decoded.redirect):
        if message is not None:
            yield message
