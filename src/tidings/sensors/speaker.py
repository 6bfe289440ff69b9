"""Client of a gateway for many networks that are found one by one, which knows what has arrived there.

Every message is numbered and kept until it is acknowledged, so that broken connections lose nothing. For
programs that bring readings from elsewhere: a recording, or the devices of another broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

from tidings.errors import NoAnswer
from tidings.gateway.messages import Sensor
from tidings.sensors.link import GatewayLink, GatewayPlace, sensing_id_of, wait_connected
from tidings.sensors.network import (
    Arrived,
    Heard,
    Redirected,
    SendLine,
    SensorEffect,
    SensorNetwork,
    SensorReading,
    Switched,
    Troubled,
)

NETWORKS_PER_LINK = 1_000
"""Networks on one connection, as many as a gateway accepts."""
LOOK_S = 0.5
"""Time between two checks for messages to be repeated."""
LEASE_S = 60.0
"""Lease of networks that send datagrams."""
FIRST_S_MAX = 5.0
"""Longest time for the first connection."""


class Speaker:
    """Client of a gateway for many networks; an async context manager that waits for the first connection.

    It calls `on_arrived` with the tag of readings that have arrived, once each; `on_switched` with a network
    whose sensors were switched on or off; `on_problem` with a sentence on a fault.
    """

    def __init__(
        self,
        place: GatewayPlace,
        *,
        always: bool = True,
        on_arrived: Callable[[Any], None] | None = None,
        on_switched: Callable[[SensorNetwork], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self._place = place
        self._always = always
        self.on_arrived = on_arrived or (lambda _: None)
        self.on_switched = on_switched or (lambda _: None)
        self.on_problem = on_problem or (lambda _: None)
        self._mouths: list[_Mouth] = []
        self._by_id: dict[str, _Mouth] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()
        self._seq = time.time_ns() // 1_000  # above those of an earlier run, which the gateway may remember

    async def __aenter__(self) -> Self:
        self._start(self._wake())
        first = self._add_mouth()
        try:
            await wait_connected(lambda: first.link.is_connected, self._place, FIRST_S_MAX)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def networks(self) -> list[SensorNetwork]:
        """All networks, in the order they were found."""
        return [mouth.networks[sensing_id] for sensing_id, mouth in self._by_id.items()]

    @property
    def waiting(self) -> int:
        """Number of messages that have not arrived yet."""
        return sum(network.waiting for mouth in self._mouths for network in mouth.networks.values())

    def network(self, sensing_id: str) -> SensorNetwork:
        """Return the network of that id, which is made if there is none."""
        mouth = self._by_id.get(sensing_id)
        if mouth is None:
            mouth = self._mouths[-1]
            if len(mouth.networks) >= NETWORKS_PER_LINK:
                mouth = self._add_mouth()
            self._by_id[sensing_id] = mouth
            lease_s = LEASE_S if self._place.udp else None
            network = SensorNetwork(sensing_id, seq=self._seq, lease_s=lease_s, always=self._always)
            mouth.networks[sensing_id] = network
        return mouth.networks[sensing_id]

    def offer(
        self, sensing_id: str, sensors: Iterable[Sensor], readings: list[SensorReading], tag: Any
    ) -> None:
        """Send readings of a network that is not full; its new sensors are registered first."""
        network = self.network(sensing_id)
        now, mouth = time.monotonic(), self._by_id[sensing_id]
        if mouth.link.is_connected and not network.is_connected:
            network.sensors.update((sensor.name, sensor) for sensor in sensors)
            mouth.do(network, network.connect(now))
        else:
            mouth.do(network, network.add(sensors, now))
        mouth.do(network, network.offer(readings, now, tag))

    async def wait_room(self, sensing_id: str) -> None:
        """Wait until a network may send, and the connection takes more; also while it is broken."""
        network, mouth = self.network(sensing_id), self._by_id[sensing_id]
        while network.is_full or not mouth.link.has_room:
            await self._wait_progress()

    async def wait_arrived(self, timeout_s: float) -> None:
        """Wait until everything has arrived; NoAnswer if nothing moves for so long."""
        while (before := self.waiting) > 0:
            try:
                async with asyncio.timeout(timeout_s):
                    while self.waiting == before:
                        await self._wait_progress()
            except TimeoutError:
                raise NoAnswer(f"{before:,} messages were not acknowledged by {self._place}") from None

    async def _wait_progress(self) -> None:
        self._progress.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._progress.wait()

    def farewell(self) -> None:
        """Deregister all networks."""
        for mouth in self._mouths:
            for network in mouth.networks.values():
                mouth.do(network, network.remove(list(network.sensors)))

    # Called by the mouths

    def move(self, problem: str | None = None) -> None:
        """Wake waiters after an arrival or a new connection; report a problem that concerns no network."""
        self._progress.set()
        if problem is not None:
            self.on_problem(problem)

    # Tasks

    def _add_mouth(self) -> _Mouth:
        mouth = _Mouth(self, self._place)
        self._mouths.append(mouth)
        self._start(mouth.link.run())
        return mouth

    def _start(self, work: Any) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    async def _wake(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for mouth in self._mouths:
                for network in mouth.networks.values():
                    mouth.do(network, network.wake(now))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Mouth:
    """Link and the networks that use it."""

    def __init__(self, speaker: Speaker, place: GatewayPlace) -> None:
        self._speaker = speaker
        self.networks: dict[str, SensorNetwork] = {}
        self.link = GatewayLink(place, self, speaker.on_problem)

    def do(self, network: SensorNetwork, effects: list[SensorEffect]) -> None:
        """Carry out the effects of a network."""
        speaker = self._speaker
        for effect in effects:
            match effect:
                case SendLine():
                    self.link.send(effect.line)
                case Arrived():
                    speaker.on_arrived(effect.tag)
                case Switched():
                    speaker.on_switched(network)
                case Troubled():
                    speaker.on_problem(f"network {network.sensing_id!r}: {effect.problem}")
                case Redirected():
                    speaker.on_problem(
                        f"network {network.sensing_id!r} belongs to the gateway at {effect.address}"
                    )

    def connected(self) -> None:
        now = time.monotonic()
        for network in self.networks.values():
            self.do(network, network.connect(now))
        self._speaker.move()

    def disconnected(self) -> None:
        for network in self.networks.values():
            network.disconnect()

    def heard(self, message: Heard) -> None:
        network = self.networks.get(sensing_id_of(message) or "")
        if network is None:
            problem = getattr(message, "problem", None)
            self._speaker.move(None if problem is None else f"the gateway says: {problem}")
            return
        self.do(network, network.hear(message, time.monotonic()))
        self._speaker.move()
