"""Real nodes that know each other and are killed, without security or with certificates of one authority."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from effort import ANSWER_S, SEED, lasting
from guarantees.mortal import MortalNode
from node.peers import Start
from security.places import SECRET, cheap

import tidings
from benchmarks.peers import free_port
from tidings.client.bus import Bus
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.passwords import Token, hash_token, make_token
from tidings.security.provision import EVERYDAY, Admin, add_allowance, allowance, make_security, make_sibling

HANGS_S = lasting(180.0)
"""After this a run is taken to hang."""
ADMIN = "admin"
PATIENCE_S = ANSWER_S
"""How long a client tries to reach a node for the first time."""

Result = TypeVar("Result")


def run_within(scenario: Coroutine[Any, Any, Result], story: Callable[[], str] = str) -> Result:
    """Run it, and end it if it hangs; `story` says how far it has come, for a run that failed."""

    async def within() -> Result:
        try:
            async with asyncio.timeout(HANGS_S):
                return await scenario
        except BaseException as error:
            error.add_note(f"seed {SEED} {story()}")
            raise

    return asyncio.run(within())


class Peered(MortalNode):
    """A node with a name, and maybe with peers."""

    def __init__(self, start: Start, home: Path, *flags: str) -> None:
        super().__init__(start, home)
        self._flags += flags


class Secured(Peered):
    """One that speaks TLS, and lets in who can prove to be a user; its port is known before it starts."""

    def __init__(self, start: Start, home: Path, name: str, directory: SecurityDirectory) -> None:
        super().__init__(start, home, "--name", name, "--security", str(directory.path))
        self.name = name
        self.directory = directory
        self._tokens: dict[str, str] = {}
        self._port = str(free_port())

    @property
    def address(self) -> str:
        """Where it listens."""
        return super().address.replace("tidings:", "tidings+tls:")

    def know(self, others: list[Secured]) -> None:
        """Have these as peers; to be called before it is started."""
        self._flags += ("--peers", ", ".join(f"{one.name}={one.address}" for one in others))

    def let_in(self, user: str, action: str, *queues: str) -> None:
        """A user with a token, who may do this with these queues and nothing else."""
        self._tokens[user] = make_token(os.urandom)
        with edited(self.directory) as lines:
            lines.add_token(user, Token("first", hash_token(self._tokens[user])))
        add_allowance(self.directory, f"{allowance([user], [action])}queues = {list(queues)}\n")

    def bus(self, name: str) -> Bus:
        """A connection of the user by whose name this begins, which waits for the node to be there again."""
        return tidings.connect(
            self.address,
            name=name,
            token=self._tokens[name.partition("/")[0]],
            ca=self.directory.ca,
            timeout_s=PATIENCE_S,
            random=lambda: 0.0,
        )

    def manage(self) -> Bus:
        """A connection of the administrator, who is the same at all nodes."""
        return tidings.connect(self.address, user=ADMIN, password=SECRET, ca=self.directory.ca)


def secured_nodes(start: Start, home: Path, names: str) -> dict[str, Secured]:
    """Nodes that are each other's peers, with certificates of one authority."""
    first, *others = (SecurityDirectory(home / f"{name}-sec") for name in names)
    now = datetime.now(UTC)
    make_security(first.path, names[0], ["127.0.0.1"], Admin(ADMIN, cheap()), os.urandom, now)
    for name, directory in zip(names[1:], others, strict=True):
        make_sibling(first, directory.path, name, ["127.0.0.1"], now)
        introduce(directory, names[1:].replace(name, ""))
    nodes = {
        name: Secured(start, home / name, name, directory)
        for name, directory in zip(names, (first, *others), strict=True)
    }
    for node in nodes.values():
        node.know([other for other in nodes.values() if other is not node])
    return nodes


def introduce(directory: SecurityDirectory, names: str) -> None:
    """Make nodes known that are not the one by which a directory was made."""
    with edited(directory) as lines:
        for name in names:
            lines.add(name, "node")
    add_allowance(directory, allowance(names, EVERYDAY))
