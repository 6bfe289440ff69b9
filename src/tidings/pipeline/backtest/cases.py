"""Cases of a back-test, read from a file: named filters, patterns, or the rules of users.

| file | cases |
| --- | --- |
| `*.toml` with `[filters]` | `NAME = "FILTER"`, one a line |
| `*.toml` with `[patterns]` | `NAME = "PATTERN"` |
| `*.toml` with `[[allow]]` | an `access.toml`: each user, with the events it may subscribe to |
| `*.jsonl`, `*.json` | a line each: `{"name": …, "where": "FILTER"}`, or `"FILTER"` |
| any other | a filter a line; empty lines, and those that begin with `#`, are skipped |
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError, FilterError, MissingExtra, NotAllowed
from tidings.filters import Filter, Taxonomy
from tidings.patterns import Pattern
from tidings.protocol.access import Principal
from tidings.security.rules import read_allowances, read_rules

CASES_MAX: Final = 1_000_000
"""Cases of one back-test."""
EVERYONE: Final = "(everyone)"
"""Name of the case of a user who is named nowhere, and has only the rules of everyone."""

PATTERNS_MAX: Final = 1_000
"""Patterns of one back-test."""

Kind = Literal["filters", "patterns", "access"]


class Case(Struct, frozen=True):
    """Filter whose matches are counted; of a user, the filter of what it may see.

    Of a pattern, whose matches are found, the filter of all its steps.
    """

    name: str
    where: Filter
    pattern: Pattern | None = None


class Cases(Struct, frozen=True):
    """All cases of a file."""

    kind: Kind
    cases: tuple[Case, ...]


def read_cases(path: Path, taxonomy: Taxonomy | None = None) -> Cases:
    """Read a file of cases; ConfigError names the file, the line or entry, and the mistake.

    A taxonomy is written into filters and patterns.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", f"can't be read: {error}") from None
    kind: Kind = "filters"
    if path.suffix == ".toml":
        kind, found = _from_toml(text, str(path), taxonomy)
    elif path.suffix in (".jsonl", ".json", ".ndjson"):
        found = _from_json(text, str(path), taxonomy)
    else:
        found = _from_lines(text, str(path), taxonomy)
    return Cases(kind, _checked(found, str(path)))


def cases_of_rules(text: str, place: str) -> list[Case]:
    """Return a case for each user named in an `access.toml`, and for everyone else if that may see anything.

    A user without a right to subscribe has a filter that matches nothing.
    """
    allowances = read_allowances(text, place)
    users = list(dict.fromkeys(user for allowance in allowances for user in allowance.users))
    rules = read_rules(text, place, [*users, EVERYONE])
    named = [*users, *([EVERYONE] if EVERYONE in rules else [])]
    return [Case(user, _seen_by(Principal(user, rules=rules.get(user, ())))) for user in named]


def _seen_by(principal: Principal) -> Filter:
    try:
        granted = principal.grant("subscribe")
    except NotAllowed:
        return ~Filter()
    return Filter() if granted is None else granted


def _from_toml(text: str, place: str, taxonomy: Taxonomy | None) -> tuple[Kind, Iterable[Case]]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(place, "", f"is not TOML: {error}") from None
    if "allow" in table:
        return "access", cases_of_rules(text, place)
    kind: Kind = "patterns" if "patterns" in table else "filters"
    strange = sorted(table.keys() - {kind})
    named = table.get(kind)
    if strange or not isinstance(named, dict):
        problem = 'a file of cases has [filters] with NAME = "FILTER", [patterns] or [[allow]]'
        raise ConfigError(place, strange[0] if strange else kind, problem)
    if kind == "patterns" and len(named) > PATTERNS_MAX:
        raise ConfigError(place, kind, f"has more than PATTERNS_MAX = {PATTERNS_MAX:,} patterns")
    read = _pattern if kind == "patterns" else _case
    return kind, [read(name, text, f"{place}, {kind}.{name}", taxonomy) for name, text in named.items()]


def _from_json(text: str, place: str, taxonomy: Taxonomy | None) -> Iterator[Case]:
    for number, line in _lines(text):
        where = f"{place}, line {number}"
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(where, "", f"is no JSON: {error}") from None
        if isinstance(entry, str):
            yield _case(f"line {number}", entry, where, taxonomy)
        elif isinstance(entry, dict) and "where" in entry and entry.keys() <= {"name", "where"}:
            yield _case(str(entry.get("name", f"line {number}")), entry["where"], where, taxonomy)
        else:
            raise ConfigError(where, "", 'is neither "FILTER" nor {"name": …, "where": "FILTER"}')


def _from_lines(text: str, place: str, taxonomy: Taxonomy | None) -> Iterator[Case]:
    for number, line in _lines(text):
        if not line.startswith("#"):
            yield _case(f"line {number}", line, f"{place}, line {number}", taxonomy)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def _pattern(name: str, text: Any, place: str, taxonomy: Taxonomy | None) -> Case:
    if not isinstance(text, str):
        raise ConfigError(place, "", f"a pattern is text, not {text!r}")
    try:
        pattern = Pattern(text, taxonomy=taxonomy)
    except (FilterError, MissingExtra) as error:
        raise ConfigError(place, "", f"is no pattern: {error}") from None
    return Case(name, pattern.filter, pattern)


def _case(name: str, text: Any, place: str, taxonomy: Taxonomy | None) -> Case:
    if not isinstance(text, str):
        raise ConfigError(place, "", f"a filter is text, not {text!r}")
    try:
        return Case(name, Filter(text, taxonomy=taxonomy))
    except (FilterError, MissingExtra) as error:
        raise ConfigError(place, "", f"is no filter: {error}") from None


def _checked(found: Iterable[Case], place: str) -> tuple[Case, ...]:
    cases: dict[str, Case] = {}
    for case in found:
        if case.name in cases:
            raise ConfigError(place, case.name, "two cases have this name")
        cases[case.name] = case
        if len(cases) > CASES_MAX:
            raise ConfigError(place, "", f"has more than CASES_MAX = {CASES_MAX:,} cases")
    if not cases:
        raise ConfigError(place, "", "has no case")
    return tuple(cases.values())
