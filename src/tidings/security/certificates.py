"""Certificates of a small authority of one's own: for nodes, for clients, and for itself.

Keys are on the curve P-256. Every certificate has the extensions that strict verification asks for (RFC 5280:
basic constraints, key usage, the identifiers of its own key and of its issuer's). The common name of its
subject is the node or user that shows it.

Import this module only where it is needed: it is built on the `security` extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Self

from msgspec import Struct

from tidings.errors import ConfigError, MissingExtra, UserError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import (
        SECP256R1,
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
        generate_private_key,
    )
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingExtra("making certificates", "security") from None

AUTHORITY_LIFE = timedelta(days=3650)
LIFE = timedelta(days=730)
"""Validity of the certificates of nodes and clients."""
EARLY = timedelta(days=1)
"""A certificate is valid from so long before it was made, for clocks that are behind."""
NAME_LENGTH_MAX = 64
"""Characters of a common name."""
HOSTS = ("localhost", "127.0.0.1", "::1")
"""Hosts by which every node can be reached from its own machine."""
HOSTS_MAX = 100
"""Further names and addresses of a node."""

_HOST = re.compile(r"(\*\.)?([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}", re.ASCII)


class Issued(Struct, frozen=True):
    """A certificate and its key, both as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "<Issued>"


class Certificate(Struct, frozen=True):
    """Contents of a certificate."""

    name: str
    hosts: list[str]
    issuer: str
    since: datetime
    until: datetime
    is_authority: bool

    def problem(self, now: datetime) -> str | None:
        """Return why it is not valid at this time, None if it is."""
        if now > self.until:
            return f"the certificate of {self.name!r} has expired on {self.until:%Y-%m-%d}"
        if now < self.since:
            return f"the certificate of {self.name!r} is good from {self.since:%Y-%m-%d}: is the clock right?"
        return None


class CertificateRequest(Struct, frozen=True):
    """Request for a certificate: the name it asks for, and a key that its sender has shown to have."""

    name: str
    key: EllipticCurvePublicKey

    @property
    def key_digest(self) -> str:
        """Return the SHA-256 of the key, in hexadecimal."""
        public = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return sha256(public).hexdigest()


class Authority:
    """Authority that issues certificates."""

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, now: datetime) -> Self:
        """Make a new one, with a unique name."""
        key, serial = make_key(), x509.random_serial_number()
        name = _name(f"tidings CA {serial % (1 << 32):08x}")
        builder = _builder(name, key.public_key(), now, now + AUTHORITY_LIFE, is_authority=True)
        builder = builder.serial_number(serial).issuer_name(name)
        return cls(builder.sign(key, SHA256()), key)

    @classmethod
    def read(cls, certificate: str, key: str, place: str) -> Self:
        """Read an existing one; ConfigError, with the place, if these are not its certificate and key."""
        if not describe(certificate, place).is_authority:
            raise ConfigError(place, "", "the certificate is not one of an authority")
        check_pair(certificate, key, place)
        return cls(_load_certificate(certificate, place), read_key(key, place))

    @property
    def pem(self) -> Issued:
        """Return its own certificate and key."""
        return _issued(self._certificate, self._key)

    def issue_node(
        self, name: str, hosts: Iterable[str], now: datetime, key: EllipticCurvePrivateKey | None = None
    ) -> Issued:
        """Issue a certificate for a node with these names and addresses, and those of its own machine.

        It is valid for connecting to other nodes as well. UserError for an invalid host. A certificate that
        replaces another may be for the same key.
        """
        key = key or make_key()
        return _issued(self._issue(name, now, key.public_key(), *_of_node(hosts)), key)

    def sign_node(self, name: str, hosts: Iterable[str], request: CertificateRequest, now: datetime) -> str:
        """Issue the same for a key that stays elsewhere; of the request nothing counts but its key."""
        issued = self._issue(name, now, request.key, *_of_node(hosts))
        return issued.public_bytes(Encoding.PEM).decode()

    def issue_client(self, user: str, now: datetime) -> Issued:
        """Issue a certificate for a client with this user."""
        key, purpose = make_key(), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return _issued(self._issue(user, now, key.public_key(), purpose), key)

    def _issue(
        self, name: str, now: datetime, key: EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        issuer = self._certificate
        until = min(now + LIFE, issuer.not_valid_after_utc)
        builder = _builder(_name(name), key, now, until, is_authority=False)
        builder = builder.serial_number(x509.random_serial_number()).issuer_name(issuer.subject)
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (above, *extensions):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, SHA256())


