"""End-to-end encryption of bodies: the client encrypts them before sending and decrypts them on arrival.

    ring = Keyring.from_file("jobs.keys")
    queue = await bus.create_queue("jobs", keys=ring)

The node stores and delivers bodies that it can't read. The cipher is AES-256-GCM with a new random nonce for
each body; it encrypts the body with its content type. Queue, type and object class are in clear but bound to
it: a body that turns up elsewhere is refused like a changed one. On the wire:

    form (1 byte) | id of the key (8) | nonce (12) | encrypted content type and body | tag (16)

The rule kept: in a queue with keys every message is encrypted, also one without a body, and the client
accepts nothing else from it; so no body can be removed, or added without a key.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tidings.errors import ConfigError, DecryptionError, EventError, MissingExtra
from tidings.event import Event
from tidings.event.header import EMPTY_HEADER
from tidings.queues.dead_letters import MARKS
from tidings.queues.description import DEAD

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCRYPTED = "application/vnd.tidings.encrypted"
"""The content type of an encrypted body."""
VARIABLE = "TIDINGS_KEYS"
"""The environment variable of keys, by default."""
KEY_SIZE = 32
KEYS_MAX = 1_000
"""Keys of a ring."""
FILE_SIZE_MAX = 1 << 20
"""Bytes of a file of keys."""
PLAIN_SIZE_MAX = (1 << 31) - 1
"""Bytes that the cipher encrypts at once; a queue takes much less."""

_FORM = b"\x01"
_ID_SIZE = 8
_NONCE_SIZE = 12
_TAG_SIZE = 16
_HEAD_SIZE = len(_FORM) + _ID_SIZE
_OTHERS = 0o077  # what a file may allow to its owner's group and to all others

_inside = msgspec.msgpack.Decoder(tuple[str | None, bytes | None])


def generate_key() -> str:
    """Return a new key for a file or the environment: 32 random bytes in base64."""
    return b64encode(os.urandom(KEY_SIZE)).decode()


class Keyring:
    """Keys, each with an id that is derived from it: the last one encrypts, all decrypt.

    Raises ConfigError if there is none, or one is not as of `generate_key`; the error never shows a key.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._ciphers = _read_keys("keys", ((f"key {count}", key) for count, key in enumerate(keys, 1)))

    @classmethod
    def _of(cls, ciphers: dict[bytes, AESGCM]) -> Keyring:
        ring = cls.__new__(cls)
        ring._ciphers = ciphers
        return ring

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Keyring:
        """Read keys from a file that only its owner may read, one per line; `#` begins a comment."""
        try:
            with Path(path).open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(FILE_SIZE_MAX + 1)
        except OSError as error:
            raise ConfigError(str(path), "", f"can't be read: {error.strerror}") from None
        if mode & _OTHERS:
            raise ConfigError(str(path), "", f"others may use it (mode {mode & 0o777:o}); chmod 600")
        if len(text) > FILE_SIZE_MAX:
            raise ConfigError(str(path), "", f"has more than {FILE_SIZE_MAX} bytes")
        return cls._of_lines(str(path), text.decode(errors="replace"))

    @classmethod
    def from_environment(cls, variable: str = VARIABLE) -> Keyring:
        """Read keys from an environment variable, one per line."""
        return cls._of_lines(variable, os.environ.get(variable, ""))

    @classmethod
    def _of_lines(cls, place: str, text: str) -> Keyring:
        lines = ((count, line.partition("#")[0].strip()) for count, line in enumerate(text.split("\n"), 1))
        return cls._of(_read_keys(place, ((f"{place}, line {count}", line) for count, line in lines if line)))

    @property
    def ids(self) -> list[str]:
        """The ids of the keys, in hexadecimal, the one that encrypts last."""
        return [identity.hex() for identity in self._ciphers]

    def __or__(self, other: Keyring) -> Keyring:
        """The keys of both; the last one of the other encrypts."""
        mine = {key: cipher for key, cipher in self._ciphers.items() if key not in other._ciphers}
        return self._of(mine | other._ciphers)

    def __repr__(self) -> str:
        return f"<Keyring {' '.join(self.ids)}>"

    def encrypt(self, plain: bytes, about: bytes) -> bytes:
        """Encrypt with the last key, bound to the given data."""
        identity, cipher = next(reversed(self._ciphers.items()))
        head, nonce = _FORM + identity, os.urandom(_NONCE_SIZE)
        return head + nonce + cipher.encrypt(nonce, plain, head + about)

    def decrypt(self, queue: str, encrypted: bytes, about: bytes) -> bytes:
        """Decrypt; DecryptionError, with the name of the queue, if anything was changed."""
        head, rest = encrypted[:_HEAD_SIZE], encrypted[_HEAD_SIZE:]
        if len(rest) < _NONCE_SIZE + _TAG_SIZE or not head.startswith(_FORM):
            raise DecryptionError(queue, None, "the body is cut short, or of a form that is not known here")
        identity = head[len(_FORM) :]
        cipher = self._ciphers.get(identity)
        if cipher is None:
            raise DecryptionError(queue, identity.hex(), "the ring does not have this key")
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(rest[:_NONCE_SIZE], rest[_NONCE_SIZE:], head + about)
        except InvalidTag:
            problem = "the body was changed, or encrypted for another queue, type or object class"
            raise DecryptionError(queue, identity.hex(), problem) from None


