"""Compression of events on slow links, with zstd.

A link is *slow* while events wait for its socket longer than they should. How fast it is can't be asked, so
it is measured where that matters: if much waits in the outbox for LOOK_S and less than SLOW_BYTES_S has left
in that time, what is sent from then on is compressed, frame by frame. Where frames wait they are long, and
long frames of like events compress well. A link that keeps up for QUIET_S is taken for fast again.

A fast link costs a third of a microsecond a frame. Nodes tell each other in `link.hello` what they can
unpack; without the package they tell nothing, and are sent nothing compressed.
"""

from __future__ import annotations

from tidings.errors import CodecError, MissingExtra
from tidings.protocol.frames import FRAME_MAX, PREFIX, encode
from tidings.protocol.messages import Packed
from tidings.store.packing import ZSTD, PackingError, check_compression, pack, unpack

ZSTD_NAME = "zstd"
WAITING_MIN = 256 << 10
"""Bytes in the outbox below which a link keeps up: as many as a socket may hold."""
LOOK_S = 0.5
"""How long so much must wait before a link is judged: a commit or a burst is over before."""
SLOW_BYTES_S = 12_500_000
"""Bytes a second: with fewer a link is slow. It is 100 Mbit/s; a processor compresses ten times as many."""
QUIET_S = 10.0
"""How long a slow link must keep up before nothing is compressed any more."""


class LinkSpeed:
    """Judges from what waits in an outbox whether its link is slow; `now` never jumps."""

    def __init__(self) -> None:
        self.is_slow = False
        self._posted = 0  # bytes that were put into the outbox
        self._since: float | None = None  # since when much waits
        self._left_then = 0  # bytes that had left the outbox by then
        self._kept_up_since: float | None = None

    def look(self, waiting: int, now: float) -> None:
        """Judge by the bytes that wait now."""
        if waiting < WAITING_MIN:
            self._since = None
            if self._kept_up_since is None:
                self._kept_up_since = now
            elif self.is_slow and now - self._kept_up_since >= QUIET_S:
                self.is_slow = False
            return
        self._kept_up_since = None
        left = self._posted - waiting
        if self._since is None:
            self._since, self._left_then = now, left
        elif now - self._since >= LOOK_S:
            rate = (left - self._left_then) / (now - self._since)
            self.is_slow = rate < SLOW_BYTES_S
            self._since, self._left_then = now, left

    def posted(self, size: int) -> None:
        """Note bytes that were put into the outbox."""
        self._posted += size


def forms() -> list[str]:
    """Return the names of the forms that this node can unpack."""
    try:
        check_compression()
    except MissingExtra:
        return []
    return [ZSTD_NAME]


def packed(frame: bytes) -> bytes:
    """Return a RELAY frame compressed in a PACKED one; as it is if that is not shorter."""
    form, data = pack(frame[PREFIX:])
    return encode(Packed(data)) if form == ZSTD else frame


def unpacked(data: bytes) -> bytes:
    """Return what is behind the prefix of the RELAY frame in a PACKED one; CodecError if it is none."""
    try:
        content = unpack(ZSTD, data)
    except PackingError as error:
        raise CodecError("$.Packed.data", str(error)) from None
    if len(content) >= FRAME_MAX:
        raise CodecError(
            "$.Packed.data", f"a frame of {len(content)} bytes; less than {FRAME_MAX} is allowed"
        )
    return content
