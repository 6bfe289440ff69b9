"""Compression of messages on disk, with zstd: for queues with that option.

A run of messages is compressed as a whole, and its row says whether it is packed. A run that would not become
smaller is stored as it is. The package is imported for the first message to be compressed, so nodes without
such queues don't need it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType

from tidings.errors import MissingExtra

PACKED_BYTES_MIN = 256  # less is hardly worth the time
# More than a frame of the protocol can bring; larger content is stored as it is, and no row unpacks to more.
UNPACKED_BYTES_MAX = 32 * 2**20

PLAIN, ZSTD = 0, 1  # forms of messages in their row


class PackingError(Exception):
    """A sound row whose content no version can have written. Never leaves the store."""


class _Codec(threading.local):
    """Compressor and decompressor of each thread: no two threads can share one, and making one takes long."""

    def __init__(self) -> None:
        package = _zstandard()
        self.compress: Callable[[bytes], bytes] = package.ZstdCompressor().compress
        self.decompress: Callable[[bytes], bytes] = package.ZstdDecompressor().decompress


def check_compression() -> None:
    """Raise MissingExtra if messages can't be compressed here."""
    _zstandard()


def pack(raw: bytes) -> tuple[int, bytes]:
    """Compress bytes; return their form on disk and the bytes to store.

    Raises MissingExtra, whatever the size: a missing package must not show only with a long message.
    """
    codec = _codec()
    if PACKED_BYTES_MIN <= len(raw) <= UNPACKED_BYTES_MAX:
        packed = codec.compress(raw)
        if len(packed) < len(raw):
            return ZSTD, packed
    return PLAIN, raw


def unpack(packing: int, data: bytes) -> bytes:
    """Return the bytes that were packed; raises PackingError if these can't be valid, or MissingExtra."""
    if packing == PLAIN:
        return data
    if packing != ZSTD:
        raise PackingError(f"has packing {packing}, which is unknown")
    package, codec = _zstandard(), _codec()
    try:
        size = package.frame_content_size(data)
        if not 0 <= size <= UNPACKED_BYTES_MAX:
            raise PackingError(f"would be {size} bytes long")
        return codec.decompress(data)
    except package.ZstdError as error:
        raise PackingError(f"can't be decompressed: {error}") from error


@cache
def _codec() -> _Codec:
    return _Codec()


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra("compressed queues", "zstd") from error
    return zstandard
