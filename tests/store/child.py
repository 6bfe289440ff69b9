"""A process that commits and tells of each commit once it is durable; the tests kill it, or watch it.

python child.py DIR commit       one commit after the other, forever
python child.py DIR commit N     N of them
python child.py DIR queue        puts three messages and takes away the two oldest, forever
python child.py DIR fill MOUNT   mounts a small file system at MOUNT, fills it, trims, goes on
python child.py DIR limit        the same with a limit on the size of files
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.store.samples import batch, everything, message
from tidings.errors import StoreFailed
from tidings.store.interface import (
    Append,
    Counter,
    CountProducer,
    Dequeue,
    Enqueue,
    PutQueue,
    QueueRecord,
    Trim,
)
from tidings.store.sqlite import SqliteStore


def commit(path: Path, count: int | None) -> None:
    store = SqliteStore(path)
    position = store.state.position
    numbers = (
        itertools.count(position + 1, 3) if count is None else range(position + 1, position + 3 * count, 3)
    )
    for first in numbers:
        batches = [batch(first), batch(first + 1, size=5000), batch(first + 2, size=200)]
        store.commit([*map(Append, batches), CountProducer(Counter("child", 1, first, 0))])
        os.write(1, f"durable {first + 2}\n".encode())


def queue(path: Path) -> None:
    store = SqliteStore(path)
    there = [one.number for one in store.messages()]
    done = store.state.queues[0].handed if store.state.queues else 0
    for commits in itertools.count(done + 1):
        put = [message(3 * commits + index, size=1000) for index in range(3)]
        there += [one.number for one in put]
        gone, there = there[:2], there[2:]
        record = QueueRecord(1, "jobs", commits, b"")
        store.commit([*map(Enqueue, put), *map(Dequeue, gone), PutQueue(record)])
        os.write(1, f"durable {commits}\n".encode())


def fill(path: Path) -> None:
    """Commit until the disk refuses; then see that nothing is half, make room, and go on."""
    store = SqliteStore(path)
    kept = []
    try:
        for first in range(1, 10_000):
            one = batch(first, size=20_000, persistent=False)
            store.commit([Append(one)])
            kept.append(one)
    except StoreFailed as error:
        os.write(1, f"refused: {error.problem}\n".encode())
    assert list(everything(store)) == kept
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if os.path.ismount(path.parent):
        subprocess.run(["mount", "-o", "remount,size=8m", str(path.parent)], check=True)
    store.commit([Trim(kept[-1].first - 3)])
    store.commit([Append(batch(20_000))])
    store.close()
    store = SqliteStore(path)
    assert list(everything(store)) == [*kept[-3:], batch(20_000)]
    assert store.damage == []
    store.close()
    os.write(1, f"kept {len(kept)}\n".encode())


def main() -> None:
    path, what, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if what == "commit":
        commit(path, int(rest[0]) if rest else None)
    elif what == "queue":
        queue(path)
    elif what == "fill":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=True)
        fill(path / "node")
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        fill(path / "node")


if __name__ == "__main__":
    main()
