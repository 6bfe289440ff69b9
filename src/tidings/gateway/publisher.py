"""Publisher of readings: gathered for a turn of the loop, made into events and sent to the node together.

Those without a number are transient, and go through the loop of the mapper as they are. A message with a
number becomes persistent events and is acknowledged after the node has stored them, or may come again if the
node has refused them. Events that the sender may not publish are left out, and reported to it.

An event's `source` is the sender of the reading: the user, if there are users, and otherwise the network.
Events of one source travel together, so those of a turn are one frame for each source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from tidings.event.header import Header
from tidings.event.wire import HEAD_SIZE, array_head, decode_events, encode_events
from tidings.filters import Filter
from tidings.gateway.messages import SENSORS_MAX, Error, Sensing
from tidings.gateway.networks import Key
from tidings.gateway.reading import Mapped, Mapper
from tidings.gateway.uplink import Uplink
from tidings.protocol.arguments import NAME_LENGTH_MAX

READINGS_MAX = SENSORS_MAX
"""Readings of several messages in one frame: as many as one message may have, and so they fit."""
PERSISTENT = Header(delivery="persistent")

Failed = tuple[Key, Error]
"""The messages to send, with their receivers."""


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
        if self._specials:
            self._send_all_specials(failed)
        return failed

    def _send_all_specials(self, failed: list[Failed]) -> None:
        specials, self._specials = self._specials, []
        sorts: dict[tuple[bool, str | None], list[Special]] = {}
        for one in specials:
            sorts.setdefault((one.message.seq is not None, one.source), []).append(one)
        for (is_kept, _), some in sorts.items():
            self._send_specials(some, failed, is_kept)

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
        if not specials:
            return
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
