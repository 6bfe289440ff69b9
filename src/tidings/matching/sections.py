"""Named sections of bytes behind a checked header: the layout of a saved index.

    magic, version, size and checksum of the header      HEAD
    header: facts, and for each section its name, place, size and checksum      msgpack
    sections, each at a multiple of ALIGNMENT behind the header

Sections are read in place, so that all processes that map one file share its memory. The rule kept: nothing
of a section is used before its checksum was compared. A checksum shows damage, not malice: compiled code
trusts the numbers in a section, so a saved index must come from a writer that may run code here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct as Layout
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.errors import IndexFileError

MAGIC: Final = b"tidings\x1a"
VERSION: Final = 1
"""Version of everything behind the magic; a change of any layout makes a new one."""
VERSION_PARTS: Final = 2
"""The same with keys that have several filters, which readers of version 1 would return several times."""
ALIGNMENT: Final = 64
"""A section begins at a multiple of a cache line, as the bitmaps in it want."""
HEADER_SIZE_MAX: Final = 1 << 28
"""Bytes of a header at most; a greater number is damage."""
HEAD: Final = Layout("<8sIII")


class SectionPlace(msgspec.Struct, array_like=True, frozen=True):
    """Place of a section, counted from the end of the header, and its checksum."""

    name: str
    begin: int
    size: int
    checksum: int


class SectionsHeader(msgspec.Struct, array_like=True, frozen=True):
    """Contents of the header; `facts` is msgpack of the owner's."""

    facts: msgspec.Raw
    sections: list[SectionPlace]


def pack(facts: Any, sections: Mapping[str, Any], version: int = VERSION) -> Iterator[bytes | memoryview]:
    """Yield the bytes of these sections, arrays or bytes, in order."""
    places, end = [], 0
    parts: list[bytes | memoryview] = []
    for name, content in sections.items():
        part = memoryview(content).cast("B") if len(content) else memoryview(b"")
        places.append(SectionPlace(name, end, part.nbytes, crc32(part)))
        parts += [part, bytes(_aligned(part.nbytes) - part.nbytes)]
        end += _aligned(part.nbytes)
    header = msgspec.msgpack.encode(SectionsHeader(msgspec.Raw(msgspec.msgpack.encode(facts)), places))
    yield HEAD.pack(MAGIC, version, len(header), crc32(header))
    yield header
    yield bytes(_aligned(HEAD.size + len(header)) - HEAD.size - len(header))
    yield from parts


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class Sections:
    """Sections in the bytes of `data`, all of them checked; IndexFileError names the place of a fault.

    `data` must be writable and begin at a multiple of ALIGNMENT, as a private mapping of a file does: numba
    compiles code for read-only or unaligned arrays anew.
    """

    def __init__(self, data: Any, name: str) -> None:
        self._name = name
        self._bytes = memoryview(data)
        self._data: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        header, self._begin = self._header()
        self.facts = header.facts
        self._places = {place.name: place for place in header.sections}
        for place in header.sections:
            self._check(place)

    def _header(self) -> tuple[SectionsHeader, int]:
        data = self._bytes
        if len(data) < HEAD.size or bytes(data[: len(MAGIC)]) != MAGIC:
            raise self.error("is no saved index")
        _, version, size, checksum = HEAD.unpack(data[: HEAD.size])
        if version not in (VERSION, VERSION_PARTS):
            known = f"{VERSION} or {VERSION_PARTS}"
            raise self.error(f"version {version} of a saved index, not {known}; save it again")
        packed = data[HEAD.size : HEAD.size + size]
        if size > HEADER_SIZE_MAX or len(packed) < size:
            raise self.error(f"is cut in its header, which has {size} bytes")
        if crc32(packed) != checksum:
            raise self.error("is damaged in its header: the checksum differs")
        return self.decode(packed, SectionsHeader, "header"), _aligned(HEAD.size + size)

    def _check(self, place: SectionPlace) -> None:
        begin = self._begin + place.begin
        part = self._bytes[begin : begin + place.size]
        where = f"section {place.name!r}, bytes {begin} to {begin + place.size}"
        if begin % ALIGNMENT or len(part) < place.size:
            raise self.error(f"is cut: it ends at byte {len(self._data)}, before the end of {where}")
        if crc32(part) != place.checksum:
            raise self.error(f"is damaged in {where}: the checksum differs")

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def array(self, name: str, kind: Any, *shape: int) -> Any:
        """Return a section as an array of that type and shape, in place."""
        begin, end = self._span(name)
        return self._data[begin:end].view(kind).reshape(shape or (-1,))

    def unpacked(self, name: str, kind: Any) -> Any:
        """Return a section that is msgpack of that type."""
        begin, end = self._span(name)
        return self.decode(self._bytes[begin:end], kind, f"section {name!r}")

    def decode(self, packed: Any, kind: Any, where: str) -> Any:
        """Return msgpack of that type, decoded; IndexFileError if it is not."""
        try:
            return msgspec.msgpack.decode(packed, type=kind)
        except msgspec.DecodeError as error:
            raise self.error(f"is damaged in its {where}: {error}") from None

    def error(self, problem: str) -> IndexFileError:
        """Return an error about these bytes."""
        return IndexFileError(self._name, problem)

    def _span(self, name: str) -> tuple[int, int]:
        if name not in self._places:
            raise self.error(f"lacks the section {name!r}")
        place = self._places[name]
        begin = self._begin + place.begin
        return begin, begin + place.size
