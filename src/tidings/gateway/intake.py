"""Reader of one network's connection: from its bytes to its objects, and to its messages.

The framer cuts objects out of a stream: one a line, several on a line, or one over many lines, whatever the
chunks. An object is found by its braces, outside of texts; whether it is JSON is left to the decoder. The
objects depend on the bytes alone and not on where chunks end, and no more than one object is ever held. The
rule: whatever comes, the objects after it are found again.

- Bytes between objects other than blanks are reported once, and skipped up to the next `{`.
- A line that ends within a text ends the object too: JSON has no such texts, so a quote is missing.
- A line that begins as a message does begins a new object: the one before it was cut short.
- At the end of any other line, a partial object is given up if it can't become JSON any more. That check
    takes as long as reading it, so it is made when the object has doubled since the last time.
- Of an object that is too long nothing is kept, and its end is waited for.

As long as whole messages come in the usual form, a chunk is decoded in one call, and only the half message at
its end is examined closely; if that fails, the framer finds each object by itself, and so the mistake. Both
give the same messages. A peer that makes only mistakes is given up.

Reading is cut into steps, each of which takes a millisecond or two whatever the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tidings.gateway.decoding import decode_object, decode_plain_run, decode_run
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Error, Sensing
from tidings.steps import Steps, finish

OBJECT_SIZE_MAX = 1 << 20
"""Bytes of one object."""
FIRST_SIZE_MAX = 64 << 10
"""Bytes of one object of a peer that has sent nothing valid yet."""
USUAL_SIZE = 64 << 10
"""Bytes of an object that is found in one step."""
MISTAKES_IN_A_ROW_MAX = 100
"""Invalid objects, or other bytes, of a peer before it is given up."""
REST_MAX = 4096
"""Bytes of half a message that are read again with the next chunk, which costs less than a close look."""
RUN_SIZE = 64 << 10
"""Bytes that are decoded in one call, unless one object is longer."""
CUT_SIZE = 4 << 10
"""Bytes of an object that are examined closely in one step."""

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_JUNK = re.compile(rb"[^{]*+")
_TEXT = rb'"(?:[^"\\\n]++|\\[^\n])*+"'
# Up to the next brace, the end of the line, or a text that does not end here.
_OUTSIDE = re.compile(rb'(?:[^{}"\n]++|' + _TEXT + rb")*+")
_INSIDE = re.compile(rb'(?:[^"\\\n]++|\\[^\n])*+')
_OPENING, _CLOSING, _QUOTE, _NEWLINE, _BACKSLASH = b'{}"\n\\'
_USUAL_LEVELS = 4
_MESSAGE = re.compile(rb'[ \t\r]*+\{[ \t\r]*+"(?:sensing|(?:de|un)?register)"[ \t\r]*+:')

FramedObject = bytes | Error
"""An object, or a mistake."""


def _usual() -> re.Pattern[bytes]:
    """Return a pattern of an object of few levels on one line, as nearly all are: found in one step."""
    pattern = rb"(?!)"
    for _ in range(_USUAL_LEVELS):
        pattern = rb'\{(?:[^{}"\n]++|' + _TEXT + rb"|" + pattern + rb")*+\}"
    return re.compile(pattern)


_USUAL = _usual()


class JsonFramer:
    """Cuts the stream of one peer; `size_max` is the longest accepted object, and may be raised."""

    def __init__(self, size_max: int = FIRST_SIZE_MAX) -> None:
        self.size_max = size_max
        self._is_junk = False
        self._forget()

    def _forget(self) -> None:
        self._held = bytearray()
        self._depth = 0
        self._is_text = False
        self._is_escape = False  # the chunk ended after a backslash
        self._size = 0  # of the object in earlier chunks
        self._is_reported = False  # that it is too long was reported
        self._line_at = 0  # where in the object its last line begins
        self._test_at = 0

    @property
    def is_open(self) -> bool:
        """Whether there is half an object."""
        return self._depth > 0

    def cut(self, data: bytes, at: int = 0, look: int = OBJECT_SIZE_MAX) -> tuple[list[FramedObject], int]:
        """Return the next objects and mistakes, mostly one, and where to go on, from a place in a chunk.

        None of them: the chunk holds no more, and the next one may follow; or so many bytes were examined
        closely without an end, and the place to go on is before that of the chunk.
        """
        found: list[FramedObject] = []
        end = at + look
        while not found and at < min(end, len(data)):
            found, at = self._go_on_within(data, at, look) if self._depth else self._begin(data, at, look)
        return found, at

    def finish(self) -> Error | None:
        """End the stream: return the mistake, if there is half an object; it is forgotten."""
        is_cut_short = self.is_open and not self._is_reported
        self._is_junk = False
        self._forget()
        return Error("the object is cut short") if is_cut_short else None

    def _begin(self, data: bytes, at: int, look: int) -> tuple[list[FramedObject], int]:
        at = _end_of(_JUNK if self._is_junk else _BLANKS, data, at)
        if at == len(data):
            return [], at
        self._is_junk = data[at] != _OPENING
        if self._is_junk:
            return [Error(f"an object begins with {{, not with byte 0x{data[at]:02x}")], at
        usual = _USUAL.match(data, at, at + min(self.size_max, USUAL_SIZE))
        return ([usual[0]], usual.end()) if usual is not None else self._go_on_within(data, at, look)

    def _go_on_within(self, data: bytes, at: int, look: int) -> tuple[list[FramedObject], int]:
        """Go on with no more than so many bytes: the result does not depend on where a chunk ends."""
        if at + look >= len(data):
            return self._go_on(data, at)
        found, size = self._go_on(data[at : at + look], 0)
        return found, at + size

    def _go_on(self, data: bytes, begin: int) -> tuple[list[FramedObject], int]:
        """Search the end of the object that began earlier, or begins here."""
        at = self._skip(data, begin)
        while at < len(data):
            byte = data[at]
            at += 1
            if byte == _NEWLINE:
                found = self._end_line(data, begin, at)
                if found or not self._depth:
                    return found, at
            else:
                self._depth += 1 if byte == _OPENING else -1
                if self._depth == 0:
                    return self._whole(data[begin:at]), at
            at = self._skip(data, at)
        return self._keep(data[begin:]), at

    def _skip(self, data: bytes, at: int) -> int:
        """Return the place of the next brace or end of a line; a text that does not end is remembered."""
        if not self._is_text:
            at = _end_of(_OUTSIDE, data, at)
            if at == len(data) or data[at] != _QUOTE:
                return at
            at += 1
        at = self._skip_text(data, at)
        self._is_text = at == len(data) or data[at] != _QUOTE
        return at if self._is_text else self._skip(data, at + 1)

    def _skip_text(self, data: bytes, at: int) -> int:
        """Return the end of the text, or of the line, or of the chunk."""
        if self._is_escape and at < len(data) and data[at] != _NEWLINE:
            self._is_escape = False
            at += 1
        at = _end_of(_INSIDE, data, at)
        if at < len(data) and data[at] == _BACKSLASH:  # the line or the chunk ends after it
            self._is_escape = True
            at += 1
        return at

    def _end_line(self, data: bytes, begin: int, end: int) -> list[FramedObject]:
        """Return the mistake in the object, of which this chunk has a piece that ends with a line."""
        size = self._size + end - begin
        too_long = self._too_long(size)
        if self._is_reported:
            if self._is_text:
                self._forget()
            elif too_long:
                self._size = size
            return too_long
        if self._is_text:
            return self._give_up(Error("a line ends within a text"))
        line = self._last_line(data, begin, end)
        if self._line_at and _MESSAGE.match(line):
            return self._give_up(Error("the object is cut short: a message begins in the next line"), line)
        self._line_at = size
        if size >= self._test_at:
            self._test_at = 2 * size
            problem = _hopeless(bytes(self._held) + data[begin:end])
            return [] if problem is None else self._give_up(problem)
        return []

    def _last_line(self, data: bytes, begin: int, end: int) -> bytes:
        """Return the line that ends at `end`; it may have begun in an earlier chunk."""
        at = begin + self._line_at - self._size
        return data[at:end] if at >= begin else bytes(self._held[self._line_at :]) + data[begin:end]

    def _give_up(self, problem: Error, line: bytes = b"") -> list[FramedObject]:
        """Forget the object, but read its last line anew."""
        self._forget()
        pieces: list[FramedObject] = [problem]
        at = 0
        while at < len(line):
            found, at = self.cut(line, at)
            pieces += found
        return pieces

    def _whole(self, piece: bytes) -> list[FramedObject]:
        """Return the object that ends with this piece; nothing if it was reported as too long."""
        found: list[FramedObject] = [*self._too_long(self._size + len(piece))]
        if not self._is_reported:
            found = [bytes(self._held) + piece if self._held else piece]
        self._forget()
        return found

    def _keep(self, piece: bytes) -> list[FramedObject]:
        self._size += len(piece)
        problem = self._too_long(self._size)
        if not self._is_reported:
            self._held += piece
        return problem

    def _too_long(self, size: int) -> list[FramedObject]:
        """Report an object that is too long, once; from then on nothing of it is held."""
        if self._is_reported or size <= self.size_max:
            return []
        self._is_reported = True
        self._held = bytearray()
        return [Error(f"an object has at most {self.size_max} bytes")]


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Return the end of the match of a pattern that also matches nothing."""
    found = pattern.match(data, at)
    assert found is not None
    return found.end()


