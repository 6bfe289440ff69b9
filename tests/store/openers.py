"""How each kind of store is opened, and opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidings.store.interface import Store
from tidings.store.memory import MemoryStore, SimulatedDisk, SimulatedStore
from tidings.store.sqlite import SqliteStore

Opener = Callable[[], Store]

LASTING = ["sqlite", "simulated"]


def zeros(count: int) -> bytes:
    return bytes(count)


def openers(path: Path) -> dict[str, Opener]:
    disk = SimulatedDisk()
    return {
        "sqlite": lambda: SqliteStore(path),
        "simulated": lambda: SimulatedStore(disk, zeros),
        "memory": lambda: MemoryStore("node"),
    }


def reopened(store: Store, opener: Opener) -> Store:
    store.close()
    return opener()
