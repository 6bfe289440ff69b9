"""The conversation of the paper, word for word, over a plain UDP socket: no member that the paper hasn't."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

from node.gateway.networks import Object
from node.peers import ANSWER_S_MAX, run, running

import tidings
from tidings.gateway.amplification_guard import FACTOR


class PlainNetwork:
    """A network that knows the paper's messages and nothing else, at a socket of the system."""

    def __init__(self, address: str) -> None:
        host, _, port = address.split()[-1].rpartition(":")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect((host, int(port)))
        self.sent = self.got = 0

    def say(self, message: Object) -> None:
        self.sent += self._socket.send(json.dumps(message).encode())

    async def receive(self) -> Object:
        """The next message; never is more said than is allowed."""
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self._socket, 1 << 16), ANSWER_S_MAX)
        self.got += len(data)
        assert self.got <= FACTOR * self.sent
        received: Object = json.loads(data)
        return received

    async def hear(self) -> Object:
        """The same, of which the paper's members are kept."""
        ((kind, members),) = (await self.receive()).items()
        return {kind: {"sensing-id": members["sensing-id"], "sensors": members["sensors"]}}

    def close(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def plain(address: str) -> AsyncIterator[PlainNetwork]:
    network = PlainNetwork(address)
    try:
        yield network
    finally:
        network.close()


def subscribe(*names: str) -> Object:
    return {"subscribe": {"sensing-id": "netz", "sensors": [{"name": name} for name in names]}}


def unsubscribe(*names: str) -> Object:
    return {"unsubscribe": {"sensing-id": "netz", "sensors": [{"name": name} for name in names]}}


def reading(name: str, kind: str, value: str) -> Object:
    sensors = [{"name": name, "type": kind, "value": value, "timestamp": "2011-05-02T08:30:00Z"}]
    return {"sensing": {"sensing-id": "netz", "sensors": sensors}}


THREE = [("1", "temperatur"), ("2", "licht"), ("3", "laerm")]
REGISTER = {
    "register": {
        "sensing-id": "netz",
        "area": [{"x": 1.0, "y": 2.0}],
        "sensors": [{"name": name, "type": kind} for name, kind in THREE],
    }
}


def test_the_conversation_of_the_paper_works_over_a_plain_socket() -> None:
    """Figure 3.2: three sensors, of which two are subscribed to, then another; one goes, then all."""

    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            plain(node.sensor_addresses[1]) as network,
        ):
            network.say(REGISTER)
            async with bus.subscribe("type = 'temperatur'") as first:
                assert await network.hear() == subscribe("1")
                async with bus.subscribe("type = 'licht'") as second:
                    assert await network.hear() == subscribe("2")
                    network.say(reading("1", "temperatur", "21.5"))
                    network.say(reading("2", "licht", "700"))
                    assert ((await anext(first))["value"], (await anext(second))["value"]) == (21.5, 700)
                assert await network.hear() == unsubscribe("2")
                async with bus.subscribe("type = 'laerm'") as third:
                    assert await network.hear() == subscribe("3")
                    network.say(reading("3", "laerm", "40"))
                    assert (await anext(third))["value"] == 40
                    network.say({"deregister": {"sensing-id": "netz", "sensors": [{"name": "1"}]}})
                    network.say(reading("3", "laerm", "41"))
                    assert (await anext(third))["value"] == 41
                assert await network.hear() == unsubscribe("3")
            network.say({"deregister": {"sensing-id": "netz"}})

    run(scenario())


def test_the_smallest_network_is_started_and_stopped_and_started_again_before_it_has_said_anything() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            plain(node.sensor_addresses[1]) as network,
        ):
            network.say({"register": {"sensing-id": "netz", "sensors": [{"name": "t", "type": "x"}]}})
            async with bus.subscribe("type = 'x'"):
                assert await network.hear() == subscribe("t")
            assert await network.hear() == unsubscribe("t")
            async with bus.subscribe("type = 'x'") as events:
                assert await network.hear() == subscribe("t")
                network.say(reading("t", "x", "1"))
                assert (await anext(events))["value"] == 1
            assert await network.hear() == unsubscribe("t")

    run(scenario())


def test_a_small_network_is_told_what_is_wrong() -> None:
    async def scenario() -> None:
        async with running(sensor_port=0) as node, plain(node.sensor_addresses[1]) as network:
            network.say({"register": {"sensing-id": "netz", "sensors": [{"name": "t"}]}})
            told = await network.receive()
            assert told["error"]["place"] == "$.register.sensors[0].type"

    run(scenario())
