"""A node with security, as clients meet it: over real sockets, on both loops."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop
from node.authority import Authority
from node.peers import ANSWER_S_MAX, Peer, Run, peer_of, running
from node.secured import PASSWORD, TOKEN, Secured

import tidings
from tidings import Event
from tidings.errors import AddressError, Disconnected, NotAllowed, Refused, TidingsError, UserError
from tidings.node import ports
from tidings.node.assembly import CoreSettings
from tidings.node.driver import Driver
from tidings.node.ports import Port, listen_tcp
from tidings.node.server import Node
from tidings.protocol.frames import encode
from tidings.protocol.messages import Bye, Hello, Welcome
from tidings.store.memory import MemoryStore
from tidings.transport.tls import client_context, node_context, port_context


def at(node: Node, host: str = "127.0.0.1") -> str:
    """Where clients find it."""
    scheme, _, place = node.addresses[0].partition("://")
    assert scheme == "tidings+tls"
    return f"tidings+tls://{host}:{place.rpartition(':')[2]}"


def port_of(node: Node) -> int:
    return int(node.addresses[0].rpartition(":")[2])


async def refusal(address: str, **options: Any) -> TidingsError:
    """The error with which connecting ends; it does not wait until its time is over."""
    with pytest.raises(TidingsError) as raised:
        async with tidings.connect(address, timeout_s=2 * ANSWER_S_MAX, **options):
            pass
    return raised.value


async def tls_peer(node: Node, secured: Secured) -> Peer:
    """One that speaks the protocol by hand, inside TLS."""
    context = client_context(secured.ca, None, None)
    return Peer(*await asyncio.open_connection("127.0.0.1", port_of(node), ssl=context))


# Being let in


def test_events_and_messages_go_through_tls(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            tidings.connect(at(node), user="ada", password=PASSWORD, ca=secured.ca) as bus,
            tidings.connect(at(node, "localhost"), token=TOKEN, ca=secured.ca) as device,
        ):
            async with bus.subscribe("value > 40") as events:
                await device.publish("air.pm10", value=61.5)
                event = await anext(events)
                assert (event["value"], event.source) == (61.5, "device")
            queue = await bus.create_queue("jobs")
            await queue.put(Event("job", body=bytes(1 << 20)))
            message = await queue.get(timeout_s=ANSWER_S_MAX)
            assert message.event.body == bytes(1 << 20)

    on_loop(scenario())


def test_a_certificate_of_the_nodes_authority_lets_in_whom_it_names(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            tidings.connect(at(node), **secured.client("bob")) as bus,
            bus.subscribe() as events,
        ):
            await bus.publish("a")
            assert (await anext(events)).source == "bob"

    on_loop(scenario())


def test_the_user_may_stand_in_the_address(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            address = at(node).replace("://", "://ada@")
            async with tidings.connect(address, password=PASSWORD, ca=secured.ca) as bus:
                assert bus.is_connected

    on_loop(scenario())


def test_the_nodes_own_socket_is_its_owners(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        path = secured.home / "socket"
        async with (
            running(security=str(secured.path), unix=str(path)) as node,
            tidings.connect(f"tidings+unix://{path}", name="whoever") as bus,
            bus.subscribe() as events,
        ):
            assert node.addresses[1] == f"tidings+unix://{path}"
            await bus.publish("a")
            assert (await anext(events)).source == "whoever"

    on_loop(scenario())


def test_a_port_that_anyone_can_reach_has_no_owners_even_if_their_address_is_not_known(
    secured: Secured,
) -> None:
    class Reset(asyncio.Transport):
        """As the system tells of a connection that was reset before it was asked: nothing."""

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return default

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            Port(node.driver, 10).connection_made(Reset())
            (session,) = node.driver.broker.sessions
            assert session.caller.host is not None
            node.driver.lost(session)

    asyncio.run(scenario())


def test_a_node_has_its_name_and_tells_it(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path), name="kitchen") as node:
            peer = await tls_peer(node, secured)
            peer.send(Hello([1], "peer", 1, secret=TOKEN))
            assert (await peer.expect(Welcome)).name == "kitchen"
            peer.close()

    on_loop(scenario())


# Being refused


def test_whatever_is_wrong_with_user_or_secret_the_answer_is_the_same(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            attempts = [
                {"user": "ada", "password": "wrong"},
                {"user": "nobody", "password": PASSWORD},
                {"token": "tdg_" + 43 * "x"},
                {"user": "ada", "token": TOKEN},
            ]
            errors = [await refusal(at(node), ca=secured.ca, **attempt) for attempt in attempts]
            assert {(type(error), str(error)) for error in errors} == {
                (NotAllowed, "user or secret is wrong")
            }
            denied = [
                times for (what, _), times in node.driver.broker.tallies.items() if what == "logins_denied"
            ]
            assert sum(denied) == len(attempts)

    on_loop(scenario())


def test_a_client_that_does_not_say_who_it_is_is_asked_to(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), ca=secured.ca)
            assert isinstance(error, NotAllowed)
            assert "requires a login" in str(error)

    on_loop(scenario())


def test_denials_are_logged_with_peer_and_reason_and_not_too_many(
    on_loop: Run, secured: Secured, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine so many logins take longer than a second, after which each is logged again.
    monkeypatch.setattr("tidings.node.driver.WAKE_S", 3_600.0)

    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            for _ in range(15):
                await refusal(at(node), ca=secured.ca, token="tdg_" + 43 * "x")
            node.driver._logins.wake()

    on_loop(scenario())
    lines = [(record.getMessage(), record.values) for record in caplog.records]  # type: ignore[attr-defined]
    one_by_one = [values for text, values in lines if text == "a login was denied"]
    counted = sum(values["count"] for text, values in lines if text == "more logins were denied")
    assert len(one_by_one) + counted == 15
    assert counted
    assert one_by_one[0]["reason"] == "token"
    assert one_by_one[0]["peer"].startswith("127.0.0.1:")
    assert "tdg_" not in str(lines)


def test_a_node_of_another_authority_is_refused_at_once(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        other = Authority("another").write_ca(secured.home / "other.pem")
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), token=TOKEN, ca=other)
            assert isinstance(error, NotAllowed)
            assert str(error) == f"the node's certificate was not issued by the CA in {other}"
            assert "no CA that this system knows" in str(await refusal(at(node), token=TOKEN))
            assert node.driver.connections == 0

    on_loop(scenario())


def test_a_node_whose_certificate_has_expired_is_refused_with_its_date(on_loop: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        secured = Secured(tmp_path, days=(-10, -1))
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), token=TOKEN, ca=secured.ca)
            assert isinstance(error, NotAllowed)
            assert "the certificate of the node 'kitchen' has expired (since 20" in str(error)

    on_loop(scenario())


def test_a_certificate_for_other_hosts_is_refused_with_their_names(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        hosts = ("example.org", "10.0.0.7")
        secured.authority.issue(secured.path / "node.pem", "kitchen", hosts)
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), token=TOKEN, ca=secured.ca)
            assert isinstance(error, NotAllowed)
            assert str(error).endswith("is not for 127.0.0.1; it is for example.org, 10.0.0.7")

    on_loop(scenario())


def test_a_client_certificate_that_has_expired_is_refused_with_the_reason(
    on_loop: Run, secured: Secured
) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), **secured.client("bob", days=(-10, -1)))
            assert isinstance(error, NotAllowed)
            assert str(error) == "the node does not take this client's certificate: it has expired"
            assert node.driver.broker.tallies["turned_away", "tls"] == 1

    on_loop(scenario())


def test_a_client_certificate_of_another_authority_is_refused(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            error = await refusal(at(node), **secured.client("bob", authority=Authority("another")))
            assert isinstance(error, NotAllowed)
            assert "was not issued by the CA of the node" in str(error)

    on_loop(scenario())


def test_plain_speech_to_a_port_with_tls_and_the_reverse_say_what_to_use(
    on_loop: Run, secured: Secured
) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node, running() as plain:
            error = await refusal(f"tidings://127.0.0.1:{port_of(node)}")
            assert isinstance(error, Refused)
            assert "this port speaks TLS; use tidings+tls://" in str(error)
            error = await refusal(f"tidings+tls://127.0.0.1:{port_of(plain)}", token=TOKEN, ca=secured.ca)
            assert isinstance(error, Disconnected)
            assert str(error) == "this port does not speak TLS; use tidings://"

    on_loop(scenario())


def test_a_secret_is_never_said_where_others_can_listen(secured: Secured) -> None:
    for address in ("tidings://127.0.0.1:7300", f"tidings+unix://{secured.home}/socket", None):
        with pytest.raises(UserError, match=r"tidings\+tls://"):
            tidings.connect(address, token=TOKEN)
    with pytest.raises(AddressError) as raised:
        tidings.connect(f"tidings+tls://ada:{PASSWORD}@127.0.0.1", ca=secured.ca)
    assert PASSWORD not in str(raised.value)


# The wire


def test_another_version_of_the_protocol_is_refused_inside_tls(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            peer = await tls_peer(node, secured)
            peer.send(Hello([99], "peer", 1, secret=TOKEN))
            assert (await peer.goodbye()).code == "version"

    on_loop(scenario())


def test_a_slow_peer_gets_everything_in_order_when_it_reads_on(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with (
            running(security=str(secured.path)) as node,
            tidings.connect(at(node), token=TOKEN, ca=secured.ca) as device,
        ):
            slow = await tls_peer(node, secured)
            slow.send(Hello([1], "slow", 1, user="ada", secret=PASSWORD))
            await slow.expect(Welcome)
            await slow.subscribe()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(40):
                await device.publish(Event("a", n=number, body=bytes(1 << 19), delivery="reliable"))
            assert node.driver.outbox_size > 0
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [event["n"] for event in await slow.events(40)] == list(range(40))
            slow.close()

    on_loop(scenario())


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\x16\x03\x01\x00\x05hello", b"\xff" * 9]
)
def test_what_is_no_handshake_ends_the_connection_at_once(
    on_loop: Run, secured: Secured, junk: bytes
) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
            writer.write(junk)
            with_alert = await asyncio.wait_for(reader.read(), ANSWER_S_MAX)
            assert len(with_alert) < 64
            writer.close()
            assert node.driver.connections == 0
            assert node.driver.broker.tallies["connections", ""] == 0

    on_loop(scenario())


def test_a_handshake_that_is_not_finished_is_cut_off(
    on_loop: Run, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "HANDSHAKE_S_MAX", 0.05)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        driver = Driver(MemoryStore("n"), loop, CoreSettings(lasts=False))
        files = (secured.ca, secured.path / "node.pem", secured.path / "node.key")
        context = port_context(node_context(*files), lambda: 10, lambda: None)
        server, place = await listen_tcp(lambda: Port(driver, 10), "127.0.0.1", 0, context)
        await server.start_serving()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(place.rpartition(":")[2]))
        writer.write(client_hello()[:100])
        assert await asyncio.wait_for(_rest(reader), ANSWER_S_MAX) == b""
        writer.close()
        server.close()
        await driver.close()

    on_loop(scenario())


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def client_hello() -> bytes:
    """The first bytes of a client that speaks TLS."""
    said = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def test_more_handshakes_at_a_time_than_connections_are_not_begun(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path), connections_max=2) as node:
            halves = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
                writer.write(client_hello())
                assert await reader.read(1)  # the node has answered, and waits
                halves.append(writer)
            with pytest.raises(ConnectionError):
                await tls_peer(node, secured)
            for writer in halves:
                writer.close()

    on_loop(scenario())


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_connections_that_say_nothing_cost_little(secured: Secured) -> None:
    """On uvloop, as nodes run; 200 of them, and 16 MiB at most."""

    async def scenario() -> None:
        async with running(security=str(secured.path)) as node:
            before = resident()
            silent = [socket.create_connection(("127.0.0.1", port_of(node))) for _ in range(200)]
            async with tidings.connect(at(node), token=TOKEN, ca=secured.ca) as bus:
                await bus.publish("a", delivery="reliable")
            grown = resident() - before
            for channel in silent:
                channel.close()
        assert grown < 16 << 20

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 2 * ANSWER_S_MAX))


# Web pages

FRAMES = encode(Hello([1], "page", 1)) + encode(Bye())
PAGES = {
    "a form": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:7300\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(FRAMES), FRAMES),
    "a websocket": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:7300\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + FRAMES,
    "another name": b"GET / HTTP/1.1\r\nHost: page.example:7300\r\n\r\n" + FRAMES,
}


@pytest.mark.parametrize("request_text", PAGES.values(), ids=PAGES.keys())
def test_nothing_that_a_web_page_can_send_is_done(
    on_loop: Run, secured: Secured, request_text: bytes
) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path)) as node, running() as plain:
            for one in (node, plain):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(one))
                writer.write(request_text)
                answer = await asyncio.wait_for(_rest(reader), ANSWER_S_MAX)
                assert not answer.startswith(b"HTTP")
                writer.close()
            assert node.driver.broker.tallies["connections", ""] == 0
            assert plain.driver.broker.tallies["closed", "too-large"] == 1
            async with peer_of(plain.addresses[0]) as peer:
                assert (await peer.hello("page")).counter == 0  # it was never heard of

    on_loop(scenario())


def test_metrics_stay_on_loopback_wherever_the_node_listens(on_loop: Run, secured: Secured) -> None:
    async def scenario() -> None:
        async with running(security=str(secured.path), host="0.0.0.0", http_port=0) as node:
            assert node.addresses[0].startswith("tidings+tls://0.0.0.0:")
            assert node.metrics_address is not None
            assert node.metrics_address.startswith("http://127.0.0.1:")
            assert node._http is not None
            (metrics,) = node._http.sockets
            assert metrics.getsockname()[0] == "127.0.0.1"

    on_loop(scenario())
