"""Beacons of a node that meets hosts by chance: sent and received as UDP datagrams, by the standard library.

By default they go to a multicast group of the local network, or of this machine where the node listens on
loopback, and no further (a time to live of 1). With targets they go to these addresses instead; a node with a
free port and no targets sends none. What a beacon
says is judged by the core (`tidings.adhoc.beacons`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidings.adhoc.beacons import Beacon, encode_beacon
from tidings.errors import UserError
from tidings.node import logs
from tidings.transport.datagrams import DatagramPort, Place, group_socket, plain_socket

GROUP = "239.255.73.5"
"""Multicast group of the beacons."""
RECEIVED_MAX = 1_000
"""Datagrams of others that are looked at between two of our own; further ones are passed over."""


class Beacons:
    """Sends the beacon of a node, and hands on those of others with the address they came from."""

    def __init__(self, beacon: Beacon, every_s: float, on_beacon: Callable[[bytes, str, int], None]) -> None:
        self._data = encode_beacon(beacon)
        self._every_s = every_s
        self._on_beacon = on_beacon
        self._received = 0
        self._datagrams = DatagramPort(self._hear, self._failed)
        self._timer: asyncio.TimerHandle | None = None
        self._is_mute = False  # it was logged that beacons can't be sent
        self._is_group = False  # all hosts of a machine have one port: none can be addressed alone
        self.port = 0
        self.send = self._datagrams.send
        """Sends a datagram to one host, or to all in reach."""

    async def start(self, host: str, port: int, targets: Sequence[Place]) -> None:
        """Listen and send; UserError if that can't be."""
        try:
            made = plain_socket(host, port) if targets else group_socket(GROUP, port, host)
            self._is_group = not targets
            self._datagrams.targets = targets or (((GROUP, port),) if port else ())
            self.port = made.getsockname()[1]
            await self._datagrams.open(made)
        except OSError as error:
            hint = "" if targets else "; give adhoc_to"
            raise UserError(f"can't send beacons from {host}, UDP port {port}: {error}{hint}") from None
        self._send()

    def _send(self) -> None:
        self._received = 0
        self.send(self._data)
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._send)

    def close(self) -> None:
        """Send no more, and hear nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._datagrams.close()

    def _hear(self, data: bytes, place: Place) -> None:
        """Hand a beacon on, unless there are too many."""
        self._received += 1
        if self._received <= RECEIVED_MAX and data != self._data:
            self._on_beacon(data, place[0], 0 if self._is_group else place[1])

    def _failed(self, error: Exception) -> None:
        """Log once that a beacon could not be sent: hosts that are not there refuse it again and again."""
        if not self._is_mute and not isinstance(error, ConnectionRefusedError):
            self._is_mute = True
            logs.warning("a beacon could not be sent", problem=str(error))
