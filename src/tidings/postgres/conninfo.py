"""How the database is reached, and what may be said of that.

A conninfo stands in settings, environments and lists of processes, and is shown in errors and logs: so it may
have no password. libpq finds that in a file (`PGPASSFILE`, `~/.pgpass`), or needs none with a certificate.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidings.errors import ConfigError

CONNECT_S = 3
"""How long an attempt to connect may take."""
# So a server that has gone without a word is noticed within some ten seconds, by us and by itself.
WAYS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "application_name": "tidings",
    "client_encoding": "utf8",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SECRETS = ("password", "sslpassword")


class Conninfo:
    """A conninfo string, or a URI, as libpq reads it; ConfigError if it does not."""

    def __init__(self, text: str) -> None:
        try:
            self._parts = conninfo_to_dict(text)
        except psycopg.ProgrammingError:  # what it says may have the password in it
            problem = "is neither a conninfo string nor a URI of PostgreSQL"
            raise ConfigError("the settings", "postgres", problem) from None
        if any(self._parts.get(secret) for secret in _SECRETS):
            problem = "has a password in it, which others may see: put that into a file, see PGPASSFILE"
            raise ConfigError("the settings", "postgres", problem)

    @property
    def shown(self) -> str:
        """Which database it is."""
        parts = self._parts
        user = f"{parts['user']}@" if "user" in parts else ""
        port = f":{parts['port']}" if "port" in parts else ""
        host = parts.get("host") or parts.get("hostaddr") or ""
        return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection, on which nothing was said yet."""
        return psycopg.connect(make_conninfo("", **{**WAYS, **self._parts}), autocommit=True)

    def __repr__(self) -> str:
        return f"Conninfo({self.shown!r})"


def problem_of(error: Exception) -> str:
    """What an error of the database says, in one line; libpq never repeats a password that it was given."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__
