"""The bridge between a real Mosquitto and the core of the gateway, with links that are cut in the middle.

TIDINGS_DEVICES says how many devices publish where the counts are compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from effort import ANSWER_S
from sensors.brokers import MISSING, PROGRAM, Mosquitto, mosquitto
from sensors.gateways import TestGateway, run, wait_until

from tests.gateway.world import is_known
from tidings.errors import MissingExtra, UserError
from tidings.sensors.mqtt import Bridge, session_class
from tidings.sensors.topics import TopicMap
from tidings.testing import Proxy

DEVICES = int(os.environ.get("TIDINGS_DEVICES", "25"))
EACH = 40
"""Readings that each device publishes."""
TABLE = {
    "topic": "city/+station/air/+what",
    "network": "{station}",
    "name": "{what}",
    "type": "air.{what}",
    "value": "$.v",
    "timestamp": "$.t",
}
needs_mosquitto = pytest.mark.skipif(PROGRAM is None, reason=MISSING)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@asynccontextmanager
async def bridged(port: int, gateway: TestGateway, **options: Any) -> AsyncIterator[Bridge]:
    """A bridge that runs, from when it has subscribed."""
    from tidings.sensors.mqtt_session import MqttBroker

    bridge = Bridge(TopicMap([TABLE], "map.toml"), MqttBroker("127.0.0.1", port), gateway.place(), **options)
    task = asyncio.ensure_future(bridge.run())
    try:
        await wait_until(lambda: bridge.session.is_connected)
        yield bridge
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Device:
    """Publishes numbered readings, each until the broker has it; a link that breaks is made again."""

    def __init__(self, number: int, port: int) -> None:
        self.station = f"station-{number}"
        self.values = list(range(number * EACH, (number + 1) * EACH))
        self._port = port

    async def publish(self, qos: int = 1) -> None:
        import aiomqtt

        waiting = list(self.values)
        while waiting:
            try:
                async with aiomqtt.Client("127.0.0.1", self._port, timeout=60) as client:
                    while waiting:
                        payload = json.dumps({"v": waiting[0], "t": "2026-05-01T08:00:00Z"})
                        await client.publish(f"city/{self.station}/air/pm10", payload, qos=qos)
                        del waiting[0]
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)


async def publish_all(port: int, devices: int = DEVICES) -> None:
    await asyncio.gather(*(Device(number, port).publish() for number in range(devices)))


def seen(gateway: TestGateway) -> list[int]:
    return sorted(reading.value for _, reading in gateway.readings)


@needs_mosquitto
def test_devices_appear_as_sensor_networks(broker: Mosquitto) -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway, bridged(broker.port, gateway) as bridge:
            await publish_all(broker.port, 2)
            await wait_until(lambda: bridge.tally.acknowledged == 2 * EACH)
            assert seen(gateway) == list(range(2 * EACH))
            assert is_known(gateway.core, "station-1", "pm10")
            assert gateway.errors == []

    run(test())


@needs_mosquitto
def test_links_that_are_cut_lose_nothing_and_double_nothing(broker: Mosquitto) -> None:
    async def test() -> None:
        async with (
            TestGateway(acknowledges=False).listening() as gateway,
            Proxy(f"tidings://127.0.0.1:{broker.port}") as proxy,
            bridged(proxy.port, gateway) as bridge,
        ):
            devices = asyncio.ensure_future(publish_all(broker.port))
            await wait_until(lambda: bridge._inbox.pending)
            proxy.reset()
            await wait_until(lambda: bridge.tally.repeated > 0)
            gateway.acknowledge()
            cuts = [gateway.cut, proxy.reset]
            for number in range(6):
                due = min(len(gateway.readings) + DEVICES * EACH // 8, DEVICES * EACH)
                await wait_until(lambda due=due: len(gateway.readings) >= due)
                cuts[number % 2]()
                await wait_until(lambda: bridge.session.is_connected)
            await devices
            await wait_until(lambda: len(gateway.readings) >= DEVICES * EACH and not bridge._inbox.pending)
            assert seen(gateway) == list(range(DEVICES * EACH))

    run(test())


@needs_mosquitto
def test_what_the_gateway_has_not_acknowledged_stays_with_the_broker(broker: Mosquitto) -> None:
    """A bridge that dies has acknowledged nothing; another one of the same session gets everything again."""

    async def test() -> None:
        dumb = TestGateway(acknowledges=False)
        async with dumb.listening() as gateway, bridged(broker.port, gateway) as bridge:
            await publish_all(broker.port, 1)
            await wait_until(lambda: len(gateway.readings) == EACH)
            assert bridge.tally.acknowledged == 0
        async with TestGateway().listening() as gateway, bridged(broker.port, gateway) as bridge:
            await wait_until(lambda: bridge.tally.acknowledged == EACH)
            assert seen(gateway) == list(range(EACH))

    run(test())


@needs_mosquitto
def test_a_broker_that_is_restarted_has_lost_nothing(broker: Mosquitto) -> None:
    async def test() -> None:
        slow = TestGateway(acknowledges=False)
        async with slow.listening() as gateway, bridged(broker.port, gateway) as bridge:
            await publish_all(broker.port, 3)
            await wait_until(lambda: len(gateway.readings) == 3 * EACH)
            broker.stop()
            await wait_until(lambda: not bridge.session.is_connected)
            gateway.acknowledge()
            broker.start()
            await wait_until(lambda: bridge.tally.acknowledged >= 3 * EACH)
            assert bridge.tally.repeated == 3 * EACH
            assert seen(gateway) == list(range(3 * EACH))

    run(test())


@needs_mosquitto
def test_what_comes_while_the_bridge_is_away_is_kept_by_the_broker(broker: Mosquitto) -> None:
    async def test() -> None:
        async with TestGateway().listening() as gateway:
            async with bridged(broker.port, gateway):
                pass
            await publish_all(broker.port, 1)
            async with bridged(broker.port, gateway):
                await wait_until(lambda: len(gateway.readings) == EACH)

    run(test())


@needs_mosquitto
def test_devices_see_what_is_asked_of_them(broker: Mosquitto) -> None:
    import aiomqtt

    async def next_interest(client: aiomqtt.Client) -> Any:
        message = await asyncio.wait_for(anext(aiter(client.messages)), ANSWER_S)
        return str(message.topic), json.loads(message.payload)["sensors"]

    async def test() -> None:
        async with (
            TestGateway().listening() as gateway,
            bridged(broker.port, gateway),
            aiomqtt.Client("127.0.0.1", broker.port) as client,
        ):
            await client.publish("city/a%2Fb/air/pm10", '{"v":1}', qos=1)
            await wait_until(lambda: len(gateway.readings) == 1)
            gateway.demand("type = 'air.pm10' AND value > 40")
            await client.subscribe("tidings/interest/#")
            assert await next_interest(client) == ("tidings/interest/a%252Fb", [{"name": "pm10"}])
            gateway.demand()
            assert await next_interest(client) == ("tidings/interest/a%252Fb", [])

    run(test())


@needs_mosquitto
def test_what_holds_no_reading_is_told_and_not_handed_over_again(broker: Mosquitto) -> None:
    import aiomqtt

    told: list[str] = []

    async def test() -> None:
        async with (
            TestGateway().listening() as gateway,
            bridged(broker.port, gateway, on_problem=told.append) as bridge,
            aiomqtt.Client("127.0.0.1", broker.port) as client,
        ):
            await client.publish("city/a/air/pm10", "nothing", qos=1)
            await client.publish("city/a/air/pm10", '{"v":1}', qos=0)
            await client.publish("city/a/air/pm10", '{"v":2}', qos=1)
            await wait_until(lambda: bridge.tally.acknowledged == 2)
            assert seen(gateway) == [1, 2]
            assert bridge.tally.bad == 1

    run(test())
    assert told == ["city/a/air/pm10: the message has no $.v"]


@needs_mosquitto
def test_what_nobody_wants_may_be_left_out(broker: Mosquitto) -> None:
    async def test() -> None:
        async with (
            TestGateway().listening() as gateway,
            bridged(broker.port, gateway, only_asked=True) as bridge,
        ):
            await publish_all(broker.port, 1)
            await wait_until(lambda: bridge.tally.acknowledged == EACH)
            assert gateway.readings == []
            gateway.demand("type = 'air.pm10'")
            await wait_until(lambda: bool(bridge._speaker.network("station-0").asked))
            await publish_all(broker.port, 1)
            await wait_until(lambda: bridge.tally.acknowledged == 2 * EACH)
            assert seen(gateway) == list(range(EACH))

    run(test())


@needs_mosquitto
def test_a_password_that_cannot_be_read_ends_the_bridge(broker: Mosquitto, tmp_path: Path) -> None:
    from tidings.sensors.mqtt_session import MqttBroker

    async def test() -> None:
        async with TestGateway().listening() as gateway:
            home = MqttBroker("127.0.0.1", broker.port, "ann", tmp_path / "none")
            await Bridge(TopicMap([TABLE], "map.toml"), home, gateway.place()).run()

    with pytest.raises(UserError, match="the password can't be read"):
        run(test())


def test_without_the_mqtt_extra_the_bridge_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidings.sensors.mqtt_session", raising=False)
    monkeypatch.setitem(sys.modules, "aiomqtt", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidings\[mqtt\]'"):
        session_class()
