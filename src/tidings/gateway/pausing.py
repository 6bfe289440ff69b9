"""Connections of sensor networks of which nothing is read for a while.

The node may accept nothing at the moment, or enough was read in this turn of the loop: output leaves only at
its end, and the node waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.gateway.peer import Act, NetworkConnection
from tidings.gateway.uplink import Uplink


class PausedConnections:
    """The paused connections of a hub. `soon` calls a function in the loop's next turn."""

    def __init__(self, uplink: Uplink, soon: Callable[[Act], object]) -> None:
        self._uplink = uplink
        self._soon = soon
        self._paused: dict[NetworkConnection, None] = {}
        self._is_long = False  # enough was read in this turn

    def hold_up(self, peer: NetworkConnection) -> None:
        """Read no more of a connection in this turn, or while the node accepts nothing."""
        if (self._is_long or self._uplink.is_full) and not peer.is_held:
            peer.stop()
            self._paused[peer] = None

    def release(self, peer: NetworkConnection) -> None:
        """Resume a connection whose input is all processed."""
        if self._is_long or self._uplink.is_full:
            self._paused[peer] = None
        else:
            peer.go_on()

    def forget(self, peer: NetworkConnection) -> None:
        """Forget a connection that is gone."""
        self._paused.pop(peer, None)

    def end_turn(self) -> None:
        """Read no more in this turn."""
        if not self._is_long:
            self._is_long = True
            self._soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_long = False
        if not self._uplink.is_full:
            self._read_on()

    def progressed(self) -> None:
        """Read on if the node has room again."""
        if self._paused and self._uplink.has_room:
            self._read_on()

    def _read_on(self) -> None:
        paused, self._paused = self._paused, {}
        for peer in paused:
            if peer.is_idle:
                peer.go_on()
