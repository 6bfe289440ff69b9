from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from node.peers import peer_of, run, running
from node.secured import TOKEN, USERS, Secured

import tidings
from tidings import Event
from tidings.channels.description import ChannelCounts
from tidings.node.http import REQUEST_SIZE_MAX, HttpError, Responder, is_loopback, parse_head
from tidings.node.metrics import (
    CHANNELS_NAMED_MAX,
    Metric,
    channel_metrics,
    counters,
    durable_gauges,
    gauge,
    nameless,
    render,
)
from tidings.node.server import Node
from tidings.security.passwords import hash_token, make_token

FROM_A_PAGE = "Host: localhost\r\nOrigin: http://page.example\r\n"
LINE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? -?[0-9.e+-]+')


def test_counters_have_a_reason_where_there_is_one() -> None:
    text = render(counters({("dropped", "slow"): 3, ("dropped", "away"): 1, ("published", ""): 7}))
    assert text.splitlines() == [
        "# HELP tidings_dropped_total Events that a subscription did not get, by reason.",
        "# TYPE tidings_dropped_total counter",
        'tidings_dropped_total{reason="away"} 1',
        'tidings_dropped_total{reason="slow"} 3',
        "# HELP tidings_published_total Events that were accepted from clients.",
        "# TYPE tidings_published_total counter",
        "tidings_published_total 7",
    ]


def test_names_are_escaped() -> None:
    durables = [{"name": 'a"b\\c\nd', "owner": "", "depth": 2, "cursor": 1}]
    text = render([*durable_gauges(durables, {("", 'a"b\\c\nd'): 1.5}), gauge("x", "An x.", 0.25)])
    assert 'tidings_durable_depth{name="a\\"b\\\\c\\nd",owner=""} 2' in text
    assert 'seconds{name="a\\"b\\\\c\\nd",owner=""} 1.5' in text
    assert all(LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))


def test_a_metric_without_names_is_as_it_was_and_one_with_names_is_one_value() -> None:
    for values in ([], [({}, 1.0)], [({"reason": "slow"}, 3.0), ({"reason": "away"}, 1.0)]):
        metric = Metric("tidings_x", "gauge", "An x.", values)
        assert nameless(metric) == metric
    values = [({"queue": "a"}, 3.0), ({"queue": "b"}, 4.0)]
    assert nameless(Metric("tidings_x", "gauge", "An x.", values)).values == [({}, 7.0)]
    assert nameless(Metric("tidings_x_seconds", "gauge", "An x.", values)).values == [({}, 4.0)]


def test_channels_have_metrics_by_name_up_to_a_bound_and_private_ones_together() -> None:
    counts = ChannelCounts(joins=3, leaves=1, sent=7, rate=0.5)
    many = [(f"c{number}@a", 1, counts) for number in range(CHANNELS_NAMED_MAX)]
    text = render(channel_metrics([("", 2, counts), ("", 3, counts), *many]))
    assert 'tidings_channel_members{channel="c0@a"} 1\n' in text
    assert f'tidings_channel_members{{channel="c{CHANNELS_NAMED_MAX - 1}@a"}}' not in text
    assert 'tidings_channel_members{channel=""} 6\n' in text
    assert 'tidings_channel_joins_total{channel="c0@a"} 3\n' in text
    assert 'tidings_channel_leaves_total{channel=""} 3\n' in text
    assert 'tidings_channel_sent_total{channel=""} 21\n' in text


async def fetch(address: str, request: str | None = None) -> tuple[int, str]:
    host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write((request or f"GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_the_node_shows_its_counters_and_depths(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(dir=str(tmp_path / "node"), http_port=0) as node:
            assert node.metrics_address is not None
            async with peer_of(node.addresses[0]) as peer:
                await peer.hello("peer", name="me")
                await peer.subscribe("", durable="all", credit=0)
                await peer.publish_accepted(*[Event("a", delivery="reliable")] * 3)
                peer.send()
                status, text = await fetch(node.metrics_address)
        assert status == 200
        lines = text.splitlines()
        assert "tidings_published_total 3" in lines
        assert "tidings_connections 1" in lines
        assert 'tidings_durable_depth{name="all",owner="me"} 3' in lines
        assert any(line.startswith('tidings_durable_oldest_age_seconds{name="all"') for line in lines)
        assert any(re.fullmatch("tidings_commits_total [1-9]", line) for line in lines)
        assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))

    run(scenario())


