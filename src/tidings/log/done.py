"""What was published of sinks, so that nothing is published twice, and the records that say so."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from tidings.log.staging import SinkKey
from tidings.store.kinds import Kind

RUNS_KEPT = 256
"""Runs without batches that are remembered of one sink, the last ones."""


class Done(Struct, frozen=True, omit_defaults=True):
    """What was published of a sink: up to which batch, of which query, and the last runs that had none."""

    batch: int | None = None
    query: int = 0  # a digest, 0 if it was not told
    runs: tuple[int, ...] = ()  # digests of their names, the last one last
    used_us: int = 0  # when the last of it was

    def is_anothers(self, query: str | None) -> bool:
        """Whether the last batch is known to be of another query than this one."""
        return query is not None and self.query not in (0, _digest(query))

    def has(self, batch: int | None, run: str, query: str | None) -> bool:
        """Whether this was done before."""
        if batch is None:
            return _digest(run) in self.runs
        return self.batch == batch and not self.is_anothers(query)

    def with_batch(self, batch: int, query: str | None, now_us: int) -> Done:
        """What was done with this batch."""
        return replace(self, batch=batch, query=0 if query is None else _digest(query), used_us=now_us)

    def with_run(self, run: str, now_us: int) -> Done:
        """What was done with this run."""
        return replace(self, runs=(*self.runs, _digest(run))[-RUNS_KEPT:], used_us=now_us)


DONE: Kind[SinkKey, Done] = Kind("sink", Done)


def _digest(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 1
