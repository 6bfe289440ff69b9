"""Events of ordered channels on their way through a broker: only members wait, neighbours get them at once.

Rows of one channel that follow each other are handed on by themselves, in one step, so that nothing comes
between them and what comes after them in the channel. Which events members get, and when, is decided by the
channels of the node (`protocol.channels.Channels`).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tidings.event import Batch
from tidings.event.relayed import OrderedBatch, RelayedBatch
from tidings.event.wire import Checked, check
from tidings.exchange import Rows
from tidings.protocol.channels import OneChannel, is_expedited
from tidings.protocol.incoming import IncomingStream
from tidings.protocol.publishing import NO_CHANNELS, MatchedRows
from tidings.steps import finish

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from tidings.protocol.broker import Broker
    from tidings.protocol.channels import Channels


class OrderedPublishing:
    """The way of published and relayed batches of ordered channels."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._exchange = broker.exchange

    def concerns(self, channels: Mapping[int, str]) -> bool:
        """Whether some rows are for channels with an order beyond that of each sender."""
        known = self._broker.channels
        if known is None:
            return False
        if isinstance(channels, OneChannel):
            return known.is_ordered(channels.channel)
        return any(map(known.is_ordered, set(channels.values())))

    def hand_on(
        self,
        batch: Batch,
        checked: Checked,
        matches: MatchedRows,
        stream: IncomingStream | None,
        waits: bool,
        channels: Mapping[int, str],
    ) -> None:
        """Hand on publications of which some are for ordered channels, those of each by themselves."""
        session = None if stream is None else stream.session
        for channel, is_urgent, rows in _by_channel(batch, channels, checked.deliveries):
            part, facts = _part(batch, checked, rows)
            ordered = self._order_of(channel)
            wanted = matches if part is batch else self._exchange.match(part, session)
            if ordered is not None and channel is not None and not is_urgent:
                part = ordered.sent(part, channel)
            if isinstance(part, OrderedBatch) and part.is_had:
                wanted = [one for one in wanted if one[0].channel != channel]
            before = self._broker.position
            self._pass_on(part, facts, wanted, stream, waits, channel)
            if ordered is not None and channel is not None:
                is_stored = not facts.is_plain and self._broker.position - before == len(part)
                position = before + 1 if is_stored else 0
                if is_urgent:
                    ordered.was_expedited(part, channel, position)
                else:
                    ordered.was_sent(part, channel, position, stream, facts)
                ordered.settle(channel)

    def relay(
        self,
        link: Hashable,
        batch: RelayedBatch,
        checked: Checked,
        matches: MatchedRows,
        channels: Mapping[int, str],
    ) -> None:
        """Give events to all who want them, save members of channels that must have others before."""
        for channel, is_urgent, rows in _by_channel(batch, channels, checked.deliveries):
            part, facts = _part(batch, checked, rows)
            assert isinstance(part, RelayedBatch)
            wanted = matches if part is batch else self._exchange.match(part, link)
            ordered = self._order_of(channel)
            if ordered is not None and channel is not None and is_urgent:
                ordered.expedited(part, channel)
            elif ordered is not None and channel is not None and not ordered.arrived(part, channel):
                part.is_had = True
                wanted = [one for one in wanted if one[0].channel != channel]
            self._pass_on(part, facts, wanted, None, not facts.is_plain, channel)
            if ordered is not None and channel is not None:
                ordered.settle(channel)

    def release(self, batch: Batch, channel: str) -> None:
        """Give events that were held to the members of their channel."""
        checked = check(batch.raw)
        matches = [one for one in self._exchange.match(batch) if one[0].channel == channel]
        self._pass_on(batch, checked, matches, None, not checked.is_plain, channel)

    def _order_of(self, channel: str | None) -> Channels | None:
        known = self._broker.channels
        return known if known is not None and channel is not None and known.is_ordered(channel) else None

    def _pass_on(
        self,
        batch: Batch,
        checked: Checked,
        matches: MatchedRows,
        stream: IncomingStream | None,
        waits: bool,
        channel: str | None,
    ) -> None:
        """Store and deliver in one step, before what comes after it in its channel."""
        marked = NO_CHANNELS if channel is None else OneChannel(channel, len(batch))
        left = self._broker.publishing.pass_on(batch, checked, matches, stream, waits, marked)
        if left is not None:
            finish(left)


def _part(batch: Batch, checked: Checked, rows: Rows) -> tuple[Batch, Checked]:
    return (batch, checked) if len(rows) == len(batch) else (batch.take(rows), checked.take(rows))


def _by_channel(
    batch: Batch, channels: Mapping[int, str], deliveries: bytes
) -> Iterator[tuple[str | None, bool, Rows]]:
    """Yield the rows of a batch that follow each other and are for one channel, None for those of none.

    Those that are stored are apart from those that are not, and so are those that are expedited.
    """
    if isinstance(channels, OneChannel) and (not any(deliveries) or all(deliveries)):
        yield channels.channel, False, range(len(batch))
        return

    def key(row: int) -> tuple[str | None, bool, bool]:
        return channels.get(row), row in channels and is_expedited(batch[row]), deliveries[row] > 0

    for (channel, is_urgent, _), rows in groupby(range(len(batch)), key):
        yield channel, is_urgent, list(rows)
