"""Credentials: the user of a client, and its proof.

The rule kept: a secret is in memory, in its file and inside TLS, and nowhere else. Files are read again for
each connection, so that a replaced secret or certificate is used from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidings.errors import UserError

SECRET_SIZE_MAX = 4_096
"""Bytes of a file with a password or a token."""

Secret = str | Path | None
"""A secret itself, or its file."""
CredentialsProvider = Callable[[], tuple[str, str]]
"""User and secret in the HELLO of a client."""


class Credentials:
    """Credentials of a client. `ca` is the file of trusted certificates; the default is the system's.

    `checks_host` is False if only the name in a certificate of that CA counts, whatever its owner's host.
    """

    def __init__(
        self,
        user: str | None = None,
        password: Secret = None,
        token: Secret = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        checks_host: bool = True,
    ) -> None:
        if password is not None and token is not None:
            raise UserError("a password and a token exclude each other; give one of them")
        if password is not None and not user:
            raise UserError("a password needs a user; give user=NAME")
        if key is not None and cert is None:
            raise UserError("a key needs its certificate; give cert=FILE")
        self.user = user or ""
        self.ca = _path(ca)
        self.cert = _path(cert)
        self.key = _path(key)
        self.checks_host = checks_host
        self._what = "password" if token is None else "token"
        self._given = password if token is None else token
        self._secret = ""  # as last read

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, ca={self.ca}, cert={self.cert})"  # never a secret

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a user nor a secret, certificate or CA."""
        return not (self.user or self._given or self.ca or self.cert)

    def read(self) -> None:
        """Read the secret; to be called before each connection. UserError if it can't be read."""
        given = self._given
        self._secret = _read(given, self._what) if isinstance(given, Path) else given or ""

    def says(self) -> tuple[str, str]:
        """User and secret, as last read."""
        return self.user, self._secret


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _read(file: Path, what: str) -> str:
    try:
        with file.open("rb") as opened:
            text = opened.read(SECRET_SIZE_MAX + 1).decode().strip("\r\n")
    except OSError as error:
        raise UserError(f"{file}: the {what} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file}: the {what} is no text") from None
    if not text or len(text) > SECRET_SIZE_MAX or "\n" in text:
        raise UserError(f"{file}: must hold the {what}, on one line, and nothing else")
    return text
