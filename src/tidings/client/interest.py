"""Interest: whether anyone wants what is advertised, and which filters do."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tidings.errors import Refused, UserError
from tidings.filters import Filter
from tidings.protocol.intake import Offer
from tidings.transport.link import Link, Wait


class Interest:
    """An advertisement inside an `async with` block; made by `Bus.advertise`.

    As an async iterator it gives the filters that want it, first as they are and then after each change; of
    several changes in a row only the last is seen.
    """

    def __init__(self, link: Link, filter: str, timeout_s: float | None) -> None:
        self._texts: tuple[str, ...] = ()
        self._link = link
        self._filter = filter
        self._timeout_s = timeout_s
        self._offer: Offer | None = None
        self._is_new = True  # the iterator has not given the filters yet
        self._reason: str | None = None  # why it has ended
        self._waiting: list[Wait] = []

    @property
    def wanted(self) -> bool:
        """Whether anyone wants it now."""
        return bool(self._texts)

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters of the subscriptions that want it now; MissingExtra if one needs what is not here."""
        return tuple(Filter(text) for text in self._texts)

    async def __aenter__(self) -> Self:
        if self._offer is not None:
            raise UserError("an advertisement can be entered once; make another")
        offer = self._offer = self._link.core.advertise(self._filter, self)
        self._link.flush_soon()
        try:
            await self._link.within(self._link.outcome(offer.begun), self._timeout_s, "advertised")
        except BaseException:
            self._link.core.withdraw(offer)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._offer is not None
        withdrawn = self._link.core.withdraw(self._offer)
        self._link.flush_soon()
        if kind is None:
            await self._link.outcome(withdrawn)

    async def wait_wanted(self) -> None:
        """Wait until someone wants it."""
        while not self.wanted:
            await self._wait_change()

    async def wait_unwanted(self) -> None:
        """Wait until nobody wants it."""
        while self.wanted:
            await self._wait_change()

    def __aiter__(self) -> Interest:
        return self

    async def __anext__(self) -> tuple[Filter, ...]:
        while not self._is_new:
            await self._wait_change()
        self._is_new = False
        return self.filters

    async def _wait_change(self) -> None:
        self._link.core.check()
        if self._reason is not None:
            raise Refused("ended", f"the advertisement was ended: {self._reason}")
        wait = self._link.future()
        self._waiting.append(wait)
        await wait

    # What the core calls

    def changed(self, filters: list[str]) -> None:
        """Note it, and wake those who wait for it."""
        if tuple(filters) != self._texts:
            self._texts, self._is_new = tuple(filters), True
            self._notify()

    def ended(self, reason: str) -> None:
        """Tell those who wait that nothing will come."""
        self._reason = reason
        self._notify()

    def _notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            if not wait.done():
                wait.set_result(None)
