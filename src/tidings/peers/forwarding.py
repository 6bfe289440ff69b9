"""Forwarders of a node: one for each transmission queue that has something in it.

Each has connections of its own, so a queue that is full, or slow, holds up no other. What goes over them is
decided by the forwarder (`peers.forwarder`); here it is decided which forwarders there are: at most
FORWARDERS_MAX, each until it has had nothing to do for IDLE_S.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.errors import TidingsError
from tidings.exchange import NodeSubscription
from tidings.peers.dialling import Dialling, OutboundConnection, PeerReach
from tidings.peers.forwarder import Forwarder
from tidings.peers.outbound_stream import OutboundStream
from tidings.peers.registry import ForwardOrder, Upstream
from tidings.peers.transmission import OutgoingMessage, Transmission
from tidings.timers import Alarm

FORWARDERS_MAX = 1_000
"""Forwarders at one time; further queues wait until one has nothing to do."""
IDLE_S = 60.0
"""How long a forwarder stays at least when its queue is empty."""


class StreamOutbound(OutboundConnection):
    """The connection of one stream of a forwarder, and those after it."""

    def __init__(
        self, dialling: Dialling, sender: OutboundStream, reach: PeerReach, tell: Callable[[str], None]
    ) -> None:
        """`tell` is called with each thing that goes wrong, and with nothing when something has come."""
        super().__init__(dialling, sender)
        self._sender = sender
        self._reach = reach
        self._tell = tell

    @property
    def reach(self) -> PeerReach:
        """Return the address of the other node."""
        return self._reach

    def _refusal(self, certificate: str | None) -> str:
        is_right = self._reach.name is None or certificate in (None, self._reach.name)
        return "" if is_right else f"its certificate is that of {certificate!r}"

    def _heard(self) -> None:
        self._tell("")

    def _lost(self, problem: str, _verdict: TidingsError | None, was_open: bool) -> None:
        self._tell(str(self._sender.trouble or problem) if was_open else problem)
        self._sender.lost()


class ForwarderRun:
    """One forwarder and its connections."""

    def __init__(
        self, dialling: Dialling, outgoing: OutgoingMessage, reach: PeerReach, order: ForwardOrder
    ) -> None:
        self.outgoing = outgoing
        says = None if reach.credentials is None else reach.credentials.says
        self.forwarder = Forwarder(outgoing, order, says)
        self.forwarder.tell = self._carry
        self.was_idle = False
        self._dialling = dialling
        self._reach = reach
        self._outbound: dict[OutboundStream, StreamOutbound] = {}
        self._carry()

    def _carry(self) -> None:
        """Have those streams connected that are to be, and let what was said be sent."""
        wanted = self.forwarder.senders
        for sender in [one for one in self._outbound if one not in wanted]:
            self._outbound.pop(sender).end()
        for sender in wanted:
            if sender not in self._outbound:
                outbound = StreamOutbound(self._dialling, sender, self._reach, self._told)
                self._outbound[sender] = outbound
                outbound.begin()
            self._outbound[sender].look()

    def _told(self, problem: str) -> None:
        """Something has come from the other node, or something is wrong with the way there."""
        outgoing = self.outgoing
        if problem and not self.forwarder.is_closed:
            if problem != outgoing.error:
                self._dialling.log("warning", "can't forward", queue=outgoing.queue.name, problem=problem)
            outgoing.error = problem
            outgoing.tell_all()
        elif self.forwarder.is_attended:
            outgoing.error = ""


class Forwarding:
    """Forwarders of a node. `reach` finds the peer of a name, None if there is none."""

    def __init__(
        self, transmission: Transmission, dialling: Dialling, reach: Callable[[str], PeerReach | None]
    ) -> None:
        self._transmission = transmission
        self._dialling = dialling
        self._reach = reach
        self._upstream: tuple[OutgoingMessage, PeerReach, ForwardOrder] | None = None
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
        self._upstream = outgoing, PeerReach(upstream.address, upstream.credentials), upstream.order
        self._begin(outgoing)

    def way_back(self, node: str) -> NodeSubscription | None:
        """The subscription by which what is published goes to the node of this id."""
        outgoing = None if self._upstream is None else self._upstream[0]
        return outgoing.queue.binding if outgoing is not None and outgoing.node == node else None

    def _begin(self, outgoing: OutgoingMessage) -> None:
        """Let a queue be emptied, if its messages can go anywhere."""
        if self._is_closed or outgoing in self._runs:
            return
        found = self._find(outgoing)
        if found is None or len(self._runs) >= FORWARDERS_MAX:
            outgoing.error = "there is no such peer" if found is None else "too many others are forwarded"
            outgoing.tell_all()
            return
        self._runs[outgoing] = ForwarderRun(self._dialling, outgoing, *found)
        if self._timer is None:
            self._look_later()

    def _find(self, outgoing: OutgoingMessage) -> tuple[PeerReach, ForwardOrder] | None:
        if self._upstream is not None and outgoing is self._upstream[0]:
            return self._upstream[1:]
        reach = self._reach(outgoing.peer) if outgoing.target else None
        return None if reach is None else (reach, "oldest")

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
