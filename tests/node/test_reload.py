"""Users, rules and certificates that change while a node runs."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from effort import patience
from node.authority import HOSTS, Authority
from node.peers import Run, Start, running
from node.secured import ACCESS, PASSWORD, TOKEN, USERS, Secured

import tidings
from tidings.client import Bus
from tidings.errors import ConfigError, NotAllowed
from tidings.node.guard import Guard
from tidings.node.server import Node
from tidings.transport.tls import client_context

REVOKED = re.sub("device token.*", "device locked", USERS)
DAY_S = 86_400.0


def device(address: str, secured: Secured) -> Bus:
    return tidings.connect(address, token=TOKEN, ca=secured.ca)


async def publish_until_refused(bus: Bus) -> None:
    async def publish() -> None:
        while True:
            await bus.publish("a", delivery="reliable")

    with pytest.raises(NotAllowed, match="user or secret is wrong"):
        await publish()


async def certificate_at(node: Node, secured: Secured) -> str:
    """The one that the node shows now, as text."""
    port = int(node.addresses[0].rpartition(":")[2])
    context = client_context(secured.ca, None, None)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(shown)


def test_a_revoked_token_ends_its_connections(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            device(node.addresses[0], secured) as bus,
            tidings.connect(node.addresses[0], user="ada", password=PASSWORD, ca=secured.ca) as other,
        ):
            secured.write_users(REVOKED)
            node.driver.on_wake()
            await publish_until_refused(bus)
            await other.publish("a", delivery="reliable")
            assert other.is_connected
            tallies = node.driver.broker.tallies
            assert (tallies["reloads", "done"], tallies["closed", "not-allowed"]) == (1, 1)

    on_loop(scenario())


def test_whoever_may_do_other_things_now_comes_again_and_may(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            device(node.addresses[0], secured) as bus,
        ):
            with pytest.raises(NotAllowed):
                await bus.create_queue("jobs")
            secured.write_access(ACCESS.replace('["publish"]', '["publish", "manage", "put"]'))
            node.driver.on_wake()
            await bus.create_queue("jobs")
            assert node.driver.broker.tallies["closed", "changed"] == 1

    on_loop(scenario())


@pytest.mark.parametrize(
    "make",
    [
        lambda secured: secured.write_users("ada passwort x\n"),
        lambda secured: secured.write_access("[[allow]]\nusers = ['nobody']\nactions = ['publish']\n"),
        lambda secured: secured.write_access("[[allow"),
        lambda secured: (secured.path / "access.toml").unlink(),
        lambda secured: (secured.path / "node.pem").write_text("no certificate"),
        lambda secured: (secured.path / "node.key").write_text("no key"),
        lambda secured: (secured.path / "users").chmod(0o644),
    ],
    ids=["a user", "a rule", "no TOML", "no rules", "a certificate", "a key", "a mode"],
)
def test_a_mistake_leaves_all_as_it_was_and_is_told_once(
    on_loop: Run, secured: Secured, make: Callable[[Secured], object], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            device(node.addresses[0], secured) as bus,
        ):
            before = await certificate_at(node, secured)
            make(secured)
            node.reload()  # a mode is no change of time or size
            node.driver.on_wake()
            node.driver.on_wake()
            await bus.publish("a", delivery="reliable")
            async with device(node.addresses[0], secured) as another:
                await another.publish("a", delivery="reliable")
            assert bus.is_connected
            assert await certificate_at(node, secured) == before
            assert node.driver.broker.tallies["reloads", "failed"] == 1

    on_loop(scenario())
    told = [record for record in caplog.records if record.getMessage() == "security could not be read again"]
    assert len(told) == 1


def test_after_a_mistake_is_mended_the_new_rules_hold(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            device(node.addresses[0], secured) as bus,
        ):
            secured.write_users("ada\n")
            node.driver.on_wake()
            secured.write_users(REVOKED)
            node.driver.on_wake()
            await publish_until_refused(bus)

    on_loop(scenario())


def test_a_new_certificate_is_shown_to_those_who_come_and_nobody_has_to_leave(
    on_loop: Run, secured: Secured
) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            device(node.addresses[0], secured) as bus,
        ):
            before = await certificate_at(node, secured)
            secured.authority.issue(secured.path / "node.pem", "kitchen", HOSTS)
            node.driver.on_wake()
            assert await certificate_at(node, secured) == (secured.path / "node.pem").read_text() != before
            await bus.publish("a", delivery="reliable")
            assert not any(what == "closed" for what, _ in node.driver.broker.tallies)

    on_loop(scenario())


def test_an_authority_that_was_replaced_is_trusted_no_more(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            old = secured.client("bob")
            async with tidings.connect(node.addresses[0], **old):
                pass
            Authority("another").write_ca(secured.path / "ca.pem")
            node.driver.on_wake()
            old["ca"] = secured.authority.write_ca(secured.home / "old.pem")
            with pytest.raises(NotAllowed, match="was not issued by the CA of the node"):
                async with tidings.connect(node.addresses[0], **old):
                    pass

    on_loop(scenario())


def test_all_is_read_again_when_a_day_ends_as_tokens_end_then(secured: Secured) -> None:
    guard = Guard(secured.path, 0.0)
    assert guard.look(DAY_S - 1) is None
    assert guard.look(DAY_S) is True
    assert guard.look(DAY_S + 1) is None


def test_tokens_end_with_the_day_though_the_files_are_broken_then(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node, device(node.addresses[0], secured) as bus:
            today = datetime.now(UTC).date()
            secured.write_users(USERS.replace("\nbob", f" until:{today}\nbob"))
            node.driver.on_wake()
            await bus.publish("a", delivery="reliable")
            secured.write_access("[[")
            guard = node.guard
            assert guard is not None
            assert guard.look(time.time() + DAY_S) is False
            node.driver.review()
            await publish_until_refused(bus)

    on_loop(scenario())


def test_a_change_of_who_may_use_a_file_is_noticed(secured: Secured) -> None:
    guard = Guard(secured.path, 0.0)
    (secured.path / "users").chmod(0o644)
    assert guard.look(1.0) is False
    (secured.path / "users").chmod(0o600)
    assert guard.look(2.0) is True
    assert guard.look(3.0) is None


def test_a_node_is_called_as_in_its_certificate_and_by_no_other_name(secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            assert node.driver.broker.name == "kitchen"
        with pytest.raises(ConfigError, match="'attic' is not the name in its certificate, 'kitchen'"):
            async with running(security=str(secured.path), name="attic"):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("days", "told"),
    [
        ((-2, -1), "the node's certificate has expired"),
        ((-1, 20), "the node's certificate expires soon"),
        ((-1, 40), None),
    ],
)
def test_a_certificate_that_ends_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: tuple[float, float], told: str | None
) -> None:
    Guard(Secured(tmp_path, days).path, time.time())
    assert [record.getMessage() for record in caplog.records] == ([] if told is None else [told])


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("users", "ada password hunter2\n", "users, line 1"),
        ("access.toml", "[[allow]]\nusers = ['ada']\nactions = ['fly']\n", "there is no 'fly'"),
        ("node.pem", "", "no certificate in PEM"),
        ("ca.pem", "", "holds no certificate of a CA in PEM"),
    ],
)
def test_a_mistake_at_the_start_is_the_end_of_it(
    secured: Secured, name: str, text: str, problem: str
) -> None:
    (secured.path / name).write_text(text)

    async def scenario() -> None:
        with pytest.raises(ConfigError) as raised:
            async with running(security=str(secured.path)):
                pass
        assert problem in str(raised.value)
        assert "hunter2" not in str(raised.value)

    asyncio.run(scenario())


def test_a_signal_has_all_read_again(start: Start, secured: Secured, tmp_path: Path) -> None:
    node = start("--port", "0", "--security", str(secured.path), "--log-form", "text")
    address = node.address()
    assert address.startswith("tidings+tls://127.0.0.1:")
    assert node.line() == f"users and rules from {secured.path}"
    assert node.process.stderr is not None
    while "started" not in node.process.stderr.readline():
        pass

    async def scenario() -> None:
        async with device(address, secured) as bus:
            secured.write_users(REVOKED)
            node.process.send_signal(signal.SIGHUP)
            await publish_until_refused(bus)

    asyncio.run(asyncio.wait_for(scenario(), patience(60)))
    code, errors = node.stop()
    assert code == 0
    assert "info security was read again users=3" in errors
    assert TOKEN not in errors


def test_without_security_nothing_is_read() -> None:
    async def scenario() -> None:
        async with running() as node:
            node.reload()
            assert node.driver.broker.tallies["reloads", "done"] == 0

    asyncio.run(scenario())
