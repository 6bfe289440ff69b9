"""Session at an MQTT broker that outlives its connections, with explicit acknowledgements.

Needs aiomqtt. The broker keeps the session, with all messages for it, for SESSION_S.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiomqtt
from msgspec import Struct
from paho.mqtt.client import Client as PahoClient
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tidings.errors import Disconnected
from tidings.sensors.link import RETRY_S_MIN, tls_context
from tidings.timers import Backoff
from tidings.transport.credentials import Credentials

SESSION_S = 7 * 86_400
"""How long the broker keeps messages for a bridge that is away."""
IN_FLIGHT_MAX = 500
"""Messages that the broker may deliver before the first of them is acknowledged."""
ANSWER_S_MAX = 10.0

logs = logging.getLogger("tidings.mqtt")
logs.addHandler(logging.NullHandler())  # we report paho's faults ourselves


class MqttBroker(Struct, frozen=True):
    """Address of a broker, the user there, and the client id of our session."""

    host: str
    port: int = 1883
    username: str | None = None
    password: Path | None = None
    session: str = "tidings"
    tls: bool = False
    ca: Path | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class MqttDelivery(NamedTuple):
    """Message of the broker; `qos` 0: it is not acknowledged."""

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    is_repeat: bool


class _Client(aiomqtt.Client):
    """aiomqtt, except that messages come at once, marked if they are repeats, and that we acknowledge them.

    It has no public names for that: `_on_message` is its callback for paho, its client underneath.
    """

    def __init__(self, deliver: Callable[[MqttDelivery], None], host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._deliver = deliver
        self._client.manual_ack_set(True)

    def _on_message(self, _client: PahoClient, _data: Any, message: MQTTMessage) -> None:
        self._deliver(
            MqttDelivery(message.topic, bytes(message.payload), message.qos, message.mid, message.dup)
        )

    def acknowledge(self, packet_id: int) -> None:
        self._client.ack(packet_id, 1)

    def forget(self) -> None:
        """Retrieve the error that ended the connection, or asyncio warns; it is reported otherwise."""
        if self._disconnected.done() and not self._disconnected.cancelled():
            self._disconnected.exception()


class MqttSession:
    """Session at an MQTT broker. `run` keeps it connected until it is cancelled.

    It calls `on_message` for each message, `on_connected` and `on_disconnected` when the connection comes
    and goes, and `on_problem` with a sentence on a transient fault.
    """

    def __init__(
        self,
        broker: MqttBroker,
        filters: list[str],
        *,
        on_message: Callable[[MqttDelivery], None],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._filters = filters
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_problem = on_problem
        self._client: _Client | None = None
        self.is_connected = False
        """Whether there is a connection just now."""

    def acknowledge(self, packet_id: int) -> None:
        """Acknowledge a message to the broker; it must have come over this connection."""
        if self._client is not None:
            self._client.acknowledge(packet_id)

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish a retained message; Disconnected if the broker can't be reached."""
        if self._client is None or not self.is_connected:
            raise Disconnected(f"there is no connection to the broker at {self._broker}")
        try:
            await self._client.publish(topic, payload, qos=1, retain=True)
        except aiomqtt.MqttError as error:
            raise Disconnected(f"the broker at {self._broker}: {error}") from None

    async def run(self) -> None:
        """Connect, and again when the connection breaks."""
        backoff = Backoff(random.random, RETRY_S_MIN)
        while True:
            # Messages may come before the connection is reported.
            self._client = client = self._new_client()
            try:
                async with client:
                    await self._subscribe(client)
                    backoff.reset()
                    self.is_connected = True
                    self._on_connected()
                    async for _ in client.messages:  # which ends with an error when the connection does
                        pass
            except aiomqtt.MqttError as error:
                self._on_problem(f"the broker at {self._broker}: {error}")
            finally:
                client.forget()
                self._client, self.is_connected = None, False
                self._on_disconnected()
            await asyncio.sleep(backoff.next_s())

    async def _subscribe(self, client: _Client) -> None:
        # Retained messages come with a new subscription, not with each new connection.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        await client.subscribe([(one, options) for one in self._filters])

    def _new_client(self) -> _Client:
        broker = self._broker
        credentials = Credentials(broker.username, broker.password)
        credentials.read()
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = SESSION_S
        properties.ReceiveMaximum = IN_FLIGHT_MAX
        return _Client(
            self._on_message,
            broker.host,
            port=broker.port,
            username=broker.username,
            password=credentials.says()[1] or None,
            identifier=broker.session,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=properties,
            tls_context=tls_context(broker.tls, broker.ca),
            timeout=ANSWER_S_MAX,
            logger=logs,
        )
