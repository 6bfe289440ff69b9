"""Security directories, as `tidings security` makes them and reports on them.

They are made for a node, for another node, for a client. A directory is made whole beside its place and then
moved there, so it is there with everything or not at all. A report has all contents of one, without anything
that is secret.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError, UserError
from tidings.protocol.access import ACTIONS, Action, Rule
from tidings.security.certificates import (
    HOSTS,
    Authority,
    Certificate,
    Issued,
    check_issuer,
    check_pair,
    describe,
    read_key,
)
from tidings.security.directory import OPEN, SECRET, SecurityDirectory, alone, edited, read_text, write_file
from tidings.security.passwords import Password, Random, Token, hash_token, make_token
from tidings.security.rules import WITHOUT_QUEUES, Rules, read_rules
from tidings.security.users import User, Users, line_of, name_problem, read_entries, refuse

DEVICE = "device"
"""User that every new directory has beside its administrator."""
LABEL = "first"
"""Label of that user's token."""
EVERYDAY: tuple[Action, ...] = ("publish", "subscribe", "put", "get")
"""Actions allowed to devices and other nodes at first."""
SOON = timedelta(days=30)
"""Time before a certificate expires at which it should be renewed."""

_NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_USERS = "# Who may come in, and by what: a credential in each line. 'tidings user' changes this file.\n"
_ACCESS = "# Who may do what. What no entry allows is not allowed.\n"

Content = Mapping[str, tuple[str, int]]
"""Texts and modes of files."""


class Admin(Struct, frozen=True):
    """First user, who may do everything."""

    name: str
    password: Password
    generated: str | None = None  # the password itself, if it was generated and has to be shown

    def __repr__(self) -> str:
        return f"<Admin {self.name!r}>"


def node_name(text: str) -> str:
    """Return a name of a node made of a text: the name of a host mostly is one."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text.partition(".")[0])[:64] or "node"


def make_security(
    path: Path, node: str, hosts: Iterable[str], admin: Admin, random: Random, now: datetime
) -> None:
    """Make a new directory with an authority of its own, the admin, and a user for devices with a token."""
    check_node_name(node)
    refuse(name_problem(admin.name))
    if admin.name in (DEVICE, node):
        raise UserError(
            f"{admin.name!r} is the name of {'a user' if admin.name == DEVICE else 'the node'} already"
        )
    authority, token = Authority.make(now), make_token(random)
    kept = Token(LABEL, hash_token(token))
    users = [line_of(admin.name, admin.password), line_of(DEVICE, kept)]
    access = [_everything([admin.name]), allowance([DEVICE], EVERYDAY)]
    content = {
        **_of_node(authority, authority.issue_node(node, hosts, now), users, access),
        "ca.key": (authority.pem.key, SECRET),
        "device.token": (f"{token}\n", SECRET),
    }
    if admin.generated is not None:
        content["admin.password"] = (f"{admin.generated}\n", SECRET)
    _place(path, content)


def make_sibling(home: SecurityDirectory, path: Path, node: str, hosts: Iterable[str], now: datetime) -> str:
    """Make a directory for another node, so that both nodes know each other; return the name of the first.

    Administrators of this node have the same credentials there.
    """
    check_node_name(node)
    users, rules = home.load()
    this = own_certificate(home).name
    refuse(name_problem(this))
    if node == this or (node in users and not users[node].is_node):
        raise UserError(f"there is {'the node' if node == this else 'a user'} {node!r} already")
    admins = [user.name for user in users.values() if _is_admin(user, rules)]
    entries = read_entries(read_text(home.users), str(home.users))
    lines = [str(entry) for entry in entries if entry.name in admins] + [line_of(this, "node")]
    access = [*([_everything(admins)] if admins else []), allowance([this], EVERYDAY)]
    authority = authority_of(home)
    _place(path, _of_node(authority, authority.issue_node(node, hosts, now), lines, access))
    if node not in users:
        with edited(home) as changed:
            changed.add(node, "node")
    if node not in rules:
        add_allowance(home, allowance([node], EVERYDAY))
    return this


def make_client(home: SecurityDirectory, path: Path, user: str, now: datetime) -> bool:
    """Make the files by which a client logs in as this user; return whether the user is new."""
    refuse(name_problem(user))
    is_new = user not in home.load_users()
    authority = authority_of(home)
    issued = authority.issue_client(user, now)
    content = {
        "ca.pem": (authority.pem.certificate, OPEN),
        "client.pem": (issued.certificate, OPEN),
        "client.key": (issued.key, SECRET),
    }
    _place(path, content)
    with edited(home) as lines:
        lines.mark(user)
    return is_new


def renew_node(home: SecurityDirectory, hosts: list[str] | None, now: datetime) -> Certificate:
    """Issue a new certificate for the same node and key; without hosts, for those of the old one."""
    with alone(home.path):
        old = own_certificate(home)
        if hosts is None:
            hosts = [host for host in old.hosts if host not in HOSTS]
        key = read_key(read_text(home.key), str(home.key))
        issued = authority_of(home).issue_node(old.name, hosts, now, key)
        write_file(home.certificate, issued.certificate, OPEN)
        return own_certificate(home)


def own_certificate(home: SecurityDirectory) -> Certificate:
    """Return the contents of the node's certificate."""
    return describe(read_text(home.certificate, is_secret=False), str(home.certificate))


