"""Security directories for tests, made cheaply: their passwords cost little to check."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from tidings.security.directory import SecurityDirectory
from tidings.security.passwords import Cost, Password, make_password
from tidings.security.provision import Admin, make_security

CHEAP = Cost(1 << 10, 1, 1)
SECRET = "correct horse battery"
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def cheap(secret: str = SECRET) -> Password:
    return make_password(secret, os.urandom, CHEAP)


def made(path: Path, node: str = "kitchen", *hosts: str) -> SecurityDirectory:
    make_security(path, node, hosts or ("10.0.0.7",), Admin("admin", cheap()), os.urandom, NOW)
    return SecurityDirectory(path)
