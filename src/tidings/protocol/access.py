"""Access: the rights of a client, and the authenticator that grants them.

An authenticator looks at the credentials in a client's HELLO, and returns a principal or refuses it. A
principal is a user with a set of rules, each of which allows one action. The condition of a rule is a
filter: an event is published if one of the user's rules matches it, and a subscription has these rules ANDed
to it, so it can't reach past them.

Nothing here reads files or knows what a password is; `tidings.security` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Literal, Protocol, get_args

from msgspec import Struct

from tidings.errors import NotAllowed
from tidings.filters import Filter

Action = Literal["publish", "subscribe", "put", "get", "manage", "block", "keep"]
ACTIONS: tuple[Action, ...] = get_args(Action)


BUSY = "busy"
"""The reason for which one is denied who may come again soon: too much is being checked."""


class PeerInfo(Struct, frozen=True):
    """Facts that the transport knows of a connection, before its first frame."""

    peer: str = ""  # its address, for logs
    host: str | None = None  # None: it came over the node's own socket, which only its owner can open
    certificate: str | None = None  # whom its certificate names, if it has shown one that we trust


OWN = PeerInfo()


class LoginCredentials(Struct, frozen=True):
    """The credentials that a client sends."""

    caller: PeerInfo
    user: str = ""
    secret: str = ""  # a password or a token
    name: str = ""

    def __repr__(self) -> str:
        return f"Claim({self.caller}, user={self.user!r}, name={self.name!r})"  # never the secret


class Denied(NotAllowed):
    """A client is not let in: the text helps the honest and gives others nothing, `reason` is counted."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason

    @property
    def code(self) -> str:
        """With what the connection is ended: final for the client, unless it may just come again."""
        return "limit" if self.reason == BUSY else "not-allowed"


class Rule(Struct, frozen=True):
    """One action that is allowed.

    `where`: for events that match, None for all. `queue`: for queues whose names match this pattern, in which
    `*` stands for any text and all else for itself; None for all queues of the node itself.
    """

    action: Action
    where: Filter | None = None
    queue: str | None = None


class Principal(Struct, frozen=True):
    """The user of a client, and its rights; rules are None for the owner of the node, who may do all."""

    user: str = ""
    credential: str = ""  # by which it logged in, so that a revoked one can be recognised
    is_node: bool = False  # may hand on what others have said, under their names
    rules: tuple[Rule, ...] | None = None
    only: str | None = None  # a pattern of the operations it may ask for; None: all, as far as its rules go

    def grant(self, action: Action) -> Filter | None:
        """Return what may be published or subscribed to, None for everything; NotAllowed for nothing."""
        return self._joined(self._for(action), f"{self.user!r} may not {action}")

    def reach(self, wanted: Filter) -> Filter:
        """As much of a filter as may be subscribed to, be that nothing."""
        try:
            granted = self.grant("subscribe")
        except NotAllowed:
            return ~Filter()
        return wanted if granted is None else wanted & granted

    def queue_grant(self, action: Action, queue: str) -> Filter | None:
        """Which messages of a queue this action is allowed for, None for all; NotAllowed for none."""
        rules = (rule for rule in self._for(action) if _agrees(rule.queue, queue))
        return self._joined(rules, str(not_allowed(self, action, queue)))

    def require(self, action: Action, what: str) -> None:
        """Raise NotAllowed for one who has no rule with this action, which is needed for something."""
        if self.rules is not None and not any(rule.action == action for rule in self.rules):
            raise NotAllowed(
                f"{self.user!r} may not {action}: {what} needs a rule with the action {action!r}"
            )

    def check_operation(self, operation: str) -> None:
        """Raise NotAllowed for one who was let in for other operations alone."""
        if self.only is not None and not matches(self.only, operation):
            raise NotAllowed(f"{self.user!r} may do nothing but {self.only}: it may not {operation[:40]}")

    @property
    def bound(self) -> str | None:
        """The user, if it speaks for itself only and hears its own inboxes; None for owner and nodes."""
        return None if self.rules is None or self.is_node else self.user

    @property
    def manages(self) -> bool:
        """Whether there is anything that may be managed."""
        return self.rules is None or any(rule.action == "manage" for rule in self.rules)

    @property
    def manages_all(self) -> bool:
        """Whether everything may be managed."""
        return self.rules is None or any(
            rule.action == "manage" and rule.queue is None and rule.where is None for rule in self.rules
        )

    def check_manage(self) -> None:
        """Raise NotAllowed for one who may not manage anything."""
        if not self.manages:
            raise NotAllowed(f"{self.user!r} may not manage this node")

    def check_manage_all(self, what: str) -> None:
        """Raise NotAllowed, which names what was asked for, for one who may not manage everything."""
        if not self.manages_all:
            raise NotAllowed(f"{self.user!r} may not {what}: that takes the right to manage everything")

    def sees(self, queue: str) -> bool:
        """Whether there is anything that may be done with a queue."""
        return self.rules is None or any(
            rule.action in _DOING and _agrees(rule.queue, queue) for rule in self.rules
        )

    def _for(self, action: Action) -> Iterable[Rule]:
        return (rule for rule in self.rules or () if rule.action == action)

    def _joined(self, rules: Iterable[Rule], refusal: str) -> Filter | None:
        if self.rules is None:
            return None
        wheres = [rule.where for rule in rules]
        if not wheres:
            raise NotAllowed(refusal)
        filters = [where for where in wheres if where is not None]
        return reduce(or_, filters) if len(filters) == len(wheres) else None


OWNER = Principal()
NOBODY = Principal(rules=())
"""Who has not been let in."""
_DOING: dict[Action, str] = {"put": "put into", "get": "get from", "manage": "manage"}


def not_allowed(principal: Principal, action: Action, queue: str) -> NotAllowed:
    """Return the error for a client that may not do this with a queue, whether or not there is one."""
    return NotAllowed(f"{principal.user!r} may not {_DOING[action]} queue {queue!r}")


def _agrees(pattern: str | None, queue: str) -> bool:
    return "@" not in queue if pattern is None else matches(pattern, queue)


def matches(pattern: str, text: str) -> bool:
    """Whether a text is as a pattern says, in which `*` stands for any text and all else for itself."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    last = others.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in others:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Check(Protocol):
    """A check that takes too long for the loop: whether a password is the right one."""

    def run(self) -> bool:
        """Whether it is; called once, in a thread of its own."""


class Authenticator(Protocol):
    """Decides who is let in."""

    def admit(self, claim: LoginCredentials, now: float, wall: float) -> Principal | Check:
        """Return the rights of a client, or a check to be run first; Denied if it may not log in.

        Attempts are counted by `now`, which never jumps; credentials end by `wall`, in seconds since 1970.
        """

    def conclude(self, check: Check, passed: bool, now: float) -> Principal:
        """Return the principal when the check is done; Denied if it has not passed."""

    def renew(self, principal: Principal) -> Principal | None:
        """Return the current rights of this principal; None if its credential is not valid any more."""

    def principal_of(self, user: str) -> Principal | None:
        """Return the rights of a user who need not be connected; None if there is none of that name."""


class OpenAuthenticator:
    """Authenticator of a node that only its owner can reach: every client has full access, by its name."""

    def admit(self, _claim: LoginCredentials, _now: float, _wall: float) -> Principal:
        return OWNER

    def conclude(self, _check: Check, _passed: bool, _now: float) -> Principal:
        return OWNER

    def renew(self, principal: Principal) -> Principal | None:
        return principal

    def principal_of(self, _user: str) -> Principal | None:
        return OWNER
