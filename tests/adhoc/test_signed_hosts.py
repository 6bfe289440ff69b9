"""Hosts with certificates of one authority: strangers carry, and can neither alter nor forge."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from adhoc.real import free_udp_ports, meeting, until
from node.authority import HOSTS, Authority
from node.peers import running
from node.secured import Secured
from overlay.real import allow

import tidings
from tidings.adhoc.beacons import Beacon, encode_beacon, read_beacon
from tidings.adhoc.link_meetings import FrameRequest
from tidings.errors import NotAllowed
from tidings.security.directory import SecurityDirectory
from tidings.security.signing import KNOWN_MAX, CertificateProofs

DAY = 86_400.0


def _secured(home, name, authority, users=(), days=(-1, 365)):
    """The security directory of a host; its users are other hosts, which may do everything there."""
    home.mkdir()
    made = Secured(home)
    made.authority = authority
    made.ca = authority.write_ca(made.path / "ca.pem")
    authority.issue(made.path / "node.pem", name, HOSTS, days)
    made.write_users("".join(f"{one} node\n" for one in users))
    made.write_access("".join(allow(one) for one in users))
    return made


def _proofs(tmp_path, name, authority, clock=time.time, days=(-1, 365)):
    return CertificateProofs(
        SecurityDirectory(_secured(tmp_path / name, name, authority, days=days).path), clock
    )


def test_what_a_host_has_signed_is_believed_and_nothing_else(tmp_path):
    authority = Authority()
    one, two = _proofs(tmp_path, "one", authority), _proofs(tmp_path, "two", authority)
    proof = one.sign(b"m")
    assert two.verify("one", b"m", proof)
    assert not two.verify("one", b"n", proof)
    assert not two.verify("two", b"m", proof)
    for at in range(len(proof)):
        assert not two.verify("one", b"m", proof[:at])
    assert not two.verify("one", b"m", b"")
    assert not two.verify("one", b"m", b"\xff" * 10_000)


def test_a_host_of_another_authority_is_not_believed(tmp_path):
    one, two = _proofs(tmp_path, "one", Authority("ours")), _proofs(tmp_path, "two", Authority("theirs"))
    assert not one.verify("two", b"m", two.sign(b"m"))


def test_a_certificate_of_a_user_signs_nothing(tmp_path):
    authority = Authority()
    one = _proofs(tmp_path, "one", authority)
    files = _secured(tmp_path / "ada", "ada", authority)
    authority.issue(files.path / "node.pem", "ada")
    ada = CertificateProofs(SecurityDirectory(files.path), time.time)
    assert not one.verify("ada", b"m", ada.sign(b"m"))


@pytest.mark.parametrize(
    ("off_s", "is_believed"), [(DAY * 0.9, True), (-DAY * 0.9, True), (DAY * 900, False)]
)
def test_clocks_may_be_a_day_apart(tmp_path, off_s, is_believed):
    authority = Authority()
    one = _proofs(tmp_path, "one", authority, days=(-0.01, 0.01))
    two = _proofs(tmp_path, "two", authority, lambda: time.time() + off_s)
    assert two.verify("one", b"m", one.sign(b"m")) is is_believed


def test_certificates_that_are_remembered_are_bounded(tmp_path):
    one = _proofs(tmp_path, "one", Authority())
    for number in range(KNOWN_MAX + 100):
        assert one._signer(b"%d" % number) is None
    assert len(one._known) == KNOWN_MAX


def test_a_beacon_counts_only_where_it_can_be_checked():
    plain = encode_beacon(Beacon("far", "x", 7300, "tidings"))
    secured = encode_beacon(Beacon("far", "x", 7300, "tidings+tls"))
    assert read_beacon(plain, "127.0.0.1", False).address == "tidings://127.0.0.1:7300"
    assert read_beacon(plain, "10.0.0.7", False) is None
    assert read_beacon(plain, "127.0.0.1", True) is None
    assert read_beacon(secured, "10.0.0.7", True).address == "tidings+tls://10.0.0.7:7300"
    assert read_beacon(secured, "::1", True).address == "tidings+tls://[::1]:7300"
    assert read_beacon(secured, "127.0.0.1", False) is None
    for at in range(len(plain)):
        assert read_beacon(plain[:at], "127.0.0.1", False) is None
    assert read_beacon(plain + b"x" * 1_000, "127.0.0.1", False) is None


async def _line(stack, tmp_path, names, users):
    """Start hosts of one authority, each of which hears the next; each has the users that are named only."""
    authority, ports = Authority(), free_udp_ports(len(names))
    for at, name in enumerate(names):
        security = _secured(tmp_path / name, name, authority, users.get(name, ()))
        others = [ports[near] for near in (at - 1, at + 1) if 0 <= near < len(names)]
        settings = meeting(name, ports[at], *others)
        settings |= {"security": str(security.path), "dir": str(tmp_path / name / "store")}
        settings |= {"unix": str(tmp_path / f"{name}.sock"), "port": 0, "adhoc": True}
        await stack.enter_async_context(running(**settings))


def _bus(tmp_path, name):
    return tidings.connect(f"tidings+unix://{tmp_path / name}.sock")


def test_a_stranger_carries_what_it_could_not_put_itself(tmp_path):
    async def run():
        async with AsyncExitStack() as stack:
            names = ["one", "stranger", "two"]
            await _line(stack, tmp_path, names, {"two": ["one"]})
            one, stranger, two = [await stack.enter_async_context(_bus(tmp_path, name)) for name in names]
            queue = await two.create_queue("jobs")
            await (await stranger.queue("jobs@two")).put("job", n=0)
            await (await one.queue("jobs@two")).put("job", n=1)
            message = await queue.get(timeout_s=60)
            assert (message.event["n"], message.event.source) == (1, "one")

            async def refused():
                return (await two.adhoc_status())["counted"].get("undelivered", {}).get("rights")

            await until(refused)
            assert (await one.adhoc_status())["signed"]

    asyncio.run(run())


def test_a_stranger_may_do_nothing_but_meet(tmp_path):
    async def run():
        async with AsyncExitStack() as stack:
            authority = Authority()
            (port,) = free_udp_ports(1)
            security = _secured(tmp_path / "one", "one", authority)
            settings = {**meeting("one", port, port), "security": str(security.path), "adhoc": True}
            node = await stack.enter_async_context(running(**settings))
            cert, key = authority.issue(tmp_path / "x.pem", "stranger", HOSTS)
            ca = security.path / "ca.pem"
            bus = await stack.enter_async_context(
                tidings.connect(node.addresses[0], ca=ca, cert=cert, key=key)
            )
            for forbidden in (
                bus.publish("x", delivery="reliable"),
                bus.create_queue("q"),
                bus.status(),
                bus.adhoc_status(),
            ):
                with pytest.raises(NotAllowed):
                    await forbidden
            with pytest.raises(NotAllowed):
                await bus._link.call("subscribe", {"number": 1, "filter": ""}, 5.0)
            greeting = {"version": 1, "node": "x", "name": "stranger"}
            with pytest.raises(NotAllowed, match="only meets"):
                await bus._link.call("link.hello", greeting, 5.0)
            with pytest.raises(tidings.errors.TidingsError, match="greet first"):
                await bus._link.call("link.adhoc", {"frame": FrameRequest(b"").frame}, 5.0)

    asyncio.run(run())
