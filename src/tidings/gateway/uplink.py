"""Connection of a gateway to its node: a client that advertises, follows the demand, and publishes.

It carries out the gateway's effects at the node; the connection's core handles cuts. It also answers requests
on the bus for the gateway's state.

The publisher gathers the readings of a turn of the loop, makes events of them and sends these to the node
together. Those without a number are transient, and go through the loop of the mapper as they are. A message
with a number becomes persistent events and is acknowledged after the node has stored them, or may come again
if the node has refused them. Events that the sender may not publish are left out, and reported to it.

An event's `source` is the sender of the reading: the user, if there are users, and otherwise the network.
Events of one source travel together, so those of a turn are one frame for each source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from tidings.errors import TidingsError
from tidings.event import Batch, Event
from tidings.event.header import EMPTY_HEADER, Header
from tidings.event.wire import HEAD_SIZE, array_head, decode_events, encode_events
from tidings.filters import Filter
from tidings.gateway.messages import SENSORS_MAX, Error, Sensing
from tidings.gateway.networks import Key
from tidings.gateway.reading import Mapped, Mapper
from tidings.protocol.arguments import INBOX, NAME_LENGTH_MAX
from tidings.protocol.connection import Connection
from tidings.protocol.publications import SEND_BUFFER_MAX
from tidings.protocol.subscriber import ClientAdvertisement, ClientSubscription, MissedNumbers, Wanted
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

READINGS_MAX = SENSORS_MAX
"""Readings of several messages in one frame: as many as one message may have, and so they fit."""
PERSISTENT = Header(delivery="persistent")

Failed = tuple[Key, Error]
"""The messages to send, with their receivers."""
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

    def listen(self, filter: str, take: Callable[[Batch], Steps[None]], do: Do) -> None:
        """Subscribe to events for the gateway itself; `do` runs, in steps, what `take` makes of them."""
        listener = _Listener(self, take, do)
        listener.intake = self.core.subscribe(Wanted(filter, passive=True), listener, REQUESTS_AHEAD)
        listener.intake.begun.then(ignore, self._refused)
        self.flush_soon()

    def answer(self, overview: Overview, figures: Figures, do: Do) -> None:
        """Answer requests on the bus for all networks."""
        self.listen(f"type = '{LIST}'", partial(self._answering, overview, figures), do)

    def _answering(self, overview: Overview, figures: Figures, requests: Batch) -> Steps[None]:
        body = yield from _as_json(overview())
        for request in requests.events:
            if (request.reply_to or "").startswith(INBOX):
                header = structs.replace(
                    EMPTY_HEADER,
                    subject=request.reply_to,
                    correlation_id=request.correlation_id or request.id,
                    content_type="application/json",
                )
                answer = Event(LIST, dict(figures()), body=body)
                self.core.publish(structs.replace(answer, header=header))

    def publish(self, event: Event) -> None:
        """Publish an event of the gateway itself, unless the node is away or busy: it is repeated."""
        if self.core.is_up and not self.is_full:
            self.core.publish(event)
            self.flush_soon()

    def report(self, figures: dict[str, int]) -> None:
        """Publish the counters."""
        self.publish(Event(FIGURES, dict(figures)))


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


class _Listener:
    """Subscriber for events that are meant for the gateway itself."""

    def __init__(self, uplink: Uplink, take: Callable[[Batch], Steps[None]], do: Do) -> None:
        self._uplink = uplink
        self._take = take
        self._do = do
        self.intake: ClientSubscription | None = None

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, _redelivered: bool) -> None:
        """Called by the connection; further events come when these have been dealt with."""
        self._do(self._taking(batch))

    def _taking(self, batch: Batch) -> Steps[None]:
        yield from self._take(batch)
        assert self.intake is not None
        self._uplink.core.consume(self.intake, len(batch))
        self._uplink.flush_soon()

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:
        """Ignore the gap: who gets no answer asks again."""

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


# Readings


class Special(Struct, frozen=True):
    """Message that is numbered, or of a user who may publish only what a filter matches."""

    key: Key
    grant: Filter | None
    message: Sensing
    source: str | None = None


class Numbered(Struct, frozen=True):
    """The place of a numbered message's events in the client's count."""

    key: Key
    sensing_id: str
    seq: int
    counters: range
    last: int  # when everything up to here is accepted, so is this


class ReadingPublisher:
    """Publisher of readings: gathers those of a turn and sends them to the node together."""

    def __init__(self, uplink: Uplink, clock: Callable[[], float]) -> None:
        """`clock` is the wall clock, which stamps events."""
        self._uplink = uplink
        self._publications = uplink.publications
        self._clock = clock
        self._mapper = Mapper()
        self._groups: list[tuple[Key, list[Sensing]]] = []
        self._by_source: dict[str | None, list[Sensing]] = {}  # the same messages
        self._specials: list[Special] = []
        self._waiting: deque[Numbered] = deque()

    def add(self, key: Key, messages: list[Sensing], user: str | None = None) -> None:
        """Add messages without numbers, of one connection or address, and of a user if there are users."""
        self._groups.append((key, messages))
        by_source = self._by_source
        if user is not None:
            by_source.setdefault(user or None, []).extend(messages)
            return
        for message in messages:
            source = message.sensing_id
            if source in by_source:
                by_source[source].append(message)
            else:
                by_source.setdefault(shown_source(source), []).append(message)

    def add_special(self, key: Key, grant: Filter | None, message: Sensing, user: str | None = None) -> None:
        """Add a message that is numbered, or subject to a grant."""
        source = shown_source(message.sensing_id) if user is None else user or None
        self._specials.append(Special(key, grant, message, source))

    def send(self) -> list[Failed]:
        """Pass everything to the uplink; return the errors, with their receivers."""
        failed: list[Failed] = []
        groups, self._groups = self._groups, []
        by_source, self._by_source = self._by_source, {}
        for source, messages in by_source.items():
            failed += [(_key_of(error, groups), error) for error in self._send_plain(messages, source)]
        specials, self._specials = self._specials, []
        sorts: dict[tuple[bool, str | None], list[Special]] = {}
        for one in specials:
            sorts.setdefault((one.message.seq is not None, one.source), []).append(one)
        for (is_kept, _), some in sorts.items():
            self._send_specials(some, failed, is_kept)
        return failed

    def settled(self) -> Iterator[tuple[Numbered, bool]]:
        """Yield the numbered messages whose outcome is known by now, and whether they were stored."""
        while self._waiting and self._waiting[0].last <= self._publications.accepted:
            one = self._waiting.popleft()
            yield one, not self._publications.refusals(one.counters)

    def _send_plain(self, messages: Sequence[Sensing], source: str | None) -> list[Error]:
        count = sum([len(message.sensors) for message in messages])
        if count > READINGS_MAX and len(messages) > 1:
            half = len(messages) // 2
            return self._send_plain(messages[:half], source) + self._send_plain(messages[half:], source)
        errors: list[Error] = []

        def make(first: int) -> bytes:
            mapped = self._mapper.map(messages, first, int(self._clock() * 1e6))
            errors.extend(mapped.errors)
            return mapped.raw

        self._publications.publish_raw(count, make, False, source)
        return errors

    def _send_specials(self, specials: list[Special], failed: list[Failed], is_kept: bool) -> None:
        count = sum([len(one.message.sensors) for one in specials])
        if count > READINGS_MAX and len(specials) > 1:
            half = len(specials) // 2
            self._send_specials(specials[:half], failed, is_kept)
            self._send_specials(specials[half:], failed, is_kept)
            return
        totals: list[int] = []
        firsts: list[int] = []

        def make(first: int) -> bytes:
            firsts.append(first)
            now_us = int(self._clock() * 1e6)
            whole = self._whole(specials, first, now_us) if is_kept else None
            if whole is not None:
                totals.extend(len(one.message.sensors) for one in specials)
                return whole
            parts = [b""]
            for one in specials:
                mapped, refused = self._one(one, first + sum(totals), now_us)
                failed.extend((one.key, error) for error in [*mapped.errors, *refused])
                parts.append(mapped.raw[HEAD_SIZE:])
                totals.append(mapped.total)
            parts[0] = array_head(sum(totals))
            return b"".join(parts)

        last = self._publications.publish_raw(count, make, is_kept, specials[0].source)
        if is_kept:
            self._note(specials, firsts[0], totals, last)

    def _whole(self, specials: list[Special], first: int, now_us: int) -> bytes | None:
        """Return the events of all, if there is no error to report."""
        if any(one.grant is not None for one in specials):
            return None
        mapped = self._mapper.map([one.message for one in specials], first, now_us, PERSISTENT)
        return None if mapped.errors else mapped.raw

    def _one(self, one: Special, first: int, now_us: int) -> tuple[Mapped, list[Error]]:
        """Return the events of one message that may be published, and the errors for the others."""
        header = None if one.message.seq is None else PERSISTENT
        mapped = self._mapper.map([one.message], first, now_us, header)
        if one.grant is None:
            return mapped, []
        allowed = [event for event in decode_events(mapped.raw) if one.grant.matches(event)]
        refused = mapped.total - len(allowed)
        if not refused:
            return mapped, []
        refusal = Error(f"you may not publish {refused} of the readings", "$.sensing", one.message.sensing_id)
        return Mapped(encode_events(allowed), len(allowed), mapped.errors), [refusal]

    def _note(self, specials: list[Special], first: int, totals: list[int], last: int) -> None:
        """Wait for these, and write them to the journal before they are sent."""
        for one, total in zip(specials, totals, strict=True):
            seq = one.message.seq
            assert seq is not None
            counters = range(first, first + total)
            self._waiting.append(Numbered(one.key, one.message.sensing_id, seq, counters, last))
            first += total
        self._uplink.note(last, [(one.message.sensing_id, one.message.seq or 0) for one in specials])


def shown_source(sensing_id: str) -> str | None:
    """Return a network as the source of its events; None if its name can't be a source."""
    return sensing_id if 0 < len(sensing_id) <= NAME_LENGTH_MAX and sensing_id.isprintable() else None


def _key_of(error: Error, groups: list[tuple[Key, list[Sensing]]]) -> Key:
    """Return the sender of the message."""
    for key, messages in groups:
        if any(message.sensing_id == error.sensing_id for message in messages):
            return key
    raise AssertionError("every mistake is in a message")
