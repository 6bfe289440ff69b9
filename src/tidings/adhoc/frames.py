"""Frames of a meeting, as they are on the wire: one msgpack array each, with the name of its kind first.

| step | who | frame |
| --- | --- | --- |
| 1 | the host with the smaller name | `SummaryFrame`: its acknowledgements, and the ids that it has, or had |
| 2 | the other | `LackingFrame`: its acknowledgements, the ids that it lacks; then its copies |
| 3 | the first | its copies of those |

A host that carries many messages does not list their ids (`sketches.py`). Instead of the first two steps the
first host sends an `EstimateFrame`, the other an `AskFrame`, the first a `SymbolsFrame`, and the other a
`HashesFrame` of what it lacks; or it asks for more symbols, and in the end for the list.

A `CopyFrame` has a message, or a part of a long one, and is answered by a `ReceiptFrame`. While two hosts
stay together a `NewsFrame` says what one of them has got since.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tidings.adhoc.messages import RECIPIENTS_MAX, CarriedMessage, HostName, MessageId, Number
from tidings.adhoc.ring import Acknowledgement
from tidings.adhoc.sketches import SALT_SIZE, SIGNS, SYMBOL_SIZE, SYMBOLS_MAX
from tidings.errors import CodecError

IDS_MAX = 100_000
"""Ids, or acknowledgements, of one frame."""
CONTEXT_MAX = 10_000
"""Hosts of which a strategy reports how often they are met."""
ANNOUNCED_MAX = 10_000
"""Announcements of one frame."""
FRAME_MAX = 8 << 20
"""Bytes of one frame."""
CHUNK = 64 << 10
"""Bytes of a message that one frame has at most."""

DEPUTIES_MAX = 8
"""Hosts that may stand in for the holder of one queue or topic."""

Deputies = Annotated[tuple[HostName, ...], Meta(max_length=DEPUTIES_MAX)]
Ids = Annotated[tuple[MessageId, ...], Meta(max_length=IDS_MAX)]
Acknowledgements = Annotated[tuple[Acknowledgement, ...], Meta(max_length=IDS_MAX)]
Context = Annotated[dict[HostName, Annotated[float, Meta(ge=0)]], Meta(max_length=CONTEXT_MAX)]
Begun = Annotated[tuple[tuple[MessageId, Annotated[int, Meta(ge=1)]], ...], Meta(max_length=IDS_MAX)]
"""Messages of which a part is here, with its length."""


def held(
    name: str,
    kind: str,
    holder: str,
    epoch: int,
    number: int,
    deputies: tuple[str, ...],
    is_moved: bool = False,
) -> bytes:
    """The bytes that the holder of a queue or topic signs."""
    said = name, kind, holder, epoch, number, deputies, is_moved
    return msgspec.msgpack.encode(said if is_moved else said[:6] if deputies else said[:5])


class Naming(Struct, frozen=True, array_like=True):
    """Statement of a holder that these hosts may stand in for it, the first one first."""

    holder: HostName
    epoch: Number
    number: Number
    deputies: Deputies
    proof: bytes = b""
    is_moved: bool = False  # the one that is named holds it at once, if it wants to

    @property
    def stamp(self) -> tuple[int, int]:
        """When it was made, in the time of the holder."""
        return self.epoch, self.number


class Announcement(Struct, frozen=True, array_like=True):
    """Statement of a host that it holds a queue or a topic; higher numbers in a later epoch are newer."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    kind: Annotated[str, Meta(pattern="^(queue|topic)$")]
    holder: HostName
    epoch: Number
    number: Number
    left_s: float
    proof: bytes = b""
    deputies: Deputies = ()  # who may stand in for the holder
    naming: Naming | None = None  # by which it stands in itself for another one

    @property
    def signed(self) -> bytes:
        """The bytes that the holder signs."""
        return held(self.name, self.kind, self.holder, self.epoch, self.number, self.deputies)

    @property
    def stamp(self) -> tuple[int, int]:
        """When it was made, in the time of the holder."""
        return self.epoch, self.number


