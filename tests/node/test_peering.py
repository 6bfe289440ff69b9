"""The peers of real nodes: found, lost, found again, and believed only if they are who they should be."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from node.authority import HOSTS
from node.peers import Peer, inside, run, running
from node.secured import Secured
from node.test_discovery import multicast  # noqa: F401  # a fixture

import tidings
from tidings.errors import ConfigError, NotAllowed, QueueNotFound
from tidings.node import ring_port
from tidings.node.config import NodeConfig
from tidings.node.pages import NodePages
from tidings.node.server import Node
from tidings.node.settings import load
from tidings.peers import peering

ALL = '["publish", "subscribe", "put", "get", "manage"]'


@contextlib.asynccontextmanager
async def visitor(node: Node) -> AsyncIterator[Peer]:
    """Someone in the node's own process who was welcomed."""
    peer = inside(node)
    await peer.hello()
    yield peer
    peer.close()


async def standing(peer: Peer, name: str) -> dict[str, Any]:
    """How a node says that one of its peers stands."""
    status = (await peer.ask("status")).result
    return next(one for one in status["peers"] if one["name"] == name)


async def wait_state(peer: Peer, name: str, state: str) -> dict[str, Any]:
    while (found := await standing(peer, name))["state"] != state:
        pass
    return found


async def wait_error(peer: Peer, name: str, part: str) -> dict[str, Any]:
    while part not in (found := await standing(peer, name))["error"]:
        pass
    return found


def test_a_node_tells_how_its_peers_stand() -> None:
    async def work() -> None:
        async with running(name="kitchen") as kitchen:
            peers = f"kitchen={kitchen.addresses[0]}, attic=tidings://127.0.0.1:1"
            async with running(name="home", peers=peers) as home, visitor(home) as ann:
                found = await wait_state(ann, "kitchen", "there")
                assert (found["node"], found["error"], found["waiting"]) == (
                    kitchen.driver.broker.node,
                    "",
                    0,
                )
                away = await wait_error(ann, "attic", "1")
                assert (away["state"], away["node"]) == ("away", "")

    run(work())


def test_a_peer_that_comes_back_is_found_again(tmp_path: Path) -> None:
    async def work() -> None:
        socket = str(tmp_path / "kitchen")
        peers = f"kitchen=tidings+unix://{socket}"
        async with running(name="home", peers=peers) as home, visitor(home) as ann:
            assert (await standing(ann, "kitchen"))["state"] == "away"
            for _ in range(2):
                async with running(name="kitchen", port=None, unix=socket):
                    await wait_state(ann, "kitchen", "there")
                await wait_state(ann, "kitchen", "away")

    run(work())


def test_metrics_tell_of_peers() -> None:
    async def work() -> None:
        async with running(name="kitchen") as kitchen:
            peers = f"kitchen={kitchen.addresses[0]}, attic=tidings://127.0.0.1:1"
            async with running(name="home", peers=peers) as home, visitor(home) as ann:
                await wait_state(ann, "kitchen", "there")
                _, page = await NodePages(home).show_metrics("")
                assert 'tidings_peer_there{peer="kitchen"} 1' in page
                assert 'tidings_peer_there{peer="attic"} 0' in page
                assert 'tidings_peer_waiting{peer="kitchen"} 0' in page

    run(work())


def test_a_node_that_is_not_who_it_should_be_is_told_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        socket = str(tmp_path / "home")
        peers = f"kitchen=tidings+unix://{socket}"
        async with running(name="home", port=None, unix=socket, peers=peers) as home, visitor(home) as ann:
            await ann.ask("queue.create", name="jobs")
            waiting = await ann.ask("get", queue="jobs@kitchen", wait_s=20.0)  # asked before it was found
            assert waiting.error is not None
            assert (waiting.error.code, "this node itself" in waiting.error.text) == ("away", True)
            found = await standing(ann, "kitchen")
            assert (found["state"], found["error"]) == ("away", "it is this node itself")
            told = (await ann.ask("queue.describe", queue="jobs")).result
            assert told.get("waiting", 0) == 0

    run(work())


def found_near(node: Node, name: str, address: str) -> None:
    """A node says on the network that it is there."""
    node.driver.do(address, node.driver.core.peering.found, name, address)


def gone_from(node: Node, name: str) -> None:
    """It is not found any more."""
    node.driver.do(name, node.driver.core.peering.gone, name)


