"""Patterns on a line of simulated nodes, and what their tests ask of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from overlay.network import App, Listening, Network

from tidings.event import Delivery, Event

AB = "a[type = 'A'] THEN b[type = 'B'] WITHIN 300 s BY k LATE 0 s"
LATER = "a[type = 'A'] THEN b[type = 'B'] WITHIN 300 s BY k LATE 60 s"
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


def line(offers_all: bool = False, **settings: Any) -> Network:
    """Three nodes, of which the first dials the second, and that the third."""
    return Network(("n1", "n2"), ("n2", "n3"), offers_all=offers_all, reroute_s=inf, **settings)


def at(type: str, second: float, k: str = "x", delivery: Delivery = "reliable", **values: Any) -> Event:
    """An event of that time, in seconds."""
    return Event(type, {"k": k, **values}, time=BEGIN + timedelta(seconds=second), delivery=delivery)


def publish(app: App, *events: Event) -> None:
    for event in events:
        app.connection.publish(event)
    app.pump()


def spans(listening: Listening) -> list[tuple[str, float, float]]:
    """The key, start and end of each match."""
    return [
        (one["k"], (one["start"] - BEGIN).total_seconds(), (one.time - BEGIN).total_seconds())
        for one in listening.got
    ]


def where(net: Network) -> str:
    """The node that has the state of the only pattern."""
    found = [
        name
        for name in net.names
        for one in net[name].core.placing.placements
        if one.phase in ("here", "offered")
    ]
    assert len(found) == 1, found
    return found[0]
