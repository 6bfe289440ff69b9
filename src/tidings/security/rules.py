"""`access.toml`: the rules of users. A list of allowances; nothing else allows anything.

    [[allow]]
    users = ["device"]                    # or: everyone = true
    actions = ["publish", "put"]
    where = "type = 'air.pm10'"           # only such events

Strict, because a rule that is ignored is a rule that someone relies on: an unknown key, action or user, or an
invalid filter, and the whole file is broken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from tidings.errors import ConfigError, FilterError, MissingExtra
from tidings.filters import Filter
from tidings.protocol.access import ACTIONS, Action, Rule
from tidings.security.users import close_match

KEYS = ("users", "everyone", "actions", "where", "queues")
RULES_MAX = 1_000
"""Rules of one user."""
WITHOUT_WHERE: tuple[Action, ...] = ("manage", "block", "keep")
WITHOUT_QUEUES: tuple[Action, ...] = ("publish", "subscribe", "block", "keep")

_ENTRY = re.compile(r"^[ \t]*\[\[[ \t]*allow[ \t]*\]\]", re.MULTILINE)

Rules = Mapping[str, tuple[Rule, ...]]
"""Rules of each user; one without rules may do nothing."""


class Allowance(Struct, frozen=True):
    """Entry of the file: these users may do these things."""

    place: str
    users: tuple[str, ...]
    everyone: bool
    rules: tuple[Rule, ...]


def read_rules(text: str, place: str, users: Collection[str]) -> dict[str, tuple[Rule, ...]]:
    """Read the rights of each user; ConfigError names the entry, the key and what is possible."""
    rules: dict[str, list[Rule]] = {}
    for allowance in read_allowances(text, place):
        for name in users if allowance.everyone else allowance.users:
            if name not in users:
                hint = close_match(name, users)
                raise ConfigError(allowance.place, "users", f"there is no user {name!r}{hint}")
            mine = rules.setdefault(name, [])
            mine.extend(rule for rule in allowance.rules if rule not in mine)
            if len(mine) > RULES_MAX:
                raise ConfigError(allowance.place, "users", f"{name!r} has more than {RULES_MAX} rules")
    return {name: tuple(mine) for name, mine in rules.items()}


def read_allowances(text: str, place: str) -> list[Allowance]:
    """Read the entries of the file, whether or not the users are known."""
    import tomllib  # here: a node without security starts without it

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(place, "", f"is not TOML: {error}") from None
    for key in table:
        if key != "allow":
            raise ConfigError(place, key, "the file has [[allow]] entries and nothing else")
    entries = table.get("allow", [])
    if not isinstance(entries, list):
        raise ConfigError(place, "allow", "each entry begins with [[allow]], in two brackets")
    places = _places(text, place, len(entries))
    return [_read(entry, at) for entry, at in zip(entries, places, strict=True)]


def _places(text: str, place: str, count: int) -> list[str]:
    """Return the names of the entries, counted from 1; with their lines, if these can be found."""
    lines = [text.count("\n", 0, found.start()) + 1 for found in _ENTRY.finditer(text)]
    places = [f" (line {line})" for line in lines] if len(lines) == count else [""] * count
    return [f"{place}, allow[{number}]{line}" for number, line in enumerate(places, 1)]


def _read(entry: Any, place: str) -> Allowance:
    if not isinstance(entry, dict):
        raise ConfigError(place, "", "each entry begins with [[allow]], in two brackets")
    for key in entry:
        if key not in KEYS:
            hint = close_match(key, KEYS)
            raise ConfigError(place, key, f"there is no such key; there are {', '.join(KEYS)}{hint}")
    users, everyone = _users(entry, place)
    actions = _actions(entry, place)
    where, queues = _where(entry, place, actions), _queues(entry, place, actions)
    rules = tuple(Rule(action, where, queue) for action in actions for queue in queues)
    return Allowance(place, users, everyone, rules)


def _users(entry: dict[str, Any], place: str) -> tuple[tuple[str, ...], bool]:
    if "everyone" in entry:
        if entry["everyone"] is not True:
            raise ConfigError(place, "everyone", "is true, or is left out")
        if "users" in entry:
            raise ConfigError(place, "users", "stands beside everyone = true: one of them only")
        return (), True
    if "users" not in entry:
        raise ConfigError(place, "users", 'is missing: users = ["NAME", …], or everyone = true')
    return _texts(entry, place, "users", "names of users"), False


def _actions(entry: dict[str, Any], place: str) -> tuple[Action, ...]:
    possible = ", ".join(ACTIONS)
    if "actions" not in entry:
        raise ConfigError(place, "actions", f"is missing: some of {possible}")
    named = _texts(entry, place, "actions", f"some of {possible}")
    for name in named:
        if name not in ACTIONS:
            hint = close_match(name, ACTIONS)
            raise ConfigError(place, "actions", f"there is no {name!r}; there are {possible}{hint}")
    return tuple(action for action in ACTIONS if action in named)


def _where(entry: dict[str, Any], place: str, actions: tuple[Action, ...]) -> Filter | None:
    if "where" not in entry:
        return None
    _refuse_with(place, "where", actions, WITHOUT_WHERE)
    text = entry["where"]
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(place, "where", "is a filter, such as \"type = 'air.pm10'\"; left out, all events")
    try:
        return Filter(text)
    except (FilterError, MissingExtra) as error:
        raise ConfigError(place, "where", f"is no filter: {error}") from None


def _queues(entry: dict[str, Any], place: str, actions: tuple[Action, ...]) -> tuple[str, ...] | tuple[None]:
    if "queues" not in entry:
        return (None,)
    _refuse_with(place, "queues", actions, WITHOUT_QUEUES)
    return _texts(entry, place, "queues", "names of queues, in which * is any text; left out, all queues")


def _refuse_with(place: str, key: str, actions: tuple[Action, ...], without: tuple[Action, ...]) -> None:
    for action in without:
        if action in actions:
            others = ", ".join(other for other in ACTIONS if other not in without)
            raise ConfigError(place, key, f"goes with {others}, not with {action}: make two entries")


def _texts(entry: dict[str, Any], place: str, key: str, what: str) -> tuple[str, ...]:
    """Return a list of texts, none of them empty."""
    given = entry[key]
    if not isinstance(given, list) or not given or not all(isinstance(one, str) and one for one in given):
        raise ConfigError(place, key, f"is a list of {what}, and not an empty one")
    return tuple(given)
