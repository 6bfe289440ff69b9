"""The file `peers` of a security directory: nodes that have joined this one, and the one that it has joined.

    kitchen  tidings+tls://10.0.0.7:7300 tidings+tls://kitchen.example:7300
    shed                              # joined, and can't be dialled from here

A node reads it at each start, and dials the first address of each, beside those that its settings name and
after them; what the settings say of a name is stronger.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidings.errors import AddressError, ConfigError
from tidings.security.directory import OPEN, SecurityDirectory, read_text, write_file
from tidings.security.users import name_problem
from tidings.transport.address import parse

NODES_MAX = 1_000
_HEAD = "# Nodes that have joined this one, and the one that it has joined; read when the node starts.\n"

KnownNodes = Mapping[str, tuple[str, ...]]
"""Addresses of nodes by their names, the nearest first; of one that can't be dialled, none."""


def read_known(home: SecurityDirectory) -> dict[str, tuple[str, ...]]:
    """Read the file; ConfigError with the line of the first mistake. None is as good as an empty one."""
    if not home.peers.exists():
        return {}
    known: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_text(home.peers, is_secret=False).split("\n"), 1):
        words = line.partition("#")[0].split()
        if words:
            problem = _problem(words, known)
            if problem is not None:
                raise ConfigError(f"{home.peers}, line {number}", "", problem)
            known[words[0]] = tuple(words[1:])
    return known


def _problem(words: list[str], known: KnownNodes) -> str | None:
    name, *addresses = words
    if name in known:
        return f"{name} is named twice"
    if len(known) >= NODES_MAX:
        return f"more than {NODES_MAX} nodes are named"
    try:
        kinds = {parse(address).kind for address in addresses}
    except AddressError as error:
        return str(error)
    if kinds - {"tls"}:
        return f"{name}: a node that has joined is reached by tidings+tls://HOST:PORT"
    return name_problem(name, "a node's name")


def known_text(known: KnownNodes) -> str:
    """Return the file of these."""
    return _HEAD + "".join(f"{' '.join((name, *addresses))}\n" for name, addresses in known.items())


def remember(home: SecurityDirectory, name: str, addresses: tuple[str, ...]) -> None:
    """Add a node, or replace its addresses; to be called with the directory locked."""
    known = read_known(home)
    if known.get(name) != addresses:
        write_file(home.peers, known_text({**known, name: addresses}), OPEN)


def forget(home: SecurityDirectory, name: str) -> bool:
    """Remove a node; whether it was there. To be called with the directory locked."""
    known = read_known(home)
    if known.pop(name, None) is None:
        return False
    write_file(home.peers, known_text(known), OPEN)
    return True
