"""Sensor networks that speak HTTP, against a real gateway and a real node."""

from __future__ import annotations

import asyncio
import json

import pytest
from effort import ANSWER_S
from hypothesis import given
from hypothesis import strategies as st
from node.gateway.networks import register, sensing, sensor, values, wait_until
from node.gateway.webs import Client, client_at, web_rig
from node.peers import run, running

import tidings
from tests.gateway.world import is_known
from tidings.node.gateway import web, web_port, web_session
from tidings.node.gateway.web_session import SINGLE
from tidings.node.http import BODY_SIZE_MAX, REQUEST_SIZE_MAX, HttpError, check_page, parse_head


def test_a_network_that_posts_and_polls_is_asked_when_someone_subscribes() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            rig.client() as phone,
            rig.client() as ear,
        ):
            answered = await phone.post(register("phone", sensor("t", min_value=0, max_value=50)))
            assert (answered.status, answered.said) == (200, [])
            ear.ask("GET", "/sensors/phone?wait=30", sensing_token=answered.fields["sensing-token"])
            async with bus.subscribe("type = 'temp' AND value > 20") as events:
                told = [{"name": "t", "min-value": 20, "max-value": 50}]
                assert (await ear.answer()).said == [{"subscribe": {"sensing-id": "phone", "sensors": told}}]
                for value in (21, 22):  # on the same connection
                    sent = await phone.post(
                        sensing("phone", value), sensing_token=answered.fields["sensing-token"]
                    )
                    assert (sent.status, sent.said) == (200, [])
                assert await values(aiter(events), 2) == [21, 22]
            heard = await ear.request("GET", "/sensors/phone?wait=30", cookie=answered.fields["set-cookie"])
            assert heard.said == [{"unsubscribe": {"sensing-id": "phone", "sensors": [{"name": "t"}]}}]

    run(scenario())


def test_what_the_gateway_has_to_say_comes_with_the_next_answer_too() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            rig.client() as phone,
            bus.subscribe("type = 'temp'"),
        ):
            known = (await phone.post(register("p", sensor("t")), register("q", sensor("t")))).token
            fields = {"sensing_token": known["Sensing-Token"]}
            heard: list[str] = []
            async with asyncio.timeout(ANSWER_S):
                while len(heard) < 2:
                    said = (await phone.post(sensing("p", 1), **fields)).said
                    heard += [one["subscribe"]["sensing-id"] for one in said]
            assert sorted(heard) == ["p", "q"], "two networks share their requests"

    run(scenario())


def test_each_network_of_a_token_fetches_its_own() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, tidings.connect(rig.node) as bus, rig.client() as phone:
            token = (await phone.post(register("p", sensor("t")), register("q", sensor("u", "other")))).token
            fields = {"sensing_token": token["Sensing-Token"]}
            async with bus.subscribe("type IN ('temp', 'other')"):
                for name in ("q", "p"):
                    said = (await phone.request("GET", f"/sensors/{name}?wait=30", **fields)).said
                    assert [one["subscribe"]["sensing-id"] for one in said] == [name]

    run(scenario())


def test_numbered_readings_are_acknowledged_in_the_answer_and_repeats_count_once() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            bus.subscribe("type = 'temp'") as events,
            rig.client() as phone,
        ):
            for _ in range(2):
                answered = await phone.post(sensing("n", 1, seq=7), sensing("n", 2, seq=8))
                assert [one["ack"]["seq"] for one in answered.said] == [7, 8]
                assert "sensing-token" not in answered.fields, "there is nothing to come back for"
            await phone.post(sensing("n", 3, seq=9))
            assert await values(aiter(events), 3) == [1, 2, 3]
            assert len(rig.web.visits) == 0

    run(scenario())


