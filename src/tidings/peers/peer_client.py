"""The client of one peer: sends requests and settlements over its connection, and receives copies.

The peer answers as a node answers any client, and its errors are passed on unchanged; `PeerQueue` calls the
queue `name@node` in them. Messages are held there by this node, whose connection numbers its items and
repeats them after a cut. During a cut a `get` waits for as long as it may, any other request for AWAY_S; one
that can't wait fails at once, as the node is away. Describing a queue then returns its last known
description.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tidings.errors import CodecError, Disconnected, TidingsError
from tidings.peers.outbound_stream import SharedConnection
from tidings.peers.registry import Peer
from tidings.protocol.calls import Call
from tidings.protocol.connection import Connection
from tidings.protocol.messages import error_of
from tidings.queues.arguments import GetRequest
from tidings.queues.backend import NOTHING, GetReply
from tidings.queues.description import Description, read_description
from tidings.replies import Deferred, failed
from tidings.timers import Alarm, Alarms

AWAY_S = 5.0
"""How long a peer that is away is waited for by what can't be put off."""
DESCRIBE_S = 2.0
"""How long a peer that is there may take to describe its queues."""
ANSWER_S = 8.0
"""How long it may take to answer beyond the time that it was given."""
KNOWN_MAX = 1_000
"""Descriptions of a peer's queues that are remembered for when it is away."""


class PeerClient:
    """Client of one peer, across all connections to it.

    Its driver calls `begin` with each further connection, and `changed` after each input to that.
    """

    def __init__(
        self, peer: Peer, timers: Alarms, clock: Callable[[], float], connection: Connection
    ) -> None:
        self.peer = peer
        self.timers = timers
        self.clock = clock
        self.flush: Callable[[], None] = lambda: None
        """Has the driver send what was said; called after each thing."""
        self.connection = connection
        self.shared = SharedConnection(connection, lambda: self.flush())
        """The same connection, for the streams that are forwarded to the peer."""
        self.known: dict[str, Description] = {}
        self._asked: dict[PeerCall, None] = {}
        self._settling: deque[tuple[int, Deferred[None]]] = deque()
        self._was_up = False
        self._is_given_up = True  # it has been away for too long to be waited for

    # What the driver calls

    def begin(self, connection: Connection) -> None:
        """Talk over this connection from now on; the one before has failed."""
        self._fail_settling()
        self.connection = connection
        self._was_up = False
        self.shared.move(connection)

    def changed(self) -> None:
        """Take note of a change: data has arrived, or the connection was lost or restored."""
        self._settle_accepted()
        if self.connection.failure is not None:
            self._fail_settling()
        if self.is_up is self._was_up:
            return
        self._was_up = self.is_up
        self.timers.cancel(self._give_up)
        if self.is_up:
            self._is_given_up = False
        else:
            self.timers.at(self.clock() + AWAY_S, self._give_up)

    @property
    def is_up(self) -> bool:
        """Whether the peer can be asked now."""
        return self.connection.is_up and self.peer.is_there

    def away(self, problem: str = "") -> Disconnected:
        """The error that says so."""
        why = problem or self.peer.error
        return Disconnected(f"node {self.peer.name} is away{f': {why}' if why else ''}")

    def _give_up(self, _now: float) -> None:
        self._is_given_up = True
        self._fail_settling()
        for asked in list(self._asked):
            asked.give_up(self.away())

    def forget(self, call: PeerCall) -> None:
        """A request is answered, or given up."""
        self._asked.pop(call, None)

    # Requests

    def ask(self, operation: str, arguments: dict[str, Any], wait_s: float) -> Deferred[Any]:
        """Have the peer do something that may be done twice, within this time; Disconnected if it is not."""
        if not self.is_up and (self._is_given_up or wait_s == 0):
            return failed(self.away())
        asking = PeerCall(self, operation, arguments, wait_s)
        self._asked[asking] = None
        asking.begin()
        return asking.reply

    def describe(self, queue: str) -> Deferred[Description]:
        """Describe a queue; with its last known description, if the peer is away."""
        reply: Deferred[Description] = Deferred()

        def fail(error: TidingsError) -> None:
            if isinstance(error, Disconnected):
                reply.resolve(self.last_known(queue))
            else:
                reply.fail(error)

        # By the id of the node, so that it asks nobody else.
        asked = self.ask("queue.describe", {"queue": f"{queue}@{self.peer.node}"}, DESCRIBE_S)
        asked.map(self.learn).then(reply.resolve, fail)
        return reply

    def learn(self, description: Any) -> Description:
        """Return a description that the peer has sent; CodecError if it is none."""
        found = replace(read_description(description), node=self.peer.name, is_away=False)
        self.known.pop(found.name, None)
        self.known[found.name] = found
        if len(self.known) > KNOWN_MAX:
            del self.known[next(iter(self.known))]
        return found

    def last_known(self, queue: str) -> Description:
        """Return the last known description of a queue while the peer is away."""
        known = self.known.get(queue) or Description(name=queue)
        return replace(known, node=self.peer.name, is_away=True)

    def get(self, queue: str, wanted: GetRequest) -> Deferred[GetReply]:
        """Get messages; one that is cancelled gives back what it has got."""
        if not self.is_up and wanted.is_final:
            return failed(self.away())
        arguments = msgspec.to_builtins(replace(wanted, queue=queue))
        getting = PeerGet(self, "get", arguments, wanted.wait_s)
        getting.begin()
        return getting.reply

    # What becomes of messages

    def settle(
        self, number: int, delivery: int, outcome: int, text: str, delay_s: float | None = None
    ) -> Deferred[None]:
        """Settle a message; the reply comes when the peer has it, or may not have it."""
        if self.connection.failure is not None:
            return failed(self.away())
        reply: Deferred[None] = Deferred()
        counter = self.connection.settle(number, delivery, outcome, text, delay_s)
        if self._is_given_up and not self.is_up:
            reply.fail(self.away("the settlement of the message is sent when it is back"))
        else:
            self._settling.append((counter, reply))
        self.flush()
        return reply

    def _settle_accepted(self) -> None:
        publications = self.connection.publications
        while self._settling and self._settling[0][0] <= publications.accepted:
            counter, reply = self._settling.popleft()
            failure = publications.refusal(counter)
            reply.take(None, None if failure is None else error_of(failure))

    def _fail_settling(self) -> None:
        settling, self._settling = self._settling, deque()
        for _, reply in settling:
            reply.fail(self.away("whether it has the settlement of the message is not known"))


