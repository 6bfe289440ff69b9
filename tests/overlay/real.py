"""Real nodes in a line, in the loop of a test: each dials the next; their certificates have one authority."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from node.authority import HOSTS
from node.peers import running
from node.secured import Secured

import tidings
from tidings.client import Bus
from tidings.node.server import Node
from tidings.overlay.neighbours import Neighbour

ALL: Sequence[str] = ("publish", "subscribe", "put", "get", "manage")
EVERYTHING = ""


def allow(user: str, actions: Sequence[str] = ALL, where: str = EVERYTHING) -> str:
    """Return an entry of `access.toml`."""
    actions = ", ".join(f'"{one}"' for one in actions)
    condition = f'where = "{where}"\n' if where else ""
    return f'[[allow]]\nusers = ["{user}"]\nactions = [{actions}]\n{condition}'


class Line:
    """Nodes that dial each other, the first the second and so on, and clients of theirs.

    With a `home` they speak TLS. `users` are, for a node, its users with certificates; each of these and each
    neighbour may do everything, unless `rules` has an `access.toml` for that node.
    """

    def __init__(
        self,
        *names: str,
        home: Path | None = None,
        users: Mapping[str, Sequence[str]] | None = None,
        rules: dict[str, str] | None = None,
        settings: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.names = names
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, Secured] = {}
        self._settings = settings or {}
        self._stack = AsyncExitStack()
        if home is not None:
            for name in names:
                self._secure(home / name, name, (users or {}).get(name, ()), (rules or {}).get(name))

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def _secure(self, place: Path, name: str, users: Sequence[str], rules: str | None) -> None:
        """Make the security directory of a node, with the authority of the first one."""
        place.mkdir()
        made = self.places[name] = Secured(place)
        made.authority = self.places[self.names[0]].authority
        made.ca = made.authority.write_ca(made.path / "ca.pem")
        made.authority.issue(made.path / "node.pem", name, HOSTS)
        others = self._beside(name)
        made.write_users(
            "".join([f"{one} node\n" for one in others] + [f"{one} certificate\n" for one in users])
        )
        made.write_access("".join(map(allow, [*others, *users])) if rules is None else rules)

    def _beside(self, name: str) -> list[str]:
        at = self.names.index(name)
        return [one for one in self.names if abs(self.names.index(one) - at) == 1]

    async def __aenter__(self) -> Self:
        for name in reversed(self.names):  # each one dials the next, which is there already
            await self.start(name)
        for name in self.names:
            for other in self._beside(name):
                await self.wait_linked(name, other)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def start(self, name: str) -> None:
        """Start a node."""
        settings: dict[str, Any] = {"name": name, **self._settings.get(name, {})}
        if self.places:
            settings["security"] = str(self.places[name].path)
        following = self.names[self.names.index(name) + 1 :]
        if following and following[0] in self.nodes:
            settings["peers"] = f"{following[0]}={self.address(following[0])}"
        self.nodes[name] = await self._stack.enter_async_context(running(**settings))

    def address(self, name: str) -> str:
        """Where clients find a node."""
        return self.nodes[name].addresses[0]

    async def bus(self, node: str, user: str = "") -> Bus:
        """Connect a client of a node, under a name."""
        options: dict[str, Any] = {"name": user or f"app-{node}"}
        if self.places:
            options |= self.places[node].client(options["name"])
        return await self._stack.enter_async_context(tidings.connect(self.address(node), **options))

    # What nodes know

    def neighbour(self, node: str, other: str) -> Neighbour | None:
        """Return a neighbour of a node, if it has the one of that name."""
        return next((one for one in self[node].driver.core.overlay if one.name == other), None)

    def table(self, node: str, of: str) -> list[str]:
        """Return what a node knows that a neighbour wants."""
        neighbour = self.neighbour(node, of)
        return [] if neighbour is None or neighbour.table is None else sorted(neighbour.table.entries)

    def count(self, node: str, what: str, reason: str = "") -> int:
        """Return how often something has happened at a node."""
        return self[node].driver.broker.tallies[what, reason]

    async def wait_linked(self, node: str, other: str) -> None:
        """Wait until the link of a node is up and active."""
        while not ((found := self.neighbour(node, other)) and found.is_up and found.is_active):
            await asyncio.sleep(0)

    async def wait_wanted(self, *texts: str, at: str, of: str) -> None:
        """Wait until a neighbour wants exactly this."""
        while self.table(at, of) != sorted(texts):
            await asyncio.sleep(0)

    async def wait_count(self, node: str, what: str, reason: str, times: int) -> None:
        """Wait until something has happened so often."""
        while self.count(node, what, reason) < times:
            await asyncio.sleep(0)
