"""Hostile loads on events: interest, filters, values that are kept, subscribers that do not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.hostile import Hostile, Load
from tidings.event import Event

CREDIT = 2**40
BODY_SIZE = 1_000
TYPE = "hostile.event"


def small(count: int, *, subjects: bool = False) -> Iterator[Event]:
    """Events of a few dozen bytes, each with a key of its own."""
    for number in range(count):
        subject = {"subject": f"k{number}"} if subjects else {}
        yield Event(TYPE, {"key": f"k{number}", "level": number}, **subject)


def large(size: int) -> Iterator[Event]:
    """So many bytes of events."""
    for number in range(size // BODY_SIZE):
        yield Event(TYPE, {"key": number}, body=b"b" * BODY_SIZE)


def subscribe(
    client: Hostile, filters: Iterable[str], first: int = 1, credit: int = CREDIT, **options: Any
) -> None:
    """One subscription for each of the filters."""
    client.ask_all(
        "subscribe",
        (
            {"number": number, "filter": text, "credit": credit, **options}
            for number, text in enumerate(filters, first)
        ),
    )


def advertise(client: Hostile, filters: Iterable[str]) -> None:
    """One advertisement for each of the filters."""
    client.ask_all(
        "advertise", ({"number": number, "filter": text} for number, text in enumerate(filters, 1))
    )


# Interest


def interest(load: Load) -> None:
    """Many advertisements, many subscriptions that overlap some of them; then some come and go."""
    advertiser, subscriber = load.connect_all(2)
    subscriptions, turns = load.sizes["subscriptions"], load.sizes["turns"]
    advertise(advertiser, (f"kind = 'k{n}' AND level > {n}" for n in range(load.sizes["advertisements"])))
    subscribe(subscriber, (f"level < {n} AND room LIKE 'r{n}%'" for n in range(subscriptions)))
    for turn in range(turns):
        subscriber.ask("subscribe", number=10_000, filter=f"level < {turn} AND door > {turn}")
        subscriber.ask("unsubscribe", number=10_000)


def leave_prepare(load: Load) -> None:
    """Many subscriptions of one session, and advertisements of another that overlap."""
    advertiser, subscriber = load.connect_all(2)
    count = load.sizes["subscriptions"]
    load.kept["leaving"] = subscriber
    load.kept["staying"] = advertiser
    subscribe(subscriber, (f"level < {n} AND room = 'r{n}'" for n in range(count)))
    advertise(advertiser, (f"level > {n}" for n in range(load.sizes["advertisements"])))


def leave(load: Load) -> None:
    """The session with the many subscriptions is gone at once; the other one stays."""
    load.kept["leaving"].close()
    load.tally["left"] += 1
    load.kept["staying"].ask("advertise", number=0, filter="level > 5")


def lists_prepare(load: Load) -> None:
    """Many advertisements of one session."""
    load.kept["staying"] = advertiser = load.connect()
    advertise(advertiser, (f"kind = 'k{n}' AND level > {n}" for n in range(load.sizes["advertisements"])))


def lists(load: Load) -> None:
    """The list of all advertisements, again and again, and requests that wait for its changes."""
    client = load.connect()
    for _ in range(load.sizes["lists"]):
        page = client.ask("advertisements.list", filter="level > 5")
        client.start("advertisements.wait", version=page["version"])
        while page["next"] is not None:
            page = client.ask("advertisements.list", filter="level > 5", after=page["next"])
    load.kept["staying"].ask("unadvertise", number=1)


def demands_prepare(load: Load) -> None:
    """Many subscriptions of one session."""
    load.kept["staying"] = subscriber = load.connect()
    subscribe(subscriber, (f"kind = 'k{n}' AND level > {n}" for n in range(load.sizes["subscriptions"])))


def demands(load: Load) -> None:
    """The list of the filters of all subscriptions, again and again."""
    client = load.connect()
    for _ in range(load.sizes["lists"]):
        page = client.ask("subscription.list")
        while page["next"] is not None:
            page = client.ask("subscription.list", after=page["next"])


# Filters


def topics(load: Load) -> None:
    """Filters on topics that begin with a wildcard; then events that are matched with all of them."""
    count = load.sizes["filters"]
    _match(load, (f"TOPIC(subject, '*.x{n}.>')" for n in range(count)))


def comparisons(load: Load) -> None:
    """Filters that compare attributes with each other, which no index can have."""
    count = load.sizes["filters"]
    _match(load, (f"a{n} < b{n} OR a{n} * 2 = level + {n}" for n in range(count)))


def _match(load: Load, filters: Iterable[str]) -> None:
    subscriber, publisher = load.connect_all(2)
    subscribe(subscriber, filters)
    count = load.sizes["events"]
    publisher.publish(small(count, subjects=True), at_once=count)


def long_filters(load: Load) -> None:
    """Filters of nearly the longest text there may be: lists, and alternatives."""
    client = load.connect()
    length = load.sizes["length"]
    subscribe(client, (_long(number, length) for number in range(load.sizes["filters"])))


def _long(number: int, length: int) -> str:
    if number % 2:
        words = ", ".join(f"'w{number:03d}{word:021d}'" for word in range(min(9_000, length // 28)))
        return f"key IN ({words})"
    return " OR ".join(
        f"(key = 'w{number:03d}{word:0200d}' AND level > {word})" for word in range(min(990, length // 250))
    )


# What is kept


def last_prepare(load: Load) -> None:
    """As many small events as a node keeps last values of."""
    load.connect().publish(small(load.sizes["events"], subjects=True))


def last(load: Load) -> None:
    """Subscriptions that ask for the last values."""
    client = load.connect()
    subscribe(client, (f"type = '{TYPE}'" for _ in range(load.sizes["subscriptions"])), last=True)


def latest(load: Load) -> None:
    """Subscriptions that keep the newest event of each key, and take none; then events of many keys."""
    subscriber, publisher = load.connect_all(2)
    filters = (f"type = '{TYPE}' AND level >= {n % 2}" for n in range(load.sizes["subscriptions"]))
    subscribe(subscriber, filters, credit=0, on_slow="latest", slow_key="key")
    publisher.publish(small(load.sizes["events"]))


def fan_out(load: Load) -> None:
    """Events for many subscriptions that give no credit, of one session or of several."""
    publisher = load.connect()
    sessions = load.connect_all(load.sizes["sessions"])
    for client in sessions:
        count = load.sizes["subscriptions"] // len(sessions)
        subscribe(client, (f"type = '{TYPE}'" for _ in range(count)), credit=0)
    publisher.publish(large(load.sizes["bytes"]), at_once=500)


def block(load: Load) -> None:
    """A subscriber that has publishers wait for it, and never takes anything; the canary is one of them."""
    subscriber, publisher = load.connect_all(2)
    filters = ("type LIKE 'canary.%'", f"type = '{TYPE}'")
    subscribe(subscriber, filters, credit=0, on_slow="block")
    publisher.publish(small(load.sizes["events"]))
