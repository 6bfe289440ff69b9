"""For tests: the security directory of a node, with users whose secrets are known here."""

from __future__ import annotations

import os
from pathlib import Path

from node.authority import HOSTS, Authority

from tidings.security.passwords import Cost, hash_token, make_password, make_token

PASSWORD = "correct horse"
CHEAP = Cost(n=1 << 10)
TOKEN = make_token(os.urandom)
"""Of the user `device`, who may publish only."""
USERS = f"""
ada password {make_password(PASSWORD, os.urandom, CHEAP)}
device token first sha256:{hash_token(TOKEN)}
bob certificate
"""
ACCESS = """
[[allow]]
users = ["ada", "bob"]
actions = ["publish", "subscribe", "put", "get", "manage"]

[[allow]]
users = ["device"]
actions = ["publish"]
"""


class Secured:
    """A security directory, and clients' files beside it."""

    def __init__(self, home: Path, days: tuple[float, float] = (-1, 365)) -> None:
        self.home = home
        self.path = home / "security"
        self.path.mkdir(mode=0o700)
        self.authority = Authority()
        self.ca = self.authority.write_ca(self.path / "ca.pem")
        self.authority.issue(self.path / "node.pem", "kitchen", HOSTS, days)
        self.write_users(USERS)
        self.write_access(ACCESS)

    def write_users(self, text: str) -> None:
        self._write("users", text)

    def write_access(self, text: str) -> None:
        self._write("access.toml", text)

    def _write(self, name: str, text: str) -> None:
        """As an editor does that is careful: the file is never half there."""
        aside = self.home / f"{name}.new"
        aside.touch(0o600)
        aside.write_text(text)
        aside.replace(self.path / name)

    def client(
        self, name: str, days: tuple[float, float] = (-1, 365), authority: Authority | None = None
    ) -> dict[str, Path]:
        """The options of a client that has a certificate."""
        cert, key = (authority or self.authority).issue(self.home / f"{name}.pem", name, (), days)
        return {"ca": self.ca, "cert": cert, "key": key}
