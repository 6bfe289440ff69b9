"""Frames: how messages and events are cut out of a stream of bytes, and put into one.

    length u32 | kind u8 | header | events

This is on the hot path: bytes are taken as they come, in whatever pieces, and the events of a frame stay the
sender's bytes. The rule kept: no frame is longer than the limit in force, and nothing is allocated on the
word of a length that was not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct

import msgspec

from tidings.errors import CodecError, MissingExtra
from tidings.event.wire import COUNT_MAX, HEAD_SIZE, array_head, skip
from tidings.protocol.messages import KINDS, ProtocolMessage, Publish, Put, RawRequest, Request, Reverse

FRAME_MAX = 16 << 20
"""Bytes of a frame behind its length."""
REPLY_MAX = FRAME_MAX + (64 << 10)
"""Bytes in an answer: one event that came in the longest frame, and what is said of it."""
FIRST_FRAME_MAX = 64 << 10
"""The same, for what a node reads before it knows who is there."""
PIECE_SIZE = 4 << 10
"""Bytes of a piece of a frame, beyond which the next piece is held by itself."""
PREFIX = 5
"""Bytes of the length and the kind."""
PUBLISH = Publish()
PLAIN_HEADER = b"\x90"
"""The header of a PUBLISH without further fields: none of them is sent, so that such frames can be joined."""
PLAIN_PUBLISH = bytes((Publish.KIND, *PLAIN_HEADER, 0xDD))
"""How a PUBLISH without further fields goes on behind its length: kind, header, first byte of the events."""
PLAIN_HEAD = 4 + len(PLAIN_PUBLISH) + 4
"""Bytes of such a frame up to its first event: length, the above, count."""

Frame = tuple[ProtocolMessage, bytes]
"""A message, and the events that came with it, as an array with its head (empty where it has none)."""

Decode = Callable[[bytes], ProtocolMessage]

_encoder = msgspec.msgpack.Encoder()
_DECODERS = {number: msgspec.msgpack.Decoder(kind).decode for number, kind in KINDS.items()}
_NODE_DECODERS = {**_DECODERS, Request.KIND: msgspec.msgpack.Decoder(RawRequest).decode}
_WITH_EVENTS = frozenset(number for number, kind in KINDS.items() if kind.HAS_EVENTS)
_REVERSE_HEADER = b"\x91\xc6"  # an array of one, which has as many bytes as the next four say
_SHORT_REVERSE_HEADER = b"\x91\xc4"  # the same, as the next one says
_read_plain_head = Struct(">I3sI").unpack_from


def encode(message: ProtocolMessage, events: bytes = b"") -> bytes:
    """One frame; events are an array with its head."""
    header = PLAIN_HEADER if message is PUBLISH else _encoder.encode(message)
    length = 1 + len(header) + len(events)
    return b"%b%c%b%b" % (length.to_bytes(4, "big"), message.KIND, header, events)


def encode_head(message: ProtocolMessage, size: int) -> bytes:
    """The beginning of a frame whose events have so many bytes, which are to follow it."""
    header = _encoder.encode(message)
    return b"%b%c%b" % ((1 + len(header) + size).to_bytes(4, "big"), message.KIND, header)


def encode_reverse_head(size: int) -> bytes:
    """The beginning of a REVERSE frame that holds so many bytes, which are to follow it."""
    if size < 1 << 8:  # each byte counts after a cut
        header = _SHORT_REVERSE_HEADER + size.to_bytes(1, "big")
    else:
        header = _REVERSE_HEADER + size.to_bytes(4, "big")
    return b"%b%c%b" % ((1 + len(header) + size).to_bytes(4, "big"), Reverse.KIND, header)


class TooLarge(CodecError):
    """A frame that says it is longer than it may be."""


class FrameReader:
    """Cuts frames out of bytes as they arrive; CodecError for what is no frame, and then no more.

    However the bytes are cut, the same events come out, and all those before a bad frame do. `is_node` leaves
    the arguments of requests as bytes: only who knows the operation knows what they may be.
    """

    def __init__(self, limit: int = FIRST_FRAME_MAX, is_node: bool = False) -> None:
        self.limit = limit
        self._decoders = _NODE_DECODERS if is_node else _DECODERS
        self._data = b""  # what frames are being cut out of, from `_at` on
        self._at = 0
        self._behind: list[bytes] = []  # what has come behind that
        self._behind_size = 0
        self._awaited = PREFIX
        self.has_next = False
        """Whether there may be a whole frame."""

    @property
    def held(self) -> int:
        """Bytes that are not cut into frames."""
        return len(self._data) - self._at + self._behind_size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now; to be run to its end before it is called again."""
        self.add(data)
        while (frame := self.next()) is not None:
            yield frame

    def add(self, data: bytes) -> None:
        """Take bytes that have arrived, to be cut by `next`."""
        if self._behind or self.has_next:
            if self._behind and len(self._behind[-1]) < PIECE_SIZE:
                self._behind[-1] += data  # one by one, tiny pieces would take many times their bytes
            else:
                self._behind.append(data)
            self._behind_size += len(data)
            self.has_next = self.has_next or self._behind_size >= self._awaited
        else:
            self._data, self._at, self.has_next = data, 0, True

    def next(self) -> Frame | None:
        """The next frame, None while it has not come whole."""
        while self.has_next:
            if self._at == len(self._data):
                self._data, self._at = b"".join(self._behind), 0
                self._behind, self._behind_size = [], 0
            data, at = self._data, self._at
            following = self._end_of_frame(data, at)
            if following:
                frame = self._cut(data, at, following)
                self._awaited = PREFIX
                self.has_next = self._at < len(data) or self._behind_size >= PREFIX
                return frame
            self._behind.insert(0, data[at:])
            self._behind_size += len(data) - at
            self._data, self._at = b"", 0
            self.has_next = self._behind_size >= self._awaited
        return None

    def _cut(self, data: bytes, at: int, following: int) -> Frame:
        """The frame from `at` on, and those behind it that can be taken as one with it."""
        if following - at >= PLAIN_HEAD and data.startswith(PLAIN_PUBLISH, at + 4):
            if following == len(data):  # it has come alone, most often
                self._at = following
                return PUBLISH, data[at + PLAIN_HEAD - HEAD_SIZE :]
            self._at, events = _join(data, at, self.limit)
            return PUBLISH, events
        if data[at + 4] == Put.KIND:
            self._at, frame = _read_puts(data, at, following, self.limit)
            return frame
        self._at = following
        return read_frame(data[at + 4], data[at + PREFIX : following], self._decoders)

    def _end_of_frame(self, data: bytes, at: int) -> int:
        """Return the end of the frame at `at`, or 0 if it is not complete; then `_awaited` is set."""
        if len(data) - at < PREFIX:
            self._awaited = PREFIX
            return 0
        length = int.from_bytes(data[at : at + 4], "big")
        if not 0 < length <= self.limit:
            problem = f"a frame of {length} bytes; at most {self.limit} are allowed"
            raise TooLarge("$", problem) if length else CodecError("$", problem)
        following = at + 4 + length
        if following > len(data):
            self._awaited = 4 + length
            return 0
        return following