def _hopeless(beginning: bytes) -> Error | None:
    """Return why this can't be the beginning of an object, if that is certain."""
    try:
        msgspec.json.decode(beginning)
    except msgspec.ValidationError:
        return None  # a number out of range: the decoder says which
    except msgspec.DecodeError as error:
        return None if "truncated" in str(error) else Error(str(error))
    except (UnicodeDecodeError, RecursionError):
        return None
    return None


class NetworkReader:
    """Reader of one peer."""

    def __init__(self) -> None:
        self._cutter = JsonFramer()
        self._rest = b""
        self._mistakes_in_a_row = 0

    @property
    def is_given_up(self) -> bool:
        """Whether the peer made so many mistakes that nothing more is read."""
        return self._mistakes_in_a_row >= MISTAKES_IN_A_ROW_MAX

    @property
    def is_open(self) -> bool:
        """Whether half an object is there."""
        return self._cutter.is_open or bool(self._rest)

    def read_run(self, data: bytes) -> list[Sensing] | None:
        """Read a short run of plain readings; None if it is anything else, which is to be read in full."""
        is_begun = bool(self._rest) or self._cutter.is_open
        if is_begun or self.is_given_up or len(data) > self._cutter.size_max or data[-1:] not in b"}\n":
            return None
        run = decode_plain_run(data)
        if run:
            self._count(run)
        return run

    def read(self, data: bytes, said: list[Said]) -> Steps[None]:
        """Read the next bytes of the stream; append the messages they complete to `said`, in order.

        The caller may take them from there between two steps.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data) and not self.is_given_up:
            if at:
                yield
            if self._cutter.is_open:  # the usual form may follow
                at = yield from self._cut(data, at, at, said)
                continue
            end = self._likely_end(data, at)
            run = (yield from decode_run(data[at:end])) if end > at else None
            if run is not None:
                if run:
                    self._count(run)
                said += run
                at = end
            elif end == at and len(data) - at <= REST_MAX and data[-1:] not in b"} \t\r\n":
                self._rest = data[at:]  # which certainly ends within an object
                break
            else:
                at = yield from self._cut(data, at, end if end > at else len(data), said)

    def finish(self) -> list[Said]:
        """End the stream; return the mistake if that is within an object."""
        said: list[Said] = []
        finish(self._cut(self._rest, 0, len(self._rest), said))
        self._rest = b""
        problem = self._cutter.finish()
        return said if problem is None else [*said, problem]

    def _likely_end(self, data: bytes, at: int) -> int:
        """Return where whole objects seem to end, at most an object's length from here."""
        size_max = self._cutter.size_max
        if at + RUN_SIZE >= len(data) or not (end := _end_in(data, at, at + min(RUN_SIZE, size_max))):
            end = _end_in(data, at, at + size_max)
        return end or at

    def _cut(self, data: bytes, at: int, end: int, said: list[Said]) -> Steps[int]:
        """Read the next object, and all that begin before `end`; return where to go on."""
        while not self.is_given_up:
            pieces, at = self._cutter.cut(data, at, CUT_SIZE)
            for piece in pieces:
                found: list[Said] = [piece] if isinstance(piece, Error) else (yield from decode_object(piece))
                self._count(found)
                said += found
            if at >= len(data) or (pieces and at >= end):
                break
            yield
        return at

    def _count(self, said: Sequence[Said]) -> None:
        """Count whether anything of an object, or of several, was valid."""
        if all(isinstance(one, Error) for one in said):
            self._mistakes_in_a_row += 1
        else:
            self._mistakes_in_a_row = 0
            self._cutter.size_max = OBJECT_SIZE_MAX


def _end_in(data: bytes, at: int, limit: int) -> int:
    """Return where whole objects seem to end before a limit; 0: nowhere."""
    if limit >= len(data) and data.endswith(b"}"):
        return len(data)
    return data.rfind(b"\n", at, limit) + 1 or data.rfind(b"}{", at, limit) + 1


def read_datagram(data: bytes, said: list[Said]) -> Steps[None]:
    """Read a datagram, which holds whole objects, mostly one, as `NetworkReader.read` does."""
    run = (yield from decode_run(data)) if len(data) <= FIRST_SIZE_MAX else None
    if run is not None:
        said += run
        return
    intake = NetworkReader()
    yield from intake.read(data, said)
    said += intake.finish()
