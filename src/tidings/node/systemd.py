"""Notifications to systemd, or to whatever else started the node and set NOTIFY_SOCKET.

The protocol is that of sd_notify(3): datagrams of `NAME=VALUE` lines to a Unix socket. A node says when it
serves and when it stops. If WATCHDOG_USEC asks for it, the node's loop says that it turns, twice in each such
time: systemd restarts a node whose loop stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

from tidings.node import logs

BEATS = 2
"""Signs of life in the time that systemd waits for one."""
MICROSECONDS = 1_000_000


class Notifier:
    """Tells the supervisor of the process about it; without one, does nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._place = environment.get("NOTIFY_SOCKET", "")
        self.beat_s = _beat_s(environment) if self._place else None
        """Seconds between two signs of life; None if nobody wants them."""
        self._beating: asyncio.Task[None] | None = None
        self._has_failed = False

    def ready(self, status: str) -> None:
        """Say that the node serves; give signs of life from now on, if they are wanted."""
        self.tell("READY=1", f"STATUS={status}")
        if self.beat_s is not None:
            self._beating = asyncio.get_running_loop().create_task(
                self._beat(self.beat_s), name="tidings watchdog"
            )

    async def stopping(self) -> None:
        """Say that the node stops; it may take its time, and gives no more signs of life."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        self.tell("STOPPING=1")

    async def _beat(self, every_s: float) -> None:
        while True:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(every_s)

    def tell(self, *lines: str) -> None:
        """Send lines to the supervisor; failure is logged once."""
        if not self._place:
            return
        # A name that begins with @ is one of Linux's abstract sockets.
        place = f"\0{self._place[1:]}" if self._place.startswith("@") else self._place
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), place)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logs.warning("systemd can't be notified", socket=self._place, problem=str(error))


def _beat_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between signs of life, None if none are wanted of this process."""
    with contextlib.suppress(ValueError):
        if int(environment.get("WATCHDOG_PID", os.getpid())) == os.getpid():
            limit_us = int(environment.get("WATCHDOG_USEC", "0"))
            return limit_us / MICROSECONDS / BEATS if limit_us > 0 else None
    return None
