"""Callbacks: a function that is called with each event, while the program does something else. Without await.

    python examples/callback.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
import threading

import tidings
from tidings import Event


def main(address: str | None = None) -> None:
    """Count events in a callback until there are three."""
    heard: list[str] = []
    is_enough = threading.Event()

    def note(event: Event) -> None:
        heard.append(f"{event.type} {event['value']}")
        if len(heard) == 3:
            is_enough.set()

    node = tidings.blocking.connect(address) if address else tidings.blocking.open()
    with node as bus, bus.listen("value > 40", note):
        for value in (38, 41, 55, 61):
            bus.publish("air.pm10", value=value)
        is_enough.wait()
    print(*heard, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
