"""Simulated node: the broker and a store on a simulated disk, driven in virtual time.

It does what the node's own driver does: the input that has arrived is one tick, commits are written and
synced one after the other beside it, and stored events are read in pieces, with a reply that comes later. A
crash takes the memory, the connections, and whatever the disk had not synced. Its wall clock can be set; the
broker's time goes on from the wall clock's at the start of the node, as in the real one.

Nodes dial each other: the host of an address is the name of its node. No node shows a certificate.
"""

from __future__ import annotations

from functools import partial
from math import inf

from tidings.errors import StoreFailed
from tidings.node.assembly import CoreSettings, NodeCore
from tidings.peers.dialling import LOST, Dial, HangUp, LogEvent, OutboundConnection
from tidings.protocol.broker import let_work
from tidings.protocol.session import Session
from tidings.protocol.stored_consumer import StoreReader
from tidings.simulator.watch import DiskWatch
from tidings.simulator.world import Action, End, World
from tidings.store.interface import Operation, StoredBatch
from tidings.store.memory import SimulatedDisk, SimulatedStore
from tidings.transport.address import parse
from tidings.turns import Turns

READ_SIZES = (1, 2_000, 1 << 20)
WAKE_S = 1.0
STEP_S = 0.001
"""Duration of one step of a session's work, on the clock of the turns."""
EPOCH_S = 86_400.0
"""Time of all wall clocks when a world begins: high enough to be set back by hours."""


def address_of(name: str) -> str:
    """Return the address of the node of this name."""
    return f"tidings://{name}:1"


