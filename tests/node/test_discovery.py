from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib import import_module
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from node.peers import ANSWER_S_MAX
from zeroconf import current_time_millis

from tidings.errors import MissingExtra, UserError
from tidings.ids import new_system
from tidings.node.discovery import (
    CANDIDATES_MAX,
    LIFE_S_MAX,
    AnnouncedNodes,
    Discovery,
    FoundNode,
    near,
    read,
)

GROUP = "224.0.0.251"
MDNS_PORT = 5353
HOME = ip_interface("192.0.2.7/24")
SAID = {b"node": b"abc", b"name": b"kitchen", b"tls": b"1", b"v": b"1"}
FOUND = FoundNode("kitchen", "abc", "tidings+tls://192.0.2.9:7300")


def heard(**changes: Any) -> FoundNode | None:
    """What a node at 192.0.2.7 makes of an announcement, which is a good one but for the changes."""
    said = {"node": "abc", "properties": SAID, "addresses": [ip_address("192.0.2.9")], "port": 7300}
    return read(**{**said, **changes}, near=[HOME])


# -- what strangers say


def test_a_good_announcement_is_a_candidate() -> None:
    assert heard() == FOUND


@pytest.mark.parametrize(
    "name",
    [b"", b"a b", b"a/b", b"a@b", b"a=b", b"k\xc3\xbcche", b"k\xff", b"\x1b[2Jk", b"k\n", b"k" * 65, None],
)
def test_a_name_that_no_node_can_have_is_no_candidate(name: bytes | None) -> None:
    assert heard(properties={**SAID, b"name": name}) is None


@pytest.mark.parametrize("key", list(SAID))
def test_an_announcement_that_leaves_something_out_is_no_candidate(key: bytes) -> None:
    assert heard(properties={one: value for one, value in SAID.items() if one != key}) is None


@pytest.mark.parametrize(("key", "value"), [(b"node", b"abd"), (b"tls", b"0"), (b"v", b"2"), (b"v", None)])
def test_an_announcement_that_says_something_else_is_no_candidate(key: bytes, value: bytes | None) -> None:
    assert heard(properties={**SAID, key: value}) is None


@pytest.mark.parametrize("node", ["", "a b", "a.b", "a" * 64, "ä"])
def test_an_id_that_no_node_can_have_is_no_candidate(node: str) -> None:
    assert heard(node=node, properties={**SAID, b"node": node.encode()}) is None


@pytest.mark.parametrize("port", [0, None])
def test_an_announcement_without_a_port_is_no_candidate(port: int | None) -> None:
    assert heard(port=port) is None


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "198.51.100.1", "0.0.0.0", "224.0.0.251", "255.255.255.255", "::1", "fe80::1"]
)
def test_an_address_elsewhere_is_no_candidate(address: str) -> None:
    assert heard(addresses=[ip_address(address)]) is None


def test_of_several_addresses_the_first_that_is_near_is_taken() -> None:
    addresses = [ip_address(text) for text in ("10.0.0.1", "192.0.2.9", "192.0.2.10")]
    assert heard(addresses=addresses) == FOUND


def test_an_address_of_ipv6_is_written_as_addresses_of_nodes_are() -> None:
    found = read("abc", SAID, [ip_address("fd00::9")], 7300, [ip_interface("fd00::7/64")])
    assert found is not None
    assert found.address == "tidings+tls://[fd00::9]:7300"


@given(
    st.dictionaries(st.sampled_from(list(SAID)) | st.binary(max_size=9), st.none() | st.binary(max_size=99))
)
def test_whatever_is_said_is_a_candidate_of_that_name_or_none(properties: dict[bytes, bytes | None]) -> None:
    found = heard(properties=properties)
    assert found is None or found == FoundNode((properties[b"name"] or b"").decode(), "abc", FOUND.address)


# -- who is told of


class Told:
    """What was told, in order: candidates that were found, names that were lost."""

    def __init__(self, *taken: str) -> None:
        self.all: list[FoundNode | str] = []
        self.candidates = AnnouncedNodes(taken, self.all.append, self.all.append)


