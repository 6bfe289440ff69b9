"""Forwarders of a node: one for each transmission queue that has something in it.

All that go to one peer share the connection to it, on which each has streams of its own: a queue that is
full, or slow, holds up no other. The upstream of a device is no peer, and has a connection for itself
(`UpstreamOutbound`). What goes over the streams is decided by the forwarder (`peers.forwarder`); here it is
decided which forwarders there are: at most FORWARDERS_MAX, each until it has had nothing to do for IDLE_S.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.errors import TidingsError
from tidings.ids import ClockIds
from tidings.peers.dialling import Dialling, OutboundConnection, PeerReach
from tidings.peers.forwarder import Forwarder
from tidings.peers.outbound_stream import OutboundStream, SharedConnection
from tidings.peers.registry import ForwardOrder, Upstream
from tidings.peers.transmission import OutgoingMessage, Transmission
from tidings.protocol.connection import Connection
from tidings.timers import Alarm

FORWARDERS_MAX = 1_000
"""Forwarders at one time; further queues wait until one has nothing to do."""
IDLE_S = 60.0
"""How long a forwarder stays at least when its queue is empty."""


class UpstreamOutbound(OutboundConnection):
    """The connection to the upstream of a device, and those after it."""

    connection: Connection

    def __init__(self, dialling: Dialling, upstream: Upstream, system: str) -> None:
        self._upstream = upstream
        self._system = system
        self.connection = self._new_connection(dialling.now())
        super().__init__(dialling, self.connection)
        self.shared = SharedConnection(self.connection, self.touch)

    def _new_connection(self, now: float) -> Connection:
        return Connection(ClockIds(self._system, now), says=self._upstream.credentials.says)

    @property
    def reach(self) -> PeerReach:
        """Return the address of the upstream."""
        return PeerReach(self._upstream.address, self._upstream.credentials)

    def begin(self) -> None:
        """Dial; with a new connection, if the node has refused the one before."""
        if self.connection.failure is not None:
            self.connection = self._talk = self._new_connection(self._dialling.now())
            self.shared.move(self.connection)
        super().begin()

    def end(self) -> None:
        """Say goodbye."""
        self.connection.close()
        super().end()

    def _refusal(self, _certificate: str | None) -> str:
        return ""

    def _heard(self) -> None:
        """Nothing: the streams hear for themselves."""

    def _lost(self, problem: str, _verdict: TidingsError | None, was_open: bool) -> None:
        core = self.connection
        if was_open:
            problem = str(core.failure or core.parting or core.trouble or problem)
        core.lost(self._dialling.now())
        self.shared.trouble(problem)


class ForwarderRun:
    """One forwarder and its streams."""

    def __init__(
        self, dialling: Dialling, outgoing: OutgoingMessage, shared: SharedConnection, order: ForwardOrder
    ) -> None:
        self.outgoing = outgoing
        self.forwarder = Forwarder(outgoing, order)
        self.forwarder.on_change, self.forwarder.trouble = self._carry, self._troubled
        self.was_idle = False
        self._dialling = dialling
        self._shared = shared
        self._attached: dict[OutboundStream, None] = {}
        self._carry()

    def _carry(self) -> None:
        """Have those streams open that are to be, and let what was said be sent."""
        wanted = self.forwarder.senders
        for sender in [one for one in self._attached if one not in wanted]:
            del self._attached[sender]
            self._shared.detach(sender)
        for sender in wanted:
            if sender not in self._attached:
                self._attached[sender] = None
                self._shared.attach(sender)
        self._shared.flush()

    def _troubled(self, problem: str) -> None:
        """Something is wrong with the way to the other node: what was put is safe here."""
        outgoing = self.outgoing
        if not self.forwarder.is_closed:
            if problem != outgoing.error:
                self._dialling.log("warning", "can't forward", queue=outgoing.queue.name, problem=problem)
            outgoing.error = problem
            outgoing.answer_all()

    def ask_again(self) -> None:
        """Have those streams opened that the other node has denied."""
        for sender in [one for one in self._attached if one.is_denied]:
            self._shared.detach(sender)
            self._shared.attach(sender)


class Forwarding:
    """Forwarders of a node. `way` finds the connection to the peer of a name, None if there is none.

    `system` is this node's id as a client of its upstream, in this life.
    """

    def __init__(
        self,
        transmission: Transmission,
        dialling: Dialling,
        way: Callable[[str], SharedConnection | None],
        system: str,
    ) -> None:
        self._transmission = transmission
        self._dialling = dialling
        self._way = way
        self._system = system
        self._upstream: tuple[OutgoingMessage, UpstreamOutbound, ForwardOrder] | None = None
        self._runs: dict[OutgoingMessage, ForwarderRun] = {}
        self._is_closed = False
        self._timer: Alarm | None = None  # while there are any
        transmission.begin = self._begin

    def go_upstream(self, upstream: Upstream | None) -> None:
        """Have what is published go on to another node; or to none any more, what waits for it being kept."""
        if upstream is None:
            self._transmission.unbind()
            return
        outgoing = self._transmission.bind(upstream.filter)
        outbound = UpstreamOutbound(self._dialling, upstream, self._system)
        self._upstream = outgoing, outbound, upstream.order
        self._begin(outgoing)
        outbound.begin()

    def _begin(self, outgoing: OutgoingMessage) -> None:
        """Let a queue be emptied, if its messages can go anywhere."""
        if self._is_closed or outgoing in self._runs:
            return
        found = self._find(outgoing)
        if found is None or len(self._runs) >= FORWARDERS_MAX:
            outgoing.error = "there is no such peer" if found is None else "too many others are forwarded"
            outgoing.answer_all()
            return
        self._runs[outgoing] = ForwarderRun(self._dialling, outgoing, *found)
        if self._timer is None:
            self._look_later()

    def _find(self, outgoing: OutgoingMessage) -> tuple[SharedConnection, ForwardOrder] | None:
        if self._upstream is not None and outgoing is self._upstream[0]:
            return self._upstream[1].shared, self._upstream[2]
        way = self._way(outgoing.peer) if outgoing.target else None
        return None if way is None else (way, "oldest")

    def _look_later(self) -> None:
        self._timer = self._dialling.timers.at(self._dialling.now() + IDLE_S, self._look)

    def _look(self, _now: float) -> None:
        """End the forwarders that had nothing to do for as long as they may stay."""
        for outgoing, run in list(self._runs.items()):
            is_kept = self._upstream is not None and outgoing is self._upstream[0]
            if run.forwarder.is_closed or (run.was_idle and run.forwarder.is_idle and not is_kept):
                del self._runs[outgoing]
                run.forwarder.close()
            run.was_idle = run.forwarder.is_idle
            run.ask_again()
        self._timer = None
        if self._runs:
            self._look_later()

    @property
    def has_work(self) -> bool:
        """Whether anything waits that is being forwarded."""
        return any(not run.forwarder.is_closed and not run.forwarder.is_idle for run in self._runs.values())

    def close(self) -> None:
        """Forward no more; what is under way goes on when the node is started again."""
        self._is_closed = True
        self._dialling.timers.cancel(self._timer)
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.forwarder.close()
        if self._upstream is not None:
            self._upstream[1].end()