def test_only_who_has_the_token_fetches_what_is_said_to_a_network() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            mine = (await phone.post(register("mine", sensor("t")))).fields["sensing-token"]
            other = (await phone.post(register("other", sensor("t")))).fields["sensing-token"]
            assert mine != other
            assert (await phone.request("GET", "/sensors/mine")).status == 403
            assert (await phone.request("GET", "/sensors/mine", sensing_token=other)).status == 404
            assert (await phone.request("GET", "/sensors/mine", sensing_token="x" * 32)).status == 410
            assert (await phone.request("GET", "/sensors/mine", sensing_token=mine)).status == 200

    run(scenario())


def test_of_two_who_wait_the_later_one_gets_it() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            rig.client() as one,
            rig.client() as two,
        ):
            token = (await one.post(register("p", sensor("t")))).fields["sensing-token"]
            one.ask("GET", "/sensors/p?wait=60", sensing_token=token)
            await wait_until(lambda: _waiting(rig.web) == 1)
            two.ask("GET", "/sensors/p?wait=60", sensing_token=token)
            assert (await one.answer()).said == []
            async with bus.subscribe("type = 'temp'"):
                assert "subscribe" in (await two.answer()).said[0]

    run(scenario())


def test_two_networks_of_one_token_may_wait_at_the_same_time() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            rig.client() as one,
            rig.client() as two,
        ):
            answered = await one.post(register("p", sensor("t")), register("q", sensor("t")))
            for client, name in ((one, "p"), (two, "q")):
                client.ask("GET", f"/sensors/{name}?wait=60", cookie=answered.fields["set-cookie"])
            await wait_until(lambda: _waiting(rig.web) == 2)
            async with bus.subscribe("type = 'temp'"):
                for client, name in ((one, "p"), (two, "q")):
                    assert (await client.answer()).said[0]["subscribe"]["sensing-id"] == name

    run(scenario())


def _waiting(web: web.Web) -> int:
    return sum(visit.waiting for visit in web.visits._visits.values())


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"origin": "http://sensors.example"}, 200),
        ({"transfer_encoding": "chunked"}, 411),
        ({"content_length": "1x"}, 400),
        ({"content_length": str(BODY_SIZE_MAX + 1)}, 413),
    ],
)
def test_pages_of_other_sites_and_requests_of_unclear_size_are_refused(
    fields: dict[str, str], status: int
) -> None:
    async def scenario() -> None:
        async with (
            web_rig(frozenset({"http://sensors.example"})) as rig,
            rig.client() as page,
        ):
            answered = await page.post(register("n", sensor("t")), **fields)
            assert answered.status == status
            assert is_known(rig.server.hub.gateway, "n", "t") == (status == 200)
            own = fields.get("origin") if status == 200 else None
            assert answered.fields.get("access-control-allow-origin") == own

    run(scenario())


def test_a_page_of_a_listed_origin_may_ask_what_it_may_send() -> None:
    async def scenario() -> None:
        async with web_rig(frozenset({"https://map.example"})) as rig, rig.client() as page:
            answered = await page.request("OPTIONS", "/sensors", origin="https://map.example")
            assert answered.status == 204
            assert "POST" in answered.fields["access-control-allow-methods"]
            assert (await page.request("OPTIONS", "/sensors")).status == 405

    run(scenario())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"sensing": {"sensing-id": "n"', "ends within an object"),
        (b'{"sensing": {"sensing-id": "n", "sens', "within a text"),
        (b"   \n", "no objects"),
        (b"[1, 2]", "begins with"),
        (b'{"sensing": {broken}}', "malformed"),
        (b'{"hello": {}}', "no message"),
        (b'{"register": {"sensing-id": "n", "sensors": "all"}}', ""),
    ],
)
def test_a_body_of_which_nothing_is_understood_gets_400_and_the_reason(body: bytes, problem: str) -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            answered = await phone.post(body)
            assert answered.status == 400
            assert problem in answered.said[0]["error"]["problem"]
            assert (await phone.post(sensing("n", 1))).status == 200, "the connection stays"

    run(scenario())