Announcements = Annotated[tuple[Announcement, ...], Meta(max_length=ANNOUNCED_MAX)]


class SummaryFrame(Struct, frozen=True, array_like=True, tag="summary"):
    """First step: what the host with the smaller name has."""

    acknowledged: Acknowledgements
    ids: Ids
    context: Context = {}
    begun: Begun = ()
    announced: Announcements = ()


class LackingFrame(Struct, frozen=True, array_like=True, tag="lacking"):
    """Second step: what the other host lacks of that."""

    acknowledged: Acknowledgements
    wants: Ids
    context: Context = {}
    begun: Begun = ()
    announced: Announcements = ()


class EstimateFrame(Struct, frozen=True, array_like=True, tag="estimate"):
    """Instead of a summary: by what it is estimated how many ids differ."""

    acknowledged: Acknowledgements
    salt: Annotated[bytes, Meta(min_length=SALT_SIZE, max_length=SALT_SIZE)]
    signs: Annotated[bytes, Meta(max_length=2 * SIGNS)]
    context: Context = {}
    announced: Announcements = ()


class AskFrame(Struct, frozen=True, array_like=True, tag="ask"):
    """Ask for symbols, up to this number; for the list of ids if that is 0."""

    acknowledged: Acknowledgements
    symbols: Annotated[int, Meta(ge=0, le=SYMBOLS_MAX)]
    context: Context = {}
    begun: Begun = ()
    announced: Announcements = ()


class SymbolsFrame(Struct, frozen=True, array_like=True, tag="symbols"):
    """The symbols behind those that were sent before."""

    symbols: Annotated[bytes, Meta(max_length=SYMBOLS_MAX * SYMBOL_SIZE)]
    begun: Begun = ()


class HashesFrame(Struct, frozen=True, array_like=True, tag="hashes"):
    """Hashes of the ids that the other host lacks; the meeting is open."""

    wants: Annotated[bytes, Meta(max_length=8 * SYMBOLS_MAX)]


class CopyFrame(Struct, frozen=True, array_like=True, tag="copy"):
    """Copy of a message, or the part of it from `offset` on; `raw` of the message is that part."""

    message: CarriedMessage
    left_s: float
    pending: Annotated[tuple[HostName, ...], Meta(max_length=RECIPIENTS_MAX)]
    copies: Annotated[int, Meta(ge=0, le=1 << 30)]  # 0: for this host alone, which does not carry it on
    hops: Annotated[int, Meta(ge=1, le=1 << 30)]
    offset: Annotated[int, Meta(ge=0)] = 0


class ReceiptFrame(Struct, frozen=True, array_like=True, tag="receipt"):
    """What has come of a copy: carried on, delivered to its recipient, both, or why not."""

    id: MessageId
    is_carried: bool
    acknowledgement: Acknowledgement | None = None
    reason: Annotated[str, Meta(max_length=64)] = ""


class NewsFrame(Struct, frozen=True, array_like=True, tag="news"):
    """What a host has got since the meeting began."""

    acknowledged: Acknowledgements
    ids: Ids
    announced: Announcements = ()


AdhocFrame = (
    SummaryFrame
    | LackingFrame
    | EstimateFrame
    | AskFrame
    | SymbolsFrame
    | HashesFrame
    | CopyFrame
    | ReceiptFrame
    | NewsFrame
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AdhocFrame)


def encode_frame(frame: AdhocFrame) -> bytes:
    """The bytes of a frame, without their length."""
    return _encoder.encode(frame)


def decode_frame(data: bytes) -> AdhocFrame:
    """Read one frame; CodecError for anything else."""
    if len(data) > FRAME_MAX:
        raise CodecError("frame", f"has {len(data)} bytes; at most {FRAME_MAX} are allowed")
    try:
        frame: AdhocFrame = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise CodecError("frame", f"is malformed: {error}") from None
    return frame
