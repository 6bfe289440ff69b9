"""Hostile loads on patterns, channels, groups of agents, delayed messages and collapses of the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from benchmarks.fair_events import CREDIT, TYPE, small
from benchmarks.fair_queues import QUEUE, create, job
from benchmarks.fair_wire import LOGGED
from benchmarks.hostile import Load
from tidings.client.put import planned
from tidings.event import Event

GROUP, CHANNEL = "hostile-group", "hostile-channel"
COOKIE = "a cookie of no secret {:06d}"
_numbers = count()


# Patterns


def patterns(load: Load) -> None:
    """Patterns that all take every event, each of which has a key of its own."""
    subscriber, publisher = load.connect_all(2)
    taken = f"type = '{TYPE}' AND level"
    text = f"a[{taken} >= {{}}] THEN b[{taken} > a.level + 1000000] WITHIN 1 h BY key"
    subscriber.ask_all(
        "subscribe",
        (
            {"number": number, "filter": "", "pattern": text.format(-number), "credit": CREDIT}
            for number in range(1, load.sizes["patterns"] + 1)
        ),
    )
    publisher.publish(small(load.sizes["events"]))


def one_key(load: Load) -> None:
    """A pattern in which each event starts a match that stays open, all of one key."""
    subscriber, publisher = load.connect_all(2)
    text = f"a[type = '{TYPE}'] THEN b[type = '{TYPE}' AND level > a.level + 1000000] WITHIN 1 h OVERLAPPING"
    subscriber.ask("subscribe", number=1, filter="", pattern=text, credit=CREDIT)
    publisher.publish(small(load.sizes["events"]))


# Channels


def channels(load: Load) -> None:
    """Channels that are made and listed, all of them, again and again; then all are deleted."""
    client = load.connect()
    prefix = f"{CHANNEL}-{next(_numbers)}"
    names = [f"{prefix}-{number}" for number in range(load.sizes["channels"])]
    client.ask_all("channel.create", ({"name": name} for name in names))
    found: list[Any] = []
    for _ in range(load.sizes["lists"]):
        found = client.ask("channel.list") or found
    client.ask_all("channel.delete", ({"channel": one["id"]} for one in found if one["name"] in names))


def members(load: Load) -> None:
    """A channel with many members at one connection, none of which reads, and its events."""
    client = load.connect()
    name = f"{CHANNEL}-{next(_numbers)}"
    channel = client.ask("channel.create", name=name, order="causal")
    if channel is None:
        return
    client.ask_all(
        "subscribe",
        (
            {"number": number, "filter": "", "channel": channel["id"], "credit": 10}
            for number in range(1, load.sizes["members"] + 1)
        ),
    )
    client.publish(Event(TYPE, {"n": n}, channel=channel["id"]) for n in range(load.sizes["events"]))


# Groups of agents


def groups(load: Load) -> None:
    """Groups that are opened, and the list of all of them, again and again."""
    client = load.connect()
    prefix = f"{GROUP}-{next(_numbers)}"
    client.ask_all("agent.open", (_group(f"{prefix}-{n}") for n in range(load.sizes["groups"])))
    for _ in range(load.sizes["lists"]):
        client.ask("agent.list")


def crowd_prepare(load: Load) -> None:
    """A group of very many agents, of which one connection is to show everything."""
    client = load.connect()
    load.kept["group"] = group = f"{GROUP}-{next(_numbers)}"
    client.ask("agent.open", **_group(group))
    client.ask_all("agent.enter", _agents(group, load.sizes["agents"]))


def crowd(load: Load) -> None:
    """All leases of a crowd are renewed, and all of it is shown, many times; then it is ended at once."""
    client, group = load.connect(), load.kept["group"]
    for _ in range(load.sizes["turns"]):
        client.ask("agent.extend", which=group)
        client.ask("agent.show", group=group)
    client.ask("agent.stop", which=group)


def _group(name: str) -> dict[str, Any]:
    return {"group": name, "name": name, "condition": {"is": "at_least", "count": 1, "parts": []}}


def _agents(group: str, number: int) -> Iterator[dict[str, Any]]:
    for one in range(number):
        yield {"group": group, "cookie": COOKIE.format(one), "name": f"agent-{one}", "lease_s": 3_600.0}


# Queues and the log


def delayed(load: Load) -> None:
    """Messages that are all due at the same moment, and readers that wait for them."""
    client = load.connect()
    create(client)
    readers = load.connect_all(load.sizes["readers"])
    for reader in readers:
        reader.start("get", queue=QUEUE, where="number >= 0", count=100, wait_s=None)
    due = datetime.now(UTC) + timedelta(seconds=load.sizes["due_s"])
    client.put(QUEUE, (planned(job(number), None, due) for number in range(load.sizes["messages"])))
    for reader in readers:
        reader.wait_answers()


def collapses(load: Load) -> None:
    """Collapses of the whole log to a row for each event, by several connections at once."""
    terms = {"columns": {"number": "bigint"}, "by": ["number"], "rules": {"highest": "highest(number)"}}
    clients = load.connect_all(load.sizes["readers"])
    for client in clients:
        client.start("log.read", start=1, where=f"type = '{LOGGED}'", collapse=terms)
    for client in clients:
        client.wait_answers()
