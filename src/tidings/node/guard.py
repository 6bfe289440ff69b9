"""Who is let in at a node with security: its users, rules and certificates, as they lie in a directory.

They are read at the start, where a mistake is the end of it; and again on SIGHUP and when a file has changed,
where a mistake is logged, once for each change, and all stays as it was.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from tidings.errors import ConfigError
from tidings.node import logs
from tidings.security.directory import SecurityDirectory
from tidings.security.gate import Watchman
from tidings.security.rules import Rules
from tidings.security.users import User
from tidings.transport.tls import NodeContext, node_context, port_context


class Guard:
    """The gate and the TLS of a node, from one directory; ConfigError if anything in it is wrong."""

    def __init__(self, directory: Path, now: float) -> None:
        self._files = SecurityDirectory(directory)
        self._seen = self._files.signature()
        self._day = _day(now)
        users, rules, self._context = self._read()
        self._port: NodeContext | None = None
        self.gate = Watchman(users, rules)

    def open(self, room: Callable[[], int], on_failure: Callable[[], None]) -> NodeContext:
        """What the node's port is opened with; see `NodeContext`."""
        self._port = port_context(self._context, room, on_failure)
        return self._port

    def look(self, now: float) -> bool | None:
        """Read all again if a file has changed; whether that went well, None if there was nothing to read.

        Tokens end at the end of a day, so all is read again then, too.
        """
        is_changed = self._files.signature() != self._seen or _day(now) != self._day
        return self.reload(now) if is_changed else None

    def reload(self, now: float) -> bool:
        """Read all again, and go by it from now on; if that can't be, it is logged and nothing changes."""
        self._seen, self._day = self._files.signature(), _day(now)
        try:
            users, rules, context = self._read()
        except ConfigError as error:
            logs.error("security could not be read again", problem=str(error))
            return False
        self.gate.reload(users, rules, now)
        if self._port is not None:
            self._port.current = context
        logs.info("security was read again", users=len(users))
        return True

    def _read(self) -> tuple[dict[str, User], Rules, ssl.SSLContext]:
        files = self._files
        users, rules = files.load()
        return users, rules, node_context(files.ca, files.certificate, files.key)


def _day(now: float) -> date:
    return datetime.fromtimestamp(now, UTC).date()
