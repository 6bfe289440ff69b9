"""Which messages of a queue transactions have read: others may read these, but not take them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.queues.transaction import Transaction


class Locks:
    """Numbers of messages, and whose transactions have read them."""

    def __init__(self) -> None:
        self._locks: dict[int, set[Transaction]] = {}

    def add(self, number: int, transaction: Transaction) -> None:
        """A transaction has read a message."""
        self._locks.setdefault(number, set()).add(transaction)

    def remove(self, number: int, transaction: Transaction) -> bool:
        """A transaction that has read it has ended; whether it had."""
        locks = self._locks.get(number)
        if locks is None:
            return False
        locks.discard(transaction)
        if not locks:
            del self._locks[number]
        return True

    def allow(self, number: int, transaction: Transaction | None) -> bool:
        """Whether a message may be taken in this transaction, or in none; those that are over don't count."""
        locks = self._locks.get(number)
        return not locks or all(one is transaction or one.is_over for one in locks)

    def __contains__(self, number: object) -> bool:
        return not all(one.is_over for one in self._locks.get(number, ()))  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[int]:
        return iter(self._locks)

    def __bool__(self) -> bool:
        return bool(self._locks)
