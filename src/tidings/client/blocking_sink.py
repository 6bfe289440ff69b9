"""A sink without await: each call does what its namesake in `tidings.client.sink` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidings.client import sink as asynchronous
from tidings.client.runner import Runner


class Sink:
    """See the module; made by `Bus.sink` of `tidings.blocking`."""

    def __init__(self, runner: Runner, sink: asynchronous.Sink) -> None:
        self._runner = runner
        self._sink = sink

    def stage(
        self, run: str, attempt: str, number: int, raw: bytes, *, timeout_s: float | None = None
    ) -> int:
        """Stage the piece of this number; the rows of the attempt so far."""
        return self._runner.run(self._sink.stage(run, attempt, number, raw, timeout_s=timeout_s))

    def commit(
        self,
        run: str,
        batch: int | None,
        attempts: Mapping[str, int],
        *,
        query: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Publish what these attempts have staged; False if it was done before."""
        asked = self._sink.commit(run, batch, attempts, query=query, timeout_s=timeout_s)
        return self._runner.run(asked)

    def abort(
        self, run: str, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Forget what these attempts have staged, or all of the run."""
        self._runner.run(self._sink.abort(run, attempts, timeout_s=timeout_s))
