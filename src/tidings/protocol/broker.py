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
    for session in broker.late(now): session.wake(now)                who is silent, once a second or so

Marks count the commits. A frame that promises something waits in its outbox for the mark of the commit that
the promise depends on, so that nothing is acknowledged or delivered before it is safe.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from collections import deque
from functools import partial
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from tidings.errors import NotAllowed, Refused, TidingsError
from tidings.event import Batch, Event
from tidings.event.header import DELIVERIES, NOTED_FIELDS
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import Checked, check
from tidings.exchange import Exchange, Need, NodeSubscription, OutwardSink, Rows
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import OWN, Authenticator, OpenAuthenticator, PeerInfo, Principal
from tidings.protocol.administration import Administration
from tidings.protocol.advertised import Advertised
from tidings.protocol.answers import Answers
from tidings.protocol.backlog import Backlog
from tidings.protocol.channels import Channels, channels_in
from tidings.protocol.cursors import Cursors
from tidings.protocol.fading import faded
from tidings.protocol.frames import encode
from tidings.protocol.inboxes import Routes
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.last_pages import LastPages
from tidings.protocol.ledger import Ledger, ProducerKey, check_growing, identity_of
from tidings.protocol.memory import Budgets, Memory
from tidings.protocol.messages import ProtocolMessage, Refusal, failure_of
from tidings.protocol.missed import Missed
from tidings.protocol.service import BlockingCall, Pool, Service
from tidings.protocol.session import FRAMES, OPERATIONS, Session
from tidings.protocol.stored_consumer import StoreReader
from tidings.protocol.worker import Background
from tidings.replies import Deferred
from tidings.steps import Steps, finish
from tidings.store.interface import (
    Append,
    CountProducer,
    Operation,
    StoredBatch,
    StoreState,
)
from tidings.timers import Alarms, Leases, deadline
from tidings.turns import SLICE_S, Share, Turns, adapted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from tidings.protocol.service import (
        FrameHandler,
        IncomingRequest,
        LinkOpening,
        PatternHost,
        QueueWatch,
    )

RECENT_SIZE_MAX = 8 << 20
"""Bytes of events kept in memory for those who ask for last values."""
STORED_SIZE_MAX = 64 << 10
"""Bytes of events that are stored under one checksum, save one event that is larger."""
DELIVERED_AT_ONCE = 8_192
"""Rows that subscriptions get of a batch in one step, all of them together."""
DELIVERIES_FEW = 8
"""Subscriptions that are always served in one step; and the rows that each costs beside its own."""

_NOTHING, _RELIABLE, _LOGGED = Need.NOTHING, Need.RELIABLE, Need.LOGGED
_ELSEWHERE = Need.ELSEWHERE
_PERSISTENT = DELIVERIES.index("persistent")
_CHANNEL, _SUBJECT, _KEEP_S = (1 << NOTED_FIELDS.index(one) for one in ("channel", "subject", "keep_s"))
_NO_CHANNELS: Mapping[int, str] = {}
_FIRST = "@"  # before the id of a first node: by that the ledger knows its numbers
_rows_of = itemgetter(1)  # of one of `MatchedRows`


Anyone = Session | Background | Backlog
"""Who has turns."""

MatchedRows = list[tuple[NodeSubscription, Rows]]
"""Who wants some of a batch, and which rows."""


class PublishedEvents(Struct, frozen=True):
    """Events that are being delivered, under which numbers they came, and whose they are."""

    batch: Batch
    counters: Sequence[int]
    publisher: IncomingStream | None
    deliveries: bytes


