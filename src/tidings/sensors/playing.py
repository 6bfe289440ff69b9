"""Plays a recording to a gateway: each reading when its time has come, or all as fast as they go.

Every message is numbered and waited for, so what was read has arrived when `play` returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from tidings.sensors.link import Place
from tidings.sensors.replay import Recording
from tidings.sensors.speaker import Speaker

ARRIVE_S_MAX = 60.0
"""How long nothing may be acknowledged at the end, before the rest is given up."""
REPORT_S = 1.0
TURN = 100
"""Messages after which others get a turn, where there is nothing to wait for."""


class Played(Struct):
    """What has happened so far."""

    networks: int = 0
    messages: int = 0
    readings: int = 0
    arrived: int = 0
    unwanted: int = 0
    share: float = 0.0
    elapsed_s: float = 0.0


class Player:
    """See the module. `speed`: how many times as fast as it was; 0: as fast as it goes.

    `only_asked`: readings that nobody wants are left out. `report` is called about once a second.
    """

    def __init__(
        self,
        recording: Recording,
        place: Place,
        *,
        speed: float = 1.0,
        only_asked: bool = False,
        report: Callable[[Played], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.played = Played()
        self._recording = recording
        self._speed = speed
        self._report = report or (lambda _: None)
        self._report_at = 0.0
        self._begin = 0.0
        self._settled = 0
        self._speaker = Speaker(place, always=not only_asked, on_arrived=self._arrived, tell=tell)

    async def play(self) -> Played:
        """Send everything, and wait until it has arrived; NoAnswer if the gateway stops to acknowledge."""
        self._begin = time.monotonic()
        async with self._speaker:
            first_s = None
            for message in self._recording.messages():
                first_s = message.time_s if first_s is None else first_s
                await self._wait_for(message.time_s - first_s)
                await self._speaker.wait_room(message.sensing_id)
                self._speaker.offer(
                    message.sensing_id, message.sensors, message.readings, len(message.readings)
                )
                self.played.messages += 1
                self.played.readings += len(message.readings)
                self._tick()
            await self._speaker.wait_arrived(ARRIVE_S_MAX)
            self._speaker.farewell()
        self._tick(is_last=True)
        return self.played

    async def _wait_for(self, recorded_s: float) -> None:
        """Wait until it is so long after the first reading as it was then."""
        if not self._speed:
            if self.played.messages % TURN == 0:
                await asyncio.sleep(0)
            return
        while (wait_s := self._begin + recorded_s / self._speed - time.monotonic()) > 0:
            self._tick()
            await asyncio.sleep(min(wait_s, REPORT_S))

    def _arrived(self, readings: int) -> None:
        self._settled += readings

    def _tick(self, is_last: bool = False) -> None:
        now = time.monotonic()
        if now < self._report_at and not is_last:
            return
        self._report_at = now + REPORT_S
        self.played.networks = len(self._speaker.networks)
        self.played.unwanted = sum(network.unwanted for network in self._speaker.networks)
        self.played.arrived = self._settled - self.played.unwanted
        self.played.share = self._recording.share
        self.played.elapsed_s = now - self._begin
        self._report(self.played)
