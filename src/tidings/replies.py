"""Replies that come later: a value or an error, once, for those that wait for it in the same thread.

    reply: Deferred[int] = Deferred()
    reply.then(show, report)      one of these is called, at once if the outcome is there already
    reply.resolve(3)

The maker of a `Deferred` resolves or fails it; the caller adds callbacks, or cancels it when nobody
wants the outcome any more. An outcome that comes after the first one, or after `cancel`, is passed over: so a
maker need not remember whether it has replied, and a caller that has cancelled hears nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from tidings.errors import TidingsError

Value = TypeVar("Value")
Other = TypeVar("Other")


class _State(Enum):
    WAITING, DONE, FAILED, CANCELLED = range(4)


class Deferred(Generic[Value]):
    """Reply that comes later. `on_cancel` is called once, if it is cancelled before it has an outcome."""

    __slots__ = ("_callbacks", "_on_cancel", "_outcome", "_state")

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        self._state = _State.WAITING
        self._outcome: Any = None
        self._callbacks: list[tuple[Callable[[Value], None], Callable[[TidingsError], None]]] = []
        self._on_cancel = on_cancel

    @property
    def is_over(self) -> bool:
        """Whether it has an outcome, or was cancelled."""
        return self._state is not _State.WAITING

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody wants the outcome any more."""
        return self._state is _State.CANCELLED

    def resolve(self, value: Value) -> None:
        """Give it its value."""
        self._end(_State.DONE, value)

    def fail(self, error: TidingsError) -> None:
        """Give it an error instead."""
        self._end(_State.FAILED, error)

    def take(self, value: Value, error: TidingsError | None) -> None:
        """Give it the error, if there is one, or else the value; the callback of a request of a client."""
        if error is None:
            self.resolve(value)
        else:
            self.fail(error)

    def cancel(self) -> None:
        """Have none of the callbacks called that were not called yet."""
        on_cancel = self._on_cancel
        if self._end(_State.CANCELLED, None) and on_cancel is not None:
            on_cancel()

    def then(
        self, done: Callable[[Value], None], failed: Callable[[TidingsError], None] | None = None
    ) -> None:
        """Have `done` called with the value, or `failed` with the error; callbacks keep their order."""
        self._callbacks.append((done, ignore if failed is None else failed))
        self._notify()

    def map(
        self,
        value: Callable[[Value], Other],
        error: Callable[[TidingsError], TidingsError] | None = None,
    ) -> Deferred[Other]:
        """The reply with this function of the value; a TidingsError that it raises is the outcome then.

        `error` does the same for errors. Cancelling it cancels this one.
        """
        mapped: Deferred[Other] = Deferred(self.cancel)

        def done(found: Value) -> None:
            try:
                mapped.resolve(value(found))
            except TidingsError as wrong:
                mapped.fail(wrong)

        self.then(done, mapped.fail if error is None else lambda wrong: mapped.fail(error(wrong)))
        return mapped

    def chain(self, following: Callable[[Value], Deferred[Other]]) -> Deferred[Other]:
        """The reply that this function of the value returns; a TidingsError that it raises is the outcome."""
        chained: Deferred[Other] = Deferred(self.cancel)

        def done(found: Value) -> None:
            try:
                following(found).then(chained.resolve, chained.fail)
            except TidingsError as wrong:
                chained.fail(wrong)

        self.then(done, chained.fail)
        return chained

    def _end(self, state: _State, outcome: Any) -> bool:
        """Note the outcome, and report it; return whether it is the first one."""
        if self._state is not _State.WAITING:
            return False
        self._state, self._outcome, self._on_cancel = state, outcome, None
        self._notify()
        return True

    def _notify(self) -> None:
        """Call those who have not been called, once there is an outcome."""
        while self._callbacks and self._state is not _State.WAITING:
            done, failed = self._callbacks.pop(0)
            if self._state is _State.DONE:
                done(self._outcome)
            elif self._state is _State.FAILED:
                failed(self._outcome)


def resolved(value: Value) -> Deferred[Value]:
    """A reply that is there already."""
    reply: Deferred[Value] = Deferred()
    reply.resolve(value)
    return reply


def failed(error: TidingsError) -> Deferred[Any]:
    """An error that is there already."""
    reply: Deferred[Any] = Deferred()
    reply.fail(error)
    return reply


def gathered(replies: Sequence[Deferred[Value]]) -> Deferred[list[Value]]:
    """The values of all that have one, in the order of the replies, when the last of them is over."""
    outcomes: dict[int, tuple[Value, ...]] = {}
    all_found: Deferred[list[Value]] = Deferred()

    def note(place: int, *values: Value) -> None:
        outcomes[place] = values
        if len(outcomes) == len(replies):
            all_found.resolve([value for place in range(len(replies)) for value in outcomes[place]])

    def skip(place: int, _error: TidingsError) -> None:
        note(place)

    for place, reply in enumerate(replies):
        reply.then(partial(note, place), partial(skip, place))
    if not replies:
        all_found.resolve([])
    return all_found


def all_of(replies: Sequence[Deferred[Any]]) -> Deferred[None]:
    """Return a reply that comes when all of these have come; the first error, if one fails."""
    reply: Deferred[None] = Deferred()
    for each in replies:
        each.then(ignore, reply.fail)
    gathered(replies).then(lambda found: reply.resolve(None) if len(found) == len(replies) else None)
    return reply


def ignore(_outcome: object) -> None:
    """For values and errors that change nothing."""
