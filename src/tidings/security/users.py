"""The users file: users and their credentials. One line is one credential.

    ada    password scrypt:16384:8:1:SALT:HASH
    ada    token laptop sha256:HEX until:2027-01-31
    bob    certificate        # a client certificate of our authority that names bob
        attic  node               # the same, and may forward what others have said
        carol  locked             # known to the rules, but can't log in

An invalid line stops the reading, with its number and the mistake; its text is never shown, since it may be a
secret in the wrong place.

Commands change the file line by line, with comments and order as they were. A user without any line would be
unknown to the rules that name it, and rules that name an unknown user are broken. So the last credential that
is removed leaves a line `NAME locked`, and a new one replaces that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from difflib import get_close_matches
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import ConfigError, UserError
from tidings.security.passwords import Password, Token, read_password, read_token_hash

NAME_LENGTH_MAX = 100
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
    """User that may log in by any of these credentials; one that is locked by none."""

    name: str
    password: Password | None = None
    tokens: tuple[Token, ...] = ()
    has_certificate: bool = False  # may log in by a certificate
    is_node: bool = False
    is_locked: bool = False


Users = Mapping[str, User]


class UserLine(Struct, frozen=True):
    """Line of the file that is no comment."""

    line: int
    name: str
    credential: Credential

    def __str__(self) -> str:
        return line_of(self.name, self.credential)


def line_of(name: str, credential: Credential) -> str:
    """Return a line of the file, without its end."""
    return f"{name} password {credential}" if isinstance(credential, Password) else f"{name} {credential}"


def name_problem(name: str, what: str = "a user's name") -> str | None:
    """Return why this is no name, None if it is one."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        return f"{what} has 1 to {NAME_LENGTH_MAX} characters"
    if any(char in _FORBIDDEN or char.isspace() or not char.isprintable() for char in name):
        return f"{what} has no blanks, and none of {' '.join(_FORBIDDEN)}"
    return None


def read_users(text: str, place: str) -> dict[str, User]:
    """Read the users of a file; ConfigError with `place` and the line for the first invalid one."""
    return users_of(read_entries(text, place), place)


def read_entries(text: str, place: str) -> list[UserLine]:
    """Read the lines of a file that are no comments, each by itself."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                entries.append(UserLine(number, words[0], _credential(words)))
            except _Mistake as mistake:
                raise ConfigError(f"{place}, line {number}", "", str(mistake)) from None
    if len(entries) > LINES_MAX:
        raise ConfigError(place, "", f"has more than {LINES_MAX} lines")
    return entries


def users_of(entries: Iterable[UserLine], place: str = "users") -> dict[str, User]:
    """Return the users of these lines; ConfigError for a line that repeats an earlier one."""
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
    """Mistake in a line."""


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
    """Return a question with a similar known word; never the word that was typed."""
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
        raise _Mistake(f"the hash of the token is malformed; the form is {_TOKEN_FORM}")
    return Token(label, digest, None if until is None else _read_until(until))


def label_problem(label: str) -> str | None:
    """Return why this is no label of a token, None if it is one."""
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
    """Return the user with one more credential."""
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


class UserLines:
    """Lines of a users file; UserError for a change that can't be made, and nothing is changed then."""

    def __init__(self, text: str, place: str) -> None:
        self._place = place
        self._lines = text.removesuffix("\n").split("\n") if text else []
        self._read()

    @property
    def text(self) -> str:
        """Return the present text of the file."""
        return "".join(f"{line}\n" for line in self._lines)

    def user(self, name: str) -> User:
        """Return the user of this name; UserError, with similar names, if there is none."""
        if name not in self.users:
            raise UserError(f"there is no user {name!r}{close_match(name, self.users)}")
        return self.users[name]

    def add(self, name: str, credential: Credential) -> None:
        """Add a new user."""
        refuse(name_problem(name))
        if name in self.users:
            raise UserError(f"there is a user {name!r} already")
        self._put(name, None, credential)

    def mark(self, name: str) -> bool:
        """Allow a user to log in by certificate; return whether that is new."""
        refuse(name_problem(name))
        if name in self.users and self.users[name].has_certificate:
            return False
        self._put(name, self._placeholder(name), "certificate")
        return True

    def add_node(self, name: str) -> None:
        """Add another node; one of that name that was removed, and so is locked, comes back."""
        refuse(name_problem(name))
        if not is_free(name, self.users):
            raise UserError(f"there is a user {name!r} already")
        self._put(name, self._placeholder(name), "node")

    def set_password(self, name: str, password: Password) -> None:
        """Set the password of a user."""
        old = [entry for entry in self._of(name) if isinstance(entry.credential, Password)]
        self._put(name, old[0] if old else self._placeholder(name), password)

    def add_token(self, name: str, token: Token) -> bool:
        """Add a token for a user, and return whether the user is new."""
        refuse(name_problem(name) or label_problem(token.label))
        is_new = name not in self.users
        if not is_new and token.label in self._tokens(name):
            raise UserError(f"{name!r} has a token {token.label!r} already: revoke it, or use another label")
        self._put(name, None if is_new else self._placeholder(name), token)
        return is_new

    def revoke(self, name: str, label: str) -> bool:
        """Remove a token of a user; return whether the user has no credential left."""
        tokens = self._tokens(name)
        if label not in tokens:
            there_are = f"; there are {', '.join(tokens)}" if tokens else ", nor any other"
            raise UserError(f"{name!r} has no token {label!r}{there_are}{close_match(label, tokens)}")
        if is_last := len(self._of(name)) == 1:
            self._put(name, tokens[label], "locked")
        else:
            self._drop([tokens[label]])
        return is_last

    def remove(self, name: str, stays: bool) -> None:
        """Remove all credentials of a user; one that has to stay known is locked."""
        first, *others = self._of(name)
        self._drop(others)
        if stays:
            self._put(name, first, "locked")
        else:
            self._drop([first])

    def _of(self, name: str) -> list[UserLine]:
        self.user(name)
        return [entry for entry in self._entries if entry.name == name]

    def _tokens(self, name: str) -> dict[str, UserLine]:
        return {
            entry.credential.label: entry for entry in self._of(name) if isinstance(entry.credential, Token)
        }

    def _placeholder(self, name: str) -> UserLine | None:
        """Return the line of a user that only keeps the name; one that locks more than itself stays."""
        entries = [entry for entry in self._entries if entry.name == name]
        return entries[0] if [entry.credential for entry in entries] == ["locked"] else None

    def _put(self, name: str, old: UserLine | None, credential: Credential) -> None:
        """Write a line in place of an old one, or below the user's others, or at the end."""
        line = line_of(name, credential)
        mine = [entry.line for entry in self._entries if entry.name == name]
        if old is not None:
            comment = self._lines[old.line - 1].partition("#")
            self._lines[old.line - 1] = line + (f"  #{comment[2]}" if comment[1] else "")
        else:
            self._lines.insert(mine[-1] if mine else len(self._lines), line)
        self._read()

    def _drop(self, entries: list[UserLine]) -> None:
        gone = {entry.line for entry in entries}
        self._lines = [line for number, line in enumerate(self._lines, 1) if number not in gone]
        self._read()

    def _read(self) -> None:
        self._entries = read_entries(self.text, self._place)
        self.users = users_of(self._entries, self._place)


def is_free(name: str, users: Users) -> bool:
    """Whether a name is nobody's: no user has it, or one who was removed and is known to rules only."""
    return users.get(name, User(name, is_locked=True)) == User(name, is_locked=True)


def refuse(problem: str | None) -> None:
    """Raise UserError if there is a problem."""
    if problem:
        raise UserError(problem)
