"""Hosts that are real processes, or nodes in this one, find each other by UDP and exchange over TCP."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adhoc.real import free_udp_ports, meeting, until
from effort import ANSWER_S
from node.peers import running

import tidings
from tidings import Event
from tidings.client.encryption import Keyring, generate_key
from tidings.errors import ConfigError, TidingsError, UserError
from tidings.testing import NodeProcess


def _carried(bus):
    async def look():
        return (await bus.adhoc_status())["messages"]

    return look


async def _meet(one, other, far_has):
    """Run two hosts until the second is as it should be."""
    with one, other:
        async with tidings.connect(one.address) as near, tidings.connect(other.address) as far:
            await until(lambda: far_has(near, far))


def test_five_processes_that_are_never_all_connected_deliver_report_and_forget(tmp_path):
    names = ["n1", "n2", "n3", "n4", "n5"]
    ports = free_udp_ports(5)
    hosts = []
    for at, name in enumerate(names):
        home = tmp_path / name
        home.mkdir()
        others = [ports[near] for near in (at - 1, at + 1) if 0 <= near < 5]
        hosts.append(NodeProcess(home, adhoc=True, **meeting(name, ports[at], *others)))

    async def carries(_near, far):
        return (await far.adhoc_status())["messages"] == 1

    async def is_forgotten(near, far):
        return [(await one.adhoc_status())["messages"] for one in (near, far)] == [0, 0]

    async def run():
        with hosts[0]:
            async with tidings.connect(hosts[0].address, name="sender") as bus:
                await bus.create_queue("reports")
                jobs = await bus.queue("jobs@n5")
                assert jobs.description.promise == "carried"
                event = Event("job", {"n": 1, "report": "delivered"}, reply_to="reports", delivery="reliable")
                await jobs.put(event)
        with hosts[4]:
            async with tidings.connect(hosts[4].address) as bus:
                await bus.create_queue("jobs")
        for at in range(3):
            await _meet(hosts[at], hosts[at + 1], carries)
        await _meet(hosts[3], hosts[4], is_forgotten)
        with hosts[4]:
            async with tidings.connect(hosts[4].address) as bus:
                message = await (await bus.queue("jobs")).get(timeout_s=5)
                assert message.event.attributes == {"n": 1}
                assert message.event.source == "sender@n1"
        for at in (2, 1, 0):
            await _meet(hosts[at], hosts[at + 1], is_forgotten)
        with hosts[0]:
            async with tidings.connect(hosts[0].address) as bus:
                report = await (await bus.queue("reports")).get(timeout_s=5)
                assert report.event.type == "report.delivered"
                assert report.event.attributes == {"queue": "jobs@n5"}
                assert (await bus.adhoc_status())["messages"] == 0

    asyncio.run(run())


def test_two_programs_with_nodes_of_their_own_meet(tmp_path):
    one, two = free_udp_ports(2)

    async def run():
        async with (
            tidings.open(tmp_path / "one", adhoc=meeting("one", one, two)) as near,
            tidings.open(tmp_path / "two", adhoc=meeting("two", two, one)) as far,
        ):
            queue = await far.create_queue("jobs")
            await (await near.queue("jobs@two")).put("job", n=1)
            assert (await queue.get(timeout_s=60)).event["n"] == 1
            await until(_carried(near), lambda count: count == 0)
            (there,) = await near.adhoc_neighbours()
            assert (there["host"], there["here"]) == ("two", True)

    asyncio.run(run())


def test_hosts_of_one_machine_find_each_other_by_multicast(tmp_path):
    (port,) = free_udp_ports(1)
    settings = {"adhoc_port": port, "adhoc_beacon_s": 0.1}

    async def run():
        async with (
            tidings.open(None, adhoc={"name": "one", **settings}) as near,
            tidings.open(None, adhoc={"name": "two", **settings}) as far,
        ):
            queue = await far.create_queue("jobs")
            await (await near.queue("jobs@two")).put("job", n=1)
            assert (await queue.get(timeout_s=60)).event["n"] == 1

    asyncio.run(run())


def test_why_says_where_a_message_is(tmp_path):
    async def run():
        async with tidings.open(tmp_path / "one", adhoc={"name": "one", "adhoc_port": 0}) as bus:
            message = Event("job", {"n": 1})
            await (await bus.queue("jobs@far")).put(message)
            (carried,) = (await bus.adhoc_status())["carried"]
            told = await bus.adhoc_why(carried["id"])
            assert (told["state"], told["waits_for"], told["near"]) == ("carried", ["far"], [])

    asyncio.run(run())


def test_a_node_that_meets_nobody_does_not_load_it(tmp_path):
    code = f"""
import asyncio, sys
import tidings
async def run():
    async with tidings.open({str(tmp_path)!r}):
        print([name for name in sys.modules if name.startswith("tidings.adhoc")])