class SimulatedNode:
    """Simulated node. `sync_s` and `read_s` are the longest times that its disk takes to commit and to read.

    `step_s` is the duration of a step of work on the clock of the turns; 0 for a watch that needs all input
    to be processed as it arrives. `ahead_s` is the error of its wall clock at first.
    """

    def __init__(
        self,
        world: World,
        name: str,
        watch: DiskWatch | None = None,
        step_s: float = STEP_S,
        settings: CoreSettings | None = None,
        ahead_s: float = 0.0,
    ) -> None:
        self.world = world
        self._step_s = step_s
        self._settings = settings or CoreSettings(name=name)
        self.dialled = 0  # attempts to reach other nodes
        world.nodes[name] = self
        self.name = name
        self.disk = SimulatedDisk()
        self.watch = watch or DiskWatch()
        self.sync_s = self.read_s = 0.01
        self.is_up = False
        self.is_dead = False
        self.ahead_s = ahead_s  # error of its wall clock
        self._still_until = 0.0
        self._life = 0  # counts starts: actions that one life has scheduled are not done in the next
        self.start()

    def start(self) -> None:
        """Open the store on the disk, and accept connections; not if it is dead."""
        if self.is_dead:
            return
        self._life += 1
        self.is_up = True
        self.started_at = self.world.clock.now
        self.disk.size_max = None  # an operator makes room before starting a node
        self.store = SimulatedStore(self.disk, self.world.random.randbytes)
        self._anchor = EPOCH_S + self.ahead_s
        self._worked_s = 0.0
        turns = Turns(self._working_time, let_work)
        now = self._anchor + self.world.clock.now
        self.core = NodeCore(self.store, self._settings, now, self.world.random.randbytes, turns)
        self.broker, self.queues = self.core.broker, self.core.queues
        self.watch.started(self.store.state)
        self.watch.found(self.store.messages())
        self.watch.join(self.broker)
        self._sessions: dict[End, Session] = {}
        self._ends: dict[Session, End] = {}
        self.calls = SimulatedCalls(self)
        self._submitted: list[list[Operation]] = []
        self._is_committing = self._is_ticking = False
        self._mark = 0
        self._ring_at = inf  # the moment for which it is woken beside the periodic wakes
        self.world.note(self.name, "started", self.store.state.position, self.store.state.boot)
        self.core.overlay.listens_at(address_of(self.name))
        self.core.start()
        self.schedule()
        self._after(WAKE_S, self._wake)

    def crash(self) -> None:
        """Lose everything except what the disk has synced."""
        self.world.note(self.name, "crashed", self.disk.unsynced)
        self.is_up = False
        self._life += 1
        for end in [*self._sessions, *self.calls.outbound]:
            self.world.network.drop(end)
        self._sessions.clear()
        self.calls = SimulatedCalls(self)
        self.disk.crash(self.world.random)

    def die(self) -> None:
        """Crash, and never start again."""
        self.is_dead = True
        if self.is_up:
            self.crash()

    def time(self) -> float:
        """Return the broker's time; sets it in the broker, together with its distance from the wall clock."""
        now = self._anchor + self.world.clock.now
        self.broker.now, self.broker.shift = now, EPOCH_S + self.ahead_s - self._anchor
        return now

    def _working_time(self) -> float:
        """Clock of the turns; every call advances it, so that a slice is a few steps of work."""
        self._worked_s += self._step_s
        return self._worked_s

    def _after(self, delay_s: float, action: Action) -> None:
        """Schedule an action, which is skipped if the node has crashed by then."""
        life = self._life

        def act() -> None:
            if self._life == life and not self.stands_still(act):
                action()

        self.world.clock.after(delay_s, act)

    def stand_still(self, duration_s: float) -> None:
        """Do nothing for so long, as a process that is stopped: what arrives, or is due, waits until then."""
        self._still_until = self.world.clock.now + duration_s

    def stands_still(self, action: Action) -> bool:
        """Whether the node stands still; if so the action is done when it goes on, in the same order."""
        wait_s = self._still_until - self.world.clock.now
        if wait_s > 0:
            self.world.clock.after(wait_s, action)
        return wait_s > 0

    # Called by the network

    def connected(self, end: End) -> None:
        """Open a session for a connection."""
        if self.stands_still(lambda: self.connected(end)):
            return
        session = self.broker.connect(self.time())
        self._sessions[end], self._ends[session] = session, end

    def receive(self, end: End, data: bytes) -> None:
        """Pass bytes to the session, or to the outbound connection."""
        if self.stands_still(lambda: self.receive(end, data)):
            return
        session = self._sessions.get(end)
        if session is None:
            self.calls.receive(end, data)
        else:
            self.watch.arriving(session, data, self.world.clock.now)
            session.receive(data, self.time())
            self.schedule()

    def lost(self, end: End) -> None:
        """Report the loss of a connection to its session, or to the outbound connection."""
        if self.stands_still(lambda: self.lost(end)):
            return
        session = self._sessions.pop(end, None)
        if session is None:
            self.calls.lost(end)
        else:
            del self._ends[session]
            session.lost(self.time())
            self.schedule()

    def resume(self, end: End) -> None:
        """Send more, now that the connection takes it."""
        if self.stands_still(lambda: self.resume(end)):
            return
        if end in self._sessions:
            self._send(self._sessions[end])
            self.schedule()
        else:
            self.calls.send(end)

    def _wake(self) -> None:
        for session in self.broker.sessions.late(self.time()):
            session.wake(self.time())
        self._ring()
        self._after(WAKE_S, self._wake)

    # Ticks

    def schedule(self) -> None:
        """Schedule a tick, unless one is scheduled."""
        if not self._is_ticking:
            self._is_ticking = True
            self._after(self.world.random.uniform(0, 0.002), self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        operations = self.broker.finish_tick()
        if operations:
            self._submitted.append(operations)
            self._commit()
        self._send_all()
        self.calls.carry_out()
        if self.broker.has_changes or len(self.broker.turns):
            self.schedule()
        for stream in self.broker.take_reads():
            self._read(stream)
        for call in self.broker.take_offloaded():
            self._after(0.0, partial(call.conclude, None, call.run()))
        wait_s, at = self.broker.wake_at - self.time(), self.broker.wake_at
        if wait_s < WAKE_S and at != self._ring_at:  # otherwise the next periodic wake is soon enough
            self._ring_at = at
            self._after(max(0.0, wait_s), self._ring)

    def _ring(self) -> None:
        self._ring_at = inf
        self.broker.wake(self.time())
        self.schedule()

    def _send_all(self) -> None:
        for session in self.broker.take_dirty():
            self._send(session)

    def _send(self, session: Session) -> None:
        end = self._ends.get(session)
        if end is None or (end.is_paused and not session.is_closed):
            return
        frames: list[bytes] = []
        while more := session.output():
            frames += more
        self.watch.leaving(session, frames)
        end.send(b"".join(frames))
        if session.is_closed and not len(session.outbox):
            end.close()
            self.lost(end)

    # The disk

    def _commit(self) -> None:
        """Write the submitted operations; they are synced later, and the broker learns that later still."""
        if self._is_committing or not self._submitted:
            return
        self._is_committing = True
        taken, self._submitted = self._submitted, []
        self._mark += len(taken)
        try:
            self.store.commit([operation for operations in taken for operation in operations])
        except StoreFailed as error:
            self._after(self.world.random.uniform(0, self.sync_s), partial(self._fail, len(taken), error))
            return

        def sync() -> None:
            self.store.sync()
            self.watch.synced(taken)
            self._after(self.world.random.uniform(0, self.sync_s), durable)

        def durable() -> None:
            self._is_committing = False
            self.time()
            self.broker.durable(self._mark)
            self._send_all()
            self.calls.carry_out()
            self.schedule()
            self._commit()

        self._after(self.world.random.uniform(0, self.sync_s), sync)

    def _fail(self, count: int, error: StoreFailed) -> None:
        """Report a failed commit to the broker, together with everything submitted since."""
        self.world.note(self.name, "failed", count)
        self.time()
        self._is_committing = False
        first = self._mark - count + 1
        self._mark += len(self._submitted)
        self._submitted.clear()
        self.broker.failed(first, self._mark, str(error))
        self._send_all()
        self.schedule()
        self._commit()

    def _read(self, stream: StoreReader) -> None:
        random = self.world.random
        if stream.since_us is not None:
            stream.begin(self.core.history.position_at(stream.since_us))
        asked, size = stream.place, random.choice(READ_SIZES)
        history, filter = self.core.history, stream.filter

        def read() -> None:
            if stream.is_backward:
                stored = history.batches_before(asked, size)
            else:
                stored = history.batches(asked, size, filter)
            self._after(random.uniform(0, self.read_s), lambda: take(stored))

        def take(stored: list[StoredBatch]) -> None:
            stream.take(stored)
            self.schedule()

        self._after(random.uniform(0, self.read_s), read)


# Outbound connections


class SimulatedCalls:
    """Driver of a simulated node's outbound connections; each life of a node has its own."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._world = node.world
        self._dialling = node.core.dialling
        self._attempts: dict[OutboundConnection, Dial] = {}
        self._ends: dict[OutboundConnection, End] = {}
        self.outbound: dict[End, OutboundConnection] = {}
        """Connections by their near ends."""

    def carry_out(self) -> None:
        """Carry out the effects of the core."""
        for outbound in self._dialling.take_due():
            if outbound in self._ends:
                self.send(self._ends[outbound])
        for effect in self._dialling.take_effects():
            match effect:
                case Dial():
                    self._dial(effect)
                case HangUp(outbound):
                    self._hang_up(outbound)
                case LogEvent(_level, event, values):
                    self._world.note(self._node.name, event, *values.values())

    def _dial(self, dial: Dial) -> None:
        self._node.dialled += 1
        self._attempts[dial.outbound] = dial
        far = self._world.nodes[parse(dial.outbound.reach.address).host]
        link = self._world.network.link(self._node.name, far.name)
        self._world.network.connect(link, self._node, far, partial(self._answer, dial))

    def _answer(self, dial: Dial, end: End | None) -> None:
        if self._node.stands_still(lambda: self._answer(dial, end)):
            return
        outbound = dial.outbound
        if self._attempts.get(outbound) is not dial or self._node.calls is not self:
            if end is not None:
                end.close()
            return
        del self._attempts[outbound]
        self._node.time()
        if end is None:
            outbound.lost("nobody answers")
        else:
            self._ends[outbound], self.outbound[end] = end, outbound
            outbound.answered(None)
        self._node.schedule()

    def _hang_up(self, outbound: OutboundConnection) -> None:
        self._attempts.pop(outbound, None)
        end = self._ends.pop(outbound, None)
        if end is not None:
            del self.outbound[end]
            end.close()

    # Called by the network

    def receive(self, end: End, data: bytes) -> None:
        """Pass bytes on to the outbound connection."""
        outbound = self.outbound.get(end)
        if outbound is not None:
            self._node.time()
            outbound.receive(data)
            self._node.schedule()

    def lost(self, end: End) -> None:
        """Report the loss of a connection to the core."""
        outbound = self.outbound.pop(end, None)
        if outbound is not None:
            del self._ends[outbound]
            self._node.time()
            outbound.lost(LOST)
            self._node.schedule()

    def send(self, end: End) -> None:
        """Send the output of a connection, unless it is paused."""
        if end in self.outbound and not end.is_paused:
            outbound = self.outbound[end]
            end.send(b"".join(outbound.output()))
            while outbound.has_bulk and not end.is_paused:
                end.send(b"".join(outbound.output()))
