"""What was published of sinks, so that nothing is published twice, and the records that say so.

Records are those of counters. That of a batch has epoch 0 and one more than the batch, 0 if the sink was
forgotten; beside it is one with a digest of the query whose batch it was. Those of runs without batches are a
ring of RUNS_KEPT, each with a digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from tidings.log.staging import SinkKey
from tidings.store.interface import Counter

RUNS_KEPT = 256
"""Runs without batches that are remembered of one sink, the last ones."""

_SINK = "sink:"  # no client's system has a colon in its name
_QUERY = 1 << 30  # an epoch that no run has


class Done(Struct):
    """What was published of a sink: up to which batch, of which query, and the last runs that had none."""

    batch: int | None = None
    query: int = 0  # a digest, 0 if it was not told
    runs: dict[int, int] = {}  # digests of their names, the last one last, and in which record they stand
    used_us: int = 0  # when the last of it was

    def is_anothers(self, query: str | None) -> bool:
        """Whether the last batch is known to be of another query than this one."""
        return query is not None and self.query not in (0, _digest(query))

    def has(self, batch: int | None, run: str, query: str | None) -> bool:
        """Whether this was done before."""
        if batch is None:
            return _digest(run) in self.runs
        return self.batch == batch and not self.is_anothers(query)

    def with_batch(
        self, sink: SinkKey, batch: int, query: str | None, now_us: int
    ) -> tuple[Done, list[Counter]]:
        """What was done with this batch, and the records of it."""
        digest, system = 0 if query is None else _digest(query), _system(sink)
        records = [Counter(system, 0, batch + 1, now_us)]
        if digest != self.query:
            records.append(Counter(system, _QUERY, digest, now_us))
        return replace(self, batch=batch, query=digest, used_us=now_us), records

    def with_run(self, sink: SinkKey, run: str, now_us: int) -> tuple[Done, list[Counter]]:
        """What was done with this run, and the record of it."""
        runs, digest = dict(self.runs), _digest(run)
        slot = len(runs) + 1 if len(runs) < RUNS_KEPT else runs.pop(next(iter(runs)))
        runs[digest] = slot
        return replace(self, runs=runs, used_us=now_us), [Counter(_system(sink), slot, digest, now_us)]


def known(counters: Iterable[Counter]) -> dict[SinkKey, Done]:
    """What was done, by the records of it among others; the runs in the order in which they were."""
    found: dict[SinkKey, Done] = {}
    for one in sorted(counters, key=lambda one: one.seen_us):
        if one.system.startswith(_SINK):
            user, _, sink = one.system.removeprefix(_SINK).partition("/")
            _learn(found.setdefault((user, sink), Done()), one)
    return {sink: done for sink, done in found.items() if done.batch is not None or done.runs}


def _learn(done: Done, record: Counter) -> None:
    done.used_us = record.seen_us
    if record.epoch == _QUERY:
        done.query = record.counter
    elif record.epoch:
        done.runs[record.counter] = record.epoch
    elif record.counter:
        done.batch = record.counter - 1
    else:
        done.runs.clear()


def forgetting(sink: SinkKey, now_us: int) -> list[Counter]:
    """The records that say that nothing was done of a sink."""
    return [Counter(_system(sink), epoch, 0, now_us) for epoch in (0, _QUERY)]


def _system(sink: SinkKey) -> str:
    return f"{_SINK}{sink[0]}/{sink[1]}"


def _digest(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 1
