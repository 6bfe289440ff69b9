#!/usr/bin/env python3
"""Write `docs/limits.md` from the constants of the code whose names end with `_MAX`.

A limit says what it bounds in the docstring below it or in the comment beside it; without either it is left
out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidings"
PAGE = ROOT / "docs" / "limits.md"
PACKAGES = {
    "event": "Events",
    "filters": "Filters",
    "matching": "Matching",
    "interest": "Advertisements and interest",
    "patterns": "Patterns",
    "client": "Clients",
    "transport": "Connections",
    "protocol": "Sessions and subscriptions",
    "queues": "Queues, transactions and spaces",
    "postgres": "Queues in PostgreSQL",
    "peers": "Other nodes",
    "overlay": "The overlay",
    "adhoc": "Hosts that meet by chance",
    "store": "The store",
    "log": "The log",
    "pipeline": "Spark",
    "security": "Logins and rules",
    "gateway": "The gateway",
    "sensors": "Sensors",
    "node": "The node",
    "testing": "Testing",
}
"""What each part is called on the page, in the order of the page; the rest stands under `Everywhere`."""
HEAD = """# Limits

Every buffer, table, loop and wait of tidings has a limit with a name. `make generated` writes this
page from the code, and a test compares the two. [Running a node](node.md) lists the limits that can be set;
the others are constants of the module in the last column.
"""


class Limit(NamedTuple):
    """A row of the page."""

    package: str
    module: str
    name: str
    value: str
    meaning: str


def limits() -> Iterator[Limit]:
    """All limits, by modules."""
    for path in sorted(SOURCE.rglob("*.py")):
        found = list(named(path.read_text()))
        if found:
            yield from described(path, found)


def named(text: str) -> Iterator[tuple[str, str]]:
    """Names and meanings of the limits of a module."""
    body, lines = ast.parse(text).body, text.splitlines()
    for one, after in zip_longest(body, body[1:]):
        target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
        if isinstance(target, ast.Name) and target.id.endswith("_MAX") and target.id[0] != "_":
            _, _, comment = lines[one.lineno - 1].partition("  # ")
            is_documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            meaning = str(after.value.value) if is_documented else comment
            if meaning:
                yield target.id, " ".join(meaning.replace("|", "or").split())


def described(path: Path, found: list[tuple[str, str]]) -> Iterator[Limit]:
    """The limits of a module, with the values that they have when it is imported."""
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    module = import_module(name)
    package = name.split(".")[1] if name.split(".")[1] in PACKAGES else ""
    for limit, meaning in found:
        value = getattr(module, limit)
        if isinstance(value, int | float):
            yield Limit(package, name.removeprefix("tidings."), limit, shown(limit, value), meaning)


def shown(name: str, value: float) -> str:
    """A value as it is read best."""
    if "SIZE" in name or name in ("FRAME_MAX", "REPLY_MAX", "FIRST_FRAME_MAX"):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value * 4 % size == 0:
                return f"{value / size:g} {unit}"
    if "_S_" in name:
        return f"{value:,g} s"
    return f"{value:,}"


def page() -> str:
    """The whole page."""
    parts, found = [HEAD], list(limits())
    for package, title in (*PACKAGES.items(), ("", "Everywhere")):
        rows = [one for one in found if one.package == package]
        if rows:
            parts += [
                f"\n## {title}\n\n",
                "| limit | | what it bounds | where |\n",
                "| --- | --- | --- | --- |\n",
            ]
            parts += [f"| `{one.name}` | {one.value} | {one.meaning} | `{one.module}` |\n" for one in rows]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
