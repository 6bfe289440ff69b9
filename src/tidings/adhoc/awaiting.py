"""Messages with reports to their sender: success for each recipient, or once failure after a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.adhoc.effects import ReportOutcome
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.timers import Timers


class AwaitedMessages:
    """Persistent messages of this host that some recipients have not acknowledged."""

    def __init__(self) -> None:
        self._pending: dict[MessageId, set[str]] = {}
        self._deadlines: Timers[MessageId] = Timers()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def wake_at(self) -> float:
        """When the next failure may have to be reported."""
        return self._deadlines.wake_at

    def watch(self, message: CarriedMessage, report_at: float) -> None:
        """Wait for the recipients of a message, until that moment."""
        self.resume(message.id, message.recipients, report_at)

    def resume(self, id: MessageId, pending: Iterable[str], report_at: float) -> None:
        """Wait for these recipients, as before a restart."""
        self._pending[id] = set(pending)
        self._deadlines.at(report_at, id)

    def acknowledge(self, id: MessageId, recipient: str) -> list[ReportOutcome]:
        """Report a recipient that was waited for; nothing for any other."""
        pending = self._pending.get(id)
        if pending is None or recipient not in pending:
            return []
        pending.discard(recipient)
        if not pending:
            self._forget(id)
        return [ReportOutcome(id, recipient, "delivered")]

    def pending(self, id: MessageId) -> frozenset[str]:
        """The recipients of a message of this host that have not acknowledged it."""
        return frozenset(self._pending.get(id, ()))

    def refuse(self, id: MessageId) -> list[ReportOutcome]:
        """Report a message that this host itself can't carry."""
        return [ReportOutcome(id, "", "undeliverable")] if self._forget(id) else []

    def _forget(self, id: MessageId) -> bool:
        self._deadlines.cancel(id)
        return self._pending.pop(id, None) is not None

    def overdue(self, now: float) -> Iterator[ReportOutcome]:
        """Report the messages whose time is over; a late acknowledgement is not reported any more."""
        for id in self._deadlines.due(now):
            del self._pending[id]
            yield ReportOutcome(id, "", "expired")