class Broker:
    """All sessions of a node around one exchange and one stream of stored events."""

    def __init__(
        self,
        state: StoreState,
        now: float = 0.0,
        name: str = "",
        turns: Turns[Anyone] | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """`name` is what people call the node; without `turns` everything is done as soon as it is asked."""
        self.memory = Memory(budgets or Budgets())
        self._shares: dict[str, Share] = {}  # by user
        # By a clock that stands still no turn is ever over.
        self.turns = Turns(lambda: 0.0, let_work) if turns is None else turns
        self.state = state  # as it was when the store was opened
        self.node = state.node
        self.name = name
        self.boot = state.boot
        self.life = state.boot << 20  # sent to clients as `boot`: it changes with failed commits too
        self.epoch = state.boot  # of this start, in the names of inboxes
        self.now = now  # steady: it never jumps, and deadlines go by it
        self.shift = 0.0  # wall clock minus `now`; set by the driver
        self.authenticator: Authenticator = OpenAuthenticator()
        self.exchange = Exchange()
        self.answers = Answers(self.node)
        self.routes: Routes | None = None  # who knows the ways to inboxes at other nodes
        self.channels: Channels | None = None  # who knows the members of channels
        self.published: PublishedEvents | None = None  # what is being delivered
        self.timers = Alarms()  # what is to be done at a time, by whichever part of the broker or service
        self.sessions: dict[Session, None] = {}  # in their order, as streams are: a run can be repeated
        self._names: dict[str, Session] = {}
        self._silent: Leases[Session] = Leases(attrgetter("wake_at"))
        self._clients: dict[ProducerKey, set[Session]] = {}  # those that were let in, by who they are
        self.position = self.position_durable = state.position
        self.position_logged = state.position  # of the last event in the log, or of one behind it
        self.end_logged = state.position + 1  # of what is in the log and on disk
        self.size_logged = 0  # bytes that went into the log since the start
        self.reads: list[StoreReader] = []  # see `take_reads`, and so on
        self.offloaded: list[BlockingCall] = []  # what is to be run in threads: see `take_offloaded`
        self.tallies: Tally[tuple[str, str]] = Tally()  # (what, reason) → how often
        self.recent: deque[Batch] = deque()
        self.recent_gone = 0  # batches that have been in it
        self._recent_size = 0
        self.ledger = Ledger(state.counters)
        self._first_epochs = self.ledger.latest_epochs(_FIRST)
        self.missed = Missed(self)
        self.services: list[Service] = []
        # Methods of those services that do something then; most do nothing.
        self._finishing: list[Callable[[], None]] = []
        self._noting_durable: list[Callable[[int], None]] = []
        self.operations: dict[str, tuple[Any, Callable[[IncomingRequest, Any], Any]]] = {}
        self.frames: dict[type[ProtocolMessage], FrameHandler] = {}
        self.watch: QueueWatch | None = None  # who has queues that can be watched
        self.open_link: LinkOpening | None = None  # who has links to other nodes
        self.patterns: PatternHost | None = None  # who finds matches of patterns
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
        self._sessions_made = 0
        self.cursors = Cursors(self, state)
        self.last_pages = LastPages(self)
        self.add(self.last_pages)
        self.add(Advertised(self))
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
        self._sessions_made += 1
        session = Session(self, f"{self.boot}-{self._sessions_made}", now, caller)
        self.sessions[session] = None
        self._silent.watch(session)
        self._names[session.name] = session
        self.count("connections")
        return session

    def forget(self, session: Session) -> None:
        """The connection of a session is gone."""
        self.sessions.pop(session, None)
        self._silent.cancel(session)
        self._names.pop(session.name, None)

    def session_named(self, name: str) -> Session | None:
        """The session of that name, if its connection is there."""
        return self._names.get(name)

    def supersede(self, name: str, origin: Origin) -> None:
        """A client has come again: what is still under way on the connection it had is not taken any more."""
        before = self._names.get(name)
        if before is not None and before.origin == origin:
            before.close("exists", "the client has come again on another connection")

    def greet(self, session: Session) -> None:
        """A client was let in."""
        self._clients.setdefault(identity_of(session.origin), set()).add(session)
        granted = _publishing(session.principal)
        if granted is not None:
            session.granted = self.exchange.grant(granted)

    def part(self, session: Session) -> None:
        """A client that was let in has gone."""
        identity = identity_of(session.origin)
        self._clients[identity].discard(session)
        if not self._clients[identity]:
            del self._clients[identity]
        if session.granted is not None:
            self.exchange.revoke(session.granted)

    def weigh(self) -> None:
        """Weigh sessions for what they hold without a tick. To be called now and then."""
        for session in [one for one in self.sessions if one.is_swollen or one.outbox.size]:
            session.weigh()
        self.memory.enforce()

    def late(self, now: float) -> Iterator[Session]:
        """The sessions that have to be woken, which is to be done before the next is asked for."""
        for session in list(self._silent.ended(now)):
            yield session
            self._silent.watch(session)

    def share_of(self, user: str, own: Share) -> Share:
        """The share of time that a user has with all sessions; the owner has one in each."""
        return self._shares.setdefault(user, own) if user else own

    def review(self) -> None:
        """The rules have changed: part from all clients who are not let in any more, or for other things."""
        for session in [one for one in self.sessions if one.is_let_in]:
            renewed = self.authenticator.renew(session.principal)
            if renewed is None:
                self.count("logins_denied", reason="revoked")
                session.close("not-allowed", "user or secret is wrong")
            elif renewed != session.principal:
                session.close("changed", "the rules have changed: come again")
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
            for session in self._clients.get(identity, ()):
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
        self._first_epochs = self.ledger.latest_epochs(_FIRST)
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
        self.recent.clear()
        self.memory.charge(self.memory.node, -self._recent_size)
        self._recent_size = 0
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

    # Publishing

    def publish(self, session: Session, raw: bytes, origin: Origin) -> Steps[None] | None:
        """Hand on what a session published, less what was had before; CodecError if it is not all events.

        The origin is that of the session, or of who has sent what it hands on. Steps are left to be run where
        it is much, or many want it.
        """
        checked = check(raw)
        count = len(checked.counters)
        if not count:
            return None
        batch = Batch(raw, origin, checked.offsets)
        if count > 1 and count > self.exchange.rows_at_first:
            return self._in_parts(batch, checked, partial(self._publish, session))
        return self._publish(session, batch, checked)

    def _in_parts(
        self, batch: Batch, checked: Checked, hand_on: Callable[[Batch, Checked], Steps[None] | None]
    ) -> Steps[None]:
        """Hand on a long batch part by part; a part that is not reached is not counted either.

        What matching costs is known when it is done: parts are small at first, and grow while they are quick.
        """
        clock, end, size = self.turns.clock, 0, self.exchange.rows_at_first
        while end < len(batch):
            begun = clock()
            start, end = end, min(end + size, len(batch))
            is_whole = end - start == len(batch)
            part = batch if is_whole else batch.slice(start, end)
            left = hand_on(part, checked if is_whole else checked.slice(start, end))
            size = adapted(size, clock() - begun, SLICE_S / 4, SLICE_S, self.exchange.rows_at_once)
            if left is not None:
                yield from left
            yield

    def _publish(self, session: Session, batch: Batch, checked: Checked) -> Steps[None] | None:
        had = self.admit(session, checked.counters)
        if had:
            batch = batch.slice(had, len(batch))
            checked = checked.slice(had, len(checked.counters))
        return self._hand_on(batch, checked, session) if len(batch) else None

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
        heard = self._clients.get(identity_of(stream.origin), ()) if session.is_closed else (session,)
        frame = encode(structs.replace(refusal, stream=stream.stream) if stream.stream else refusal)
        for one in heard:
            one.post(frame)

    def hand_on(
        self, batch: Batch, checked: Checked, stream: IncomingStream | None = None, waits: bool = False
    ) -> None:
        """Give events to all who want them, and store what must be stored of them.

        `stream` is that on which they came. `waits`: even those that are not stored are for nobody before
        this tick's commit is made.
        """
        left = self._hand_on(batch, checked, stream, waits)
        if left is not None:
            finish(left)

    def _hand_on(
        self, batch: Batch, checked: Checked, stream: IncomingStream | None = None, waits: bool = False
    ) -> Steps[None] | None:
        session = None if stream is None else stream.session
        matches = self.exchange.match(batch, session)
        if session is not None and (session.granted is not None or session.bound is not None):
            allowed = self._allowed(batch, session, matches)
            if stream is not None and len(allowed) < len(batch):
                self._hand_on_allowed(batch, checked, stream, allowed, waits)
                return None
        channels = _channels_of(batch, checked)
        if (channels or self.routes is not None) and stream is not None:
            refused = self._refusals(batch, stream, channels)
            if refused:
                self._hand_on_others(batch, checked, stream, refused.get, waits)
                return None
        return self._pass_on(batch, checked, matches, stream, waits, channels)

    def _refusals(
        self, batch: Batch, stream: IncomingStream, channels: Mapping[int, str]
    ) -> dict[int, TidingsError]:
        """The rows of a publication that can't be sent to inboxes, or to channels, and why not."""
        refused = self._lost_answers(batch, stream)
        if channels and self.channels is not None:
            refused |= self.channels.refusals(stream.session, batch, channels)
        return refused

    def _lost_answers(self, batch: Batch, stream: IncomingStream) -> dict[int, TidingsError]:
        """The rows of a publication that are answers which can't be sent to their inboxes, and why not."""
        if self.routes is None or batch.origin is not stream.origin:
            return {}
        problems = [
            (row, self.routes.problem(address, batch[row]))
            for row, address in self.answers.addresses(batch).items()
        ]
        return {row: Refused("no-way", problem) for row, problem in problems if problem}

    def relay(self, batch: RelayedBatch, checked: Checked, link: Hashable, session: Session) -> Steps[None]:
        """Give events that another node has handed on to all who want them, but not to the same `link`.

        Those that were not granted to the other node, whose session here is this one, are dropped.
        """
        return self._in_parts(batch, checked, partial(self._relay, link, session))

    def _relay(self, link: Hashable, session: Session, batch: Batch, checked: Checked) -> Steps[None] | None:
        assert isinstance(batch, RelayedBatch)
        if self.missed and (late := self.missed.late_rows(batch)):
            return self._relay_late(link, session, batch, checked, set(late))
        had = self._had(batch)
        if had:
            self._relay_again(link, session, batch.slice(0, had), checked.slice(0, had))
            if had == len(batch):
                return None
            batch, checked = batch.slice(had, len(batch)), checked.slice(had, len(batch))
        return self._relay_new(link, session, batch, checked)

    def _relay_new(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked
    ) -> Steps[None] | None:
        """Give events that were not had to all who want them."""
        batch, checked, matches = self._granted(link, session, batch, checked)
        if not len(batch):
            return None
        channels = _channels_of(batch, checked)
        return self._pass_on(batch, checked, matches, None, not checked.is_plain, channels)

    def _relay_late(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked, late: set[int]
    ) -> Steps[None]:
        """Hand on events of which some were reported as missed: these are new, and marked as late."""
        for is_late, group in groupby(range(len(batch)), late.__contains__):
            rows = list(group)
            part, facts = batch.take(rows), checked.take(rows)
            if is_late:
                self._had(part)
                self.missed.fill(part)
                part.is_late = True
                left = self._relay_new(link, session, part, facts)
            else:
                left = self._relay(link, session, part, facts)
            if left is not None:
                yield from left
            yield

    def had_up_to(self, node: str, epoch: int) -> float:
        """The number up to which all that is wanted here of a node's events was had, in an epoch of it."""
        system = f"{_FIRST}{node}"
        if epoch < self._first_epochs.get(system, 0):
            return inf
        return self.ledger.counter_of(Origin(system, epoch))

    def _granted(
        self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked
    ) -> tuple[RelayedBatch, Checked, MatchedRows]:
        """Return what of relayed events was granted to the other node, and who wants that."""
        matches = self.exchange.match(batch, link)
        if session.granted is not None:
            allowed = next((rows for one, rows in matches if one is session.granted), ())
            if len(allowed) < len(batch):
                self.count("relays_refused", len(batch) - len(allowed), "not-allowed")
                batch, checked = batch.take(allowed), checked.take(allowed)
                matches = self.exchange.match(batch, link)
        return batch, checked, matches

    def _relay_again(self, link: Hashable, session: Session, batch: RelayedBatch, checked: Checked) -> None:
        """Give events that were had before to those neighbours that may lack them."""
        matches: MatchedRows = []
        if batch.is_again and not batch.first.is_volatile:
            batch, checked, matches = self._granted(link, session, batch, checked)
            matches = self.routed(batch, matches, is_stored=True)
            matches = [one for one in matches if one[0] in self.changed_links]
            batch.is_had = True
        if not matches:
            self.count("relays_refused", len(batch), "had")
            return
        self.count("relayed_again", len(batch))
        if checked.noted & _KEEP_S:
            checked = faded(batch, checked)
        # What is stored no longer does not overtake what is.
        positions = self._keep(batch, checked, matches) or [None] * len(batch)
        published = PublishedEvents(batch, checked.counters, None, checked.deliveries)
        self._deliver(published, matches, positions)

    def _had(self, batch: RelayedBatch) -> int:
        """Count the numbers of relayed events; how many of these were had before, by whichever way."""
        first, numbers = batch.first, batch.numbers
        system = f"{_FIRST}{first.node}{'~' if first.is_volatile else ''}"
        stream, latest = Origin(system, first.epoch), self._first_epochs.get(system, 0)
        if first.epoch < latest:
            return len(numbers)
        self._first_epochs[system] = first.epoch
        highest = self.ledger.count_up(stream, int(numbers[-1]))
        if not first.is_volatile:
            self.ledger.keep(stream)
        return 0 if numbers[0] > highest else bisect_right(numbers, highest)

    def _pass_on(
        self,
        batch: Batch,
        checked: Checked,
        matches: MatchedRows,
        stream: IncomingStream | None,
        waits: bool,
        channels: Mapping[int, str],
    ) -> Steps[None] | None:
        """Store what must be stored of events, and deliver them to those that match.

        `channels` has the rows that are for the members of channels.
        """
        if channels or self.routes is not None:
            matches = self._routed(batch, matches, channels, is_stored=False)
        if not isinstance(self.authenticator, OpenAuthenticator):
            matches = self.answers.heard(batch, matches)
        if checked.noted & _KEEP_S and not checked.is_plain:
            checked = faded(batch, checked)
        positions = self._keep(batch, checked, matches)
        if waits and positions is None:
            positions = [None] * len(batch)
        if positions is not None and stream is not None:
            stream.accept_mark = self.mark
            if batch.origin is not stream.origin:
                self.ledger.keep(stream.origin)  # the events themselves count for nobody
        self.count("published", len(batch))
        self._show(batch, checked, positions, channels)
        published = PublishedEvents(batch, checked.counters, stream, checked.deliveries)
        if positions is None and len(matches) > DELIVERIES_FEW:
            total = DELIVERIES_FEW * len(matches) + sum(map(len, map(_rows_of, matches)))
            if total > DELIVERED_AT_ONCE:
                parts = self._deliver_parts(published, matches, self.exchange.ended)
                next(parts)  # from here on it is delivered to all, whoever goes
                return parts
        self._deliver(published, matches, positions)
        batch.forget()
        return None

    def _show(
        self, batch: Batch, checked: Checked, positions: list[int | None] | None, hidden: Collection[int]
    ) -> None:
        """Keep the newest batches, and let those have events who look at them later.

        The rows for the members of channels are left out.
        """
        if hidden:
            rows = [row for row in range(len(batch)) if row not in hidden]
            if not rows:
                return
            batch = batch.take(rows)
            positions = None if positions is None else [positions[row] for row in rows]
        self.recent.append(batch)
        memory, size = self.memory, self._recent_size + len(batch.raw)
        while size > RECENT_SIZE_MAX or size > memory.recent_max:
            size -= len(self.recent.popleft().raw)
            self.recent_gone += 1
        memory.node.used += size - self._recent_size
        self._recent_size = size
        if checked.noted & _SUBJECT and not checked.is_plain:
            self.last_pages.remember(batch)
        if self.exchange.later:
            for later in self.exchange.later:
                later.put(batch, positions)

    def routed(self, batch: Batch, matches: MatchedRows, is_stored: bool = False) -> MatchedRows:
        """Return the matches of a batch, with answers to inboxes and events of channels on their own ways.

        `is_stored`: it was published before, and is read from the store.
        """
        return self._routed(batch, matches, channels_in(batch), is_stored)

    def _routed(
        self, batch: Batch, matches: MatchedRows, channels: Mapping[int, str], is_stored: bool
    ) -> MatchedRows:
        if channels and self.channels is not None:
            matches = self.channels.routed(channels, matches)
        addresses = {} if self.routes is None else self.answers.addresses(batch)
        if self.routes is None or not addresses:
            return matches
        return self.routes.routed(batch, addresses, matches, is_stored)

    def _deliver(
        self, published: PublishedEvents, matches: MatchedRows, positions: list[int | None] | None
    ) -> None:
        before, self.published = self.published, published  # a delivery may lead to another
        batch = published.batch
        for subscription, rows in matches:
            subscription.sink.deliver(batch, rows, positions)
        self.published = before

    def _deliver_parts(self, published: PublishedEvents, matches: MatchedRows, ended: int) -> Steps[None]:
        """Deliver what is not stored to some at a time; what has a position goes to all at once, in order.

        What a delivery costs is known when it is done, as some consumers look at each event and some do not.
        `ended` is how many subscriptions had ended when it was matched: some of these may since. If the
        publisher goes meanwhile, which may have got the acceptance, the rest is delivered beside.
        """
        clock, end, size = self.turns.clock, 0, 1
        while end < len(matches):
            begun = clock()
            start, end = end, end + size
            part = matches[start:end]
            if self.exchange.ended != ended:
                part = [one for one in part if not one[0].is_over]
            self._deliver(published, part, None)
            size = adapted(size, clock() - begun, SLICE_S / 8, SLICE_S / 4, len(matches))
            try:
                yield
            except GeneratorExit:
                self.background.add(self._deliver_parts(published, matches[end:], ended))
                raise
        published.batch.forget()

    def _allowed(self, batch: Batch, session: Session, matches: MatchedRows) -> Rows:
        """The rows of a batch that a session may publish."""
        allowed: Rows = range(len(batch))
        if session.granted is not None:
            allowed = next((rows for one, rows in matches if one is session.granted), ())
        if session.bound is None:
            return allowed
        return self.answers.allowed(session.bound, batch, allowed, self.now)

    def _hand_on_allowed(
        self, batch: Batch, checked: Checked, stream: IncomingStream, allowed: Rows, waits: bool
    ) -> None:
        """Hand on what a session may publish of a batch, and refuse the rest."""
        kept, session = set(map(int, allowed)), stream.session

        def error(row: int) -> TidingsError | None:
            return None if row in kept else NotAllowed(self.refusal(session, batch, row))

        self._hand_on_others(batch, checked, stream, error, waits)

    def _hand_on_others(
        self,
        batch: Batch,
        checked: Checked,
        stream: IncomingStream,
        error_of: Callable[[int], TidingsError | None],
        waits: bool,
    ) -> None:
        """Hand on the rows of a batch that have no error, and refuse the others."""
        errors = {row: error for row in range(len(batch)) if (error := error_of(row)) is not None}
        problems = {row: str(error) for row, error in errors.items()}
        for problem, rows in groupby(range(len(batch)), problems.get):
            run = list(rows)
            if problem is None:
                part = checked.slice(run[0], run[-1] + 1)
                self.hand_on(batch.take(run), part, stream, waits)
            else:
                first, last = (int(checked.counters[row]) for row in (run[0], run[-1]))
                self.refuse(stream, first, last, errors[run[0]])

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

    def announce(self, event: Event) -> None:
        """Publish an event of the node itself."""
        batch = Batch.of([self.own(event)])
        self.hand_on(batch, check(batch.raw))

    def _keep(self, batch: Batch, checked: Checked, matches: MatchedRows) -> list[int | None] | None:
        """Store what must be stored of a batch; the positions by row, None if it waits for no commit.

        That reliable events were counted is stored even if nobody wants them: sent again after a crash, they
        would be delivered twice.
        """
        if checked.is_plain:
            for subscription, rows in matches:
                if subscription.sink.need(len(rows)) is not _NOTHING:
                    break
            else:
                return None
        is_own = not isinstance(batch, RelayedBatch)  # else its first node has it in the log
        codes = b"" if checked.is_plain or not is_own else checked.deliveries
        persistent = {row for row, code in enumerate(codes) if code == _PERSISTENT}
        elsewhere, logged, wanted = set[int](), set[int](), set[int]()
        for subscription, rows in matches:
            need = subscription.sink.need(len(rows))
            if need is _NOTHING or (need is _LOGGED and not is_own):
                continue
            if need is _ELSEWHERE:
                if persistent and isinstance(subscription.sink, OutwardSink):
                    elsewhere.update(subscription.sink.outward(batch, rows))
            elif need is not _RELIABLE:
                wanted.update(rows)
                if need is _LOGGED:
                    logged.update(rows)
            elif not checked.is_plain:
                wanted.update(row for row in rows if checked.deliveries[row])
        persistent = (persistent - elsewhere) | logged
        wanted |= persistent
        if not wanted and checked.is_plain:
            return None
        positions: list[int | None] = [None] * len(batch)
        for is_persistent, run in groupby(sorted(wanted), persistent.__contains__):
            self._append(batch, list(run), is_persistent, positions)
        self.ledger.keep(batch.origin or Origin())
        return positions

    def _append(self, batch: Batch, rows: list[int], persistent: bool, positions: list[int | None]) -> None:
        """Store rows that follow each other in the batch, though not at once: positions grow with rows.

        What is large is stored in pieces, each with a checksum of its own: damage costs one of them.
        """
        for place, row in enumerate(rows, self.position + 1):
            positions[row] = place
        for piece in batch.cut(rows, STORED_SIZE_MAX):
            self._append_piece(piece, persistent)

    def _append_piece(self, batch: Batch, persistent: bool) -> None:
        first, raw = self.position + 1, batch.raw
        self.position += len(batch)
        if persistent:
            self.position_logged = self.position
        origin = batch.origin or Origin()
        self.size_logged += len(raw) if persistent else 0
        age_us, provenance = 0, b""
        if isinstance(batch, RelayedBatch):
            age_us, provenance = batch.age_us, batch.provenance
        stored = StoredBatch(
            first,
            len(batch),
            origin.system,
            origin.epoch,
            origin.source,
            int(self.wall * 1e6) - age_us,
            persistent,
            raw,
            provenance,
        )
        self._operations.append(Append(stored))

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


def let_work(worker: Anyone, until: float) -> bool:
    """Let one work whose turn it is, where nobody has to survive what goes wrong with it."""
    return worker.work(until)


def _publishing(principal: Principal) -> Filter | None:
    """Return the filter of what a user may publish, None for everything."""
    try:
        return principal.grant("publish")
    except NotAllowed:
        return ~Filter()


def _channels_of(batch: Batch, checked: Checked) -> Mapping[int, str]:
    """Return the rows that are for the members of channels, and which; few batches are searched."""
    return channels_in(batch) if checked.noted & _CHANNEL else _NO_CHANNELS
