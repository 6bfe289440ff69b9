"""A client's requests: sent when there is a connection, answered once, and what a cut does to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from tidings.errors import Disconnected, PeerError, Refused, TidingsError
from tidings.protocol.frames import encode
from tidings.protocol.messages import Reply, Request, error_of
from tidings.replies import Deferred

CALLS_MAX = 10_000
"""Requests that wait for their answers: so many for messages, and so many others."""

OnCut = Literal["fail", "again", "forget"]
"""What becomes of a request that is under way when the connection breaks.

`fail`: whether it was done is not known, and its answer is Disconnected. `again`: it is sent once more, doing
it twice being no different from doing it once. `forget`: the caller begins anew by itself.
"""

Forget = Callable[[int], object]
"""Called with the number of a request that is cancelled."""

_FOR_MESSAGES = frozenset({"get", "get.cancel"})
# What ends something stands for what it ends, so there can't be too many; without it the node would go on.
_ENDINGS = frozenset({"get.cancel", "rollback"})


class Call(Deferred[Any]):
    """A request and the node's answer to it; one that is cancelled before it was sent is not done."""

    __slots__ = ("arguments", "number", "on_cut", "operation", "was_cut", "was_sent")

    def __init__(
        self, number: int, operation: str, arguments: dict[str, Any], on_cut: OnCut, forget: Forget
    ) -> None:
        super().__init__(partial(forget, number))
        self.number = number
        self.operation = operation
        self.arguments = arguments
        self.on_cut = on_cut
        self.was_cut = False  # it may have been done, though no answer came
        self.was_sent = False

    def send(self) -> bytes:
        """The request as it is sent, now; sent again it has the same number."""
        self.was_sent = True
        return encode(Request(self.number, self.operation, self.arguments))


class Calls:
    """All requests of a client that wait."""

    def __init__(self) -> None:
        self._made = 0
        self._waiting: dict[int, Call] = {}
        self._for_messages = 0  # how many of these are

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, operation: str, arguments: dict[str, Any], on_cut: OnCut) -> Call:
        """A new request; Refused when too many of its sort wait."""
        is_for_messages = operation in _FOR_MESSAGES
        alike = self._for_messages if is_for_messages else len(self._waiting) - self._for_messages
        if alike >= CALLS_MAX and operation not in _ENDINGS:
            raise Refused("limit", f"{CALLS_MAX} requests wait for their answers already")
        self._made += 1
        self._for_messages += is_for_messages
        call = self._waiting[self._made] = Call(self._made, operation, arguments, on_cut, self._remove)
        return call

    def _remove(self, number: int) -> Call | None:
        """One that waits no longer; None if it does not wait."""
        call = self._waiting.pop(number, None)
        if call is not None:
            self._for_messages -= call.operation in _FOR_MESSAGES
        return call

    def cancel(self, number: int) -> bool:
        """Cancel a request; whether the node may have heard of it."""
        call = self._waiting.get(number)
        if call is not None:
            call.cancel()
        return call is None or call.was_sent

    def frames(self) -> list[bytes]:
        """All that wait, as they are sent on a new connection."""
        return [call.send() for call in self._waiting.values()]

    def take(self, reply: Reply) -> None:
        """An answer has come; one that nobody waits for is passed over."""
        call = self._remove(reply.number)
        if call is None:
            return
        failure = reply.error
        if failure is None or (call.was_cut and failure.code == "not-found"):  # it was done before the cut
            call.resolve(reply.result)
        else:
            call.fail(error_of(failure))

    def cut(self) -> None:
        """The connection on which all of these were sent has broken."""
        for call in list(self._waiting.values()):
            call.was_cut = True
            if call.on_cut != "again":
                self._remove(call.number)
            if call.on_cut == "fail":
                error = Disconnected(f"the connection broke; {call.operation} may have been done")
                error.may_be_accepted = True
                call.fail(error)

    def fail(self, error: TidingsError) -> None:
        """Fail all calls: there will be no answers."""
        calls, self._waiting, self._for_messages = self._waiting, {}, 0
        for call in calls.values():
            call.fail(error)


def ended_anyway(ending: Call) -> Deferred[None]:
    """The reply to a request that ends something, no matter whether we, the node or a cut has ended it."""
    ended: Deferred[None] = Deferred(ending.cancel)

    def fail(error: TidingsError) -> None:
        is_refused = isinstance(error, Refused) and error.code != "not-found"
        ended.take(None, error if is_refused or not isinstance(error, PeerError) else None)

    ending.then(ended.resolve, fail)
    return ended
