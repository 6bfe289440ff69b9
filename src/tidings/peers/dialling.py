"""Connections that a node makes itself: when it dials, what it does with the answer, and when it dials again.

It does no I/O. What is to be done comes out as effects, which a driver carries out in their order: `Dial`,
`HangUp`, and `LogEvent` for what people should know. A driver calls `answered`, `receive` and `lost` of an
`OutboundConnection` as things happen, and sends what `take_due` names.

| state | what happens | effect | state then |
| --- | --- | --- | --- |
| resting | begun, or the pause is over | Dial | dialling |
| dialling | answered, by whom it should be | | open |
| dialling | answered by someone else | HangUp | resting |
| dialling, open | lost | | resting |
| open | given up: silent, or has said goodbye | HangUp | resting |
| dialling, open | ended | HangUp | over |
| resting | ended | | over |

A connection that was hung up is gone at once: a driver reports nothing more of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from tidings.errors import TidingsError
from tidings.protocol.connection import Connection
from tidings.timers import Alarm, Alarms, Backoff
from tidings.transport.credentials import Credentials

DialState = Literal["resting", "dialling", "open", "over"]
LogLevel = Literal["info", "warning", "error"]

LOST = "the connection was lost"
SILENT = "it has fallen silent"


class PeerReach(NamedTuple):
    """Address of another node, this node's credentials there, and the name its certificate must have."""

    address: str
    credentials: Credentials | None = None
    name: str | None = None


class Dial(Struct, frozen=True, eq=False):
    """Connect to the node at `outbound.reach`."""

    outbound: OutboundConnection


class HangUp(Struct, frozen=True, eq=False):
    """End the connection, or the attempt to make it, when what was sent has left."""

    outbound: OutboundConnection


class LogEvent(Struct, frozen=True):
    """Log what has happened."""

    level: LogLevel
    event: str
    values: dict[str, Any]


DialEffect = Dial | HangUp | LogEvent


class Dialling:
    """All connections that a node makes, and what is to be done about them.

    `now` is the time of the node, `random` gives numbers from 0 to 1.
    """

    def __init__(self, timers: Alarms, now: Callable[[], float], random: Callable[[], float]) -> None:
        self.timers = timers
        self.now = now
        self.random = random
        self.is_due = False  # whether there is anything for a driver to do, which asks that very often
        self._effects: list[DialEffect] = []
        self._due: dict[OutboundConnection, None] = {}

    def take_due(self) -> list[OutboundConnection]:
        """Return the connections that may have output, to be sent before the effects are carried out."""
        due, self._due = list(self._due), {}
        self.is_due = bool(self._effects)
        return due

    def take_effects(self) -> list[DialEffect]:
        """Return the effects, in this order."""
        effects, self._effects = self._effects, []
        self.is_due = bool(self._due)
        return effects

    def touch(self, outbound: OutboundConnection) -> None:
        """One may have something to send."""
        self._due[outbound] = None
        self.is_due = True

    def want(self, effect: DialEffect) -> None:
        """Have something done by the driver."""
        self._effects.append(effect)
        self.is_due = True

    def log(self, level: LogLevel, event: str, **values: Any) -> None:
        """Log what has happened."""
        self.want(LogEvent(level, event, values))


class OutboundConnection(ABC):
    """One connection that is made, and made again when it is lost, until `end`; see the module.

    A subclass says where to, and reacts to what happens: `reach`, `_refusal`, `_heard`, `_lost`.
    """

    is_given_up = False  # a driver gets the order to hang up, and does not look

    def __init__(self, dialling: Dialling, talk: Connection) -> None:
        self.state: DialState = "resting"
        self._dialling = dialling
        self._talk = talk
        self._backoff = Backoff(dialling.random)
        self._timer: Alarm | None = None

    @property
    @abstractmethod
    def reach(self) -> PeerReach:
        """Return the address to dial now."""

    @abstractmethod
    def _refusal(self, certificate: str | None) -> str:
        """Why the node that answered, with this name in its certificate, is refused; empty if it is not."""

    @abstractmethod
    def _heard(self) -> None:
        """Note that something has arrived."""

    @abstractmethod
    def _lost(self, problem: str, verdict: TidingsError | None, was_open: bool) -> None:
        """The connection is gone, or could not be had; `verdict`: why the next one would not be either."""

    def _pause_s(self) -> float:
        """Return the pause before the next attempt."""
        return self._backoff.next_s()

    # Life

    @property
    def is_over(self) -> bool:
        """Whether it was ended."""
        return self.state == "over"

    def begin(self) -> None:
        """Dial."""
        self.state = "dialling"
        self._dialling.want(Dial(self))

    def end(self) -> None:
        """Be over, when what there is to say was said."""
        self._dialling.timers.cancel(self._timer)
        if self.state in ("dialling", "open"):
            self._dialling.want(HangUp(self))
            self.touch()
        self.state = "over"

    def _hang_up(self, problem: str) -> None:
        """Have no more to do with who is at the other end, for now."""
        self._dialling.want(HangUp(self))
        self.lost(problem)

    # What a driver calls

    def answered(self, certificate: str | None) -> None:
        """Note a connection; the other end has shown a certificate with this name, or none."""
        if self.state != "dialling":
            return
        self.state = "open"
        problem = self._refusal(certificate)
        if problem:
            self._hang_up(problem)
            return
        self._talk.connect(self._dialling.now())
        self._watch()
        self.touch()

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        if self.state != "open":
            return
        self._talk.receive(data, self._dialling.now())
        if self._talk.is_up:
            self._backoff.reset()
        self._heard()
        self.look()

    def lost(self, problem: str, verdict: TidingsError | None = None) -> None:
        """The connection is gone, or could not be had; `verdict` says why that is so whenever it is tried."""
        if self.state not in ("dialling", "open"):
            return
        was_open, self.state = self.state == "open", "resting"
        self._dialling.timers.cancel(self._timer)
        self._lost(problem, verdict, was_open)
        if self.is_over:
            return  # nobody wants another one
        at = self._dialling.now() + self._pause_s()
        self._timer = self._dialling.timers.at(at, lambda _now: self.begin())

    def output(self) -> list[bytes]:
        """The frames that may be sent now; the last ones when it is over."""
        return [] if self.state in ("resting", "dialling") else self._talk.output()

    @property
    def has_bulk(self) -> bool:
        """Whether `output` has left something that may be sent if the transport takes more."""
        return self.state == "open" and self._talk.has_bulk

    def touch(self) -> None:
        """Note that there may be output."""
        self._dialling.touch(self)

    def look(self) -> None:
        """Note the same, or that the other end was given up by the code that talks to it."""
        if self.state == "open" and self._talk.is_given_up:
            self._hang_up(LOST)
        self.touch()

    # Silence

    def _watch(self) -> None:
        self._dialling.timers.cancel(self._timer)
        if self._talk.wake_at is not None:
            self._timer = self._dialling.timers.at(self._talk.wake_at, self._wake)

    def _wake(self, now: float) -> None:
        self._talk.wake(now)
        if self._talk.is_given_up:
            self._hang_up(SILENT)
        else:
            self.touch()
            self._watch()