class QueueKeys:
    """A key ring as one queue uses it; `queue` is its own name, not an alias."""

    def __init__(self, ring: Keyring, queue: str) -> None:
        self._ring = ring
        self._queue = queue

    def encrypt(self, event: Event) -> Event:
        """Return the event encrypted."""
        plain = msgspec.msgpack.encode((event.content_type, event.body))
        if len(plain) > PLAIN_SIZE_MAX:
            raise EventError("$.body", f"more than {PLAIN_SIZE_MAX} bytes can't be encrypted")
        header = replace(event.header or EMPTY_HEADER, content_type=ENCRYPTED)
        body = self._ring.encrypt(plain, _about(self._queue, event))
        return replace(event, header=header, body=body)

    def decrypt(self, event: Event) -> Event:
        """Return the event decrypted; DecryptionError if it is not encrypted, or can't be decrypted."""
        queue = self._origin(event)
        if event.content_type != ENCRYPTED or event.body is None:
            raise DecryptionError(queue, None, "the message is not encrypted")
        plain = self._ring.decrypt(queue, event.body, _about(queue, event))
        try:
            content_type, body = _inside.decode(plain)
        except msgspec.DecodeError as error:
            raise DecryptionError(queue, None, f"no body is in it: {error}") from None
        header = replace(event.header or EMPTY_HEADER, content_type=content_type)
        return replace(event, header=header, body=body)

    def _origin(self, event: Event) -> str:
        """The queue it was put into: a dead letter says which that was, and can't lie about it."""
        return str(event.values.get(MARKS[0], DEAD)) if self._queue == DEAD else self._queue


def _about(queue: str, event: Event) -> bytes:
    """Return the data that a body is bound to."""
    return msgspec.msgpack.encode((queue, event.type, event.object_class))


def _read_keys(place: str, keys: Iterable[tuple[str, str]]) -> dict[bytes, AESGCM]:
    """The ciphers of keys, each given with where it stands; one that is given twice stands at the end."""
    ciphers: dict[bytes, AESGCM] = {}
    for at, text in keys:
        key = _read_key(at, text)
        identity = sha256(b"tidings key id\0" + key).digest()[:_ID_SIZE]
        ciphers.pop(identity, None)
        ciphers[identity] = _cipher(key)
        if len(ciphers) > KEYS_MAX:
            raise ConfigError(place, "", f"a ring has at most {KEYS_MAX} keys")
    if not ciphers:
        raise ConfigError(place, "", "there is no key")
    return ciphers


def _read_key(place: str, text: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigError(place, "", f"is no key: {KEY_SIZE} bytes in base64")
    return key


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra("encrypted bodies", "encryption") from None
    return AESGCM(key)
