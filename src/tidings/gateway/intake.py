"""Reader of one network's connection: from its bytes to its messages.

As long as whole messages come in the usual form, a chunk is decoded in one call, and only the half message at
its end is examined closely; if that fails, the framer finds each object by itself, and so the mistake. Both
give the same messages. A peer that makes only mistakes is given up.

Reading is cut into steps, each of which takes a millisecond or two whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidings.gateway.decoding import decode_object, decode_plain_run, decode_run
from tidings.gateway.json_framing import FIRST_SIZE_MAX, OBJECT_SIZE_MAX, JsonFramer
from tidings.gateway.message_reader import Said
from tidings.gateway.messages import Error, Sensing
from tidings.steps import Steps, finish

MISTAKES_IN_A_ROW_MAX = 100
"""Invalid objects, or other bytes, of a peer before it is given up."""
REST_MAX = 4096
"""Bytes of half a message that are read again with the next chunk, which costs less than a close look."""
RUN_SIZE = 64 << 10
"""Bytes that are decoded in one call, unless one object is longer."""
CUT_SIZE = 4 << 10
"""Bytes of an object that are examined closely in one step."""


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
            elif end == at and _is_half(data, at):
                self._rest = data[at:]
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


def _is_half(data: bytes, at: int) -> bool:
    """Whether the rest is short, and certainly ends within an object."""
    return len(data) - at <= REST_MAX and data[-1:] not in b"} \t\r\n"


def read_datagram(data: bytes, said: list[Said]) -> Steps[None]:
    """Read a datagram, which holds whole objects, mostly one, as `NetworkReader.read` does."""
    run = (yield from decode_run(data)) if len(data) <= FIRST_SIZE_MAX else None
    if run is not None:
        said += run
        return
    intake = NetworkReader()
    yield from intake.read(data, said)
    said += intake.finish()