def make_key() -> EllipticCurvePrivateKey:
    """Return a new key."""
    return generate_private_key(SECP256R1())


def key_text(key: EllipticCurvePrivateKey) -> str:
    """Return a key as PEM; it is secret."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def make_request(name: str, key: EllipticCurvePrivateKey) -> str:
    """Return a request for a certificate of this name, as PEM."""
    signed = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, SHA256())
    return signed.public_bytes(Encoding.PEM).decode()


def read_request(text: str) -> CertificateRequest:
    """Read a request; UserError if it is none, or its sender has not the key that it names."""
    try:
        request = x509.load_pem_x509_csr(text.encode())
        is_right, key = request.is_signature_valid, request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise UserError("the request is no certificate request in PEM; join again") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1) or not is_right:
        raise UserError("the request is not signed by a key of the kind P-256; join again")
    return CertificateRequest(_common_name(request.subject), key)


def describe(certificate: str, place: str) -> Certificate:
    """Return the contents of a certificate; ConfigError, with the place, if it is none."""
    loaded = _load_certificate(certificate, place)
    try:
        constraints = loaded.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = x509.BasicConstraints(ca=False, path_length=None)
    return Certificate(
        _common_name(loaded.subject),
        _hosts_of(loaded),
        _common_name(loaded.issuer),
        loaded.not_valid_before_utc,
        loaded.not_valid_after_utc,
        constraints.ca,
    )


def read_key(text: str, place: str) -> EllipticCurvePrivateKey:
    """Read a key of the kind that is made here; ConfigError, with the place, if it is none."""
    key = _load_key(text, place)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError(place, "", "is a key of another kind than P-256")
    return key


def check_pair(certificate: str, key: str, place: str) -> None:
    """Raise ConfigError if the key is not that of the certificate."""
    if _load_certificate(certificate, place).public_key() != _load_key(key, place).public_key():
        raise ConfigError(place, "", "the key is not that of the certificate")


def check_issuer(certificate: str, authority: str, place: str) -> None:
    """Raise ConfigError if a certificate was not issued by this authority."""
    try:
        _load_certificate(certificate, place).verify_directly_issued_by(_load_certificate(authority, place))
    except (ValueError, TypeError, InvalidSignature):
        raise ConfigError(place, "", "was not issued by the authority in ca.pem") from None


def _of_node(hosts: Iterable[str]) -> tuple[x509.ExtensionType, ...]:
    """Return the purposes of a node's certificate, and its hosts with those of its own machine."""
    names = list(dict.fromkeys([*hosts, *HOSTS]))
    if len(names) > HOSTS_MAX + len(HOSTS):
        raise UserError(f"a certificate has at most {HOSTS_MAX} names and addresses")
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return x509.ExtendedKeyUsage(purposes), x509.SubjectAlternativeName(map(_host, names))


def _builder(
    name: x509.Name, public: EllipticCurvePublicKey, now: datetime, until: datetime, is_authority: bool
) -> x509.CertificateBuilder:
    """Return the common part of all certificates; the issuer is still to be set."""
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(public)
        .not_valid_before(now - EARLY)
        .not_valid_after(until)
        .add_extension(constraints, critical=True)
        .add_extension(_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise UserError(f"the name in a certificate has 1 to {NAME_LENGTH_MAX} characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    """Return a name or an address of a node."""
    try:
        address = ip_address(host)
    except ValueError:
        if _HOST.fullmatch(host) and len(host) <= 253 and not host.replace(".", "").isdigit():
            return x509.DNSName(host)
        raise UserError(f"{host!r} is neither the name of a host nor an IP address") from None
    if address.is_unspecified:
        raise UserError(f"{host} means all addresses of a machine: name those under which others reach it")
    return x509.IPAddress(address)


def _hosts_of(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _issued(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> Issued:
    return Issued(certificate.public_bytes(Encoding.PEM).decode(), key_text(key))


def _load_certificate(text: str, place: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise ConfigError(place, "", "is no certificate") from None


def _load_key(text: str, place: str) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(place, "", "is no key, or one with a password") from None
