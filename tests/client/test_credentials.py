"""Who a client is: what it is told, reads and shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from node.authority import HOSTS
from node.secured import PASSWORD, TOKEN, Secured

import tidings
from client.nodes import run
from tidings.errors import ConfigError, NotAllowed, TidingsError, UserError
from tidings.node.config import NodeConfig
from tidings.node.server import Node
from tidings.transport.credentials import SECRET_SIZE_MAX, Credentials


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


@asynccontextmanager
async def node_of(secured: Secured, port: int = 0) -> AsyncIterator[Node]:
    node = Node(NodeConfig(security=str(secured.path), port=port, compiled=False))
    await node.start()
    try:
        yield node
    finally:
        await node.close()


def kept(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "proof",
    [
        lambda home: {"user": "ada", "password": PASSWORD},
        lambda home: {"user": "ada", "password": kept(home / "password", PASSWORD + "\n")},
        lambda home: {"token": TOKEN},
        lambda home: {"token": kept(home / "token", TOKEN)},
        lambda home: {"user": "device", "token": kept(home / "token", TOKEN + "\r\n")},
    ],
)
def test_a_secret_may_be_given_or_lie_in_a_file(
    secured: Secured, proof: Callable[[Path], dict[str, Any]]
) -> None:
    async def work() -> None:
        async with node_of(secured) as node:
            options = proof(secured.home)
            async with tidings.connect(node.addresses[0], ca=str(secured.ca), **options) as bus:
                await bus.publish("a", delivery="reliable")

    run(work())


def test_the_blocking_bus_takes_the_same(secured: Secured) -> None:
    async def work() -> None:
        async with node_of(secured) as node:
            await asyncio.to_thread(use, node.addresses[0])

    def use(address: str) -> None:
        with tidings.blocking.connect(address, user="ada", password=PASSWORD, ca=secured.ca) as bus:
            assert bus.status()["sessions"] == 1

    run(work())


def test_a_secret_that_was_replaced_in_its_file_is_used_for_the_next_connection(secured: Secured) -> None:
    async def work() -> None:
        token = kept(secured.home / "token", "tdg_" + 43 * "x")
        async with node_of(secured) as node:
            bus = tidings.connect(node.addresses[0], token=token, ca=secured.ca)
            kept(token, TOKEN)
            async with bus:
                await bus.publish("a", delivery="reliable")

    run(work())


def test_a_name_is_the_users_or_begins_with_it(secured: Secured) -> None:
    async def sources(address: str, name: str) -> str | None:
        options = {"user": "ada", "password": PASSWORD, "ca": secured.ca, "name": name}
        async with tidings.connect(address, **options) as bus, bus.subscribe() as events:
            await bus.publish("a")
            return (await anext(events)).source

    async def work() -> None:
        async with node_of(secured) as node:
            assert await sources(node.addresses[0], "") == "ada"
            assert await sources(node.addresses[0], "ada/laptop") == "ada/laptop"
            with pytest.raises(NotAllowed, match="the name must be 'ada', or begin with 'ada/'"):
                await sources(node.addresses[0], "bob")

    run(work())


def test_a_client_that_was_there_waits_for_a_node_whose_certificate_is_wrong_for_a_while(
    secured: Secured,
) -> None:
    async def work() -> None:
        async with node_of(secured) as node:
            port = int(node.addresses[0].rpartition(":")[2])
            bus = tidings.connect(node.addresses[0], token=TOKEN, ca=secured.ca)
            await bus.__aenter__()
        secured.authority.issue(secured.path / "node.pem", "kitchen", HOSTS, (-10, -1))
        async with node_of(secured, port) as node:
            with pytest.raises(TidingsError, match="has expired"):
                await bus.publish("a", delivery="reliable", timeout_s=1.0)
            secured.authority.issue(secured.path / "node.pem", "kitchen", HOSTS)
            node.reload()
            await bus.publish("a", delivery="reliable")
            await bus.__aexit__(None, None, None)

    run(work())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"password": "x"}, "a password needs a user"),
        ({"user": "ada", "password": "x", "token": "y"}, "exclude each other"),
        ({"key": "k.pem"}, "a key needs its certificate"),
        (
            {"address": "tidings+tls://ada@127.0.0.1", "user": "bob"},
            "names the user 'ada', the argument 'bob'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        tidings.connect(**{"address": "tidings+tls://127.0.0.1", **options})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "the token can't be read: No such file"),
        (b"", "must hold the token"),
        (b"\xff\xfe", "the token is no text"),
        (b"two\nlines", "must hold the token, on one line"),
        (b"x" * (SECRET_SIZE_MAX + 1), "must hold the token"),
    ],
)
def test_a_file_that_holds_no_secret_is_named_and_not_shown(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as raised:
        Credentials(token=file).read()
    assert str(raised.value).startswith(f"{file}: ")
    assert problem in str(raised.value)
    assert "two" not in str(raised.value)


def test_files_of_certificates_that_are_no_good_are_named_at_once(secured: Secured) -> None:
    async def problem(**options: Any) -> str:
        with pytest.raises(ConfigError) as raised:
            async with tidings.connect("tidings+tls://127.0.0.1:1", timeout_s=None, **options):
                pass
        return str(raised.value)

    async def work() -> None:
        client = secured.client("bob")
        junk = kept(secured.home / "junk.pem", "junk")
        assert await problem(ca=junk) == f"{junk}: holds no certificate of a CA in PEM"
        assert "No such file" in await problem(ca=secured.home / "none.pem")
        assert "belongs to another certificate" in await problem(
            ca=secured.ca, cert=client["cert"], key=secured.path / "node.key"
        )
        assert "no certificate in PEM, or no key of it" in await problem(ca=secured.ca, cert=client["cert"])

    run(work())


def test_credentials_do_not_show_what_is_secret() -> None:
    for credentials in (Credentials("ada", password="hunter2"), Credentials(token="hunter2")):
        credentials.read()
        assert "hunter2" not in repr(credentials)
        assert "hunter2" in credentials.says()
