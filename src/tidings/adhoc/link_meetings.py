"""Meetings over the links of a node: frames go as requests, each behind the commit that it depends on.

A frame is one `link.adhoc` request, and its reply says that the other host has room for more. So the window
of unanswered copies is small, the best copies go first whenever the meeting ends, and a host that is short of
time, or of the bytes a second that it takes, slows others down by answering later. A host that does not wait
for answers is refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from tidings.adhoc.frames import AdhocFrame, CopyFrame, encode_frame
from tidings.adhoc.host import AdhocHost
from tidings.errors import Refused, TidingsError
from tidings.overlay.neighbours import Neighbour
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, resolved

WINDOW = 8
"""Copies to one host whose requests are not answered."""
UNANSWERED_MAX = 4 * WINDOW
"""Frames of one host that wait to be answered; more are refused."""


class FrameRequest(Struct, frozen=True):
    """The arguments of `link.adhoc`: one frame of a meeting."""

    frame: bytes


class ByteRate:
    """Bytes a second that are taken: how long to wait with the answer to so many."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0  # when all that was taken is paid for

    def wait_s(self, size: int, now: float) -> float:
        """Note so many bytes; the seconds after which more are wanted."""
        self._free_at = max(self._free_at, now) + size / self._rate
        return max(0.0, self._free_at - now - 1.0)  # what one second brings may come at once


class LinkMeetings:
    """Hosts that are here, each with the neighbour whose link leads to it.

    `on_error` is called with a host whose link has failed.
    """

    def __init__(
        self,
        broker: Broker,
        host: AdhocHost,
        rate: float,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._broker = broker
        self._host = host
        self._later = later
        self._taken = ByteRate(rate)
        self._neighbours: dict[str, Neighbour] = {}
        self._copying: Counter[str] = Counter()  # copies that are not answered, by host
        self._owed: Counter[str] = Counter()  # frames of others that are not answered
        self._waiting: deque[tuple[int, str, AdhocFrame]] = deque()  # behind these marks
        self.on_error: Callable[[str], None] = lambda _host: None

    def __contains__(self, host: str) -> bool:
        return host in self._neighbours

    def __len__(self) -> int:
        return len(self._neighbours)

    @property
    def hosts(self) -> dict[str, Neighbour]:
        """The hosts that are here."""
        return dict(self._neighbours)

    def name_of(self, neighbour: Neighbour) -> str | None:
        """Return the host that is met over the link to a neighbour."""
        return neighbour.name if self._neighbours.get(neighbour.name) is neighbour else None

    def begin(self, neighbour: Neighbour) -> None:
        """A host is here."""
        self._neighbours[neighbour.name] = neighbour

    def end(self, host: str) -> None:
        """A host is gone, and with it what was to be sent to it."""
        self._neighbours.pop(host, None)
        self._copying.pop(host, None)
        self._owed.pop(host, None)
        self._waiting = deque(one for one in self._waiting if one[1] != host)

    # Sending

    def send(self, host: str, frame: AdhocFrame) -> None:
        """Send a frame when all is on disk that was done before it."""
        self._waiting.append((self._broker.promise, host, frame))

    def durable(self) -> None:
        """Send what waits for commits that were made."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._broker.mark_durable:
            _, host, frame = waiting.popleft()
            neighbour = self._neighbours.get(host)
            if neighbour is not None and neighbour.link is not None:
                self._request(host, neighbour, frame)

    def pump(self) -> None:
        """Offer copies to all hosts that have room for them."""
        for host in list(self._neighbours):
            while self._copying[host] < WINDOW:
                copy = self._host.next_copy(host, self._broker.now)
                if copy is None:
                    break
                self._copying[host] += 1
                self.send(host, copy)

    def _request(self, host: str, neighbour: Neighbour, frame: AdhocFrame) -> None:
        link = neighbour.link
        assert link is not None
        is_copy = isinstance(frame, CopyFrame)
        call = link.send("link.adhoc", {"frame": encode_frame(frame)}, "forget")
        call.then(partial(self._answered, host, neighbour, is_copy), partial(self._failed, host, neighbour))

    def _answered(self, host: str, neighbour: Neighbour, is_copy: bool, _none: Any) -> None:
        if is_copy and self._neighbours.get(host) is neighbour:
            self._copying[host] -= 1
            self.pump()
            self.durable()

    def _failed(self, host: str, neighbour: Neighbour, _error: TidingsError) -> None:
        if self._neighbours.get(host) is neighbour:
            self.on_error(host)

    # Receiving

    def check_window(self, host: str) -> None:
        """Refuse a host that does not wait for answers."""
        if self._owed[host] >= UNANSWERED_MAX:
            raise Refused("limit", f"{UNANSWERED_MAX} frames are not answered: wait for that")

    def answer(self, host: str, size: int) -> Deferred[None]:
        """Return the reply to a frame of so many bytes, which comes when more is wanted."""
        wait_s = self._taken.wait_s(size, self._broker.now)
        if not wait_s:
            return resolved(None)
        reply: Deferred[None] = Deferred()
        self._owed[host] += 1

        def done() -> None:
            if self._owed.get(host):
                self._owed[host] -= 1
            reply.resolve(None)

        self._later(wait_s, done)
        return reply
