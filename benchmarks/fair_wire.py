"""Hostile loads by odd frames, on the log and on sinks."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from msgspec.structs import replace

from benchmarks.fair_events import subscribe
from benchmarks.hostile import Load
from tidings.event import Batch, Event
from tidings.protocol.messages import Request

LOGGED = "hostile.logged"
EMPTY_ARRAY = b"\x90"
PIECE_EVENTS = 3_000
ROW_BODY = b"b" * 1_000


def arrays(load: Load) -> None:
    """A request whose arguments are millions of empty arrays: few bytes, and many objects."""
    client = load.connect()
    count = load.sizes["bytes"]
    head = b"\x93\x01\xa9subscribe\x81\xa6filter\xdd" + pack(">I", count)
    content = bytes((Request.KIND,)) + head + EMPTY_ARRAY * count
    load.tally["sent"] += client.send(pack(">I", len(content)) + content)
    client.ask("subscribe", number=1, filter="level > 5")  # answered when the other one was


def log_prepare(load: Load) -> None:
    """A log of so many bytes."""
    client = load.connect()
    client.publish(_logged(load.sizes["bytes"]), at_once=500)


def _logged(size: int) -> Iterator[Event]:
    body = b"b" * 1_000
    for number in range(size // len(body)):
        yield Event(LOGGED, {"number": number}, body=body, delivery="persistent")


def replay(load: Load) -> None:
    """Readers of all that is stored, who find next to nothing of what they look for."""
    clients = load.connect_all(load.sizes["readers"] // 10)
    for client in clients:
        wheres = (f"type = '{LOGGED}' AND number = {-n}" for n in range(1, 11))
        subscribe(client, wheres, since=1)
        load.tally["readers"] += 10
    for client in clients:
        client.rest(client.deadline)


def staged(load: Load) -> None:
    """Rows for a sink that are never committed."""
    client = load.connect()
    named = {"sink": "hostile", "run": "run", "attempt": "attempt"}
    pieces = ({**named, "number": number, "raw": _rows(number)} for number in range(load.sizes["pieces"]))
    client.ask_all("sink.stage", pieces, outstanding=4)


def _rows(piece: int) -> bytes:
    """The events of a piece, counted on from the one before."""
    first = 1 + piece * PIECE_EVENTS
    events = (Event("hostile.row", {"number": n}, body=ROW_BODY) for n in range(first, first + PIECE_EVENTS))
    return Batch.of([replace(event, counter=event["number"]) for event in events]).raw