class PeerCall:
    """A request to a peer that is answered once, at the latest when its time is up."""

    def __init__(
        self, relay: PeerClient, operation: str, arguments: dict[str, Any], wait_s: float | None
    ) -> None:
        self.reply: Deferred[Any] = Deferred(partial(self.give_up, None))
        self._relay = relay
        self._operation = operation
        self._arguments = arguments
        self._wait_s = wait_s
        self._call: Call | None = None
        self._connection = relay.connection
        self._session = relay.connection.session
        self._timer: Alarm | None = None

    def begin(self) -> None:
        """Ask, now or when the peer is back."""
        relay = self._relay
        try:
            self._call = self._connection.request(self._operation, self._arguments, "again")
        except TidingsError as error:
            self.fail(error)
            return
        self._call.then(self._answered, self.fail)
        if self._wait_s is not None:
            self._timer = relay.timers.at(relay.clock() + self._wait_s, self._late)
        relay.flush()

    def _answered(self, result: Any) -> None:
        self.finish(result, None)

    def fail(self, error: TidingsError) -> None:
        """Fail the request; what the connection ended with is that the peer is away."""
        is_over = self._connection.failure is error
        self.finish(None, self._relay.away(str(error)) if is_over else error)

    def _late(self, _now: float) -> None:
        self.give_up(self._relay.away(f"it has not answered within {self._wait_s:g} s"))

    def give_up(self, error: TidingsError | None, result: Any = None) -> None:
        """Wait no longer."""
        if self._call is not None:
            self._cancel(self._call)
        self.finish(result, error)

    def _cancel(self, call: Call) -> None:
        call.cancel()

    def finish(self, result: Any, error: TidingsError | None) -> None:
        """Reply, once."""
        self._relay.timers.cancel(self._timer)
        self._timer = None
        self._relay.forget(self)
        self.reply.take(result, error)


class PeerGet(PeerCall):
    """A request for messages: what it got is given back if nobody takes it.

    The peer waits for the requested time, anew after each cut; so the time is watched here.
    """

    def _answered(self, result: Any) -> None:
        try:
            self.finish(msgspec.convert(result, GetReply, builtin_types=(bytes,)), None)
        except msgspec.ValidationError as wrong:
            self.give_up(CodecError("$.get", str(wrong)))

    def _late(self, now: float) -> None:
        relay = self._relay
        if not relay.is_up:
            super()._late(now)
        elif self._connection.session != self._session:
            self.give_up(None, NOTHING)
        else:
            self._timer = relay.timers.at(now + ANSWER_S, super()._late)

    def _cancel(self, call: Call) -> None:
        self._connection.cancel_get(call.number)
        self._relay.flush()
