"""Hostile loads on queues: searches, purges, answers that nobody reads, many small requests."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from benchmarks.hostile import Hostile, Load
from tidings.event import Event
from tidings.protocol.frames import encode
from tidings.protocol.messages import DONE, HANDLE, Request, Settle

QUEUE, OTHER = "hostile-queue", "hostile-other"
COLUMNS = ("number", "name", "color", "weight", "street", "house", "floor", "door")
"""Attributes by which is searched: as many as a queue has indexes at most."""
BODY_SIZE_MAX = 1 << 20


def job(number: int) -> Event:
    """A message with all of the attributes."""
    values = {name: number + place for place, name in enumerate(COLUMNS)}
    return Event("hostile.job", {**values, "name": f"job {number:06d} of today"})


def jobs(count: int) -> Iterator[Event]:
    """So many of them."""
    return (job(number) for number in range(count))


def create(client: Hostile, queue: str = QUEUE) -> None:
    """Make a volatile queue, in place of one that another row may have left."""
    client.ask("queue.delete", queue=queue)
    client.ask("queue.create", name=queue, persistent=False)


def fill(load: Load) -> None:
    """A queue with many messages."""
    client = load.connect()
    create(client)
    client.put(QUEUE, jobs(load.sizes["messages"]))


def fill_two(load: Load) -> None:
    """Two queues with many messages."""
    fill(load)
    client = load.connect()
    create(client, OTHER)
    client.put(OTHER, jobs(load.sizes["messages"]))


def search(load: Load) -> None:
    """Searches that no index helps with and nothing matches, all at once."""
    client = load.connect()
    wheres = (f"name LIKE '%x{n}%'" for n in range(load.sizes["searches"]))
    client.ask_all("get", ({"queue": QUEUE, "where": where, "action": "read"} for where in wheres))


def search_first(load: Load) -> None:
    """The first search by each attribute, for which the queue makes an index."""
    client = load.connect()
    wheres = [f"{name} = -1" for name in COLUMNS if name != "name"]
    client.ask_all("get", ({"queue": QUEUE, "where": where, "action": "read"} for where in wheres))


def purge(load: Load) -> None:
    """One queue is purged by a filter, the other one deleted with all that is in it."""
    client = load.connect()
    client.ask("queue.purge", queue=QUEUE, where="number > 10 AND name LIKE '%today%'")
    client.ask("queue.delete", queue=OTHER)


def fill_large(load: Load) -> None:
    """A queue with a few messages that are large."""
    client = load.connect()
    create(client)
    body = b"b" * (BODY_SIZE_MAX - 1_000)
    client.put(QUEUE, (Event("hostile.job", {}, body=body) for _ in range(4)), at_once=1)


def never_reads(load: Load) -> None:
    """Requests with large answers, by one that never reads any."""
    client = load.connect()
    wanted = {"queue": QUEUE, "action": "read", "count": 1}
    said = [encode(Request(number, "get", wanted)) for number in range(1, load.sizes["requests"] + 1)]
    load.tally["sent"] += len(said) * client.send(b"".join(said))


def storm(load: Load) -> None:
    """Very many requests that are little work each, on one connection."""
    client = load.connect()
    create(client)
    count = load.sizes["requests"] // 2
    handles = pack(">QI", 1, 1)
    assert len(handles) == HANDLE.size
    said = [encode(Settle(number, 0, handles, DONE)) for number in range(1, count + 1)]
    load.tally["sent"] += count * client.send(b"".join(said))
    client.ask_all("get", ({"queue": QUEUE} for _ in range(count)), outstanding=5_000)


def sessions(load: Load) -> None:
    """Many connections, each with a request that takes a while, at the same time."""
    clients = load.connect_all(load.sizes["sessions"])
    words = ", ".join(f"'w{word:06d}'" for word in range(load.sizes["words"]))
    for turn in range(load.sizes["turns"]):
        for number, client in enumerate(clients):
            where = f"name LIKE '%x{number}%{turn}%'"
            client.start("get", queue=QUEUE, where=where, action="read")
            client.start("subscribe", number=turn, filter=f"key IN ('k{number}', {words})")
    for client in clients:
        client.wait_answers()
