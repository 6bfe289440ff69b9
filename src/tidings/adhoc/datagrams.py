"""Links of datagrams: what one datagram holds goes to a host whose beacon comes, without a connection.

| kind | when | how |
| --- | --- | --- |
| plain | a message is not persistent | it is sent once |
| reliable | it is persistent | it is sent again with later beacons, until its acknowledgement comes |
| local broadcast | an acknowledgement; everything, where beacons go to a group | all hosts in reach get it |

So a host that passes by too fast for a connection gets the short messages that are for it, the best first.
Carriers get theirs in meetings. A datagram is a frame of a meeting (`frames.py`), and is believed by its
signatures as any other.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tidings.adhoc.effects import AdhocEffect
from tidings.adhoc.frames import AdhocFrame, CopyFrame, NewsFrame, decode_frame, encode_frame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.meeting import urgency
from tidings.adhoc.messages import MessageId, Replica
from tidings.errors import CodecError

DATAGRAM_MAX = 1_200
"""Bytes of a datagram: no network splits that."""
AT_ONCE = 16
"""Messages that go to one host with each of its beacons."""
TRIES_MAX = 8
"""How often a persistent message goes to one host before a meeting is waited for."""
WAITING_MAX = 10_000
"""Messages that may go by datagrams; longer or later ones wait for meetings."""


class DatagramCopies:
    """Messages that may go to their recipients by datagrams."""

    def __init__(self, host: AdhocHost) -> None:
        self._host = host
        self._for: dict[str, dict[MessageId, int]] = {}  # by recipient: how often each was sent
        self._count = 0
        for replica in host.buffer:
            self.add(replica)

    def add(self, replica: Replica) -> None:
        """Consider a replica that is carried here, or has changed."""
        if replica.size > DATAGRAM_MAX or self._count >= WAITING_MAX:
            return
        for recipient in replica.pending:
            waiting = self._for.setdefault(recipient, {})
            if replica.id not in waiting:
                waiting[replica.id] = 0
                self._count += 1

    def drop(self, replica: Replica) -> None:
        """A replica is carried no more."""
        for recipient in replica.message.recipients:
            self._forget(recipient, replica.id)

    def _forget(self, recipient: str, id: MessageId) -> None:
        waiting = self._for.get(recipient)
        if waiting is not None and waiting.pop(id, None) is not None:
            self._count -= 1
            if not waiting:
                del self._for[recipient]

    def offer(self, recipient: str, now: float) -> list[bytes]:
        """Return the datagrams for a host whose beacon has come, the best first."""
        sent: list[bytes] = []
        for replica in sorted(self._replicas(recipient), key=urgency)[:AT_ONCE]:
            message = replace(replica.message, raw=self._host.buffer.raw_of(replica))
            copy = CopyFrame(
                message, replica.left_s(now), tuple(sorted(replica.pending)), 0, replica.hops + 1
            )
            data = encode_frame(copy)
            tries = self._for[recipient][replica.id] + 1
            if len(data) > DATAGRAM_MAX or tries >= (TRIES_MAX if replica.message.persistent else 1):
                self._forget(recipient, replica.id)
            else:
                self._for[recipient][replica.id] = tries
            if len(data) <= DATAGRAM_MAX:
                sent.append(data)
        return sent

    def _replicas(self, recipient: str) -> Iterable[Replica]:
        for id in list(self._for.get(recipient, ())):
            replica = self._host.buffer.get(id)
            if replica is None or recipient not in replica.pending:
                self._forget(recipient, id)
            else:
                yield replica

    def receive(self, data: bytes, now: float) -> tuple[list[AdhocEffect], bytes | None]:
        """Take a datagram of any host; its effects, and the answer for all in reach, if there is one."""
        try:
            if len(data) > DATAGRAM_MAX:
                raise CodecError("datagram", "is too long")
            frame: AdhocFrame = decode_frame(data)
        except CodecError:
            self._host.tallies["refused", "datagram"] += 1
            return [], None
        if isinstance(frame, CopyFrame):
            effects, acknowledgement = self._host.accept_copy(frame, now)
            answer = None if acknowledgement is None else encode_frame(NewsFrame((acknowledgement,), ()))
            return effects, answer
        if isinstance(frame, NewsFrame) and not frame.ids:
            return self._host.hear(frame.acknowledged, now), None
        self._host.tallies["refused", "datagram"] += 1
        return [], None
