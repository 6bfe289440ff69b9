"""An authenticator for tests: users with plain secrets and rules, some of which take a while to check."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.rig import Peer, Rig
from tidings.filters import Filter
from tidings.protocol.access import ACTIONS, Action, Check, Denied, LoginCredentials, Principal, Rule
from tidings.protocol.messages import Bye, Hello, Welcome


class Slow:
    """A check that someone has to run."""

    def __init__(self, user: str, is_right: bool) -> None:
        self.user = user
        self.is_right = is_right

    def run(self) -> bool:
        return self.is_right


class Book:
    """The rules of users, whose secrets are their names backwards; a secret that begins with ? is slow."""

    def __init__(self, **users: list[Rule]) -> None:
        self.users = {user: tuple(rules) for user, rules in users.items()}
        self.nodes: set[str] = set()

    def admit(self, claim: LoginCredentials, _now: float, _wall: float) -> Principal | Check:
        is_right = claim.secret.lstrip("?") == claim.user[::-1]
        if claim.secret.startswith("?"):
            return Slow(claim.user, is_right)
        return self.conclude(Slow(claim.user, is_right), is_right, 0)

    def conclude(self, check: Check, passed: bool, _now: float) -> Principal:
        assert isinstance(check, Slow)
        if not passed or check.user not in self.users:
            raise Denied("secret", "user or secret is wrong")
        return Principal(check.user, "password", check.user in self.nodes, self.users[check.user])

    def renew(self, principal: Principal) -> Principal | None:
        rules = self.users.get(principal.user)
        return None if rules is None else replace(principal, rules=rules)

    def principal_of(self, user: str) -> Principal | None:
        rules = self.users.get(user)
        return None if rules is None else Principal(user, "", user in self.nodes, rules)


def may(action: Action, where: str | None = None, queue: str | None = None) -> Rule:
    return Rule(action, None if where is None else Filter(where), queue)


ALL = [Rule(action) for action in ACTIONS]


def guarded(**users: list[Rule]) -> Rig:
    """A node that knows these users."""
    rig = Rig()
    rig.broker.authenticator = Book(**users)
    return rig


def come(rig: Rig, user: str, system: str | None = None, name: str = "", secret: str | None = None) -> Peer:
    """A user who has said HELLO and heard the answer; by default with the right secret."""
    peer = knock(rig, user, system, name, secret)
    rig.run()
    return peer


def knock(rig: Rig, user: str, system: str | None = None, name: str = "", secret: str | None = None) -> Peer:
    """A user who has said HELLO; what is to be checked in a thread has not been."""
    peer = rig.connect()
    right = user[::-1] if secret is None else secret
    peer.send(Hello([1], system or f"sys-{user}", 1, name, None, 0, user, right))
    rig.tick()
    return peer


def is_in(peer: Peer) -> bool:
    return bool(peer.got(Welcome))


def ending(peer: Peer) -> tuple[str, str]:
    """Code and text with which the node ended the connection."""
    peer.rig.run()
    assert peer.session.is_closed
    (bye,) = peer.got(Bye)
    return bye.code, bye.text
