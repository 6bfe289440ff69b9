"""The invitations file: which nodes may join, once each. One line is one invitation.

    ID  shed   sha256:HEX  until:1789000000  hosts:shed,10.0.0.8  open
    ID  attic  sha256:HEX  until:1789000000  hosts:attic          used:KEY

Of the secret only its hash is kept; 32 random bytes can't be guessed, so SHA-256 is enough.

| state | what happens | state then |
| --- | --- | --- |
| open | a node that knows the secret asks to join with the key KEY | joining:KEY |
| joining:KEY | users, rules and peers of this node are written | used:KEY |
| open | it is revoked | revoked |
| any | a day after it has expired | removed, with the next change |

A node that was cut off or killed before it had its certificate asks again, with the same key. So an
invitation that is joining or used serves the node that has this key, and nobody else. Once it is used, asking
again changes nothing here: a node that was removed since does not come back by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from tidings.errors import ConfigError, UserError
from tidings.security.invitation import moment_text
from tidings.security.passwords import hash_token, read_token_hash

INVITED = "invitation:"
"""Prefix of the user that a client with an invitation names in its HELLO; no user's name has a colon."""
FOR_S = 3_600.0
"""Seconds until an invitation expires, unless another time is given."""
FOR_S_MAX = 7 * 86_400.0
OPEN_MAX = 100
"""Open invitations of a node at a time."""
KEPT_S = 86_400
"""Seconds for which an expired one is remembered, so that its holder gets the reason."""
LINES_MAX = 10_000

State = Literal["open", "joining", "used", "revoked"]
StateNow = Literal["open", "joining", "used", "revoked", "expired"]

_LINE = re.compile(
    r"(?P<id>[0-9a-f]{16})\s+(?P<name>[A-Za-z0-9_.-]{1,64})\s+(?P<digest>sha256:[0-9a-f]{64})"
    r"\s+until:(?P<until>[0-9]{1,12})\s+hosts:(?P<hosts>\S*)"
    r"\s+(?P<state>open|revoked|(?:joining|used):(?P<key>[0-9a-f]{64}))",
    re.ASCII,
)
_FORM = "ID NAME sha256:HEX until:SECONDS hosts:HOST,… STATE, as 'tidings security invite' writes it"
_HEAD = "# Which nodes may join, once each. 'tidings security invite' changes this file.\n"


class Invitation(Struct, frozen=True):
    """Stored form of an invitation. `key` is the SHA-256 of the public key of the node that has joined."""

    id: str
    name: str
    digest: str
    until: int  # seconds since 1970
    hosts: tuple[str, ...] = ()
    state: State = "open"
    key: str = ""

    def __repr__(self) -> str:
        return f"<Invitation of {self.name}: {self.state}>"

    def __str__(self) -> str:
        """Return its line in the file."""
        state = f"{self.state}:{self.key}" if self.key else self.state
        hosts = ",".join(self.hosts)
        return f"{self.id} {self.name} sha256:{self.digest} until:{self.until} hosts:{hosts} {state}"

    def is_of(self, secret: str) -> bool:
        """Whether this is its secret."""
        return hash_token(secret) == self.digest  # two hashes: how far they agree says nothing of the secret

    def state_at(self, wall: float) -> StateNow:
        """Return its state at this time."""
        return "expired" if self.state in ("open", "joining") and wall >= self.until else self.state

    def problem(self, wall: float) -> str | None:
        """Return why nobody can join by it any more, None if its own node can."""
        if self.state == "revoked":
            return f"the invitation of {self.name!r} was revoked; {again(self.name)}"
        if wall >= self.until:
            expired = f"the invitation of {self.name!r} has expired: {moment_text(self.until)}"
            return f"{expired}, and it is {moment_text(wall)} here; {again(self.name)}"
        return None


def again(name: str = "NAME") -> str:
    """Return what to do about an invitation that is of no use."""
    return f"make another one at the node: tidings security invite {name}"


Invitations = Mapping[str, Invitation]
"""Invitations by their ids."""


def read_invitations(text: str, place: str) -> dict[str, Invitation]:
    """Read a file; ConfigError with the place and the line for the first invalid one, never its text."""
    found: dict[str, Invitation] = {}
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        one = _read(content)
        if one is None or one.id in found or len(found) >= LINES_MAX:
            raise ConfigError(f"{place}, line {number}", "", f"is no invitation: {_FORM}")
        found[one.id] = one
    return found


def _read(line: str) -> Invitation | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    digest = read_token_hash(match["digest"])
    assert digest is not None, "the pattern says so"
    states: dict[str, State] = {"open": "open", "revoked": "revoked", "joining": "joining", "used": "used"}
    state = states[match["state"].partition(":")[0]]
    hosts = tuple(filter(None, match["hosts"].split(",")))
    return Invitation(
        match["id"], match["name"], digest, int(match["until"]), hosts, state, match["key"] or ""
    )


def as_text(invitations: Iterable[Invitation], wall: float) -> str:
    """Return the file of these, without those that need not be remembered any more."""
    kept = [one for one in invitations if wall < one.until + KEPT_S]
    return _HEAD + "".join(f"{one}\n" for one in kept)


def check_new(invitations: Invitations, name: str, for_s: float, wall: float) -> None:
    """Raise UserError if another invitation, of this name and for this time, can't be made."""
    if not 0 < for_s <= FOR_S_MAX:
        raise UserError(f"an invitation is for more than 0 and at most {FOR_S_MAX:g} s, not {for_s:g}")
    waiting = [one for one in invitations.values() if one.state_at(wall) in ("open", "joining")]
    for one in waiting:
        if one.name == name:
            until = f"until {moment_text(one.until)}"
            raise UserError(
                f"there is an invitation of {name!r} already, {until}; revoke it to make another one:"
                f" tidings security invitations --revoke {name}"
            )
    if len(waiting) >= OPEN_MAX:
        raise UserError(
            f"there are {OPEN_MAX} open invitations, as many as may be; revoke some:"
            " tidings security invitations --revoke NAME"
        )
