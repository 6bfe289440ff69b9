"""Connection of a gateway to its node: a client that advertises, follows the demand, and publishes.

It carries out the gateway's effects at the node; the connection's core handles cuts. It also answers requests
on the bus for the gateway's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import structs

from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.event.header import EMPTY_HEADER
from tidings.protocol.arguments import INBOX
from tidings.protocol.connection import Connection
from tidings.protocol.publications import SEND_BUFFER_MAX
from tidings.protocol.subscriber import ClientAdvertisement, ClientSubscription, Wanted
from tidings.replies import ignore
from tidings.steps import Steps

LIST = "tidings.gateway.list"
"""Type of the request for all networks; the reply has them in its body, as JSON."""
FIGURES = "tidings.gateway.figures"
"""Type of the event with the gateway's counters."""
LIST_SIZE_MAX = 8 << 20
"""Bytes of a reply; networks beyond that are left out."""
REQUESTS_AHEAD = 100
ROOM = SEND_BUFFER_MAX // 2
"""Most bytes that wait for the node when paused connections are resumed."""

Overview = Callable[[], Iterator[dict[str, Any] | None]]
"""All networks; None in between, where others may have their turn."""
Do = Callable[[Steps[None]], None]
Figures = Callable[[], dict[str, int]]
Log = Callable[..., None]
"""Logs an occurrence: the level, the event, and values by name."""
Journaled = tuple[str, int]
"""Network and one of its numbers."""


class Journaling(Protocol):
    """Journal of numbers in flight to the node, for a gateway that is started after this one."""

    def note(self, last: int, numbers: list[Journaled]) -> None:
        """Note that these are sent with the counters up to this one."""


class Uplink:
    """Client by which a gateway speaks to its node.

    `journal` keeps messages in flight, so that none is counted twice; None: repeats may count. A driver runs
    `core` as any connection, and calls `on_progress` when something has arrived.
    """

    def __init__(self, core: Connection, log: Log, journal: Journaling | None = None) -> None:
        self.core = core
        self.flush: Callable[[], None] = lambda: None
        """Lets the driver send the output."""
        self.flush_soon: Callable[[], None] = lambda: None
        """The same, together with all output until the loop runs next."""
        self.on_progress: Callable[[], None] = lambda: None
        """Called when the node may have accepted something."""
        self.on_demand: Callable[[int, list[str]], None] = lambda _number, _filters: None
        """Called with the filters that demand the advertisement of a number."""
        self._log = log
        self._journal = journal
        self.publications = core.publications
        self._advertised: dict[int, ClientAdvertisement] = {}
        self.is_closing = False

    # Advertisements

    def advertise(self, number: int, filter: str) -> None:
        """Advertise a filter, under a number of the gateway's."""
        if self.core.failure is not None:
            return
        offer = self._advertised[number] = self.core.advertise(filter, _Demand(self, number))
        offer.begun.then(ignore, self._refused)
        self.flush_soon()

    def widen(self, number: int, filter: str) -> None:
        """Widen the advertisement of a number; the new filter comes before the old one is withdrawn."""
        before = self._advertised.get(number)
        self.advertise(number, filter)
        if before is not None:
            self.core.withdraw(before)

    def withdraw(self, number: int) -> None:
        """Withdraw an advertisement."""
        before = self._advertised.pop(number, None)
        if before is not None:
            self.core.withdraw(before)
            self.flush_soon()

    def _refused(self, error: TidingsError) -> None:
        self._log("error", "the node will not have what the gateway asks for", problem=str(error))

    def ended(self, event: str, reason: str) -> None:
        """Log that the node has ended something, unless the gateway itself ends."""
        if not self.is_closing:
            self._log("error", event, reason=reason)

    # Publications

    @property
    def is_full(self) -> bool:
        """Whether as much waits for the node as may."""
        return self.publications.is_full

    @property
    def has_room(self) -> bool:
        """Whether so little waits that more may be read."""
        return self.publications.size <= ROOM

    def note(self, last: int, numbered: list[Journaled]) -> None:
        """Write to the journal what is sent with the counters up to this one, before it is."""
        if self._journal is not None:
            self._journal.note(last, numbered)

    # Requests and figures

    def answer(self, overview: Overview, figures: Figures, do: Do) -> None:
        """Answer requests on the bus for all networks; `do` runs that in steps."""
        subscriber = _Requests(self, overview, figures, do)
        wanted = Wanted(f"type = '{LIST}'", passive=True)
        subscriber.intake = self.core.subscribe(wanted, subscriber, REQUESTS_AHEAD)
        subscriber.intake.begun.then(ignore, self._refused)
        self.flush_soon()

    def tell(self, figures: dict[str, int]) -> None:
        """Publish the counters."""
        if self.core.is_up and not self.is_full:
            self.core.publish(Event(FIGURES, dict(figures)))
            self.flush_soon()


class _Demand:
    """Passes on the demand for an advertisement."""

    def __init__(self, uplink: Uplink, number: int) -> None:
        self._uplink = uplink
        self._number = number

    def changed(self, filters: list[str]) -> None:
        """Called by the connection."""
        self._uplink.on_demand(self._number, filters)

    def ended(self, reason: str) -> None:
        """Called by the connection."""
        self._uplink.ended("an advertisement of the gateway was ended", reason)


class _Requests:
    """Subscriber for requests to the gateway."""

    def __init__(self, uplink: Uplink, overview: Overview, figures: Figures, do: Do) -> None:
        self._uplink = uplink
        self._overview = overview
        self._figures = figures
        self._do = do
        self.intake: ClientSubscription | None = None

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, _redelivered: bool) -> None:
        """Answer each request."""
        self._do(self._answering(batch))

    def _answering(self, batch: Batch) -> Steps[None]:
        body = yield from _as_json(self._overview())
        for request in batch.events:
            if (request.reply_to or "").startswith(INBOX):
                header = structs.replace(
                    EMPTY_HEADER,
                    subject=request.reply_to,
                    correlation_id=request.correlation_id or request.id,
                    content_type="application/json",
                )
                answer = Event(LIST, dict(self._figures()), body=body)
                self._uplink.core.publish(structs.replace(answer, header=header))
        assert self.intake is not None
        self._uplink.core.consume(self.intake, len(batch))
        self._uplink.flush_soon()

    def gap(self, dropped: int, reason: str) -> None:
        """Ignore the gap: clients whose requests were dropped repeat them."""

    def ended(self, reason: str) -> None:
        """Called by the connection."""
        self._uplink.ended("the gateway no longer answers requests", reason)


def _as_json(networks: Iterator[dict[str, Any] | None]) -> Steps[bytes]:
    """Encode as many networks as fit into a reply."""
    parts: list[bytes] = []
    size = 0
    for network in networks:
        yield
        if network is None:
            continue
        part = msgspec.json.encode(network)
        size += len(part) + 1
        if size > LIST_SIZE_MAX:
            break
        parts.append(part)
    return b"[" + b",".join(parts) + b"]"