def authority_of(home: SecurityDirectory) -> Authority:
    """Return the authority whose key lies in the directory."""
    if not home.ca_key.exists():
        raise ConfigError(
            str(home.ca_key), "", "is not there: bring it from where it is kept, for this command"
        )
    return Authority.read(read_text(home.ca, is_secret=False), read_text(home.ca_key), str(home.ca))


def allowance(users: Iterable[str], actions: Iterable[str]) -> str:
    """Return an entry of access.toml."""
    return f"\n[[allow]]\nusers = {_toml(users)}\nactions = {_toml(actions)}\n"


def _everything(users: Iterable[str]) -> str:
    """Return entries for users who may do everything, with queues elsewhere too.

    `manage` is in both: with queues it is about these alone, without them about the node.
    """
    names = list(users)
    about_queues = [action for action in ACTIONS if action not in WITHOUT_QUEUES]
    whole = allowance(names, (*WITHOUT_QUEUES, "manage"))
    return f'{whole}{allowance(names, about_queues)}queues = ["*"]\n'


def add_allowance(home: SecurityDirectory, entry: str) -> None:
    """Add an entry to access.toml; the file is checked before that."""
    with alone(home.path):
        append_allowance(home, entry)


def append_allowance(home: SecurityDirectory, entry: str) -> None:
    """Do the same with the directory locked already."""
    text = read_text(home.access, is_secret=False)
    text = f"{text}{entry}" if text.endswith("\n") or not text else f"{text}\n{entry}"
    read_rules(text, str(home.access), home.load_users())
    write_file(home.access, text, OPEN)


def _toml(texts: Iterable[str]) -> str:
    return f"[{', '.join(msgspec.json.encode(text).decode() for text in texts)}]"


def _is_admin(user: User, rules: Rules) -> bool:
    mine = rules.get(user.name, ())
    return not user.is_node and any(rule.action == "manage" and rule.queue in (None, "*") for rule in mine)


def check_node_name(name: str) -> None:
    """Raise UserError for what is no name of a node."""
    if not _NODE_NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no name of a node: 1 to 64 of the letters A-Z and a-z, digits, _ . and -"
        )


def _of_node(
    authority: Authority, issued: Issued, users: list[str], access: list[str]
) -> dict[str, tuple[str, int]]:
    """Return the files that every node needs."""
    return {
        "ca.pem": (authority.pem.certificate, OPEN),
        "node.pem": (issued.certificate, OPEN),
        "node.key": (issued.key, SECRET),
        **of_access(users, access),
    }


def of_access(users: list[str], access: list[str]) -> dict[str, tuple[str, int]]:
    """Return the files of these users and rules."""
    return {
        "users": (_USERS + "".join(f"{line}\n" for line in users), SECRET),
        "access.toml": (_ACCESS + "".join(access), OPEN),
    }


def refuse_place(path: Path) -> None:
    """Raise ConfigError if the place for a new directory exists."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise ConfigError(str(path), "", "exists already, and is not overwritten")


def _place(path: Path, content: Content) -> None:
    """Make a directory of these files."""
    refuse_place(path)
    beside = path.absolute().with_name(f".{path.absolute().name}.{secrets.token_hex(8)}")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir(mode=0o700)
        for name, (text, mode) in content.items():
            write_file(beside / name, text, mode)
        beside.replace(path)
    except OSError as error:
        raise ConfigError(str(path), "", f"can't be made: {error.strerror}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class TokenInfo(Struct, frozen=True):
    """Token by its label."""

    label: str
    until: str | None
    is_good: bool


class UserInfo(Struct, frozen=True):
    """Credentials and rules of a user."""

    user: str
    password: bool
    tokens: list[TokenInfo]
    certificate: bool
    node: bool
    locked: bool
    rules: list[str]


class DirectoryReport(Struct, frozen=True):
    """Report on a security directory."""

    users: list[UserInfo]
    authority: Certificate
    has_authority_key: bool
    node: Certificate
    warnings: list[str]


def report_on(home: SecurityDirectory, now: datetime) -> DirectoryReport:
    """Read everything; ConfigError for the first fault."""
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
    reports = user_infos(users, rules, now)
    return DirectoryReport(reports, authority, has_key, node, _warnings(home, users, rules, node, now))


def user_infos(users: Users, rules: Rules, now: datetime) -> list[UserInfo]:
    """Return the users in the order of the file."""
    return [_info(user, rules.get(user.name, ()), now) for user in users.values()]


def rule_text(rule: Rule) -> str:
    """Return a rule in words."""
    queue = "" if rule.queue is None else f" {rule.queue}"
    return f"{rule.action}{queue}" + ("" if rule.where is None else f" where {rule.where}")


def _info(user: User, rules: tuple[Rule, ...], now: datetime) -> UserInfo:
    tokens = [
        TokenInfo(
            token.label, None if token.until is None else str(token.until), token.is_good(now.timestamp())
        )
        for token in user.tokens
    ]
    said = [rule_text(rule) for rule in rules]
    return UserInfo(
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
    """Return warnings of settings that work, but may not be intended."""
    idle = [f"no rule allows {name!r} anything" for name in users if name not in rules]
    if node.until - now < SOON:
        idle.append(f"the node's certificate expires on {node.until:%Y-%m-%d}{_renewal(home)}")
    return idle


def _renewal(home: SecurityDirectory) -> str:
    return f"; renew it: tidings security renew {home.path}"