def test_what_is_good_of_a_body_is_taken_and_what_is_bad_is_told() -> None:
    async def scenario() -> None:
        async with (
            web_rig() as rig,
            tidings.connect(rig.node) as bus,
            bus.subscribe("type = 'temp'") as events,
            rig.client() as phone,
        ):
            answered = await phone.post(sensing("n", 1), b'{"hello": {}}', sensing("n", 2))
            assert answered.status == 200
            assert [list(one) for one in answered.said] == [["error"]]
            assert await values(aiter(events), 2) == [1, 2]

    run(scenario())


def test_a_network_that_is_refused_gets_no_token() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            answered = await phone.post(register("n"))
            assert "error" in answered.said[0]
            assert "sensing-token" not in answered.fields
            assert len(rig.web.visits) == 0

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/sensors", 426),
        ("PUT", "/sensors", 405),
        ("DELETE", "/sensors/n", 405),
        ("POST", "/sensors/n", 405),
        ("GET", "/sensors/n?wait=nan", 403),
        ("GET", "//[", 400),
    ],
)
def test_what_is_not_there_is_told_so(method: str, path: str, status: int) -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as client:
            assert (await client.request(method, path)).status == status

    run(scenario())


def test_a_time_to_wait_that_is_none_is_told_so() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            token = (await phone.post(register("n", sensor("t")))).fields["sensing-token"]
            for wait in ("nan", "inf", "-1", "soon"):
                answered = await phone.request("GET", f"/sensors/n?wait={wait}", sensing_token=token)
                assert answered.status == 400
            assert (await phone.request("GET", "/sensors/n?wait=0", sensing_token=token)).status == 200

    run(scenario())


