"""The users file: who there is, and by what each may come in. One line is one credential.

    ada    password scrypt:16384:8:1:SALT:HASH
    ada    token laptop sha256:HEX until:2027-01-31
    bob    certificate        # a client certificate of our authority that names bob
    attic  node               # the same, and may hand on what others have said
    carol  locked             # known to the rules, and let in by nothing

A line that can't be stops the reading, with its number and what is wrong with it; what stands in it is never
shown, since it may be a secret in the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from difflib import get_close_matches
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import ConfigError
from tidings.security.passwords import Password, Token, read_password, read_token_hash

NAME_LENGTH_MAX = 100
LABEL_LENGTH_MAX = 100
LINES_MAX = 100_000
"""Credentials of a users file."""

Mark = Literal["certificate", "node", "locked"]
MARKS: tuple[Mark, ...] = get_args(Mark)
KINDS = ("password", "token", *MARKS)
Credential = Password | Token | Mark

_FORBIDDEN = "/#:@"
_PASSWORD_FORM = "NAME password scrypt:N:R:P:SALT:HASH, as 'tidings user password' writes it"
_TOKEN_FORM = "NAME token LABEL sha256:HEX [until:YYYY-MM-DD], as 'tidings user token' writes it"


class User(Struct, frozen=True):
    """One who may come in by any of these; one who is locked by none."""

    name: str
    password: Password | None = None
    tokens: tuple[Token, ...] = ()
    has_certificate: bool = False  # is let in by a certificate
    is_node: bool = False
    is_locked: bool = False


Users = Mapping[str, User]


class Entry(Struct, frozen=True):
    """A line of the file that is no comment."""

    line: int
    name: str
    credential: Credential

    def __str__(self) -> str:
        return line_of(self.name, self.credential)


def line_of(name: str, credential: Credential) -> str:
    """A line of the file, without its end."""
    return f"{name} password {credential}" if isinstance(credential, Password) else f"{name} {credential}"


def name_problem(name: str, what: str = "a user's name") -> str | None:
    """Why this is no name, None if it is one."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        return f"{what} has 1 to {NAME_LENGTH_MAX} characters"
    if any(char in _FORBIDDEN or char.isspace() or not char.isprintable() for char in name):
        return f"{what} has no blanks, and none of {' '.join(_FORBIDDEN)}"
    return None


def read_users(text: str, place: str) -> dict[str, User]:
    """The users of a file; ConfigError with `place` and the line for the first one that can't be."""
    return users_of(read_entries(text, place), place)


def read_entries(text: str, place: str) -> list[Entry]:
    """The lines of a file that are no comments, each by itself."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                entries.append(Entry(number, words[0], _credential(words)))
            except _Mistake as mistake:
                raise ConfigError(f"{place}, line {number}", "", str(mistake)) from None
    if len(entries) > LINES_MAX:
        raise ConfigError(place, "", f"has more than {LINES_MAX} lines")
    return entries


def users_of(entries: Iterable[Entry], place: str = "users") -> dict[str, User]:
    """What these lines say together; ConfigError for one that says what an earlier one has said."""
    users: dict[str, User] = {}
    digests: dict[str, int] = {}
    for entry in entries:
        user = users.get(entry.name, User(entry.name))
        try:
            users[entry.name] = _with(user, entry.credential)
            if isinstance(entry.credential, Token):
                first = digests.setdefault(entry.credential.digest, entry.line)
                if first != entry.line:
                    raise _Mistake(f"this token stands in line {first} already")
        except _Mistake as mistake:
            raise ConfigError(f"{place}, line {entry.line}", "", str(mistake)) from None
    return users


class _Mistake(Exception):
    """What is wrong with a line."""


def _credential(words: list[str]) -> Credential:
    name, kind, *rest = [*words, ""] if len(words) == 1 else words
    problem = name_problem(name)
    if problem:
        raise _Mistake(problem)
    if kind == "password":
        return _read_password(rest)
    if kind == "token":
        return _read_token(rest)
    for mark in MARKS:
        if kind == mark:
            if rest:
                raise _Mistake(f"nothing stands behind {mark!r}")
            return mark
    raise _Mistake(f"the second word is one of {', '.join(KINDS)}{close_match(kind, KINDS)}")


def close_match(word: str, known: Iterable[str]) -> str:
    """A question for one who may have mistyped a word; the answer is a known one, never what was typed."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _read_password(words: list[str]) -> Password:
    password = read_password(words[0]) if len(words) == 1 else None
    if password is None:
        raise _Mistake(f"is no password; the form is {_PASSWORD_FORM}")
    return password


def _read_token(words: list[str]) -> Token:
    if not 2 <= len(words) <= 3:
        raise _Mistake(f"is no token; the form is {_TOKEN_FORM}")
    label, digest, until = words[0], read_token_hash(words[1]), words[2] if words[2:] else None
    problem = label_problem(label)
    if problem:
        raise _Mistake(problem)
    if digest is None:
        raise _Mistake(f"the hash of the token is none; the form is {_TOKEN_FORM}")
    return Token(label, digest, None if until is None else _read_until(until))


def label_problem(label: str) -> str | None:
    """Why this is no label of a token, None if it is one."""
    return name_problem(label, "a token's label")


def _read_until(word: str) -> date:
    key, _, day = word.partition(":")
    try:
        if key == "until" and len(day) == len("2027-01-31"):
            return date.fromisoformat(day)
    except ValueError:
        pass
    raise _Mistake("the last word is until:YYYY-MM-DD, a day that there is")


def _with(user: User, credential: Credential) -> User:
    """The user with one more credential."""
    match credential:
        case Password():
            _refuse_second(user.password is not None, "a password")
            return replace(user, password=credential)
        case Token():
            _refuse_second(
                any(token.label == credential.label for token in user.tokens), "a token of this label"
            )
            return replace(user, tokens=(*user.tokens, credential))
        case "locked":
            _refuse_second(user.is_locked, "'locked'")
            return replace(user, is_locked=True)
        case _:
            _refuse_second(user.has_certificate, "'certificate' or 'node'")
            return replace(user, has_certificate=True, is_node=credential == "node")


def _refuse_second(has_one: bool, what: str) -> None:
    if has_one:
        raise _Mistake(f"the user has {what} already")
