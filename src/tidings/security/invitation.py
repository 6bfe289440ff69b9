"""The line of an invitation: all that a new node needs in order to join, to be copied to its machine.

    tdi_AQID…        base64 of: size, checksum, contents

It holds the name of the inviting node and its addresses, the fingerprint of the authority's certificate, the
id of the invitation and its secret, the name of the invited node, and when the invitation expires. The
fingerprint pins the authority: the new node sends nothing to a node that another authority has certified.

Size and checksum find a line that was cut or mistyped, and protect from nobody: the node that has made the
invitation goes by its own record (`invitations`), not by the line.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from hashlib import sha256
from ssl import PEM_cert_to_DER_cert
from struct import Struct as StructFormat
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from tidings.errors import AddressError, ConfigError, UserError
from tidings.transport.address import parse

PREFIX = "tdi_"
ADDRESSES_MAX = 8
"""Addresses of the inviting node in a line."""
LINE_LENGTH_MAX = 4_096

_HEAD = StructFormat(">HI")  # bytes and checksum of the contents
_ALPHABET = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)

NodeName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]


class InvitationLine(Struct, frozen=True, array_like=True):
    """Contents of the line; `until` is in seconds since 1970, `authority` a SHA-256."""

    node: NodeName
    addresses: Annotated[list[str], Meta(min_length=1, max_length=ADDRESSES_MAX)]
    authority: Annotated[bytes, Meta(min_length=32, max_length=32)]
    id: Annotated[str, Meta(min_length=1, max_length=32)]
    secret: Annotated[str, Meta(min_length=1, max_length=100)]
    name: NodeName
    until: int

    def __repr__(self) -> str:
        return f"<Invitation of {self.name} by {self.node}>"

    def __str__(self) -> str:
        """Return the line; the only way to have the secret as text."""
        contents = msgspec.msgpack.encode(self)
        packed = _HEAD.pack(len(contents), crc32(contents)) + contents
        return PREFIX + urlsafe_b64encode(packed).decode().rstrip("=")


def read_line(text: str, place: str = "--join") -> InvitationLine:
    """Read a line; ConfigError, which never shows it, if it is none, was cut, or was altered."""
    packed = _unpacked(text.strip(), place)
    size, checksum = _HEAD.unpack_from(packed)
    contents = packed[_HEAD.size :]
    if len(contents) < size:
        whole = len(PREFIX) + -(-(size + _HEAD.size) * 4 // 3)
        raise _problem(place, f"the invitation was cut: it has {len(text.strip())} of {whole} characters")
    if len(contents) > size or crc32(contents) != checksum:
        raise _problem(place, "the invitation was altered: its checksum is wrong")
    try:
        line = msgspec.msgpack.decode(contents, type=InvitationLine)
        kinds = {parse(address).kind for address in line.addresses}
    except (msgspec.DecodeError, AddressError, UnicodeDecodeError):
        kinds = set()
    if kinds != {"tls"}:
        raise ConfigError(place, "", "the invitation can't be read: it is of another version of tidings")
    return line


def _unpacked(text: str, place: str) -> bytes:
    body = text.removeprefix(PREFIX)
    if not text.startswith(PREFIX) or not _ALPHABET.fullmatch(body) or len(text) > LINE_LENGTH_MAX:
        raise _problem(place, f"this is no invitation: it is one word that begins with {PREFIX}")
    if len(body) % 4 == 1:  # no base64 has this length: the last character stands for less than a byte
        body = body[:-1]
    packed = urlsafe_b64decode(body + "=" * (-len(body) % 4))
    if len(packed) < _HEAD.size:
        raise _problem(place, f"the invitation was cut: it has {len(text)} characters")
    return packed


def _problem(place: str, problem: str) -> ConfigError:
    return ConfigError(place, "", f"{problem}; copy the whole line that 'tidings security invite' printed")


def fingerprint(certificate: str) -> bytes:
    """Return the SHA-256 of a certificate in PEM."""
    try:
        return sha256(PEM_cert_to_DER_cert(certificate)).digest()
    except ValueError:
        raise UserError("the certificate of the authority is no PEM") from None


def moment_text(seconds: float) -> str:
    """Return a time for people."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
