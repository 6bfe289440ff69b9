"""The sending end of FORWARD: one numbered stream to another node, without I/O.

Unlike a client's `Connection`, it numbers nothing itself and stores nothing: its user stores the events with
ascending numbers, and sends the same ones again after a cut or a crash, under the same system and epoch. When
the other node welcomes the stream, it reports up to which number it has had everything.

A driver moves it as it moves a Connection: `connect`, `receive`, `lost`, `wake` at `wake_at`, and `output`
after each of these and after what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack
from typing import Generic, Protocol, TypeVar

import msgspec

from tidings.event.wire import array_head
from tidings.ids import Origin
from tidings.numbered import Outbound
from tidings.protocol.frames import encode
from tidings.protocol.keepalive import KeepAlive
from tidings.protocol.messages import (
    VERSION,
    Accepted,
    Bye,
    Failure,
    Forward,
    Hello,
    Refusal,
    Welcome,
    error_of,
)

_encode_event = msgspec.msgpack.Encoder().encode


Item = TypeVar("Item")
_Item = TypeVar("_Item", contravariant=True)


class ForwardListener(Protocol[_Item]):
    """Listener to the results of a stream."""

    def welcomed(self, counter: int) -> None:
        """The node is there: it has had everything up to this number; `stream` knows what it has refused."""

    def settled(self, item: _Item, failure: Failure | None) -> None:
        """The node has an item, as safe as it must be, or would not have it."""

    def accepted(self, counter: int) -> None:
        """The node has everything up to this number; said after all items up to there were settled."""

    def lost(self) -> None:
        """The node is there no longer; said once for each time it was. What is in flight was not settled."""


class ForwardSender(KeepAlive, Generic[Item]):
    """Sending end of FORWARD to another node; `says` returns the user and secret for each HELLO."""

    def __init__(
        self,
        origin: Origin,
        listener: ForwardListener[Item],
        says: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        super().__init__()
        self.origin = origin
        self.seen = 0  # answers up to this number are kept here, and need not be there any more
        self.node = ""
        self.stream: Outbound[Item, Refusal] = Outbound()
        self._listener = listener
        self._says = says or (lambda: ("", ""))
        self._session: str | None = None

    # What the driver calls

    def connect(self, now: float) -> None:
        """A transport is there."""
        self.trouble = None
        user, secret = self._says()
        system, epoch = self.origin.system or "", self.origin.epoch
        hello = Hello([VERSION], system, epoch, "", self._session, self.seen, user, secret)
        self._begin(hello, now)

    def lost(self) -> None:
        """The transport is gone, or to be gone."""
        if self._end():
            self._listener.lost()
        self.stream.cut()

    def close(self) -> None:
        """Say goodbye: no more will be sent."""
        if self.is_up:
            self._frames.append(encode(Bye()))

    def output(self) -> list[bytes]:
        """The frames that are to be sent now."""
        frames, self._frames = self._frames, []
        return frames

    # What is sent

    @property
    def room(self) -> int:
        """How many bytes may be sent now, to stay within the window."""
        return self.stream.window - self.stream.size if self.is_up else 0

    @property
    def is_clear(self) -> bool:
        """Whether nothing is under way: then something may be sent however large it is."""
        return self.is_up and not self.stream

    def send(
        self,
        queue: str,
        origin: Origin,
        numbers: Sequence[int],
        raws: Sequence[bytes],
        items: Sequence[Item],
        parts: Sequence[bytes] = (),
    ) -> None:
        """Send events of one origin, with `parts` of the body of the first; there must be room.

        The numbers grow, from call to call too; `items` are what the listener knows them by.
        """
        frames = [encode(Forward(queue, b""), _bearer(part)) for part in parts]
        packed = pack(f">{len(numbers)}Q", *numbers)
        message = Forward(queue, packed, origin.system, origin.epoch, origin.source, self.seen)
        frames.append(encode(message, array_head(len(raws)) + b"".join(raws)))
        self._frames += frames
        self.stream.send(numbers, items, sum(map(len, frames)))

    # What the node says

    def _greeted(self, welcome: Welcome, _events: bytes) -> None:
        self.node, self._session = welcome.node, welcome.session
        self.is_up = True
        self.stream.resume(welcome.window, welcome.refused)
        self._listener.welcomed(welcome.counter)

    def _accepted(self, message: Accepted, _events: bytes) -> None:
        settled = self._listener.settled
        for item, refusal in self.stream.acknowledge(message.counter):
            settled(item, None if refusal is None else refusal.failure)
        self._listener.accepted(message.counter)

    def _refused(self, message: Refusal, _events: bytes) -> None:
        self.stream.refuse(message)

    def _parted(self, message: Bye, _events: bytes) -> None:
        self.is_given_up = True
        self.trouble = error_of(Failure(message.code, message.text))

    handlers = {Welcome: _greeted, Accepted: _accepted, Refusal: _refused, Bye: _parted}  # noqa: RUF012


def _bearer(part: bytes) -> bytes:
    """An event that bears a part of a body, and says nothing else."""
    return array_head(1) + _encode_event((0, "part", 0, {}, None, part))
