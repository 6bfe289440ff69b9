"""The driver: carries bytes, commits, reads and time between the world and the broker, and decides nothing.

The input of one turn of the loop is one *tick*: at its end come one commit, handed to the store thread,
and one write for each connection that has something to be sent. So an idle node answers at once, and a busy
one works on thousands of events at a time. While ticks are full, connections with little to send may wait up
to HOLD_S for more, because a write costs the same for one event as for a hundred.

There are two clocks: one that never jumps, for deadlines, and the wall clock, for stamps.

This is on the hot path: `receive` and the tick work on plain calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from math import inf
from traceback import format_exc
from typing import TYPE_CHECKING, Any, TypeVar

from tidings.errors import TidingsError
from tidings.node import logs
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.node.dialling import Dialler
from tidings.node.logs import Lasting, Logins
from tidings.node.metrics import Ages
from tidings.node.threads import Threads
from tidings.protocol.access import PeerInfo
from tidings.protocol.last_pages import FULL
from tidings.protocol.service import BlockingCall
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoreReader
from tidings.store.interface import Store
from tidings.store.thread import StoreThread
from tidings.turns import Turns, Worker

if TYPE_CHECKING:
    from tidings.node.ports import Port

TICK_SIZE_FULL = 64 << 10
"""Bytes that arrived in one tick from which on the node counts as busy."""
HOLD_S = 0.001
"""How long a busy node may hold back a small write."""
WRITE_SIZE_SMALL = 16 << 10
"""Bytes from which on a write is worth its cost."""
READ_SIZE_MAX = 128 << 10
"""Bytes of stored events that are read, decoded and sent at once: a millisecond or two of the loop."""
UNREAD_SIZE_MAX = 256 << 10
"""Bytes of whole frames of one peer that may wait before no more are read from it."""
WAKE_S = 1.0
"""How often the driver wakes, to weigh sessions, to wake silent ones and to look after what is left."""
ALARM_S_MAX = 3_600.0
"""How far ahead a timer is set at most: loops may refuse one for centuries, which a ttl can ask for."""
CLOSE_S_MAX = 6.0
"""How long the last frames may take to leave when a node stops."""

Answer = TypeVar("Answer")


class SteadyClock:
    """Steady time: the wall clock of the start, and what has passed since by the monotonic clock.

    So it reads like other times, and goes on when somebody, or NTP, sets the wall clock; only the next start
    follows that.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._anchor = wall() - monotonic()

    def now(self) -> float:
        """Seconds since 1970 if nobody has set the wall clock since the start."""
        return self._anchor + self._monotonic()

    def shift(self, now: float) -> float:
        """By how much the wall clock is ahead of `now`; below 0 if it is behind."""
        return self._wall() - now