def test_a_candidate_is_told_of_when_it_comes_changes_and_goes() -> None:
    told = Told()
    moved = FoundNode("kitchen", "abc", "tidings+tls://192.0.2.10:7300")
    for one in (FOUND, FOUND, moved):
        told.candidates.add(one)
    told.candidates.remove("abc")
    told.candidates.remove("abc")
    assert told.all == [FOUND, "kitchen", moved, "kitchen"]


def test_a_candidate_never_has_the_name_of_a_configured_peer_or_of_the_node_itself() -> None:
    told = Told("kitchen", "cellar")
    for number, name in enumerate(("kitchen", "cellar", "attic")):
        told.candidates.add(FoundNode(name, str(number), FOUND.address))
    assert [one.name for one in told.all if isinstance(one, FoundNode)] == ["attic"]


def test_whoever_takes_the_name_of_another_waits_until_that_one_is_gone() -> None:
    told = Told()
    other = FoundNode("kitchen", "evil", "tidings+tls://192.0.2.66:7300")
    told.candidates.add(FOUND)
    told.candidates.add(other)
    assert told.all == [FOUND]
    told.candidates.remove("abc")
    assert told.all == [FOUND, "kitchen", other]


def test_no_more_candidates_are_kept_than_the_limit_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    for number in range(1_000):
        told.candidates.add(FoundNode(f"n{number}", f"id{number}", FOUND.address))
    assert len(told.candidates.nodes) == len(told.all) == CANDIDATES_MAX
    assert [record.message for record in caplog.records] == ["too many nodes announce themselves"]
    told.candidates.remove("id0")
    told.candidates.add(FOUND)
    assert told.all[-2:] == ["n0", FOUND]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", "c", "own", ""])), max_size=60))
def test_however_nodes_come_and_go_one_of_each_name_is_told_of(moves: list[tuple[int, str]]) -> None:
    told, there = Told("own"), dict[str, str]()
    for node, name in moves:
        there.pop(str(node), None)
        if name:
            told.candidates.add(FoundNode(name, str(node), FOUND.address))
            there[str(node)] = name
        else:
            told.candidates.remove(str(node))
    current: dict[str, str] = {}
    for one in told.all:
        if isinstance(one, FoundNode):
            assert one.name not in current
            current[one.name] = one.node
        else:
            del current[one]
    assert set(current) == set(there.values()) - {"own"}
    assert all(there[node] == name for name, node in current.items())


# -- the networks of this machine


def test_a_node_on_the_loopback_is_on_no_other_network() -> None:
    found = near(ip_address("127.0.0.1"))
    assert found
    assert all(one.is_loopback for one in found)


def test_a_node_that_listens_everywhere_is_on_all_networks_but_the_loopback() -> None:
    assert not any(one.is_loopback for one in near(ip_address("0.0.0.0")))


def test_without_zeroconf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    monkeypatch.delitem(sys.modules, "tidings.node.discovery")
    with pytest.raises(MissingExtra, match=r"tidings\[mdns\]"):
        import_module("tidings.node.discovery")


def test_a_network_that_this_machine_is_not_on_is_said() -> None:
    with pytest.raises(UserError, match=r"can't announce a node on 203\.0\.113\.77: this machine is on no"):
        asyncio.run(Discovery("a", "a", 7300, print, print, host="203.0.113.77").start())


# -- on the loopback, by multicast


@pytest.fixture
def multicast() -> Iterator[None]:
    """The loopback of this machine for this test alone: others who announce there would be found too."""
    with (Path(tempfile.gettempdir()) / f"tidings-mdns-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not carries_multicast():
            pytest.skip("multicast can't be sent over the loopback of this machine")
        yield


def carries_multicast() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.bind(("", 0))
        one.settimeout(2.0)
        joining = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joining)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        one.sendto(b"heard", (GROUP, one.getsockname()[1]))
        return one.recv(16) == b"heard"
    return False