def test_requests_that_come_in_bits_or_all_at_once_are_answered_in_order() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            body = json.dumps(sensing("n", 1, seq=1)).encode()
            head = (
                f"POST /sensors HTTP/1.1\r\nHost: {rig.host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            for byte in head + body:
                phone.write(bytes([byte]))
                await phone.writer.drain()
            assert (await phone.answer()).said == [{"ack": {"sensing-id": "n", "seq": 1}}]
            bodies = [json.dumps(sensing("n", 1, seq=seq)).encode() for seq in (2, 3, 4)]
            size = len(bodies[0])
            head = f"POST /sensors HTTP/1.1\r\nHost: {rig.host}\r\nContent-Length: {size}\r\n\r\n".encode()
            phone.write(b"".join(head + one for one in bodies))
            for seq in (2, 3, 4):
                assert (await phone.answer()).said[0]["ack"]["seq"] == seq

    run(scenario())


def test_a_body_that_is_too_large_is_refused_so_that_who_sends_all_of_it_hears_why() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            assert (await phone.post(b" " * 4 * BODY_SIZE_MAX)).status == 413
            assert await phone.end() == b""

    run(scenario())


def test_a_body_is_asked_for_if_the_client_waits_for_that() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            body = json.dumps(sensing("n", 1, seq=1)).encode()
            phone.ask("POST", "/sensors", content_length=str(len(body)), expect="100-continue")
            assert (await phone.answer()).status == 100
            phone.write(body)
            assert "ack" in (await phone.answer()).said[0]

    run(scenario())


@pytest.mark.parametrize("beginning", [b"POST /sensors HT", b"POST /sensors HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_does_not_come_whole_in_time_is_given_up(
    beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_port, "REQUEST_S_MAX", 0.05)

    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as slow:
            slow.write(beginning)
            assert (await slow.answer()).status == 408
            assert await slow.end() == b""

    run(scenario())


def test_a_head_that_is_too_large_and_too_many_connections_are_refused() -> None:
    async def scenario() -> None:
        async with web_rig(connections_max=1) as rig, rig.client() as first:
            async with rig.client() as second:
                answered = await second.answer()
                assert (answered.status, answered.fields["retry-after"]) == (503, "1")
            first.ask("GET", "/sensors/n", filler="x" * REQUEST_SIZE_MAX)
            assert (await first.answer()).status == 431

    run(scenario())


def test_who_is_silent_past_its_lease_is_forgotten_and_told_to_register_again() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            message = register("n", sensor("t"))
            message["register"]["lease-s"] = 1
            token = (await phone.post(message)).fields["sensing-token"]
            rig.web.visits.sweep(asyncio.get_running_loop().time() + 0.5)
            assert (await phone.post(sensing("n", 1), sensing_token=token)).status == 200
            rig.web.visits.sweep(asyncio.get_running_loop().time() + 2)
            answered = await phone.post(sensing("n", 1), sensing_token=token)
            assert answered.status == 410
            assert "register again" in answered.said[0]["error"]["problem"]

    run(scenario())


def test_who_never_fetches_what_is_said_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_session, "WAITING_MAX", 2)

    async def scenario() -> None:
        async with web_rig() as rig, tidings.connect(rig.node) as bus, rig.client() as phone:
            await phone.post(register("n", sensor("t")))
            (visit,) = rig.web.visits._visits.values()
            async with asyncio.timeout(ANSWER_S):
                while visit.is_open:
                    async with bus.subscribe("type = 'temp'"):
                        pass
                    rig.web.visits.sweep(asyncio.get_running_loop().time())
            assert len(rig.web.visits) == 0

    run(scenario())


@pytest.mark.parametrize(
    "head",
    [
        b"GET /sensors\r\n\r\n",
        b"GET /sensors HTTP/2\r\n\r\n",
        b"GET http://localhost/sensors HTTP/1.1\r\n\r\n",
        b"GET /sensors HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /sensors HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"GET /sensors HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /sensors HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /sensors HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
    ],
)
def test_a_head_that_could_be_understood_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        parse_head(head, SINGLE)
    assert refused.value.status == 400


@given(head=st.binary(max_size=300), start=st.sampled_from([b"", b"POST /sensors HTTP/1.1\r\n", b"GET /"]))
def test_whatever_comes_is_a_request_or_refused(head: bytes, start: bytes) -> None:
    try:
        request = parse_head(start + head.replace(b"\r\n\r\n", b"") + b"\r\n\r\n", SINGLE)
        assert request.size <= BODY_SIZE_MAX
        check_page(request, frozenset(), is_tls=False)
    except HttpError as error:
        assert 400 <= error.status < 500  # noqa: PT017  # it is one of the two that may be


def test_a_request_says_whether_it_is_the_last() -> None:
    def is_last(version: str, connection: str) -> bool:
        head = f"GET / HTTP/{version}\r\nConnection: {connection}\r\n\r\n".encode()
        return parse_head(head, SINGLE).is_last

    assert is_last("1.1", "close")
    assert is_last("1.0", "x")
    assert not is_last("1.1", "x, y")
    assert not is_last("1.0", "Keep-Alive")


def test_the_last_request_of_a_connection_ends_it() -> None:
    async def scenario() -> None:
        async with web_rig() as rig, rig.client() as phone:
            assert isinstance(phone, Client)
            assert (await phone.post(sensing("n", 1), connection="close")).status == 200
            assert await phone.end() == b""

    run(scenario())


def test_the_gateway_of_a_node_that_is_told_a_port_for_http_is_reached_there() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0, sensor_http_port=0, sensor_origins="https://map.example") as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'") as events,
            client_at(node.sensor_addresses[2]) as phone,
        ):
            answered = await phone.post(register("n", sensor("t")), origin="https://map.example")
            fields = {"sensing_token": answered.fields["sensing-token"]}
            asked = answered.said or (await phone.request("GET", "/sensors/n?wait=30", **fields)).said
            assert asked == [{"subscribe": {"sensing-id": "n", "sensors": [{"name": "t"}]}}]
            await phone.post(sensing("n", 5), **fields)
            assert await values(aiter(events), 1) == [5]

    run(scenario())
