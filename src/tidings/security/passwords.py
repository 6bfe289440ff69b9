"""Passwords and tokens, and their stored forms: nothing that could be used to log in.

A password is chosen by a person, so it is stored as scrypt makes it, which takes time and memory by intent. A
token is 32 random bytes that nobody can guess, so SHA-256 is enough, and is checked at once. No object here
shows a hash when it is printed.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from hashlib import scrypt, sha256
from hmac import compare_digest

from msgspec import Struct

SALT_SIZE = 16
HASH_SIZE = 32
TOKEN_SIZE = 32
TOKEN_PREFIX = "tdg_"
PASSWORD_LENGTH_MIN = 8
"""Characters of a password that a command accepts."""
PASSWORD_LENGTH_MAX = 1_000
SALT_SIZE_MAX = 64
N_MIN, N_MAX = 1 << 10, 1 << 17
R_MAX, P_MAX = 32, 16
MEMORY_MAX = 64 << 20
"""Bytes that one check may use, whatever a file demands."""
WORK_MAX = 1 << 19
"""N × r × p of one check; `make_password` sets 2¹⁷."""

_TOKEN = re.compile(r"tdg_[A-Za-z0-9_-]{43}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,7}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MEMORY_SPARE = 1 << 20  # needed by OpenSSL beside 128 × N × r bytes

Random = Callable[[int], bytes]
"""Returns so many random bytes."""


class Cost(Struct, frozen=True):
    """The cost of scrypt: memory and time grow with `n` and `r`, time with `p`."""

    n: int = 1 << 14
    r: int = 8
    p: int = 1

    @property
    def memory(self) -> int:
        """Bytes that one check needs."""
        return 128 * self.n * self.r

    @property
    def is_bearable(self) -> bool:
        """Whether it is neither too cheap to protect nor too dear to be demanded by a line of a file."""
        return (
            N_MIN <= self.n <= N_MAX
            and self.n & (self.n - 1) == 0
            and 1 <= self.r <= R_MAX
            and 1 <= self.p <= P_MAX
            and self.memory <= MEMORY_MAX
            and self.n * self.r * self.p <= WORK_MAX
        )


class Password(Struct, frozen=True):
    """The stored form of a password."""

    cost: Cost
    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "<Password>"

    def __str__(self) -> str:
        """Return the line in the users file; the only way to have it as text."""
        cost = self.cost
        return f"scrypt:{cost.n}:{cost.r}:{cost.p}:{_base64(self.salt)}:{_base64(self.digest)}"

    @property
    def key(self) -> str:
        """Return a text that distinguishes this password from the one before it, and nothing else."""
        return _base64(self.salt)

    def is_right(self, password: str) -> bool:
        """Whether this is the password. It takes as long as the cost says."""
        return compare_digest(_hash(password, self.salt, self.cost, len(self.digest)), self.digest)


class Token(Struct, frozen=True):
    """Stored form of a token; `until` is the last day, in UTC, on which it is valid."""

    label: str
    digest: str
    until: date | None = None

    def __repr__(self) -> str:
        return f"<Token {self.label!r}{'' if self.until is None else f' until {self.until}'}>"

    def __str__(self) -> str:
        """Return the rest of its line in the users file, after the name of the user."""
        return f"token {self.label} sha256:{self.digest}" + (
            "" if self.until is None else f" until:{self.until}"
        )

    def is_good(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.until is None or datetime.fromtimestamp(now, UTC).date() <= self.until


def make_password(password: str, random: Random, cost: Cost | None = None) -> Password:
    """Return the stored form of a password."""
    cost, salt = cost or Cost(), random(SALT_SIZE)
    return Password(cost, salt, _hash(password, salt, cost, HASH_SIZE))


def read_password(text: str) -> Password | None:
    """Read the stored form of a password, None if it is invalid; the cost of a check is bounded."""
    words = text.split(":")
    if len(words) != 6 or words[0] != "scrypt" or not all(map(_NUMBER.fullmatch, words[1:4])):
        return None
    cost = Cost(*map(int, words[1:4]))
    try:
        salt, digest = (b64decode(word, validate=True) for word in words[4:])
    except ValueError:
        return None
    fits = SALT_SIZE <= len(salt) <= SALT_SIZE_MAX and len(digest) == HASH_SIZE
    return Password(cost, salt, digest) if fits and cost.is_bearable else None


def password_problem(password: str) -> str | None:
    """Return why a password is not accepted, None if it is."""
    if len(password) < PASSWORD_LENGTH_MIN:
        return f"a password has at least {PASSWORD_LENGTH_MIN} characters"
    if len(password) > PASSWORD_LENGTH_MAX:
        return f"a password has at most {PASSWORD_LENGTH_MAX} characters"
    if is_token(password):
        return "this looks like a token, and would be taken for one"
    if not password.isprintable():
        return "a password has characters that can be printed only, and is one line"
    return None


def make_token(random: Random) -> str:
    """Return a new token, as its user has it."""
    return TOKEN_PREFIX + urlsafe_b64encode(random(TOKEN_SIZE)).decode().rstrip("=")


def is_token(secret: str) -> bool:
    """Whether a secret has the form of a token; all others are passwords."""
    return _TOKEN.fullmatch(secret) is not None


def hash_token(token: str) -> str:
    """Return the stored form of a token, in hexadecimal."""
    return sha256(token.encode()).hexdigest()


def read_token_hash(text: str) -> str | None:
    """Return the hash in `sha256:HEX`, None if it is none."""
    kind, _, digest = text.partition(":")
    return digest if kind == "sha256" and _HEX.fullmatch(digest) else None


def _hash(password: str, salt: bytes, cost: Cost, size: int) -> bytes:
    secret = password.encode(errors="surrogatepass")
    memory = cost.memory * 2 + _MEMORY_SPARE
    return scrypt(secret, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=memory, dklen=size)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
