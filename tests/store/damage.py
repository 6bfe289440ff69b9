"""Stores on disk with known content, as they lie there at rest or after a crash, and ways to damage them."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.store.samples import batch, everything, last
from tidings.store.interface import Append, Count, Counter, Durable, Operation, Put, StoredBatch, Trim
from tidings.store.sqlite import SqliteStore

SIZES = [30, 200, 900, 3000, 9000, 30_000]


class Made(Struct):
    """What lies in a directory, and how it came there."""

    path: Path
    node: str
    batches: list[StoredBatch]
    durables: list[Durable]
    counters: list[Counter]
    ever: list[StoredBatch]  # those that were trimmed too
    states: list[list[StoredBatch]]  # what there was after each commit
    sizes: list[int]  # how large the file was when each batch was committed


def make(path: Path, seed: int, commits: int = 40, trims: bool = True, logged: bool = False) -> Made:
    """A store of so many commits; `logged`: all of them in the log, as after a crash, else in the file."""
    random = Random(seed)
    store = SqliteStore(path / "made")
    made = Made(path / "crashed", store.state.node, [], [], [], [], [[]], [])
    position = 0
    for number in range(commits):
        operations: list[Operation] = []
        for _ in range(random.randint(1, 4)):
            one = batch(position + 1, random.randint(1, 9), random.choice(SIZES), random.random() < 0.5)
            position = last(one)
            made.batches.append(one)
            made.ever.append(one)
            operations.append(Append(one))
        durable = Durable(f"d{number % 9}", "ann", "x > 1", number, number, b"options" * 9)
        counter = Counter(f"sensor{number % 20}", 1, number, number)
        operations += [Put(durable), Count(counter)]
        made.durables = [one for one in made.durables if one.name != durable.name] + [durable]
        made.counters = [one for one in made.counters if one.system != counter.system] + [counter]
        if trims and number % 8 == 7:
            operations.append(Trim(position - 20))
            made.batches = [one for one in made.batches if one.persistent or last(one) > position - 20]
        store.commit(operations)
        made.states.append(list(made.batches))
        if not logged:
            store.close()
            store = SqliteStore(path / "made")
            size = (path / "made" / "tidings.db").stat().st_size
            made.sizes += [size] * (len(made.ever) - len(made.sizes))
    if not logged:
        store.close()
    shutil.copytree(path / "made", made.path)
    store.close()
    return made


def copy(made: Made, path: Path) -> Path:
    """Another directory with the same content, to be damaged."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made.path, path)
    (path / "lock").unlink(missing_ok=True)
    return path


def flip(file: Path, random: Random, count: int = 1) -> None:
    """Turn over some bits."""
    data = bytearray(file.read_bytes())
    for _ in range(count):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    file.write_bytes(data)


def cut(file: Path, size: int) -> None:
    """Cut the file off."""
    file.write_bytes(file.read_bytes()[:size])


def zero(file: Path, size: int) -> None:
    """Put zeros from there to the end."""
    data = file.read_bytes()
    file.write_bytes(data[:size] + bytes(len(data) - size))


def by_name(durables: list[Durable]) -> list[Durable]:
    return sorted(durables, key=lambda durable: durable.name)


class Found(Struct):
    """What a damaged store served, and what it said."""

    node: str
    batches: list[StoredBatch]
    durables: list[Durable]
    counters: list[Counter]
    damage: list[str]


def found(path: Path) -> Found:
    """Open it, read all both ways, write, and open it once more: what was found the first time."""
    store = SqliteStore(path)
    batches, state = list(everything(store)), store.state
    assert store.read_before(2**62, 2**40) == batches[::-1]
    new = batch(state.position + 1)
    store.commit([Append(new)])
    damage = [str(one) for one in store.damage]
    assert store.read(new.first, 1) == [new]
    store.close()
    again = SqliteStore(path)
    assert list(everything(again)) == [*batches, new]
    assert (again.state.node, again.state.boot) == (state.node, state.boot + 1)
    assert by_name(again.state.durables) == by_name(state.durables)
    again.close()
    return Found(state.node, batches, state.durables, state.counters, damage)