def join(data: bytes, at: int, limit: int) -> tuple[int, bytes]:
    """(where the run of plain PUBLISH frames ends that begins at `at`, their events as those of one frame).

    There must be one such frame. A run goes on to the first frame that is another, has not come whole, or
    would make the array longer than `limit`. So a publisher that sends one event a frame costs little more
    than one that sends a hundred.
    """
    parts = [b""]
    start, end, total, size = at, len(data), 0, HEAD_SIZE
    while at + PLAIN_HEAD <= end:
        length, kind, count = _read_plain_head(data, at)
        events, following = at + PLAIN_HEAD, at + 4 + length
        if kind != PLAIN_PUBLISH or length > limit or not events <= following <= end:
            break
        size += following - events
        if size > limit or total + count > COUNT_MAX:
            break
        total += count
        parts.append(data[events:following])
        at = following
    if len(parts) == 2:
        return at, data[start + PLAIN_HEAD - HEAD_SIZE : at]
    parts[0] = array_head(total)
    return at, b"".join(parts)


_join = join


def _read_puts(data: bytes, at: int, following: int, limit: int) -> tuple[int, Frame]:
    """(where the run of like PUT frames ends that begins at `at`, the message and their events as one frame).

    As a client has many puts on their way, mostly the next ones differ in their events only.
    """
    message, events = read_frame(Put.KIND, data[at + PREFIX : following])
    head = data[at + 4 : following - len(events) + 1]  # kind, header, first byte of the events
    parts, total, size = [events[HEAD_SIZE:]], int.from_bytes(events[1:HEAD_SIZE], "big"), len(events)
    whole, first_at = len(data), 4 + len(head) + 4
    while data.startswith(head, following + 4):
        length = int.from_bytes(data[following : following + 4], "big")
        start, end = following + first_at, following + 4 + length
        count = int.from_bytes(data[start - 4 : start], "big")
        size += end - start
        if not start <= end <= whole or size > limit or total + count > COUNT_MAX:
            break
        parts.append(data[start:end])
        total += count
        following = end
    if len(parts) > 1:
        events = array_head(total) + b"".join(parts)
    return following, (message, events)


def use_compiled() -> None:
    """From now on join long runs of frames with numba."""
    global _join
    try:
        from tidings.protocol.cutting import join_compiled
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tidings"):
            raise
        raise MissingExtra("cutting frames with numba", "node") from None
    _join = join_compiled


def read_frame(kind: int, content: bytes, decoders: Mapping[int, Decode] = _DECODERS) -> Frame:
    """The message of a frame and its events."""
    decode = decoders.get(kind)
    if decode is None:
        raise CodecError("$", f"there is no frame of kind {kind}")
    try:
        if kind not in _WITH_EVENTS:
            return decode(content), b""
        return _read_events(kind, content, decode)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"$.{KINDS[kind].__name__}", str(error)) from None


def _read_events(kind: int, content: bytes, decode: Decode) -> Frame:
    """The message of a frame that has events, and these.

    No msgpack value is the beginning of another. So if what stands before the first byte that may begin the
    events can be decoded, it is the header; if not, as the header has such a byte too, it is walked over.
    """
    at = content.find(PLAIN_PUBLISH[-1])
    if 0 < at <= len(content) - HEAD_SIZE:
        try:
            return decode(content[:at]), content[at:]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    at = _end_of_header(content, kind)
    return decode(content[:at]), content[at:]


def _end_of_header(content: bytes, kind: int) -> int:
    """Return the end of the header, where the events begin, found by walking over the short header."""
    try:
        at = skip(content, 0)
    except IndexError:
        at = len(content)
    if at + HEAD_SIZE > len(content) or content[at] != PLAIN_PUBLISH[-1]:
        raise CodecError(f"$.{KINDS[kind].__name__}", "has no events")
    return at
