"""The log of a node without await: each call does what its namesake in `tidings.client.log` does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from tidings.client import log as asynchronous
from tidings.client.runner import Runner
from tidings.event import Event
from tidings.filters import Filter
from tidings.log.parts import Part

T = TypeVar("T")


class Log:
    """See the module; made by `Bus.log` of `tidings.blocking`."""

    def __init__(self, runner: Runner, log: asynchronous.Log) -> None:
        self._runner = runner
        self._log = log

    def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Where the log begins and ends, what of it is sealed, and who reads it."""
        return self._runner.run(self._log.status(timeout_s=timeout_s))

    def read(
        self, start: int | None = None, end: int | None = None, **options: Any
    ) -> Iterator[tuple[int, Event]]:
        """Each event that matches with its position."""
        return self._each(self._log.read(start, end, **options))

    def parts(
        self, start: int, end: int | None = None, where: Filter | str = "", **options: Any
    ) -> Iterator[tuple[list[Part], int]]:
        """The log in parts as they lie there, each with where to read on."""
        return self._each(self._log.parts(start, end, where, **options))

    def find(self, ids: Iterable[str], *, timeout_s: float | None = None) -> list[Event]:
        """The events with these ids, as many as the log has."""
        return self._runner.run(self._log.find(list(ids), timeout_s=timeout_s))

    def position_at(self, time: datetime, *, timeout_s: float | None = None) -> int:
        """The position of the first event that was stored at or after a time, or one past the last."""
        return self._runner.run(self._log.position_at(time, timeout_s=timeout_s))

    def reader(self, name: str, where: Filter | str = "", **options: Any) -> dict[str, Any]:
        """Be a reader under a name, or go on being one."""
        return self._runner.run(self._log.reader(name, where, **options))

    def passed(self, name: str, position: int, *, timeout_s: float | None = None) -> None:
        """The reader of that name needs nothing below this position any more."""
        self._runner.run(self._log.passed(name, position, timeout_s=timeout_s))

    def keep(self, name: str, where: Filter | str, *, timeout_s: float | None = None) -> None:
        """From now on what matches is kept in the log."""
        self._runner.run(self._log.keep(name, where, timeout_s=timeout_s))

    def leave(self, name: str, **options: Any) -> None:
        """Nothing is kept, or made, under this name any more."""
        self._runner.run(self._log.leave(name, **options))

    def seal(self, *, timeout_s: float | None = None) -> int:
        """Wait until all there is now lies in files; the last position that does."""
        return self._runner.run(self._log.seal(timeout_s=timeout_s))

    def sealed(self, position: int, *, timeout_s: float | None = None) -> None:
        """Tell the node that files hold its log up to this position; for who seals."""
        self._runner.run(self._log.sealed(position, timeout_s=timeout_s))

    def prune(self, before: int | None = None, **options: Any) -> dict[str, Any]:
        """Remove sealed files; what a reader has not passed stays, unless forced."""
        return self._runner.run(self._log.prune(before, **options))

    def verify(self, *, timeout_s: float | None = None) -> Iterator[tuple[list[str], int, int]]:
        """Have all of the log read where it lies: what is wrong with each piece, where that ends, and all."""
        return self._each(self._log.verify(timeout_s=timeout_s))

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        """What an async iterator gives, one after the other; it is closed when this is."""
        end = object()

        async def following() -> Any:
            return await anext(found, end)

        try:
            while (one := self._runner.run(following())) is not end:
                yield one
        finally:
            if self._runner.is_running:
                self._runner.run(_close(found))


async def _close(found: AsyncIterator[Any]) -> None:
    await found.aclose()  # type: ignore[attr-defined]  # these are generators
