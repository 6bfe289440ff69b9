"""The users file as its commands change it: line by line, with comments and order as they were.

A user without any line would be unknown to the rules that name it, and rules that name an unknown user are
broken. So the last credential that goes leaves a line `NAME locked`, and one that comes takes its place.
"""

from __future__ import annotations

from tidings.errors import UserError
from tidings.security.passwords import Password, Token
from tidings.security.users import (
    Credential,
    Entry,
    User,
    close_match,
    label_problem,
    line_of,
    name_problem,
    read_entries,
    users_of,
)


class UserLines:
    """The lines of a users file; UserError for a change that can't be made, and nothing is changed then."""

    def __init__(self, text: str, place: str) -> None:
        self._place = place
        self._lines = text.removesuffix("\n").split("\n") if text else []
        self._entries = read_entries(text, place)
        self.users = users_of(self._entries, place)

    @property
    def text(self) -> str:
        """The file as it is now."""
        return "".join(f"{line}\n" for line in self._lines)

    def user(self, name: str) -> User:
        """The user of this name; UserError, with names that are like it, if there is none."""
        if name not in self.users:
            raise UserError(f"there is no user {name!r}{close_match(name, self.users)}")
        return self.users[name]

    def add(self, name: str, credential: Credential) -> None:
        """A new user."""
        refuse(name_problem(name))
        if name in self.users:
            raise UserError(f"there is a user {name!r} already")
        self._put(name, None, credential)

    def mark(self, name: str) -> bool:
        """Let a user in by certificate; tells whether that is new."""
        refuse(name_problem(name))
        if name in self.users and self.users[name].has_certificate:
            return False
        self._put(name, self._placeholder(name), "certificate")
        return True

    def set_password(self, name: str, password: Password) -> None:
        """Another password for a user, or the first one."""
        old = [entry for entry in self._of(name) if isinstance(entry.credential, Password)]
        self._put(name, old[0] if old else self._placeholder(name), password)

    def add_token(self, name: str, token: Token) -> bool:
        """One more token for a user, who may be new: that is told."""
        refuse(name_problem(name) or label_problem(token.label))
        is_new = name not in self.users
        if not is_new and token.label in self._tokens(name):
            raise UserError(f"{name!r} has a token {token.label!r} already: revoke it, or use another label")
        self._put(name, None if is_new else self._placeholder(name), token)
        return is_new

    def revoke(self, name: str, label: str) -> bool:
        """Take a token from a user; tells whether nothing is left that lets the user in."""
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
        """Take everything from a user; one that has to stay known is locked."""
        first, *others = self._of(name)
        self._drop(others)
        if stays:
            self._put(name, first, "locked")
        else:
            self._drop([first])

    def _of(self, name: str) -> list[Entry]:
        self.user(name)
        return [entry for entry in self._entries if entry.name == name]

    def _tokens(self, name: str) -> dict[str, Entry]:
        return {
            entry.credential.label: entry for entry in self._of(name) if isinstance(entry.credential, Token)
        }

    def _placeholder(self, name: str) -> Entry | None:
        """The line of a user that only keeps the name; one that locks more than itself stays."""
        entries = [entry for entry in self._entries if entry.name == name]
        return entries[0] if [entry.credential for entry in entries] == ["locked"] else None

    def _put(self, name: str, old: Entry | None, credential: Credential) -> None:
        """Write a line in the place of an old one, or below the user's others, or at the end."""
        line = line_of(name, credential)
        mine = [entry.line for entry in self._entries if entry.name == name]
        if old is not None:
            comment = self._lines[old.line - 1].partition("#")
            self._lines[old.line - 1] = line + (f"  #{comment[2]}" if comment[1] else "")
        else:
            self._lines.insert(mine[-1] if mine else len(self._lines), line)
        self._read()

    def _drop(self, entries: list[Entry]) -> None:
        gone = {entry.line for entry in entries}
        self._lines = [line for number, line in enumerate(self._lines, 1) if number not in gone]
        self._read()

    def _read(self) -> None:
        self._entries = read_entries(self.text, self._place)
        self.users = users_of(self._entries, self._place)


def refuse(problem: str | None) -> None:
    """UserError if there is a problem."""
    if problem:
        raise UserError(problem)