class Driver:
    """One node's core and its store on a running loop, until `close`."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        settings: CoreSettings,
        clock: SteadyClock | None = None,
    ) -> None:
        self.clock = clock or SteadyClock()
        turns = Turns(time.perf_counter, self._work)
        self.core = NodeCore(store, settings, self.clock.now(), os.urandom, turns)
        self.broker, self.history = self.core.broker, self.core.history
        self.is_closed = False
        self.lag_s = 0.0  # by how much the last wake came late
        self.received = 0  # bytes, ever
        self.on_full_tick: Callable[[], None] = lambda: None
        self.on_wake: Callable[[], None] = lambda: None
        self._loop = loop
        self._ports: dict[Session, Port] = {}
        self._all_gone = asyncio.Event()
        self._arrived = 0  # bytes, in this tick
        self._is_scheduled = False
        self._held: dict[Session, None] = {}
        self._unread: dict[Session, None] = {}  # those from whom nothing is read for now
        self._release: asyncio.TimerHandle | None = None
        self._store = StoreThread(store, self._on_durable, self._on_failure)
        self._ages = Ages(self.history.stored_us, self._store.ask_aside)
        self._is_full = False  # last values were dropped, and that was logged
        self._is_older = False  # the store is, than what clients know, and that was logged
        self._writing = Lasting("the store failed", "the store works again")
        self._reading = Lasting("the store can't be read", "the store can be read again")
        self._threads = Threads(loop, self._conclude)
        self._asked = 0  # reads whose answers have not been taken in
        self._waking = loop.call_later(WAKE_S, self._wake, loop.time() + WAKE_S)
        self._alarm: asyncio.TimerHandle | None = None  # for what is due before the next waking
        self._alarm_at = inf
        self._logins = Logins()
        self._dialler = Dialler(self)
        self.schedule()

    # What the ports call

    @property
    def connections(self) -> int:
        """Number of connected peers."""
        return len(self._ports)

    def connect(self, port: Port, caller: PeerInfo) -> Session:
        """A peer has connected."""
        session = self.broker.connect(self.time(), caller)
        self._ports[session] = port
        self._all_gone.clear()
        return session

    def receive(self, session: Session, data: bytes) -> None:
        """Bytes have arrived."""
        self._arrived += len(data)
        self.received += len(data)
        session.receive(data, self.clock.now())  # what the wall clock shows is looked up once a second
        self.schedule()
        waits = session.is_stalled or session in self.broker.turns
        if waits and session not in self._unread and session.unread > UNREAD_SIZE_MAX:
            self._unread[session] = None
            self._ports[session].pause_reading(True)

    def _work(self, worker: Worker, until: float) -> bool:
        """Let one go on until this moment; whether more is left. Called when it is its turn."""
        new = worker if isinstance(worker, Session) and not worker.is_let_in else None
        try:
            is_left = worker.work(until)
        except Exception as error:  # what goes wrong with one must not touch the others
            self._report(worker.caller.peer if isinstance(worker, Session) else "background", error)
            is_left = worker.give_up()
        if new is not None and new.login.denied:
            self._logins.report(new.caller.peer, new.login.denied)
            new.login.denied = ""
        return is_left

    def _read_again(self) -> None:
        """Go on reading from those who have caught up with what they had sent."""
        for session in [one for one in self._unread if one.unread <= UNREAD_SIZE_MAX]:
            del self._unread[session]
            if session in self._ports:
                self._ports[session].pause_reading(False)

    def do(self, who: str, act: Callable[..., None], *arguments: Any) -> bool:
        """Have something done in the core that happened elsewhere; whether it went well."""
        if self.is_closed:
            return False
        self.time()
        self.schedule()
        return self._survives(who, act, *arguments)

    def _survives(self, who: str, act: Callable[..., None], *arguments: Any) -> bool:
        """Do something for one; whether it went well: what goes wrong with one must not touch the others."""
        try:
            act(*arguments)
        except Exception as error:  # the one place that must survive whatever the broker does
            self._report(who, error)
            return False
        return True

    def _report(self, who: str, error: Exception) -> None:
        logs.error("a fault in tidings", peer=who, problem=repr(error), traceback=format_exc())

    def resume(self, session: Session) -> None:
        """A peer that could take no more can again."""
        self._send(session)
        self.schedule()

    def lost(self, session: Session) -> None:
        """A connection is gone."""
        if self._ports.pop(session, None) is not None:
            self._held.pop(session, None)
            self._unread.pop(session, None)
            self._survives(session.caller.peer, session.lost, self.time())
            self.schedule()
            if not self._ports:
                self._all_gone.set()

    # Ticks

    def schedule(self) -> None:
        """Have this turn of the loop end with a tick."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._is_scheduled = False
        if self.is_closed:
            return
        is_busy = self._arrived >= TICK_SIZE_FULL
        self._arrived = 0
        if len(self.broker.turns):
            self.time()  # some go on with what came earlier
        if self._store.is_full:
            self.broker.turns.run()  # but nothing is accepted, and the windows of publishers fill
        else:
            operations = self.broker.finish_tick()
            if operations:
                self._store.submit(operations)
            if self.broker.has_changes:
                self.schedule()
        self._send_all(self.broker.take_dirty(), is_busy)
        if self.broker.reads or self.broker.offloaded:
            self._carry_out()
        if self.core.dialling.is_due:
            self._dialler.carry_out()
        if self.broker.wake_at != self._alarm_at:
            self._set_alarm()
        if self._unread:
            self._read_again()
        if len(self.broker.turns):
            self.schedule()
        if is_busy:
            self.on_full_tick()

    def _carry_out(self) -> None:
        """Begin what the broker wants to be done elsewhere."""
        for stream in self.broker.take_reads():
            self._read(stream)
        for call in self.broker.take_offloaded():
            self._threads.run(call)

    def _send_all(self, dirty: Iterable[Session], is_busy: bool) -> None:
        """Write to each session, or hold it back.

        The last one first: a publisher is touched before those who get what it published, a write takes
        longer than all else that is done for one event, and nobody waits as eagerly for an acceptance.
        """
        for session in reversed(list(dirty)):
            if is_busy and not session.is_closed and session.outbox.size < WRITE_SIZE_SMALL:
                self._hold(session)
            else:
                self._send(session)

    def _send(self, session: Session) -> None:
        """Write what may leave; a session that is closed has its connection closed behind it."""
        port = self._ports.get(session)
        if port is None or (port.is_paused and not session.is_closed):
            return
        frames = session.output()
        if frames:
            port.send(frames)
            while session.outbox.size and not port.is_paused and (frames := session.output()):
                port.send(frames)  # more than is handed over at once, or what that has made room for
        if session.is_closed and not len(session.outbox):
            port.part()

    def _hold(self, session: Session) -> None:
        self._held[session] = None
        if self._release is None:
            self._release = self._loop.call_later(HOLD_S, self._send_held)

    def _send_held(self) -> None:
        if self._release is not None:
            self._release.cancel()
            self._release = None
        held, self._held = self._held, {}
        for session in held:
            self._send(session)
        if len(self.broker.turns):
            self.schedule()  # one may have waited for its client to read

    @property
    def is_settled(self) -> bool:
        """Whether all that was handed to threads has come back: commits, reads and calls."""
        is_committed = self.broker.mark_durable >= self.broker.mark - 1
        return is_committed and not self._asked and not self._threads.running

    # Who is let in

    def review(self) -> None:
        """The rules have changed: part from those who are not let in any more."""
        self.broker.review()
        self.schedule()

    # The store

    def _on_durable(self, mark: int) -> None:
        """Called by the store thread."""
        self._loop.call_soon_threadsafe(self._durable, mark)

    def _on_failure(self, first: int, error: TidingsError) -> None:
        """Called by the store thread."""
        self._loop.call_soon_threadsafe(self._fail, first, error)

    def _durable(self, mark: int) -> None:
        self.broker.count("commits")
        self._writing.succeed()
        self.broker.durable(mark)
        self._send_all(self.broker.take_dirty(), is_busy=False)
        self._send_held()
        if self.core.dialling.is_due:
            self._dialler.carry_out()
        self.schedule()

    def _fail(self, first: int, error: TidingsError) -> None:
        self._writing.fail(str(error), self.time())
        self.broker.count("failures", reason="store")
        self.broker.failed(first, self._store.recover(), str(error))
        self._send_all(self.broker.take_dirty(), is_busy=False)

    def _read(self, stream: StoreReader) -> None:
        """Have stored events read for a stream, from its place on or from a moment that it names."""
        if stream.since_us is None:
            ask = self._store.ask_aside if self.history.is_sealed(stream.place) else self._store.ask
            if stream.is_backward:
                found = ask(self.history.batches_before, stream.place, READ_SIZE_MAX)
            else:
                asked = stream.place, READ_SIZE_MAX, stream.filter
                found = ask(self.history.batches, *asked)
            self._then(found, stream, stream.take)
        else:
            begin = self._store.ask_aside(self.history.position_at, stream.since_us)
            self._then(begin, stream, partial(self._begin_at, stream))

    def _begin_at(self, stream: StoreReader, position: int) -> None:
        stream.begin(position)
        self._read(stream)

    def _then(self, future: Future[Answer], stream: StoreReader, use: Callable[[Answer], None]) -> None:
        """Have the store's answer used on the loop."""

        def conclude(done: Future[Answer]) -> None:
            if not done.cancelled():
                self._loop.call_soon_threadsafe(take, done)

        def take(done: Future[Answer]) -> None:
            self._asked -= 1
            if self._is_sound(stream, done):
                use(done.result())
                self.schedule()

        self._asked += 1
        future.add_done_callback(conclude)

    def _is_sound(self, stream: StoreReader, answer: Future[Any]) -> bool:
        """Whether the store has answered; if not, the client gets an error, and may try again."""
        error = answer.exception()
        if error is None:
            self._reading.succeed()
            return not self.is_closed
        self._reading.fail(str(error), self.time())
        self.broker.count("failures", reason="read")
        stream.fail_reading()
        self.schedule()
        return False

    # Calls in threads

    def _conclude(self, call: BlockingCall, error: BaseException | None, result: Any) -> None:
        if not self.is_closed:
            self.time()
            self._survives("a call in a thread", call.conclude, error, result)
            self.schedule()

    # Time

    def time(self) -> float:
        """Return the time for cores, and set it in the broker with its difference to the wall clock."""
        now = self.clock.now()
        self.broker.now, self.broker.shift = now, self.clock.shift(now)
        return now

    def _wake(self, due: float) -> None:
        """Called by the loop every WAKE_S, or later if it is busy."""
        self.lag_s = max(0.0, self._loop.time() - due)
        following = self._loop.time() + WAKE_S  # first: whatever goes wrong below, it is not the last waking
        self._waking = self._loop.call_at(following, self._wake, following)
        self.schedule()
        now = self.time()
        for session in self.broker.sessions.late(now):
            self._survives(session.caller.peer, session.wake, now)
        self.broker.sessions.weigh()
        self._logins.wake()
        for trouble in (self._writing, self._reading):
            trouble.look(now)
        self._look_for_older()
        self._look_for_full()
        self.on_wake()

    def _look_for_older(self) -> None:
        """Log once that clients know of more than the store has; how many do is counted."""
        ahead = self.broker.tallies.get(("clients_ahead", ""), 0)
        if ahead and not self._is_older:
            self._is_older = True
            logs.error("the store is older than what clients know", clients=ahead, node=self.broker.node)

    def _look_for_full(self) -> None:
        """Log once that last values are dropped; how many are is counted."""
        dropped = self.broker.tallies.get(("last_values_dropped", FULL), 0)
        if dropped and not self._is_full:
            self._is_full = True
            budget = self.broker.memory.last_values_max
            logs.warning("last values are dropped", dropped=dropped, last_values_max=budget)

    def _set_alarm(self) -> None:
        """Have the broker woken when it wants to be."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = self.broker.wake_at
        if self._alarm_at < inf:
            wait_s = max(0.0, self._alarm_at - self.clock.now())
            self._alarm = self._loop.call_later(min(wait_s, ALARM_S_MAX), self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, inf
        self._survives("the clock", self.broker.wake, self.time())
        self.schedule()

    # What is asked for metrics

    @property
    def outbox_size(self) -> int:
        """Bytes that wait to be sent, to all peers."""
        return sum(session.outbox.size for session in self.broker.sessions)

    async def oldest_ages_s(self) -> dict[tuple[str, str], float]:
        """Seconds since the oldest event behind its cursor was stored, by owner and name; those with any."""
        self.time()
        return await self._ages.oldest_s(self.broker.status()["durables"], self.broker.wall)

    # The end

    async def close(self) -> None:
        """Say goodbye to all peers, and end when everything is stored and has left."""
        await self._dialler.close()
        self.is_closed = True
        self._waking.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        for session in list(self._ports):
            session.close("shutdown", "the node stops")
        operations = self.broker.finish_tick()  # the last one
        if operations:
            self._store.submit(operations, is_last=True)
        await self._end()

    async def _end(self) -> None:
        # What the thread says while it ends is carried out by the loop before this goes on.
        await self._threads.close()
        await asyncio.to_thread(self._store.close)
        self._send_held()
        for session in list(self._ports):
            self._send(session)
        if self._ports:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), CLOSE_S_MAX)
