"""A transaction at the client: its changes take effect together when it is committed, or not at all.

The node keeps it under a number of the client's until it is committed, rolled back, out of time, or its
client has been gone for too long. A commit is one of the client's numbered items, so a cut does no harm to
it: it is done once, or refused because there was nothing left to commit.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, Self

from tidings.client.message import Message
from tidings.errors import Disconnected, NoAnswer, TidingsError, TransactionLost, UserError
from tidings.transport.link import CLOSE_S_MAX, Link


class TransactionCore:
    """Transaction, entered once with `async with`: committed at its clean end, else rolled back."""

    def __init__(self, link: Link, timeout_s: float | None) -> None:
        self.putting = asyncio.Lock()
        """Held by a caller whose puts must not be mixed with others."""
        self._link = link
        self._timeout_s = timeout_s
        self._ends_at = inf  # on the clock of the loop
        self._number = 0
        self.committing = 0
        """The counter of its commit, once that was requested."""
        self._is_over = False
        self._spoilt = ""  # why it can't be committed

    @property
    def number(self) -> int:
        """Number at the node; UserError while it is not under way."""
        if not self._number or self._is_over:
            raise UserError("a transaction is used inside its `async with`")
        return self._number

    @property
    def left_s(self) -> float:
        """Seconds until it ends; a connected node reports that by itself, and has some seconds for it."""
        return max(0.0, self._ends_at - self._link.now) + (CLOSE_S_MAX if self._link.core.is_up else 0.0)

    def limit_s(self, timeout_s: float | None = None) -> float:
        """Return how long a call in it may wait: for its own limit or that of the bus, or until it ends."""
        return min(self._link.limit_s if timeout_s is None else timeout_s, self.left_s)

    def spoil(self, reason: str) -> None:
        """Let the transaction be rolled back at its end, for this reason."""
        self._spoilt = self._spoilt or reason

    async def __aenter__(self) -> Self:
        asked = self._numbered()
        try:
            await self._link.call("begin", asked, self.limit_s(), "again")
        except BaseException:
            self._forget()
            raise
        return self

    def begin_soon(self) -> None:
        """Begin it without waiting: if the node refuses that, what is done in it raises TransactionLost."""
        self._link.flush_soon()
        self._link.core.request("begin", self._numbered(), "again")

    def _numbered(self) -> dict[str, Any]:
        """Give it its number; return the arguments by which it begins."""
        if self._number:
            raise UserError("a transaction can be entered once; begin another")
        self._link.transactions += 1
        self._number = self._link.transactions
        if self._timeout_s is not None:
            self._ends_at = self._link.now + self._timeout_s
        return {"transaction": self._number, "timeout_s": self._timeout_s}

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_over:
            return
        if kind is None and not self._spoilt:
            await self.commit()
            return
        await self.rollback()
        if kind is None:
            raise TransactionLost(f"the transaction was rolled back: {self._spoilt}")

    async def commit(self) -> None:
        """Commit now; raises TransactionLost if nothing of it took effect.

        If the node does not answer in time, the error says whether it may have been committed; another call
        then waits for the same commit.
        """
        if not self.committing:
            self._link.flush_soon()
            self.committing = self._link.core.commit(self.number)
            self._is_over = True
            limit_s = self.limit_s()
        else:
            limit_s = self._link.limit_s
        try:
            await self._link.wait_done(self.committing, limit_s, "commit")
        except (Disconnected, NoAnswer, asyncio.CancelledError) as error:
            if error.may_be_accepted:  # type: ignore[union-attr]  # every error of wait_done has it
                raise
            self._forget()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise TransactionLost(f"nothing of the transaction was done: {error}") from None

    async def rollback(self) -> None:
        """Roll back; a transaction that is lost, or ends with the connection, counts as rolled back.

        If the node refuses, the transaction stays open.
        """
        if self._is_over:
            return
        if not self._link.core.is_up:
            self._forget()
            return
        self._is_over = True
        try:
            await self._link.call("rollback", {"transaction": self._number}, CLOSE_S_MAX, "again")
        except (Disconnected, NoAnswer):
            return  # it ends with the connection, or when the node comes to it
        except asyncio.CancelledError:
            self._forget()
            raise
        except TidingsError:
            self._is_over = False
            raise

    async def settle(
        self, message: Message, _outcome: int, _text: str = "", _delay_s: float | None = None
    ) -> None:
        """Refuse: the end of the transaction settles its messages."""
        raise UserError(f"message {message.number} is settled when its transaction ends")

    def _forget(self) -> None:
        """Request the rollback without waiting for it."""
        self._is_over = True
        if self._link.core.failure is None:
            self._link.core.request("rollback", {"transaction": self._number}, "again")
            self._link.flush_soon()
