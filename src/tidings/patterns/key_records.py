"""Partial matches as they are stored: one record for each key, or several where they are large.

A record has a limit, and the partial matches of one key have a higher one: RUNS_MAX of them, and all events
that wait. So their bytes are cut into parts, of which a commit writes those that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tidings.protocol.broker import Broker
from tidings.store.interface import RECORD_VALUE_SIZE_MAX, Operation, RecordKind

PART_SIZE = RECORD_VALUE_SIZE_MAX - 1_024
"""Bytes of partial matches in one record."""

PatternKey = tuple[str, str]


class KeyRecord(Struct, frozen=True):
    """A part of the partial matches of one key; the first one knows how many parts there are."""

    state: bytes
    parts: int = 1


KEYS: RecordKind[tuple[str, str, str], KeyRecord] = RecordKind("pattern-key", KeyRecord)


def key_changes(
    pattern: PatternKey, key: bytes, before: bytes | None, state: bytes | None
) -> Iterator[Operation]:
    """Yield the operations that store a state of a key in place of the one before; None: nothing."""
    former, records = _records(before), _records(state)
    for at, record in enumerate(records):
        if former[at : at + 1] != [record]:
            yield KEYS.set(_name(pattern, key, at), record)
    for at in range(len(records), len(former)):
        yield KEYS.drop(_name(pattern, key, at))


def take_states(broker: Broker) -> dict[PatternKey, dict[bytes, bytes]]:
    """Return the states of all keys by their patterns, as they were stored; drops those that are damaged."""
    found: dict[PatternKey, dict[bytes, bytes]] = {}
    records = KEYS.taken(broker.state)
    for owner, name, text in list(records):
        if "." in text:
            continue
        first = records.pop((owner, name, text))
        pattern, key = (owner, name), bytes.fromhex(text)
        rest = [records.pop(_name(pattern, key, at), None) for at in range(1, first.parts)]
        if None in rest:
            broker.store(KEYS.drop((owner, name, text)))
            for at in range(1, first.parts):
                broker.store(KEYS.drop(_name(pattern, key, at)))
        else:
            parts = [first.state, *(one.state for one in rest if one is not None)]
            found.setdefault(pattern, {})[key] = b"".join(parts)
    for left in records:  # behind one that is damaged
        broker.store(KEYS.drop(left))
    return found


def _records(state: bytes | None) -> list[KeyRecord]:
    if state is None:
        return []
    parts = [state[at : at + PART_SIZE] for at in range(0, len(state), PART_SIZE)]
    return [KeyRecord(parts[0], len(parts)), *map(KeyRecord, parts[1:])]


def _name(pattern: PatternKey, key: bytes, part: int) -> tuple[str, str, str]:
    """Return the name of a part; that of the first is the key alone, as it is of states in one record."""
    return (*pattern, f"{key.hex()}.{part}" if part else key.hex())