def test_whoever_is_found_without_a_certificate_is_no_peer() -> None:
    async def work() -> None:
        async with (
            running(name="kitchen") as kitchen,
            running(name="home") as home,
            visitor(home) as ann,
        ):
            found_near(home, "kitchen", kitchen.addresses[0])
            found = await wait_error(ann, "kitchen", "it has shown no certificate")
            assert found["state"] == "candidate"
            assert not any(session.is_let_in for session in kitchen.driver.broker.sessions)

    run(work())


def test_settings_that_cannot_be_are_told_with_their_place() -> None:
    with pytest.raises(ConfigError, match=r"--peers: 'kitchen' is no NAME=ADDRESS"):
        load(flags={"peers": "kitchen"})
    with pytest.raises(ConfigError, match=r"TIDINGS_PEERS.*the name of this node itself"):
        load(environment={"TIDINGS_PEERS": "home=tidings://127.0.0.1:1", "TIDINGS_NAME": "home"})


# -- with TLS


def secured(place: Path, name: str, like: Secured | None = None, others: tuple[str, ...] = ()) -> Secured:
    """The security directory of a node of this name, with the CA of another one, that lets in others."""
    place.mkdir()
    made = Secured(place)
    if like is not None:
        made.authority = like.authority
        made.ca = made.authority.write_ca(made.path / "ca.pem")
    made.authority.issue(made.path / "node.pem", name, HOSTS)
    made.write_users("".join(f"{one} node\n" for one in others) or "nobody certificate\n")
    users = ", ".join(f'"{one}"' for one in others) or '"nobody"'
    made.write_access(f"[[allow]]\nusers = [{users}]\nactions = {ALL}\n")
    return made


def settings(made: Secured, name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "security": str(made.path), **more}


def tls(node: Node) -> str:
    return node.addresses[0].replace("tidings://", "tidings+tls://")


