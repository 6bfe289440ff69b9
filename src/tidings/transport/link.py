"""Asyncio driver of a client's connection: sockets, timers, reconnecting, and the futures of callers.

It is thin: the core decides what to send and what survives a cut (`tidings.protocol.connection`).
One task dials, waits until the connection is lost and dials again; all else happens in callbacks of the loop.
Publications are sent when the loop runs next, so many calls cost one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterator
from copy import copy
from math import inf
from operator import itemgetter
from typing import Any, TypeVar

from tidings.errors import Disconnected, NoAnswer, TidingsError
from tidings.event import Event
from tidings.protocol.calls import OnCut
from tidings.protocol.connection import Connection
from tidings.protocol.messages import error_of
from tidings.replies import Deferred
from tidings.timers import Backoff
from tidings.transport.dial import Carrier, ConnectTo, Hopeless
from tidings.transport.limits import Belonging, Limits, OutOfTime, running_loop

CLOSE_S_MAX = 5.0
"""How long closing waits for publications to be accepted, and for the socket to be written out."""
WARN_S = 10.0
"""Least seconds between two warnings of refused events."""
TURN_EVENTS = 256
"""Events that are published or delivered before other tasks of the loop get their turn."""

T = TypeVar("T")
Wait = asyncio.Future[Any]


class Link(Carrier):
    """Asyncio driver of a client's connection, which reconnects when it is lost.

    `call_timeout_s` limits how long the node may take to answer, where a call gives no limit of its own; None
    is no limit. `place` is the node in error texts.
    """

    def __init__(
        self,
        core: Connection,
        reconnect: bool,
        random: Callable[[], float],
        call_timeout_s: float | None = None,
        place: str = "the node",
    ) -> None:
        super().__init__(core)
        self.core = core
        self.limit_s = inf if call_timeout_s is None else call_timeout_s
        """Seconds that the node may take to answer, unless a call says otherwise."""
        self.place = place
        self.belonging = Belonging(core, place)
        """Process and loop in which the link may be used."""
        self.unflushed = 0
        """Events published since the loop ran last."""
        self.transactions = 0
        """Transactions that were begun."""
        self.loops: set[Callable[[], None]] = set()
        """Callbacks that end open loops over messages; each is removed when it was called."""
        self._timer: asyncio.TimerHandle | None = None
        self._reconnect = reconnect
        self._backoff = Backoff(random)
        self._task: asyncio.Task[None] | None = None
        self.trouble = ""
        """Error of the last attempt to connect."""
        self._unasked = 0  # refused events that were reported
        self._warn_at = 0.0
        self._warned = ""  # the last reported reason for a parting
        self._elsewhere_s = inf
        self._gone_at = inf  # when the connection was lost
        self._older = 0  # number of warnings that the store is an older one
        self._for_connection: list[Wait] = []
        self._for_room: list[Wait] = []
        self._for_acceptance: deque[tuple[int, Wait]] = deque()  # by counters
        self._limits = Limits(self._loop)

    # Life

    def start(
        self,
        dial: ConnectTo,
        reach: Callable[[str], ConnectTo] | None = None,
        elsewhere_s: float | None = None,
    ) -> None:
        """Connect, now and whenever the connection is lost.

        `reach` returns how to connect to another node: one that is to stop names some to its clients. After
        `elsewhere_s` without a connection other nodes are dialled, too; None: never.
        """
        self._elsewhere_s = inf if elsewhere_s is None else elsewhere_s
        self._task = self._loop.create_task(self._run(dial, reach), name="tidings connection")

    async def _run(self, dial: ConnectTo, reach: Callable[[str], ConnectTo] | None) -> None:
        """Dial again and again, until that is hopeless: another node only if nothing binds it to its own."""
        ways = deque([dial])
        has_refuges = False
        while not self._has_failed():
            try:
                await ways[0](self)
            except (Hopeless, OSError, TidingsError) as error:
                self._note_trouble(error)
                if has_refuges or not self.core.leaving.is_bound:
                    ways.rotate(-1)
                if reach is not None and self._is_due_elsewhere():
                    has_refuges = bool(self.core.leaving.refuges)
                    ways = deque([*_reached(reach, self.core.leaving.refuges), *ways])
            else:
                await self._is_gone.wait()
                has_refuges = False
                if reach is not None and self.core.leaving.places:
                    ways = deque([*_reached(reach, self.core.leaving.places), dial])
            if self._has_failed():
                break
            if not self._reconnect:
                self._fail(Disconnected(self.trouble))
            else:
                await asyncio.sleep(self._backoff.next_s())

    def _is_due_elsewhere(self) -> bool:
        """Whether its node is gone for so long that others are dialled; once for each loss."""
        is_due = self._loop.time() - self._gone_at >= self._elsewhere_s
        if is_due:
            self._gone_at = inf
        return is_due

    def _note_trouble(self, error: Exception) -> None:
        """Note why a node can't be reached; give up if that is hopeless, and none was reached before.

        One that was reached may be repaired, and is waited for.
        """
        self.trouble = str(error) or type(error).__name__
        if isinstance(error, Hopeless) and not self.core.node:
            self.core.close(error.error)

    def _has_failed(self) -> bool:
        """Whether the core wants no further connection; then all waits end with an error."""
        if self.core.failure is not None:
            self._fail(self.core.failure)
        return self.core.failure is not None

    def _fail(self, error: TidingsError) -> None:
        """End all waits with an error, as nothing more will come."""
        self.core.close(error)
        waiting = [*self._for_connection, *self._for_room, *(wait for _, wait in self._for_acceptance)]
        self._for_connection, self._for_room, self._for_acceptance = [], [], deque()
        for wait in waiting:
            if not wait.done():
                wait.set_exception(error)

    def end_loops(self) -> None:
        """End loops over messages, so that prefetched messages are given back while there is a node."""
        for end in list(self.loops):
            end()

    async def close(self) -> None:
        """Disconnect cleanly; bytes in the transport are written first."""
        self.core.close()
        self.flush()
        self._fail(Disconnected("the connection was closed"))
        self._limits.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._hang_up(CLOSE_S_MAX)

    # Called by the transport

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the core, and end the waits that they fulfil."""
        self.core.receive(data, self._loop.time())
        if not self.core.parting:
            self._warned = ""
        if self.core.is_up and self._for_connection:
            self._backoff.reset()
            self._for_connection = _resolve(self._for_connection)
        self._resolve_accepted()
        if self.core.publications.unasked > self._unasked:
            self._warn()
        if self.core.older > self._older:
            self._older = self.core.older
            logging.getLogger("tidings").warning(
                "the store of node %s is an older copy: events that it accepted since are lost",
                self.core.node,
            )
        self.flush()

    def _resolve_accepted(self) -> None:
        """End the waits for counters that are accepted, and for room if there is some."""
        accepted = self.core.publications.accepted
        while self._for_acceptance and self._for_acceptance[0][0] <= accepted:
            _resolve([self._for_acceptance.popleft()[1]])
        if self._for_room and not self.core.publications.is_full:
            self._for_room = _resolve(self._for_room)

    def _warn(self) -> None:
        """Log that transient events were refused, at most once in WARN_S seconds."""
        publications = self.core.publications
        if self._loop.time() >= self._warn_at and publications.unasked_failure is not None:
            self._warn_at = self._loop.time() + WARN_S
            refused, self._unasked = publications.unasked - self._unasked, publications.unasked
            logging.getLogger("tidings").warning(
                "the node refused %d events: %s", refused, publications.unasked_failure.text
            )

    def _warn_parted(self) -> None:
        """Log why events that must be stored still wait, which may be for long; each reason once."""
        if self.core.parting != self._warned:
            self._warned = self.core.parting
            logging.getLogger("tidings").warning(
                "the node has ended the connection; events that it has not accepted are sent again: %s",
                self.core.parting,
            )

    def connection_lost(self, error: Exception | None) -> None:
        """Let the task dial again."""
        self.trouble = self.core.parting or str(error or "the connection was lost")
        if self.core.parting and not self.core.publications.is_empty:
            self._warn_parted()
        refusal = refusal_of(error)
        if refusal is not None:
            self.core.close(refusal)
        if self._timer is not None:
            self._timer.cancel()
        if self.core.is_up:
            self._backoff.reset()
            self._gone_at = self._loop.time()
        self.core.lost(self._loop.time())
        super().connection_lost(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the node."""
        super().connection_made(transport)
        self.core.connect(self._loop.time())
        self._wake()

    def _wake(self) -> None:
        self.core.wake(self._loop.time())
        self.flush()
        if self._transport is not None and self.core.wake_at is not None:
            self._timer = self._loop.call_at(self.core.wake_at, self._wake)

    # Sending

    def flush(self) -> None:
        self.unflushed = 0
        super().flush()

    @property
    def now(self) -> float:
        """Return the time of the loop."""
        return self._loop.time()

    def call_at(self, when: float, act: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function at this time of the loop."""
        return self._loop.call_at(when, act)

    def call_soon(self, act: Callable[[], object]) -> None:
        """Call a function in the loop, from any thread; does nothing once the loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def flush_soon(self) -> None:
        """Write when the loop runs next, together with all output until then.

        Called before output is added, as it raises UserError in a loop that is not that of the link.
        """
        if not self.unflushed:
            if running_loop() is not self._loop:
                raise self.belonging.elsewhere()
            self._loop.call_soon(self.flush)
        self.unflushed += 1

    def check_loop(self) -> None:
        """Raise UserError in a process, thread or loop other than that of the link."""
        if running_loop() is not self._loop:
            raise self.belonging.elsewhere()

    # Waiting

    async def wait_connected(self, timeout_s: float | None) -> None:
        """Wait until the node has welcomed us."""
        self.core.check()
        if not self.core.is_up:
            wait = self._loop.create_future()
            self._for_connection.append(wait)
            await self.within(wait, timeout_s, "connect", "connected")

    async def wait_room(self, timeout_s: float | None, call: str = "publish") -> None:
        """Let others have their turn, and wait until the send buffer has room."""
        await asyncio.sleep(0)
        if self.core.publications.is_full:
            limit_s = self.limit_s if timeout_s is None else timeout_s
            until = self._loop.time() + limit_s
            while self.core.publications.is_full:
                self.core.check()
                wait = self._loop.create_future()
                self._for_room.append(wait)
                await self._until(until, wait, limit_s, call, "sent, as the send buffer is full,")

    async def wait_accepted(self, counter: int, timeout_s: float | None, call: str = "publish") -> None:
        """Wait until the node has stored everything up to this counter as safely as it must."""
        if counter > self.core.publications.accepted:
            self.core.check()
            wait = self._loop.create_future()
            entry = counter, wait
            # Mostly appended; a late or repeated wait must not wait for later counters.
            insort(self._for_acceptance, entry, key=itemgetter(0))
            try:
                await self.within(wait, timeout_s, call, "accepted")
            except BaseException:
                if entry in self._for_acceptance:
                    self._for_acceptance.remove(entry)
                raise

    async def wait_done(
        self,
        counter: int,
        timeout_s: float | None,
        call: str = "publish",
        event: Event | None = None,
        queue: str = "",
        transaction: int = 0,
    ) -> None:
        """Wait the same way, and raise the error if the node refused this counter.

        A caller that gives up withdraws it, if it was not sent; otherwise the error says that it may be
        accepted, and the event keeps the counter if it is sent to that queue again.
        """
        try:
            await self.wait_accepted(counter, timeout_s, call)
        except BaseException as error:
            may_be_accepted = not self.withdraw((counter,))
            if may_be_accepted and event is not None:
                self.core.unsure.add(event, queue, transaction, counter)
            raise unanswered(error, may_be_accepted) from None
        failure = self.core.publications.refusal(counter)
        if failure is not None:
            raise error_of(failure)

    def withdraw(self, counters: Collection[int]) -> set[int]:
        """Withdraw those of these counters that were never sent, and return them."""
        withdrawn = self.core.publications.withdraw(counters)
        self._resolve_accepted()
        return withdrawn

    async def call(
        self, operation: str, arguments: dict[str, Any], timeout_s: float | None, on_cut: OnCut = "fail"
    ) -> Any:
        """Send a request, and wait for its reply."""
        self.flush_soon()
        call = self.core.request(operation, arguments, on_cut)
        try:
            return await self.within(self.outcome(call), timeout_s, operation, "answered")
        except (NoAnswer, Disconnected) as error:
            if call.is_over and error is not self.core.failure:
                raise  # as the node has answered, or a cut has decided
            raise unanswered(error, call.was_sent) from None
        finally:
            call.cancel()

    def future(self) -> Wait:
        """Return a future of the loop, in which it is to be awaited."""
        if running_loop() is not self._loop:
            raise self.belonging.elsewhere()
        return self._loop.create_future()

    def outcome(self, reply: Deferred[T]) -> asyncio.Future[T]:
        """Return a future of a reply's value or error; the reply does not depend on it."""
        wait: asyncio.Future[T] = self._loop.create_future()

        def done(value: T) -> None:
            if not wait.done():
                wait.set_result(value)

        def failed(error: TidingsError) -> None:
            if not wait.done():
                wait.set_exception(error)

        reply.then(done, failed)
        return wait

    async def within(self, wait: asyncio.Future[T], timeout_s: float | None, call: str, done: str) -> T:
        """Return the awaited result; Disconnected or NoAnswer if it has not come in time.

        `timeout_s` is the limit, inf for none, None for that of the bus. `call` and `done` are for the error.
        """
        limit_s = self.limit_s if timeout_s is None else timeout_s
        if limit_s == inf:
            return await wait
        return await self._until(self._loop.time() + limit_s, wait, limit_s, call, done)

    async def _until(self, moment: float, wait: asyncio.Future[T], limit_s: float, call: str, done: str) -> T:
        if running_loop() is not self._loop:
            raise self.belonging.elsewhere()
        limits = self._limits
        limits.limit(wait, moment)
        try:
            return await wait
        except OutOfTime:
            raise self.late(call, done, limit_s) from None
        finally:
            limits.cancel(wait)

    def late(self, call: str, done: str, limit_s: float) -> NoAnswer | Disconnected:
        """Return the error of a call that was not done in time: it names the call, the limit and the node."""
        late = f"{call}: not {done} within {limit_s:g} s"
        trouble = self.core.parting if self.core.is_up else self.trouble
        state = f"{'is' if self.core.is_up else 'is not'} connected"
        text = f"{late}: {self.place} {state}" + (f" ({trouble})" if trouble else "")
        return NoAnswer(text) if self.core.is_up else Disconnected(text)


def unanswered(error: BaseException, may_be_accepted: bool) -> BaseException:
    """Return the error of one call that gave up, which says whether the node may still accept it.

    Errors of the connection are shared by all waits, so each caller gets its own.
    """
    if isinstance(error, NoAnswer | Disconnected):
        outcome = "it may have been accepted" if may_be_accepted else "it was withdrawn"
        error = type(error)(f"{error}; {outcome}")
    elif isinstance(error, TidingsError):
        error = copy(error)
    vars(error)["may_be_accepted"] = may_be_accepted
    return error


def _reached(reach: Callable[[str], ConnectTo], addresses: Collection[str]) -> Iterator[ConnectTo]:
    """Yield how to connect to addresses that a node has named; those that are of no use are left out."""
    for address in addresses:
        with contextlib.suppress(TidingsError):
            yield reach(address)


def refusal_of(error: Exception | None) -> TidingsError | None:
    """Return why a node refuses this client, if TLS says so: that comes after the handshake."""
    if not hasattr(error, "library"):  # errors of `ssl` have it; that module is not loaded just to ask
        return None
    from ssl import SSLError

    from tidings.transport.tls import alert_verdict

    return alert_verdict(error) if isinstance(error, SSLError) else None


def _resolve(waiting: list[Wait]) -> list[Wait]:
    """End these waits; return an empty list, to go on with."""
    for wait in waiting:
        if not wait.done():
            wait.set_result(None)
    return []
