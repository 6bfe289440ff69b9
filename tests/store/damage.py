"""Stores on disk with known content, as they lie there at rest or after a crash, and ways to damage them."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.store.samples import Model, batch, everything, last, message, records_of
from tidings.store.database import making
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Dequeue,
    DropQueue,
    DropRecord,
    Durable,
    Enqueue,
    Operation,
    PutCursor,
    PutQueue,
    QueueRecord,
    Revise,
    SetRecord,
    StoredBatch,
    StoredMessage,
    Trim,
)
from tidings.store.records import FORMAT, Meta, StoreHead, head_row, tables_of
from tidings.store.sqlite import SqliteStore

MESSAGE_SIZES = [30, 200, 900, 900, 900, 6000]
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
    queues: list[QueueRecord] = []
    records: dict[tuple[str, str], bytes] = {}
    messages: list[StoredMessage] = []
    message_states: list[list[StoredMessage]] = []  # which there were after each commit


def make(
    path: Path,
    seed: int,
    commits: int = 40,
    trims: bool = True,
    logged: bool = False,
    version: int = FORMAT,
) -> Made:
    """A store of so many commits; `logged`: all of them in the log, as after a crash, else in the file.

    It was made with the tables of a `version`, and has got those of the others when it was opened.
    """
    random = Random(seed)
    (path / "made").mkdir()
    with making(path / "made" / "tidings.db", Meta("node", 0, version)) as connection:
        table = tables_of(version)[1]
        connection.execute(table.put, head_row(StoreHead("node", 0), table))
    store = SqliteStore(path / "made")
    made = Made(path / "crashed", store.state.node, [], [], [], [], [[]], [])
    position, model = 0, Model()
    made.message_states.append([])
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
        operations += [PutCursor(durable), CountProducer(counter)]
        made.durables = [one for one in made.durables if one.name != durable.name] + [durable]
        made.counters = [one for one in made.counters if one.system != counter.system] + [counter]
        if trims and number % 8 == 7:
            operations.append(Trim(position - 20))
            made.batches = [one for one in made.batches if one.persistent or last(one) > position - 20]
        of_queues = queue_operations(Random(seed * 1000 + number), number, model)
        model.commit(of_queues)
        operations += of_queues
        made.queues, made.messages = list(model.queues.values()), by_number(model)
        made.records = model.records
        made.message_states.append(made.messages)
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


def queue_operations(random: Random, commit: int, model: Model) -> list[Operation]:
    """Messages come and go; now and then most of them go, so that their pages are free."""
    done: list[Operation] = [
        PutQueue(QueueRecord(commit % 5, f"queue{commit % 5}", commit, b"description" * 9))
    ]
    done += [DropQueue(commit % 4)] if commit % 7 == 6 else []
    done.append(SetRecord("sink", f"sink{commit % 6}", b"%d" % commit * random.choice((1, 50, 2000))))
    done += [DropRecord("sink", f"sink{commit % 5}")] if commit % 9 == 6 else []
    there = sorted(model.messages)
    share = 0.9 if commit % 10 == 4 else 0.1
    gone = [number for number in there if random.random() < share]
    done += map(Dequeue, gone)
    stay = sorted(set(there) - set(gone))
    done += [Revise(message(number, commit, size=random.choice(MESSAGE_SIZES))) for number in stay[:2]]
    numbers = range(10 * commit + 1, 10 * commit + 1 + random.randint(4, 9))
    return [*done, *(Enqueue(message(number, size=random.choice(MESSAGE_SIZES))) for number in numbers)]


def run_of(one: StoredMessage) -> int:
    """Which messages lie together: those that the same commit has put, or changed."""
    return -one.deliveries or one.number // 10


def by_number(model: Model) -> list[StoredMessage]:
    return [one for _, one in sorted(model.messages.items())]


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
    queues: list[QueueRecord]
    records: dict[tuple[str, str], bytes]
    messages: list[StoredMessage]
    damage: list[str]


def found(path: Path) -> Found:
    """Open it, read all both ways, write, and open it once more: what was found the first time."""
    store = SqliteStore(path)
    # A rebuilding in mid-reading may find rows that were passed over before, so all is read twice.
    list(everything(store))
    list(store.messages())
    batches, messages, state = list(everything(store)), list(store.messages()), store.state
    assert store.read_before(2**62, 2**40) == batches[::-1]
    new = batch(state.position + 1)
    number = max((one.number for one in messages), default=0) + 1  # a damaged row may have it
    store.commit([Append(new), Enqueue(message(number)), Revise(message(number, 1))])
    damage = [str(one) for one in store.damage]
    assert store.read(new.first, 1) == [new]
    store.close()
    again = SqliteStore(path)
    assert list(everything(again)) == [*batches, new]
    assert (again.state.node, again.state.boot) == (state.node, state.boot + 1)
    assert by_name(again.state.durables) == by_name(state.durables)
    assert again.state.queues == state.queues
    assert records_of(again) == records_of(store)
    assert list(again.messages()) == [*messages, message(number, 1)]
    again.close()
    kept = state.durables, state.counters, state.queues, records_of(store)
    return Found(state.node, batches, *kept, messages, damage)