def test_with_security_no_name_is_told_without_the_token_of_a_manager(tmp_path: Path) -> None:
    secured, words = Secured(tmp_path), ("jobs", "watcher", "ada", "pantry")
    manager, late, unknown = (make_token(os.urandom) for _ in range(3))
    lines = f"ada token page sha256:{hash_token(manager)}\n"
    lines += f"ada token late sha256:{hash_token(late)} until:2020-01-01\n"
    secured.write_users(USERS + lines)
    settings = {"security": str(secured.path), "unix": str(tmp_path / "s"), "http_port": 0}
    settings |= {"dir": str(tmp_path / "node"), "peers": "pantry=tidings+tls://127.0.0.1:1"}

    async def page(node: Node, authorization: str) -> tuple[int, str]:
        assert node.metrics_address is not None
        fields = "Host: localhost\r\n" + (f"Authorization: {authorization}\r\n" if authorization else "")
        return await fetch(node.metrics_address, f"GET /metrics HTTP/1.1\r\n{fields}\r\n")

    async def scenario() -> None:
        async with (
            running(**settings) as node,
            tidings.connect(node.addresses[-1], name="ada") as bus,
            bus.subscribe("", durable="watcher"),
        ):
            queue = await bus.create_queue("jobs")
            await queue.put(Event("job"))
            status, text = await page(node, "")
            assert status == 200
            assert not [word for word in words if f'"{word}"' in text]
            assert "tidings_queue_messages 1" in text.splitlines()
            status, text = await page(node, f"Bearer {manager}")
            assert [word for word in words if f'"{word}"' in text] == list(words)
            status, text = await page(node, f"bearer {TOKEN}")
            assert (status, 'queue="jobs"' in text) == (200, False)
            for wrong in (f"Bearer {unknown}", f"Bearer {late}", "Basic YTpi", "Bearer horse"):
                status, text = await page(node, wrong)
                assert (status, "tidings_" in text) == (401, False)

    run(scenario())


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403),
        ("nonsense\r\n\r\n", 400),
        ("x" * (2 * REQUEST_SIZE_MAX), 431),
        ("GET /fails HTTP/1.1\r\nHost: localhost\r\n\r\n", 500),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:7380\r\nOrigin: http://localhost:7380\r\n\r\n", 200),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:7380\r\nOrigin: http://page.example\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:7380\r\nOrigin: http://localhost:3000\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost:7380\r\nOrigin: null\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: none\r\n\r\n", 200),
        (f"POST /metrics HTTP/1.1\r\n{FROM_A_PAGE}Content-Length: 4\r\n\r\nfine", 403),
        (f"GET /metrics HTTP/1.1\r\n{FROM_A_PAGE}Upgrade: websocket\r\n\r\n", 403),
        ("HEAD /metrics HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
    ],
)
def test_other_requests_get_another_status(request_text: str, status: int) -> None:
    async def page(_authorization: str) -> tuple[str, str]:
        return "text/plain", "fine"

    async def failing(_authorization: str) -> tuple[str, str]:
        raise ValueError("broken")

    async def scenario() -> None:
        server = await Responder({"/metrics": page, "/fails": failing}).serve("127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert (await fetch(f"http://127.0.0.1:{port}/metrics", request_text))[0] == status
        server.close()

    run(scenario())


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]", "[::1]:7"])
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", ":80", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "::1:x"]
)
def test_hosts_that_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_query_does_not_change_the_path() -> None:
    request = parse_head(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", single=())
    assert (request.method, request.path) == ("GET", "/metrics")
    with pytest.raises(HttpError):
        parse_head(b"\xff\xfe\r\n\r\n", single=())