asyncio.run(run())"""
    environment = {**os.environ, "PYTHONPATH": str(Path(tidings.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_node_that_meets_nobody_says_so(tmp_path):
    async def run():
        async with tidings.open(tmp_path) as bus:
            with pytest.raises(UserError, match="--adhoc"):
                await bus.adhoc_status()

    asyncio.run(run())


@pytest.mark.parametrize(
    "settings",
    [
        {"adhoc_strategy": "hope"},
        {"adhoc_to": "nowhere"},
        {"adhoc_to": "10.0.0.1:0"},
        {"name": "a.b"},
        {"host": "0.0.0.0"},
        {"adhoc_buffer": -1},
    ],
)
def test_settings_that_can_not_be_are_refused(settings):
    async def run():
        async with tidings.open(None, adhoc={"name": "one", "adhoc_port": 0, **settings}):
            raise AssertionError("it was opened")

    with pytest.raises((ConfigError, UserError)):
        asyncio.run(run())


def test_a_sealed_body_is_carried_sealed(tmp_path):
    one, two = free_udp_ports(2)
    ring = Keyring([generate_key()])

    async def run():
        async with tidings.open(tmp_path / "one", adhoc=meeting("one", one, two)) as near:
            letters = await near.queue("letters@two", keys=ring)
            await letters.put("letter", body=b"Dear Ada")
            async with tidings.open(tmp_path / "two", adhoc=meeting("two", two, one)) as far:
                queue = await far.create_queue("letters", keys=ring)
                message = await queue.get(timeout_s=60)
                assert message.body == b"Dear Ada"

    asyncio.run(run())
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"letter" in stored
    assert b"Dear Ada" not in stored


def test_a_host_with_a_path_takes_transactions_and_long_bodies_as_any_peer(tmp_path):
    (port,) = free_udp_ports(1)

    async def run():
        async with running(name="kitchen") as node, tidings.connect(node.addresses[0]) as far:
            queue = await far.create_queue("jobs")
            peers = {"kitchen": node.addresses[0]}
            async with tidings.open(tmp_path, adhoc=meeting("one", port, port), peers=peers) as near:
                await until(lambda: near.lookup("jobs", scope="remote"))
                async with near.transaction() as unit:
                    await unit.put("jobs@kitchen", "job", n=1)
                await (await near.queue("jobs@kitchen")).put("job", n=2, body=b"x" * (3 << 20))
                assert (await queue.get(timeout_s=60)).event["n"] == 1
                assert len((await queue.get(timeout_s=60)).body) == 3 << 20

    asyncio.run(run())


def test_a_host_stands_in_for_one_that_is_gone_and_hands_over_when_it_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("tidings.adhoc.host.OFTEN_MIN", 0.5)  # one meeting is enough
    ports = free_udp_ports(3)

    def host(name, at, *near):
        settings = meeting(name, ports[at], *(ports[one] for one in near))
        return tidings.open(tmp_path / name, adhoc={**settings, "adhoc_lease_s": 1.0})

    async def holder_of(bus):
        known = (await bus.adhoc_status())["known"]
        return [(one["holder"], one["deputies"]) for one in known]

    async def run():
        async with host("deputy", 1, 0, 2) as deputy, host("putter", 2, 1) as putter:
            async with host("holder", 0, 1) as holder:
                await holder.create_queue("jobs")
                await holder.adhoc_hold("jobs", replicas=1)
                await until(lambda: holder_of(deputy), lambda known: known == [("holder", ["deputy"])])
            await until(lambda: holder_of(putter), lambda known: known == [("deputy", [])])
            jobs = await putter.queue("jobs")
            for n in range(3):
                await jobs.put("job", n=n)
            here = await deputy.queue("jobs@deputy")
            first = await here.get(timeout_s=ANSWER_S)
            async with host("holder", 0, 1) as holder:
                jobs = await holder.queue("jobs@holder")
                rest = [await jobs.get(timeout_s=ANSWER_S) for _ in range(2)]
                assert sorted(message.event["n"] for message in [first, *rest]) == [0, 1, 2]
                await until(lambda: holder_of(deputy), lambda known: known[0][0] == "holder")

    asyncio.run(run())


def test_a_queue_goes_to_the_program_that_wants_to_read_it(tmp_path):
    ports = free_udp_ports(2)

    def host(name, own, other):
        settings = meeting(name, ports[own], ports[other])
        return tidings.open(tmp_path / name, adhoc={**settings, "adhoc_lease_s": 6.0})

    async def run():
        async with host("holder", 0, 1) as holder, host("reader", 1, 0) as reader:
            jobs = await holder.create_queue("jobs")
            for n in range(3):
                await jobs.put("job", n=n)
            await holder.adhoc_hold("jobs", follow=True)

            async def got():
                try:
                    queue = await reader.queue("jobs")
                    return await queue.get(timeout_s=0)
                except TidingsError:  # not known yet, or out of reach, or empty
                    return None

            messages = [await until(got) for _ in range(3)]
            assert sorted(message.event["n"] for message in messages) == [0, 1, 2]
            known = (await reader.adhoc_status())["known"]
            assert [one["holder"] for one in known] == ["reader"]

    asyncio.run(run())
