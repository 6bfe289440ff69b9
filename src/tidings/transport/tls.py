"""TLS at both ends, and texts for its errors.

A node shows its certificate, and a client checks that a trusted authority has issued it for the host that was
dialled. A client may show one as well. If the node refuses that, it sends an alert of TLS; asyncio and uvloop
close a connection whose handshake has failed before the alert is sent, so `Handshake` sends it first.
"""

from __future__ import annotations

import contextlib
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakSet

from tidings.errors import ConfigError, Disconnected, NotAllowed, TidingsError
from tidings.protocol.frames import encode
from tidings.protocol.messages import Bye, Hello

HANDSHAKE = 0x16
"""First byte of a client that speaks TLS."""
NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name."""
SPEAKS_TLS = "this port speaks TLS; use tidings+tls://"
SPEAKS_NO_TLS = "this port does not speak TLS; use tidings://"

PeerCertificate = dict[str, Any]
"""Certificate as returned by `getpeercert`."""
_HOST, _ADDRESS, _EXPIRED, _NOT_YET = 62, 64, 10, 9  # verify codes of OpenSSL
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_REFUSALS = {
    "CERTIFICATE_EXPIRED": "it has expired",
    "CERTIFICATE_REVOKED": "it was revoked",
    "UNKNOWN_CA": "it was not issued by the CA of the node",
    "BAD_CERTIFICATE": "there is something wrong with it",
    "CERTIFICATE_UNKNOWN": "there is something wrong with it",
    "UNSUPPORTED_CERTIFICATE": "it is not one for clients",
    "DECRYPT_ERROR": "the key does not belong to it",
    "CERTIFICATE_REQUIRED": "there is none",
    "ACCESS_DENIED": "it has no access",
}


# Clients


def client_context(
    ca: Path | None, cert: Path | None, key: Path | None, checks_host: bool = True
) -> ssl.SSLContext:
    """Return the TLS context of a client, which verifies the node; ConfigError if a file is invalid.

    Without `checks_host` any node of that CA will do, and the caller checks its name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host or ca is None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is None:
        context.load_default_certs()
    else:
        _trust(context, ca)
    if cert is not None:
        _show(context, cert, key)
    return context


def looking_context(ca: Path | None) -> ssl.SSLContext:
    """Return a context for reading a certificate that was refused for its dates or its host, and no more."""
    context = client_context(ca, None, None)
    context.check_hostname = False
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | NO_CHECK_TIME)
    return context


def unverified_context() -> ssl.SSLContext:
    """Return a context for reading the certificates that a node shows; nothing may be sent to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def shown_chain(found: ssl.SSLObject) -> list[str]:
    """Return the certificates that the other end has shown, as PEM: its own first, unverified."""
    if sys.version_info >= (3, 13):
        chain = found.get_unverified_chain()
    else:  # the same call, before it had a public name
        shown = found._sslobj.get_unverified_chain() or ()  # type: ignore[attr-defined]
        chain = [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in shown]
    return [ssl.DER_cert_to_PEM_cert(one) for one in chain]


def can_be_looked_at(error: ssl.SSLError) -> bool:
    """Whether reading the certificate would show more: its dates, or its hosts."""
    return getattr(error, "verify_code", 0) in (_HOST, _ADDRESS, _EXPIRED, _NOT_YET)


def dial_verdict(
    error: ssl.SSLError, host: str, ca: Path | None, shown: PeerCertificate | None
) -> TidingsError | None:
    """Return why a handshake has failed, if another would fail as well; `shown` is the node's certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotAllowed(_distrust(error, host, ca, shown or {}))
    if _reason(error) in _NO_TLS:
        return Disconnected(SPEAKS_NO_TLS)
    return alert_verdict(error)


def alert_verdict(error: ssl.SSLError) -> TidingsError | None:
    """Return the error of a node's alert, if another attempt would get the same one."""
    for reason, problem in _REFUSALS.items():
        if _reason(error).endswith(f"ALERT_{reason}"):
            return NotAllowed(f"the node does not take this client's certificate: {problem}")
    if _reason(error) == "TLSV1_ALERT_PROTOCOL_VERSION":
        return Disconnected("the node and this client have no version of TLS in common")
    return None


def _reason(error: ssl.SSLError) -> str:
    return getattr(error, "reason", None) or ""  # only errors of OpenSSL have one


def _distrust(error: ssl.SSLCertVerificationError, host: str, ca: Path | None, shown: PeerCertificate) -> str:
    """Return why the node's certificate is not trusted."""
    match error.verify_code:
        case code if code in (_HOST, _ADDRESS):
            names = ", ".join(name for _, name in shown.get("subjectAltName", ())) or "other hosts"
            return f"the certificate of the node is not for {host}; it is for {names}"
        case code if code == _EXPIRED:
            return f"the certificate of the node{_named(shown)} has expired{_since(shown, 'notAfter')}"
        case code if code == _NOT_YET:
            return f"the certificate of the node{_named(shown)} is not valid yet{_since(shown, 'notBefore')}"
        case 2 | 18 | 19 | 20 | 21 if ca is not None:
            return f"the node's certificate was not issued by the CA in {ca}"
        case 2 | 18 | 19 | 20 | 21:
            problem = "the node's certificate was issued by no CA that this system knows"
            return f"{problem}; give that CA with --ca FILE, in Python with ca="
        case _:
            return f"the certificate of the node is not trusted: {error.verify_message}"