class Node:
    """A node as far as others hear of it, and what it hears of others."""

    def __init__(self, name: str, configured: tuple[str, ...] = ()) -> None:
        self.name = name
        self.id = new_system(os.urandom)
        self.found: dict[str, FoundNode] = {}
        self.lost: list[str] = []
        self._changed = asyncio.Event()
        self.discovery = Discovery(
            name, self.id, 7300, self._on_found, self._on_lost, host="127.0.0.1", configured=configured
        )

    def _on_found(self, candidate: FoundNode) -> None:
        self.found[candidate.name] = candidate
        self._changed.set()

    def _on_lost(self, name: str) -> None:
        del self.found[name]
        self.lost.append(name)
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def announced(*nodes: Node) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for node in nodes:
            await node.discovery.start()
            stack.push_async_callback(node.discovery.close)
        yield


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_two_nodes_find_and_lose_each_other(
    multicast: None, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def scenario() -> None:
        kitchen, cellar = Node("kitchen"), Node("cellar")
        async with announced(kitchen):
            async with announced(cellar):
                await kitchen.wait_until(lambda: "cellar" in kitchen.found)
                await cellar.wait_until(lambda: "kitchen" in cellar.found)
                expected = FoundNode("cellar", cellar.id, "tidings+tls://127.0.0.1:7300")
                assert kitchen.found == {"cellar": expected}
            await kitchen.wait_until(lambda: kitchen.lost == ["cellar"])
        assert cellar.lost == []

    run(scenario())


def test_a_node_on_the_network_with_the_name_of_a_configured_peer_is_not_found(multicast: None) -> None:
    async def scenario() -> None:
        kitchen = Node("kitchen", configured=("cellar",))
        async with announced(kitchen, Node("cellar"), Node("kitchen"), Node("attic")):
            await kitchen.wait_until(lambda: "attic" in kitchen.found)
            assert list(kitchen.found) == ["attic"]

    asyncio.run(scenario())


class Stranger:
    """Says on the network what it likes, with no library in between."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    def say(self, *packets: bytes) -> None:
        for packet in packets:
            self._socket.sendto(packet, (GROUP, MDNS_PORT))

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def visited() -> AsyncIterator[tuple[Node, Stranger]]:
    """A node, and a stranger on its network."""
    kitchen = Node("kitchen")
    with contextlib.closing(Stranger()) as stranger:
        async with announced(kitchen):
            yield kitchen, stranger


def packet(*records: bytes) -> bytes:
    return struct.pack("!6H", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def labels(*parts: bytes) -> bytes:
    return b"".join(bytes([len(part)]) + part for part in parts) + b"\0"


def record(name: bytes, kind: int, data: bytes, ttl_s: int = 4500) -> bytes:
    return name + struct.pack("!HHIH", kind, 1, ttl_s, len(data)) + data


TYPE = labels(b"_tidings", b"_tcp", b"local")


def announcement(
    instance: bytes,
    name: bytes = b"",
    address: bytes = b"\x7f\0\0\1",
    port: int = 7300,
    text: bytes | None = None,
    ttl_s: int = 4500,
) -> list[bytes]:
    """PTR, SRV, TXT and A of a service."""
    full = labels(instance, b"_tidings", b"_tcp", b"local")
    host = labels(b"h" + instance[:60], b"local")
    said = [b"node=" + instance, b"name=" + (name or instance), b"tls=1", b"v=1"]
    text = b"".join(bytes([len(one) & 255]) + one for one in said) if text is None else text
    return [
        record(TYPE, 12, full, ttl_s),
        record(full, 33, struct.pack("!3H", 0, 0, port) + host, ttl_s),
        record(full, 16, text, ttl_s),
        record(host, 1, address, ttl_s),
    ]


def many(start: int) -> bytes:
    """One packet that announces twenty nodes."""
    records = (announcement(f"id{number}".encode()) for number in range(start, start + 20))
    return packet(*(one for some in records for one in some))


BAD = [
    announcement(b"id1", b"a b"),
    announcement(b"id2", b"\xff\xfe"),
    announcement(b"id3", b"\x1b]0;title\x07"),
    announcement(b"id4", b"x" * 100),
    announcement(b"with.dot"),
    announcement(b"with blank"),
    announcement(b"\xc3\xa4"),
    announcement(b"x" * 63, port=0),
    announcement(b"id5", address=b"\x08\x08\x08\x08"),
    announcement(b"id6", address=b"\x7f\0\1"),
    announcement(b"id7", address=b"\xe0\0\0\xfb"),
    announcement(b"id8", text=b""),
    announcement(b"id9", text=b"\xffnode=id9"),
    announcement(b"id10", text=b"\0" * 4_000),
    announcement(b"id11")[:1],  # nothing but its name
    [record(TYPE, 12, labels(b"elsewhere", b"local"))],
    [record(TYPE, 12, b"\xc0\x0c")],  # a service that points at itself
    [record(TYPE, 12, TYPE)],
    [record(TYPE, 12, b"\xc0\xff")],
    [record(TYPE, 12, b"")],
]


def test_bad_announcements_and_rubbish_leave_a_node_as_it_was(multicast: None) -> None:
    async def scenario() -> None:
        async with visited() as (kitchen, stranger):
            stranger.say(b"", b"\0", os.urandom(300), packet(*BAD[0])[:-7], packet() + b"\xff" * 8_000)
            stranger.say(*(packet(*records) for records in BAD))
            stranger.say(packet(*announcement(b"good", b"attic")))
            await kitchen.wait_until(lambda: "attic" in kitchen.found)
            assert list(kitchen.found) == ["attic"]

    asyncio.run(scenario())


def test_a_thousand_announcements_are_at_most_so_many_candidates(multicast: None) -> None:
    async def scenario() -> None:
        async with visited() as (kitchen, stranger):
            stranger.say(packet(*announcement(b"first")))
            await kitchen.wait_until(lambda: "first" in kitchen.found)
            stranger.say(*(many(start) for start in range(0, 1_000, 20)))
            stranger.say(packet(*announcement(b"first", ttl_s=0)))  # it goes, which shows that all was heard
            await kitchen.wait_until(lambda: "first" in kitchen.lost)
            assert len(kitchen.found) == CANDIDATES_MAX - 1

    asyncio.run(scenario())


def test_a_node_that_says_something_else_is_told_of_anew(multicast: None) -> None:
    async def scenario() -> None:
        async with visited() as (kitchen, stranger):
            stranger.say(packet(*announcement(b"id1", b"attic")))
            await kitchen.wait_until(lambda: "attic" in kitchen.found)
            stranger.say(packet(*announcement(b"id1", b"attic", ttl_s=0)))
            await kitchen.wait_until(lambda: kitchen.lost == ["attic"])
            stranger.say(packet(*announcement(b"id1", b"attic", port=7301)))
            await kitchen.wait_until(lambda: "attic" in kitchen.found)
            assert kitchen.found["attic"].address == "tidings+tls://127.0.0.1:7301"

    asyncio.run(scenario())


def test_what_was_forgotten_to_make_room_in_a_flood_is_lost_and_others_take_its_place(
    multicast: None,
) -> None:
    async def scenario() -> None:
        async with visited() as (kitchen, stranger):
            for start in range(0, 40_000, 20):
                stranger.say(many(start))
                await asyncio.sleep(0)  # lets the node hear it
                kitchen.discovery.sweep(current_time_millis())
                if "id0" in kitchen.lost:
                    break
            assert "id0" in kitchen.lost
            assert len(kitchen.found) == CANDIDATES_MAX

    asyncio.run(scenario())


def test_a_candidate_that_is_not_heard_of_again_is_lost_though_it_said_it_would_stay(multicast: None) -> None:
    async def scenario() -> None:
        async with visited() as (kitchen, stranger):
            stranger.say(packet(*announcement(b"id1", b"attic", ttl_s=2**31 - 1)))
            await kitchen.wait_until(lambda: "attic" in kitchen.found)
            kitchen.discovery.sweep(current_time_millis() + (LIFE_S_MAX - 60) * 1e3)
            assert "attic" in kitchen.found
            kitchen.discovery.sweep(current_time_millis() + (LIFE_S_MAX + 60) * 1e3)
            assert kitchen.lost == ["attic"]

    asyncio.run(scenario())
