"""A server for all tests of this folder, with no tables of tidings when a test begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from postgres.rig import Node
from postgres.server import Server, lacking
from tidings.postgres import worker


@pytest.fixture(scope="session")
def running() -> Iterator[Server]:
    if lacking():
        pytest.skip(lacking())
    server = Server()
    yield server
    server.remove()


OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture
def server(running: Server) -> Server:
    with psycopg.connect(running.conninfo, autocommit=True) as connection:
        # What a node of an earlier test has left under way could hold locks against the next statement.
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {OTHERS}")
        connection.execute("DROP SCHEMA IF EXISTS tidings CASCADE")
    return running


@pytest.fixture(autouse=True)
def only_notices_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself after a while, which would hide that he was not told."""
    monkeypatch.setattr(worker, "LOOK_S", 1e6)


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., Node]]:
    """Starts nodes, which are closed when the test is over."""
    nodes: list[Node] = []

    def start(name: str = "a") -> Node:
        nodes.append(Node(server.conninfo, name))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start()