def _named(shown: PeerCertificate) -> str:
    name = common_name(shown)
    return "" if name is None else f" {name!r}"


def _since(shown: PeerCertificate, key: str) -> str:
    if key not in shown:
        return ""
    moment = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown[key]), UTC)
    return f" ({'since' if key == 'notAfter' else 'until'} {moment:%Y-%m-%d %H:%M} UTC)"


# Nodes


class Handshake(ssl.SSLObject):
    """Handshake of one connection of a node, which sends the reason of a failure before it ends."""

    door: NodeContext
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    is_one_too_many = False
    _has_begun = False
    _has_failed = False

    def do_handshake(self) -> None:
        """Called by the loop until it raises no SSLWantReadError; after that error, it sends and waits."""
        if self._has_failed or self.is_one_too_many:
            raise ssl.SSLError("this handshake has failed")
        self._begin()
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLCertVerificationError:
            self._part()
        except ssl.SSLError:
            self._end()
            raise
        self.door.under_way.discard(self)

    def _begin(self) -> None:
        """Check the first bytes: a client without TLS is advised to use it, others are disconnected."""
        if self._has_begun or not self.incoming.pending:
            return
        self._has_begun = True
        first = self.incoming.read()
        self.incoming.write(first)
        if first[0] != HANDSHAKE:
            if first[0] or first[4:5] != bytes((Hello.KIND,)):
                self._end()
                raise ssl.SSLError("this is no TLS")
            self.outgoing.write(encode(Bye("protocol", SPEAKS_TLS)))
            self._part()

    def _part(self) -> None:
        """Send pending output. The client then closes, or the time limit of handshakes ends it."""
        self._has_failed = True
        self.door.on_failure()
        raise ssl.SSLWantReadError

    def _end(self) -> None:
        """Let the loop close the connection, as there is nothing to send."""
        self._has_failed = True
        self.door.on_failure()
        self.door.under_way.discard(self)


class NodeContext(ssl.SSLContext):
    """TLS context of a node's port; each connection gets the one that was set last, so it can be replaced.

    `room` returns how many handshakes there may be at a time; `on_failure` is called for each that fails.
    """

    current: ssl.SSLContext
    room: Callable[[], int]
    on_failure: Callable[[], None]
    under_way: WeakSet[Handshake]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> Handshake:
        """Called by the loop for each new connection."""
        made = self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, Handshake)
        made.door, made.incoming, made.outgoing = self, incoming, outgoing
        made.is_one_too_many = len(self.under_way) >= self.room()
        if not made.is_one_too_many:
            self.under_way.add(made)
        return made


def node_context(ca: Path, cert: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a node, which accepts certificates of our CA; ConfigError for a bad file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed connection would not be checked again.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.sslobject_class = Handshake
    _show(context, cert, key)
    _trust(context, ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def port_context(
    current: ssl.SSLContext, room: Callable[[], int], on_failure: Callable[[], None]
) -> NodeContext:
    """Return the context to open a port with; see `NodeContext`."""
    context = NodeContext(ssl.PROTOCOL_TLS_SERVER)
    context.current, context.room, context.on_failure = current, room, on_failure
    context.under_way = WeakSet()
    return context


def own_certificate(cert: Path, key: Path) -> PeerCertificate:
    """Return the contents of a node's certificate, whatever its issuer.

    Python decodes only a certificate that another end has shown, so it is shown to ourselves.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _show(context, cert, key)
    looking = looking_context(cert)
    looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it stands for itself
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, node = looking.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
    try:
        for end in (client, node, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or _reason(error)
        raise ConfigError(str(cert), "", f"is no certificate of a node: {reason}") from None
    return client.getpeercert() or {}


def expires_at(shown: PeerCertificate) -> float:
    """Return when a certificate expires, in seconds since 1970."""
    return float(ssl.cert_time_to_seconds(shown["notAfter"]))


def common_name(shown: PeerCertificate | None) -> str | None:
    """Return the name in a certificate, None if there is none or several."""
    subject = (shown or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


# Files


def _trust(context: ssl.SSLContext, ca: Path) -> None:
    _check_readable(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise ConfigError(str(ca), "", "holds no certificate of a CA in PEM") from None


def _show(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    _check_readable(cert)
    if key is not None:
        _check_readable(key)
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        where = "the same file" if key is None else str(key)
        if _reason(error) == "KEY_VALUES_MISMATCH":
            raise ConfigError(str(cert), "", f"the key in {where} belongs to another certificate") from None
        raise ConfigError(str(cert), "", f"no certificate in PEM, or no key of it in {where}") from None


def _check_readable(file: Path) -> None:
    try:
        file.open("rb").close()
    except OSError as error:
        raise ConfigError(str(file), "", f"can't be read: {error.strerror}") from None
