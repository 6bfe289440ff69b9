"""Signatures by the key of a node's certificate, which travel with the certificate itself.

A signature is checked without asking anybody: the certificate beside it was issued by the authority of this
node, for the node that is to have signed. So a message can pass through strangers. The clocks of two nodes
may differ by TOLERANCE.

Import this module only where it is needed: it is built on the `security` extra.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tidings.errors import ConfigError, MissingExtra
from tidings.security.certificates import read_key
from tidings.security.directory import SecurityDirectory

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingExtra("signing", "security") from None

PURPOSE = b"tidings host signature 1\0"
"""What is signed begins with this, so that no signature can be taken for one of another kind."""
CERTIFICATE_SIZE_MAX = 4_096
SIGNATURE_SIZE_MAX = 128
KNOWN_MAX = 1_000
"""Certificates that are remembered as checked."""
TOLERANCE = timedelta(days=1)
"""How far a clock may be off when it is asked whether a certificate is valid."""


class Signature(Struct, frozen=True, array_like=True):
    """A certificate as DER, and what its key has signed."""

    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_SIZE_MAX)]
    signature: Annotated[bytes, Meta(max_length=SIGNATURE_SIZE_MAX)]


_decoder = msgspec.msgpack.Decoder(Signature)


class CertificateProofs:
    """Signs as a node, and verifies what other nodes of its authority have signed.

    `clock` returns the time in seconds since 1970. ConfigError if a file can't be used.
    """

    def __init__(self, files: SecurityDirectory, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self.reload()

    def reload(self) -> None:
        """Read the certificates and the key again."""
        files = self._files
        try:
            self._key = read_key(files.key.read_text(), str(files.key))
            own = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            self._authorities = x509.load_pem_x509_certificates(files.ca.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(str(files.path), "", f"can't be used for signatures: {error}") from None
        self._own = own.public_bytes(Encoding.DER)
        self._known: dict[bytes, _Signer | None] = {}

    def sign(self, data: bytes) -> bytes:
        """Sign as this node."""
        signature = self._key.sign(PURPOSE + data, ECDSA(SHA256()))
        return msgspec.msgpack.encode(Signature(self._own, signature))

    def verify(self, host: str, data: bytes, proof: bytes) -> bool:
        """Whether the node of this name has signed these bytes."""
        try:
            found = _decoder.decode(proof)
        except msgspec.MsgspecError:
            return False
        signer = self._signer(found.certificate)
        if signer is None or signer.name != host or not signer.is_valid(self._clock()):
            return False
        try:
            signer.key.verify(found.signature, PURPOSE + data, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True

    def _signer(self, certificate: bytes) -> _Signer | None:
        """Return the node of a certificate, None if our authority has issued it for no node."""
        digest = sha256(certificate).digest()
        if digest not in self._known:
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[digest] = self._look_at(certificate)
        return self._known[digest]

    def _look_at(self, certificate: bytes) -> _Signer | None:
        try:
            loaded = x509.load_der_x509_certificate(certificate)
            names = loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key = loaded.public_key()
            purposes = loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension):
            return None
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            return None
        if len(names) != 1 or ExtendedKeyUsageOID.SERVER_AUTH not in purposes:  # that of a user
            return None
        if not any(_is_issued(loaded, authority) for authority in self._authorities):
            return None
        span = loaded.not_valid_before_utc, loaded.not_valid_after_utc
        return _Signer(str(names[0].value), key, *span)


class _Signer(Struct, frozen=True):
    """A node whose certificate was checked."""

    name: str
    key: EllipticCurvePublicKey
    since: datetime
    until: datetime

    def is_valid(self, wall: float) -> bool:
        now = datetime.fromtimestamp(wall, UTC)
        return self.since - TOLERANCE <= now <= self.until + TOLERANCE


def _is_issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
