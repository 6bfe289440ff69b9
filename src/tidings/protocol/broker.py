"""The broker: all sessions of a node around one exchange and one stream of stored events, without I/O.

A driver (the node, or the simulator) hands in what arrives and carries out what comes of it:

    session = broker.connect(now); session.receive(data, now); …      as things arrive
    operations = broker.finish_tick()                                 one commit for all of it
    broker.durable(mark)                                              when that commit is on disk
    broker.failed(first, last, why)                                   or when commits could not be made
    for session in broker.take_dirty(): session.output()              frames that may leave now
    for stream in broker.take_reads(): stream.take(store.read(…))     backlog, in pieces
    for call in broker.take_offloaded(): call.conclude(…)             what was run in a thread
    broker.wake(now), at `wake_at`                                    what is to be done at a time
    for session in broker.sessions.late(now): session.wake(now)       who is silent, once a second or so

Marks count the commits. A frame that promises something waits in its outbox for the mark of the commit that
the promise depends on, so that nothing is acknowledged or delivered before it is safe.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.event.wire import check
from tidings.exchange import Exchange, NodeSubscription
from tidings.ids import Origin
from tidings.protocol.access import OWN, Authenticator, OpenAuthenticator, PeerInfo
from tidings.protocol.administration import Administration
from tidings.protocol.advertised import Advertised
from tidings.protocol.answers import Answers
from tidings.protocol.appending import Appending
from tidings.protocol.arrivals import Arrivals
from tidings.protocol.channels import Channels
from tidings.protocol.cursors import Cursors
from tidings.protocol.departed import Departed
from tidings.protocol.elsewhere import Elsewhere
from tidings.protocol.frames import encode
from tidings.protocol.inboxes import Routes
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.last_pages import LastPages
from tidings.protocol.ledger import Ledger, check_growing, identity_of
from tidings.protocol.memory import Budgets, Memory
from tidings.protocol.messages import ProtocolMessage, Refusal, failure_of
from tidings.protocol.missed import Missed
from tidings.protocol.ordered import OrderedPublishing
from tidings.protocol.publishing import PublishedEvents, Publishing
from tidings.protocol.relays import Relays
from tidings.protocol.repeats import Repeats
from tidings.protocol.service import BlockingCall, Pool, Service
from tidings.protocol.session import FRAMES, OPERATIONS, Session
from tidings.protocol.sessions import Sessions
from tidings.protocol.stored_consumer import StoreReader
from tidings.protocol.worker import Background
from tidings.replies import Deferred
from tidings.store.interface import Append, CountProducer, Operation, StoreState
from tidings.timers import Alarms, deadline
from tidings.turns import Turns, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.protocol.service import (
        FrameHandler,
        IncomingRequest,
        LinkOpening,
        PatternHost,
        QueueWatch,
    )


class Broker:
    """All sessions of a node around one exchange and one stream of stored events."""

    # Set by the driver and by services, where there is one for it.
    shift = 0.0  # wall clock minus `now`; set by the driver
    before_publishing: Callable[[Batch], bool] | None = None  # whether it has changed who wants it
    routes: Routes | None = None  # the ways to inboxes at other nodes
    channels: Channels | None = None  # the channels, and their members
    published: PublishedEvents | None = None  # what is being delivered
    watch: QueueWatch | None = None  # the queues that can be watched
    open_link: LinkOpening | None = None  # opens a link to another node
    elsewhere: Elsewhere | None = None  # asks other nodes
    patterns: PatternHost | None = None  # finds matches of patterns
    is_linked = False  # whether there are other nodes, at which clients may go on
    size_logged = 0  # bytes that went into the log since the start

    def __init__(
        self,
        state: StoreState,
        now: float = 0.0,
        name: str = "",
        turns: Turns[Worker] | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """`name` is what people call the node; without `turns` everything is done as soon as it is asked."""
        self.memory = Memory(budgets or Budgets())
        # By a clock that stands still no turn is ever over.
        self.turns = Turns(lambda: 0.0, let_work) if turns is None else turns
        self.state = state  # as it was when the store was opened
        self.node = state.node
        self.name = name
        self.boot = state.boot
        self.life = state.boot << 20  # sent to clients as `boot`: it changes with failed commits too
        self.epoch = state.boot  # of this start, in the names of inboxes
        self.now = now  # steady: it never jumps, and deadlines go by it
        self.authenticator: Authenticator = OpenAuthenticator()
        self.exchange = Exchange()
        self.answers = Answers(self.node)
        self.timers = Alarms()  # what is to be done at a time, by whichever part of the broker or service
        self.sessions = Sessions(self)
        self.position = self.position_durable = state.position
        self.position_logged = state.position  # of the last event in the log, or of one behind it
        self.end_logged = state.position + 1  # of what is in the log and on disk
        self.reads: list[StoreReader] = []  # see `take_reads`, and so on
        self.offloaded: list[BlockingCall] = []  # what is to be run in threads: see `take_offloaded`
        self.tallies: Tally[tuple[str, str]] = Tally()  # (what, reason) → how often
        self.ledger = Ledger(state.counters)
        self.ordered = OrderedPublishing(self)
        self.publishing = Publishing(self)
        self.relays = Relays(self)
        self.appending = Appending(self)
        self.missed = Missed(self)
        self.services: list[Service] = []
        # Methods of those services that do something then; most do nothing.
        self._finishing: list[Callable[[], None]] = []
        self._noting_durable: list[Callable[[int], None]] = []
        self.operations: dict[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {}
        self.frames: dict[type[ProtocolMessage], FrameHandler] = {}
        self.changed_links: set[NodeSubscription] = set()
        """Of neighbours beyond which nodes may lack what was had here: events go other ways than before."""
        self.crowded_links: set[object] = set()
        """Cursors of neighbours for which so much waits that publishers are held."""
        self.tunnels: dict[Session, Callable[[], None]] = {}
        """What sends the frames of sessions that have no connection of their own."""
        self.background = Background(self.turns)  # long work that no session waits for
        self._own = Origin(state.node, state.boot, state.node)
        self._own_counter = 0
        self._operations: list[Operation] = []
        self._mark = 0
        self.mark_durable = 0  # up to which everything is on disk
        # (mark, last position of that commit, last one in the log)
        self._positions: deque[tuple[int, int, int]] = deque()
        self._flying: deque[tuple[int, list[Operation]]] = deque()  # commits that are not on disk yet
        self._dirty: dict[Session, None] = {}
        self._waiting: dict[Session, None] = {}  # those whose frames wait for a commit
        self._owing: dict[Session, None] = {}  # those to which an acceptance may have to be sent
        self.cursors = Cursors(self, state)
        self.arrivals = Arrivals(self)
        self.departed = Departed(self)
        self.repeats = Repeats(self)
        self.refuges: Callable[[], list[str]] = list
        """Returns the addresses of other nodes, for clients."""
        self.last_pages = LastPages(self)
        self.add(self.last_pages)
        self.advertised = Advertised(self)
        self.add(self.advertised)
        self.add(Administration(self))

    def add(self, service: Service) -> None:
        """Have a service beside the broker; before the first client is there.

        ValueError if there is already what it adds: it would depend on the order who is asked.
        """
        operations, frames = service.operations, service.frames
        twice: set[Any] = operations.keys() & (self.operations.keys() | OPERATIONS)
        twice |= frames.keys() & (self.frames.keys() | FRAMES)
        if twice:
            raise ValueError(f"{type(service).__name__} adds what is there already: {twice}")
        self.services.append(service)
        if type(service).finish_tick is not Service.finish_tick:
            self._finishing.append(service.finish_tick)
        if type(service).durable is not Service.durable:
            self._noting_durable.append(service.durable)
        self.operations.update(operations)
        self.frames.update(frames)

    # Sessions

    def connect(self, now: float, caller: PeerInfo = OWN) -> Session:
        """A peer has connected."""
        self.now = now
        return self.sessions.open(now, caller)

    def review(self) -> None:
        """The rules have changed: part from all clients who are not let in any more, or for other things."""
        self.sessions.review()
        self.cursors.review()
        for service in self.services:
            service.review()

    def touch(self, session: Session, mark: int = 0) -> None:
        """A session has frames to send, now or when the mark is durable."""
        self._dirty[session] = None
        if mark > self.mark_durable:
            self._waiting[session] = None

    def owe(self, session: Session) -> None:
        """Note a session to which an acceptance may have to be sent when the tick ends."""
        self._owing[session] = None
        self._dirty[session] = None

    def count(self, what: str, times: int = 1, reason: str = "") -> None:
        """Count what happens, for metrics."""
        if times:
            self.tallies[what, reason] += times

    # Ticks

    @property
    def mark(self) -> int:
        """The mark of the commit that will hold what is done in this tick."""
        return self._mark + 1

    @property
    def promise(self) -> int:
        """The mark of the last commit that holds anything done so far, in this tick or before."""
        return self._mark + bool(self._operations or self.cursors.is_due or self.ledger.is_due)

    def store(self, operation: Operation) -> None:
        """Have something stored with this tick."""
        self._operations.append(operation)

    @property
    def has_changes(self) -> bool:
        """Whether the next tick has something to do even if nothing arrives."""
        return self.exchange.has_changes

    def finish_tick(self) -> list[Operation]:
        """Return the operations to commit for this tick; none if nothing was stored."""
        self.turns.run()
        for finish_one in self._finishing:
            finish_one()
        for identity in self.ledger.take_settled():
            for session in self.sessions.of(identity):
                self.owe(session)
        if self.exchange.has_changes:
            self.exchange.finish_tick()
        owing, self._owing = self._owing, {}
        for session in {**self._dirty, **owing}:
            session.finish_tick()
        self.memory.enforce()
        operations = self._operations
        operations += self.cursors.take_due()
        operations += self.ledger.take_due(self.wall, self._mark + 1)
        if operations:
            operations += self.cursors.trim()
            self._operations = []
            self._mark += 1
            self._positions.append((self._mark, self.position, self.position_logged))
            self._flying.append((self._mark, operations))
        return operations

    def durable(self, mark: int) -> None:
        """Everything up to this mark is on disk."""
        self.mark_durable = mark
        while self._flying and self._flying[0][0] <= mark:
            self._flying.popleft()
        self.ledger.durable(mark)
        for note in self._noting_durable:
            note(mark)
        while self._positions and self._positions[0][0] <= mark:
            _, self.position_durable, logged = self._positions.popleft()
            self.end_logged = logged + 1
        self._waiting = {session: None for session in self._waiting if len(session.outbox)}
        self._dirty.update(self._waiting)
        self.cursors.read_on()

    def failed(self, first: int, last: int, why: str) -> None:
        """The commits from `first` to `last` were not made, and `last` is the newest one handed out.

        A later one must not be made either: a publisher's events would be stored without those before them.
        Nothing that depends on what was lost may be said, so whoever waits for it is parted from and comes
        again: what it published is not counted, and it sends again what was to be stored, but nothing
        transient, which may have been handed on. All else is stored with the next commit.
        """
        self.life += 1
        lost = [one for mark, operations in self._flying if mark >= first for one in operations]
        lost += self._operations
        uncounted = self.ledger.failed()
        self.relays.restore()
        kept: list[Operation] = [one for one in lost if not isinstance(one, Append | CountProducer)]
        self._operations = []
        for service in self.services:
            kept = service.failed(kept)
        self._operations = kept + self._operations
        if self._operations:
            self.ledger.keep_again(uncounted)
        for session in list(self.sessions):
            if session.depends_on(first) or session.counts_in(uncounted):
                session.fail(why)
        self._flying.clear()
        self._positions.clear()
        self.publishing.forget_recent()
        self.mark_durable, self.position_durable = last, self.position  # settled, one way or the other
        self.end_logged = self.position_logged + 1
        self.cursors.read_on()

    def take_dirty(self) -> Iterable[Session]:
        """The sessions that may have frames to send, each once."""
        dirty, self._dirty = self._dirty, {}
        if self.tunnels:
            for session in [one for one in dirty if one in self.tunnels]:
                del dirty[session]
                self.tunnels[session]()
        return dirty

    def take_reads(self) -> list[StoreReader]:
        """The streams that want stored events from their `next` on."""
        reads, self.reads = self.reads, []
        return reads

    def offload(self, run: Callable[[], Any], pool: Pool = "io") -> Deferred[Any]:
        """Have something run in a thread, after this tick; the reply is what it returns or raises."""
        call = BlockingCall(run, pool)
        self.offloaded.append(call)
        return call

    def take_offloaded(self) -> list[BlockingCall]:
        """Return the calls to run in threads: run each, then `conclude` it."""
        offloaded, self.offloaded = self.offloaded, []
        return offloaded

    # Time

    @property
    def wall(self) -> float:
        """The time by the wall clock, which may be set: for stamps, and for what is compared with them."""
        return self.now + self.shift

    def deadline(self, moment: float, limit_s: float = inf) -> float:
        """When `now` reaches a moment of the wall clock as that stands now, in `limit_s` at the latest."""
        return deadline(moment, self.wall, self.now, limit_s)

    @property
    def wake_at(self) -> float:
        """When `wake` is to be called."""
        return self.timers.wake_at

    def wake(self, now: float) -> None:
        """Do what is to be done at this time, in steps; sessions are woken one by one, see `late`."""
        self.now = now
        self.background.begin(self.timers.wake(now))

    # What clients send

    def admit(self, stream: IncomingStream, counters: Sequence[int]) -> int:
        """Count what comes next on a stream, one thing or more; how many of these were had before."""
        check_growing(counters, stream.last)
        stream.last = int(counters[-1])
        stream.before, stream.counter = stream.counter, max(stream.counter, stream.last)
        self.owe(stream.session)
        highest = self.ledger.count_up(stream.origin, stream.last)
        if counters[0] > highest:
            return 0
        stream.accept_mark = self.promise  # another connection brought it, maybe just now
        return bisect_right(counters, highest)

    def accept(self, stream: IncomingStream) -> None:
        """Note that the last item of a stream is safe with this commit, and counted there."""
        stream.accept_mark = self.mark
        self.ledger.keep(stream.origin)

    def accept_stored(self, stream: IncomingStream) -> None:
        """Accept events that are stored as they came: their own counters show that they were had."""
        stream.accept_mark = self.mark
        self.ledger.wait(stream.origin)

    def refuse(self, stream: IncomingStream, first: int, last: int, error: TidingsError) -> None:
        """Refuse what came with these numbers; a client that has come again hears it on its new session."""
        refusal, session = Refusal(first, last, failure_of(error)), stream.session
        self.count("refused", last - first + 1, refusal.failure.code)
        self.ledger.refuse(stream.origin, refusal)
        heard = self.sessions.of(identity_of(stream.origin)) if session.is_closed else (session,)
        frame = encode(structs.replace(refusal, stream=stream.stream) if stream.stream else refusal)
        for one in heard:
            one.post(frame)

    def refusal(self, session: Session, batch: Batch, row: int) -> str:
        """Why a session may not publish an event."""
        return (
            self.answers.refusal(session.principal, batch, row)
            or f"{session.principal.user!r} may not publish this"
        )

    def own(self, event: Event) -> Event:
        """An event of the node itself, numbered."""
        self._own_counter += 1
        return structs.replace(event, counter=self._own_counter, origin=self._own)

    def announce(self, *events: Event) -> None:
        """Publish events of the node itself."""
        batch = Batch.of([self.own(event) for event in events])
        self.publishing.hand_on(batch, check(batch.raw))

    def status(self) -> dict[str, Any]:
        """Return the status of the node."""
        status = {
            "node": self.node,
            "sessions": len(self.sessions),
            "subscriptions": self.exchange.subscriptions,
            "unindexed": len(self.exchange.unindexed),
            "advertisements": self.exchange.advertisements,
            "position": self.position,
            "counts": [[what, reason, times] for (what, reason), times in sorted(self.tallies.items())],
            "durables": self.cursors.status(),
        }
        for service in self.services:
            status |= service.status()
        return status


def let_work(worker: Worker, until: float) -> bool:
    """Let one work whose turn it is, where nobody has to survive what goes wrong with it."""
    return worker.work(until)
