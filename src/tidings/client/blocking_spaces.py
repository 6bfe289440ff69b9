"""Spaces without await: every call does what its namesake elsewhere does, and waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from tidings.client.blocking_queues import Queue, Transaction
from tidings.client.blocking_subscription import Subscription
from tidings.client.runner import Runner
from tidings.client.space import Lease as AsyncLease
from tidings.client.space import Space as AsyncSpace
from tidings.client.tuples import Entry, Like, Template, Written, found
from tidings.client.unit import Unit
from tidings.queues.description import Description


class Lease:
    """How long an entry may stay in its space."""

    def __init__(self, runner: Runner, inner: AsyncLease) -> None:
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def granted_s(self) -> float | None:
        """Seconds from the moment it was granted; None: without end."""
        return self._inner.granted_s

    def renew(self, lease_s: float) -> float:
        """Let the entry stay for so long from now on; how long that is."""
        return self._runner.run(self._inner.renew(lease_s))

    def cancel(self) -> None:
        """Take the entry away now."""
        self._runner.run(self._inner.cancel())


class Space:
    """A queue that is asked by content."""

    def __init__(self, runner: Runner, inner: AsyncSpace) -> None:
        self.queue = Queue(runner, inner.queue)
        """The queue that it is a view of."""
        self._runner = runner
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def name(self) -> str:
        """The name by which it was asked for."""
        return self._inner.name

    @property
    def description(self) -> Description:
        """The description of the queue, as it was last told."""
        return self._inner.description

    def template(self, like: Like = None, /, **fields: Any) -> Template:
        """A template, of any form of one and of fields by name."""
        return self._inner.template(like, **fields)

    def snapshot(self, template: Like) -> Template:
        """The template in a form that needs no more work."""
        return self._inner.snapshot(template)

    def write(
        self,
        entry: Written,
        lease_s: float | None = None,
        transaction: Transaction | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Lease:
        """Write an entry, which is in the space on return."""
        writing = self._inner.write(entry, lease_s, _unit(transaction), timeout_s=timeout_s)
        return Lease(self._runner, self._runner.run(writing))

    def read(
        self, template: Like = None, *, timeout_s: float | None = None, transaction: Transaction | None = None
    ) -> Entry:
        """The first entry that matches, which stays; QueueEmpty when none came in time."""
        return self._runner.run(
            self._inner.read(template, timeout_s=timeout_s, transaction=_unit(transaction))
        )

    def take(
        self, template: Like = None, *, timeout_s: float | None = None, transaction: Transaction | None = None
    ) -> Entry:
        """The first entry that matches, which is gone; QueueEmpty when none came in time."""
        return self._runner.run(
            self._inner.take(template, timeout_s=timeout_s, transaction=_unit(transaction))
        )

    def read_if_exists(
        self, template: Like = None, *, timeout_s: float | None = None, transaction: Transaction | None = None
    ) -> Entry:
        """The same as `read`, but it waits only for others' transactions."""
        return self._runner.run(
            self._inner.read_if_exists(template, timeout_s=timeout_s, transaction=_unit(transaction))
        )

    def take_if_exists(
        self, template: Like = None, *, timeout_s: float | None = None, transaction: Transaction | None = None
    ) -> Entry:
        """The same as `take`, but it waits only for others' transactions."""
        return self._runner.run(
            self._inner.take_if_exists(template, timeout_s=timeout_s, transaction=_unit(transaction))
        )

    def scan(self, template: Like = None, *, transaction: Transaction | None = None) -> list[Entry]:
        """All entries that match and are there now; they stay."""
        return self._runner.run(self._inner.scan(template, transaction=_unit(transaction)))

    def take_all(self, template: Like = None, *, transaction: Transaction | None = None) -> list[Entry]:
        """All entries that match and are there now; they are gone."""
        return self._runner.run(self._inner.take_all(template, transaction=_unit(transaction)))

    def count(self, template: Like = None, *, transaction: Transaction | None = None) -> int:
        """How many entries match."""
        return self._runner.run(self._inner.count(template, transaction=_unit(transaction)))

    def watch(self, template: Like = None, **options: Any) -> Watch:
        """The entries that are written from now on and match: in a `for`, or inside `with`."""
        watch = self._inner.watch(template, **options)
        return Watch(Subscription(self._runner, watch.copies))


class Watch:
    """Entries as they are written; without a `with` of its own it begins and ends with the `for`."""

    def __init__(self, copies: Subscription) -> None:
        self.copies = copies
        """The subscription they come by, which knows of gaps."""

    def __enter__(self) -> Self:
        self.copies.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.copies.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Entry]:
        for event in self.copies:
            yield found(event)


def _unit(transaction: Transaction | None) -> Unit | None:
    return None if transaction is None else transaction.inner
