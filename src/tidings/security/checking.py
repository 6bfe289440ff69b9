"""All that a security directory says, without anything that is secret: for `tidings security check`."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from tidings.errors import ConfigError
from tidings.protocol.access import Rule
from tidings.security.certificates import Certificate, check_issuer, check_pair, describe
from tidings.security.directory import SecurityDirectory, read_text
from tidings.security.rules import Rules
from tidings.security.users import User, Users

SOON = timedelta(days=30)
"""So long before a certificate expires it is time to renew it."""


class ToldToken(Struct, frozen=True):
    """A token by its label."""

    label: str
    until: str | None
    is_good: bool


class ToldUser(Struct, frozen=True):
    """By what a user may come in, and what it may do then."""

    user: str
    password: bool
    tokens: list[ToldToken]
    certificate: bool
    node: bool
    locked: bool
    rules: list[str]


class Report(Struct, frozen=True):
    """What a directory says."""

    users: list[ToldUser]
    authority: Certificate
    has_authority_key: bool
    node: Certificate
    warnings: list[str]


def report_on(home: SecurityDirectory, now: datetime) -> Report:
    """Look at everything; ConfigError for the first thing that is wrong."""
    users, rules = home.load()
    authority_text, node_text = (read_text(file, is_secret=False) for file in (home.ca, home.certificate))
    authority, node = describe(authority_text, str(home.ca)), describe(node_text, str(home.certificate))
    for place, certificate in ((str(home.ca), authority), (str(home.certificate), node)):
        problem = certificate.problem(now)
        if problem:
            raise ConfigError(place, "", f"{problem}{'' if place == str(home.ca) else _renewal(home)}")
    check_issuer(node_text, authority_text, str(home.certificate))
    check_pair(node_text, read_text(home.key), str(home.key))
    if has_key := home.ca_key.exists():
        check_pair(authority_text, read_text(home.ca_key), str(home.ca_key))
    told = tell_users(users, rules, now)
    return Report(told, authority, has_key, node, _warnings(home, users, rules, node, now))


def tell_users(users: Users, rules: Rules, now: datetime) -> list[ToldUser]:
    """The users in the order of the file."""
    return [_tell(user, rules.get(user.name, ()), now) for user in users.values()]


def rule_text(rule: Rule) -> str:
    """A rule in words."""
    queue = "" if rule.queue is None else f" {rule.queue}"
    return f"{rule.action}{queue}" + ("" if rule.where is None else f" where {rule.where}")


def _tell(user: User, rules: tuple[Rule, ...], now: datetime) -> ToldUser:
    tokens = [
        ToldToken(
            token.label, None if token.until is None else str(token.until), token.is_good(now.timestamp())
        )
        for token in user.tokens
    ]
    said = [rule_text(rule) for rule in rules]
    return ToldUser(
        user.name,
        user.password is not None,
        tokens,
        user.has_certificate,
        user.is_node,
        user.is_locked,
        said,
    )


def _warnings(
    home: SecurityDirectory, users: Users, rules: Rules, node: Certificate, now: datetime
) -> list[str]:
    """What works, but may not be as it was meant."""
    idle = [f"no rule allows {name!r} anything" for name in users if name not in rules]
    if node.until - now < SOON:
        idle.append(f"the node's certificate expires on {node.until:%Y-%m-%d}{_renewal(home)}")
    return idle


def _renewal(home: SecurityDirectory) -> str:
    return f"; renew it: tidings security renew {home.path}"