def test_nodes_with_certificates_know_each_other(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        here = secured(tmp_path / "h", "home", there)
        async with running(**settings(there, "kitchen")) as kitchen:
            peers = f"kitchen={tls(kitchen)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as ann:
                await wait_state(ann, "kitchen", "there")
                async with visitor(kitchen) as owner:
                    await owner.ask("queue.create", name="jobs")
                told = (await ann.ask("queue.describe", queue="jobs")).result
                assert told["node"] == "kitchen"

    run(work())


def test_a_peer_is_known_by_the_name_in_its_certificate_wherever_it_is(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        there.authority.issue(there.path / "node.pem", "kitchen", ("elsewhere.example",))
        here = secured(tmp_path / "h", "home", there)
        async with running(**settings(there, "kitchen")) as kitchen:
            peers = f"kitchen={tls(kitchen)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as ann:
                await wait_state(ann, "kitchen", "there")
            with pytest.raises(NotAllowed, match=r"is not for 127.0.0.1; it is for elsewhere.example"):
                async with tidings.connect(tls(kitchen), ca=there.ca, user="ada", password="x"):
                    pass

    run(work())


def test_a_node_of_another_name_is_not_believed(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "g", "garage", others=("home",))
        here = secured(tmp_path / "h", "home", there)
        async with running(**settings(there, "garage")) as garage:
            peers = f"kitchen={tls(garage)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as ann:
                found = await wait_error(ann, "kitchen", "certificate is that of 'garage'")
                assert found["state"] == "away"
                reply = await ann.ask("get", queue="jobs@kitchen")
                assert reply.error is not None
                assert reply.error.code == "away"

    run(work())


def test_a_node_that_is_not_let_in_says_why(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen")
        here = secured(tmp_path / "h", "home", there)
        async with running(**settings(there, "kitchen")) as kitchen:
            peers = f"kitchen={tls(kitchen)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as ann:
                await wait_error(ann, "kitchen", "may not log in")

    run(work())


def test_a_peer_that_lets_this_node_in_later_is_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peering, "REFUSED_S", 0.01)

    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen")
        here = secured(tmp_path / "h", "home", there)
        async with running(**settings(there, "kitchen")) as kitchen:
            peers = f"kitchen={tls(kitchen)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as ann:
                await wait_error(ann, "kitchen", "may not log in")
                there.write_users("home node\n")
                there.write_access(f'[[allow]]\nusers = ["home"]\nactions = {ALL}\n')
                kitchen.reload()
                await wait_state(ann, "kitchen", "there")

    run(work())


def test_what_is_found_is_a_peer_once_its_certificate_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        here = secured(tmp_path / "h", "home", there)
        async with (
            running(**settings(there, "kitchen")) as kitchen,
            running(**settings(here, "home")) as home,
            visitor(home) as ann,
        ):
            found_near(home, "kitchen", tls(kitchen))
            found_near(home, "pantry", tls(kitchen))
            await wait_state(ann, "kitchen", "there")
            liar = await wait_error(ann, "pantry", "certificate is that of 'kitchen'")
            assert liar["state"] == "candidate"
            assert (await ann.ask("get", queue="jobs@pantry")).error is not None
            gone_from(home, "pantry")
            gone_from(home, "kitchen")
            status = (await ann.ask("status")).result
            assert [one["name"] for one in status["peers"]] == ["kitchen"]

    run(work())


@pytest.mark.usefixtures("multicast")
def test_nodes_on_one_network_find_each_other(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        here = secured(tmp_path / "h", "home", there, others=("kitchen",))
        async with (
            running(**settings(there, "kitchen", mdns=True)) as kitchen,
            running(**settings(here, "home", mdns=True)) as home,
            visitor(kitchen) as bob,
            visitor(home) as ann,
        ):
            await wait_found(ann, "kitchen")
            await wait_found(bob, "home")

    run(work())


@pytest.mark.usefixtures("multicast")
def test_nodes_find_each_other_by_multicast_while_they_have_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(ring_port, "PORT", free.getsockname()[1])

    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        here = secured(tmp_path / "h", "home", there, others=("kitchen",))
        async with (
            running(**settings(there, "kitchen", search_hops=4)) as kitchen,
            running(**settings(here, "home", search_hops=4)) as home,
            visitor(kitchen) as bob,
            visitor(home) as ann,
        ):
            await wait_found(ann, "kitchen")
            await wait_found(bob, "home")

    run(work())


async def wait_found(peer: Peer, name: str) -> None:
    """Wait until a node has found another."""
    while True:
        status = (await peer.ask("status")).result
        if {"name": name, "state": "there"}.items() <= next(iter(status["peers"]), {}).items():
            return


def test_who_is_found_must_be_told_from_others_by_its_certificate() -> None:
    with pytest.raises(ConfigError, match=r"--mdns: .*--security DIR"):
        load(flags={"mdns": True})
    with pytest.raises(ConfigError, match=r"--search-hops: .*--security DIR"):
        load(flags={"search_hops": 4})
    with pytest.raises(ConfigError, match="TCP port"):
        load(flags={"mdns": True, "security": "sec", "unix": "socket"})


def test_what_a_client_may_do_elsewhere_is_said_by_both_nodes(tmp_path: Path) -> None:
    async def work() -> None:
        there = secured(tmp_path / "k", "kitchen", others=("home",))
        there.write_access(
            '[[allow]]\nusers = ["home"]\nactions = ["get"]\nqueues = ["jobs", "letters"]\nwhere = "n < 5"\n'
        )
        here = secured(tmp_path / "h", "home", there, others=("ann",))
        here.write_access(
            '[[allow]]\nusers = ["ann"]\nactions = ["get"]\nqueues = ["jobs@kitchen", "tools@*"]\n'
        )
        ann = here.client("ann")
        async with running(**settings(there, "kitchen")) as kitchen, visitor(kitchen) as owner:
            for name in ("jobs", "letters", "tools"):
                await owner.ask("queue.create", name=name)
            peers = f"kitchen={tls(kitchen)}"
            async with running(**settings(here, "home", peers=peers)) as home, visitor(home) as watch:
                await wait_state(watch, "kitchen", "there")
                async with tidings.connect(tls(home), **ann) as bus:
                    jobs = await bus.queue("jobs")
                    assert jobs.name == "jobs@kitchen"
                    assert await jobs.read_all() == []
                    for name in ("letters@kitchen", "tools@kitchen", "letters"):
                        with pytest.raises(QueueNotFound):
                            await bus.queue(name)
                    found = {one.name for one in await bus.lookup(scope="both")}
                    assert found == {"jobs"}
                    with pytest.raises(NotAllowed):
                        await jobs.put("job", n=1)

    run(work())


def test_a_node_in_this_process_has_a_name() -> None:
    assert NodeConfig(name="kitchen").node_name == "kitchen"
