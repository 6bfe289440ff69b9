"""For tests: a certificate authority that issues whatever is asked for, good or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS = ("localhost", "127.0.0.1")
DAY = timedelta(days=1)


class Authority:
    """A CA, and the files of what it has issued."""

    def __init__(self, name: str = "a test") -> None:
        self.key = _key(f"ca of {name}")
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {name}")])
        now = datetime.now(UTC)
        builder = _builder(self.name, self.name, self.key, now - DAY, now + 3650 * DAY)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def write_ca(self, file: Path) -> Path:
        file.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return file

    def issue(
        self,
        cert: Path,
        name: str,
        hosts: tuple[str, ...] = (),
        days: tuple[float, float] = (-1, 365),
    ) -> tuple[Path, Path]:
        """Write a certificate, for a node if it has hosts, and its key beside it; both files."""
        now = datetime.now(UTC)
        key = _key(f"key of {name}")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(subject, self.name, key, now + days[0] * DAY, now + days[1] * DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(authority, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        issued = builder.sign(self.key, hashes.SHA256())
        cert.write_bytes(issued.public_bytes(Encoding.PEM))
        key_file = cert.with_suffix(".key")
        key_file.touch(0o600)
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return cert, key_file


@cache
def _key(_whose: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )
