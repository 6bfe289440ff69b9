"""The security directory of a node: its users, its rules, and its own certificate.

    ca.pem       the authority that has issued all certificates       ca.key     secret; may be kept elsewhere
    node.pem     the node's own certificate                            node.key   secret
        users        users and credentials: secret, see `users`
        access.toml  rules: see `rules`
        invitations  nodes that may join: secret, see `invitations`; may be missing
        peers        nodes that have joined: see `known_nodes`; may be missing

Secret files may be readable by their owner only, and none may be writable by others; else they are refused,
with the command that mends it.

Commands change the files while a node reads them. A file is written anew beside the old one and takes its
place when it is on the disk, so a reader sees the old or the new. One command at a time changes a
directory.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidings.errors import ConfigError
from tidings.locks import lock
from tidings.security.invitations import Invitation, read_invitations
from tidings.security.rules import Rules, read_rules
from tidings.security.users import User, UserLines, read_users
from tidings.store.directory import sync_directory

FILE_SIZE_MAX = 16 << 20
"""Bytes of a file that is read."""
VARIABLE = "TIDINGS_SECURITY"
"""Variable of the environment with the directory."""
SECRET, OPEN = 0o600, 0o644
"""Modes of files."""

_USE = 0o077  # permissions of group and others in a mode
_WRITE = 0o022

Signature = tuple[tuple[int, ...] | None, ...]


class SecurityDirectory:
    """Files of a directory; nothing is read before `load`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.ca = self.path / "ca.pem"
        self.ca_key = self.path / "ca.key"
        self.certificate = self.path / "node.pem"
        self.key = self.path / "node.key"
        self.users = self.path / "users"
        self.access = self.path / "access.toml"
        self.invitations = self.path / "invitations"
        self.peers = self.path / "peers"

    def signature(self) -> Signature:
        """Return a value that changes with any file or its permissions: six calls of the system."""
        files = (self.ca, self.certificate, self.key, self.users, self.access, self.invitations)
        return tuple(_stamp(file) for file in files)

    def load(self) -> tuple[dict[str, User], Rules]:
        """Read the users and the rules; ConfigError for the first file that is invalid, or not kept safe."""
        self.check()
        users = self.load_users()
        text = read_text(self.access, is_secret=False)
        return users, read_rules(text, str(self.access), users)

    def load_users(self) -> dict[str, User]:
        """Read the users alone."""
        return read_users(read_text(self.users), str(self.users))

    def load_invitations(self) -> dict[str, Invitation]:
        """Read the invitations; none without a file."""
        if not self.invitations.exists():
            return {}
        return read_invitations(read_text(self.invitations), str(self.invitations))

    def check(self) -> None:
        """Refuse files that others may use, and missing ones."""
        check_directory(self.path)
        for file in (self.ca, self.certificate):
            read_text(file, is_secret=False)
        read_text(self.key)
        if self.ca_key.exists():
            read_text(self.ca_key)


def check_directory(path: Path) -> None:
    """Refuse a directory that is missing, or that others may use."""
    try:
        found = path.stat()
    except OSError as error:
        hint = "; 'tidings security init' makes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(str(path), "", f"can't be read: {error.strerror}{hint}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(str(path), "", "is no directory")
    _check_mode(path, found, _USE, "700")


def read_text(path: Path, is_secret: bool = True) -> str:
    """Read a file; ConfigError if others may write it, or read it though it is secret."""
    try:
        with path.open("rb") as file:
            found, content = os.fstat(file.fileno()), file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(str(path), "", f"can't be read: {error.strerror}") from None
    _check_mode(path, found, *((_USE, "600") if is_secret else (_WRITE, "644")))
    if len(content) > FILE_SIZE_MAX:
        raise ConfigError(str(path), "", f"has more than {FILE_SIZE_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError(str(path), "", "is no text in UTF-8") from None


def _check_mode(path: Path, found: os.stat_result, forbidden: int, wanted: str) -> None:
    mode, me = stat.S_IMODE(found.st_mode), os.geteuid()
    if mode & forbidden:
        raise ConfigError(str(path), "", f"others may use it (mode {mode:o}); chmod {wanted} {path}")
    if me and found.st_uid not in (me, 0):  # root may read for others what is theirs
        raise ConfigError(str(path), "", "belongs to another user of this machine")


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@contextmanager
def edited(directory: SecurityDirectory) -> Iterator[UserLines]:
    """Yield the users file, to be changed in the block and written at its end; not if it raises."""
    with alone(directory.path):
        before = read_text(directory.users)
        lines = UserLines(before, str(directory.users))
        yield lines
        if lines.text != before:
            write_file(directory.users, lines.text)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock the directory against other commands; waits for one that has it."""
    check_directory(path)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def write_file(path: Path, text: str, mode: int = SECRET) -> None:
    """Write a file, replacing an existing one: all of it or nothing."""
    path = path.resolve()  # a link stays one
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(beside, path, text, mode)
        beside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(str(path), "", f"can't be written: {error.strerror}") from None


def write_new(path: Path, text: str) -> None:
    """Write a secret file that must not exist yet."""
    if path.exists() or path.is_symlink():
        raise ConfigError(str(path), "", "exists already, and is not overwritten")
    write_file(path, text)


def _write(beside: Path, path: Path, text: str, mode: int) -> None:
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        _keep_owner(handle, path)
        os.fchmod(handle, mode)
        file.write(text)
        file.flush()
        os.fsync(handle)


def _keep_owner(handle: int, path: Path) -> None:
    """Give a file that root writes to the owner of the old one, or of its directory, as the node reads it."""
    whose = (path if path.exists() else path.parent).stat()
    if os.geteuid() == 0 and whose.st_uid != 0:
        os.fchown(handle, whose.st_uid, whose.st_gid)
