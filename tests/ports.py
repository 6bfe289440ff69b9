"""Ports for servers that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of the loopback address that nobody uses just now."""
    with socket.socket() as channel:
        channel.bind(("127.0.0.1", 0))
        port: int = channel.getsockname()[1]
        return port
