"""Orphans: agents whose task is done, or can't be done any more, and how they are found.

Nobody is judged by its parents: an agent whose parent has gone may be useful still. There are two ways, both
without I/O here, driven by nodes and by the simulator.

**Active** (`AliveWatch`, `NoticeSender`), in groups that have times for it: each member says that it is alive
if it has said nothing for `notice_s`. Any event counts. Who has not been heard of for `check_s` is judged an
orphan. One that loses k notices in a row must not be: the last notice that was heard is up to
(k+1) × notice_s old when the next arrives, and that one is up to `delay_s` under way. So
check_s ≥ (k+1) × notice_s + delay_s, and other settings are refused.

**Passive** (`LeaseHolder`): the location lets each agent live for a lease, and asks for more before it ends,
at a random moment, so that not all ask at once. There are three answers. *yes* renews the lease. *no*, the
group is gone: the agent ends. *can't ask*: nothing changes, and the lease is used up. So a partition that is
shorter than what is left of the lease ends nobody, and an orphan lives no longer than the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import inf
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from tidings.errors import UserError
from tidings.timers import RENEWALS_PER_LEASE, Leases

Who = TypeVar("Who", bound=Hashable)
LeaseAnswer = Literal["yes", "no", "can't ask"]
DetectionWay = Literal["active worst", "active best", "basic", "direct", "channel"]
"""Ways to find orphans, for their costs.

Active, where nobody has said anything or all have; passive, where leases are asked for and granted by events,
by an event and a message, or by one event for all.
"""
LEASE_S_MIN, LEASE_S_MAX = 0.1, 30 * 86_400.0
ASK_FROM = 1 / RENEWALS_PER_LEASE
"""Part of a lease that passes before its holder asks for more, at the earliest."""
ASK_UNTIL = 2 / RENEWALS_PER_LEASE
"""And at the latest: what is left allows for one more try."""


class AliveTimes(Struct, frozen=True):
    """The times of active detection: `losses` notices in a row may be lost, each up to `delay_s` late."""

    notice_s: float
    check_s: float
    delay_s: float
    losses: int = 1

    def check(self) -> None:
        """Raise UserError for times with which a living agent could be judged an orphan."""
        if not (0 < self.notice_s < inf and 0 <= self.delay_s < inf and self.losses >= 0):
            raise UserError("notice is more than 0, delay and losses are at least 0")
        if not self.least_s <= self.check_s < inf:
            raise UserError(
                f"check {self.check_s:g} s is too short: to tolerate {self.losses} lost, it is at least"
                f" ({self.losses} + 1) × {self.notice_s:g} + {self.delay_s:g} = {self.least_s:g} s"
            )

    @property
    def least_s(self) -> float:
        """The shortest check that is safe."""
        return (self.losses + 1) * self.notice_s + self.delay_s


class NoticeSender:
    """One member: when it has to say that it is alive, if it has said nothing else for `notice_s`."""

    def __init__(self, notice_s: float, now: float) -> None:
        self._notice_s = notice_s
        self._said_at = now

    @property
    def wake_at(self) -> float:
        """When it has said nothing for long enough."""
        return self._said_at + self._notice_s

    def said(self, now: float) -> None:
        """It has said something: any event counts."""
        self._said_at = now

    def wake(self, now: float) -> bool:
        """Whether a notice is due; if so, it counts as said."""
        if now < self.wake_at:
            return False
        self._said_at = now
        return True


class AliveWatch(Generic[Who]):
    """Who was heard of, and where; who has not been for too long."""

    def __init__(self, times: AliveTimes) -> None:
        times.check()
        self.times = times
        self._heard: dict[Who, float] = {}
        self._where: dict[Who, str] = {}
        self._leases: Leases[Who] = Leases(lambda who: self._heard[who] + times.check_s)

    def __contains__(self, who: Who) -> bool:
        return who in self._heard

    @property
    def wake_at(self) -> float:
        """When someone may have to be judged."""
        return self._leases.wake_at

    def heard(self, who: Who, now: float, where: str = "") -> None:
        """An event of someone has come, whichever; a restart that was quick enough is one, too.

        One that said that it would rest is heard of when it does not; if it comes back earlier, that counts.
        """
        is_sooner = now < self._heard.get(who, inf)
        self._heard[who] = now
        if where:
            self._where[who] = where
        if is_sooner:
            self._leases.watch(who)

    def where(self, who: Who) -> str:
        """Where someone was when it was heard of last."""
        return self._where.get(who, "")

    def forget(self, who: Who) -> None:
        """Someone has ended properly, or was released."""
        self._heard.pop(who, None)
        self._where.pop(who, None)
        self._leases.cancel(who)

    def judged(self, now: float, most: float = inf) -> Iterator[Who]:
        """Those that were not heard of for too long, each once; at most so many are looked at."""
        for who in list(self._leases.ended(now, most)):
            self.forget(who)
            yield who


class LeaseHolder:
    """A location, for one agent: when to ask for more, and when its time is up. `random` is from 0 to 1."""

    def __init__(self, lease_s: float, random: Callable[[], float], now: float) -> None:
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise UserError(f"a lease is from {LEASE_S_MIN:g} s to {LEASE_S_MAX:g} s long, not {lease_s:g}")
        self.lease_s = lease_s
        self._random = random
        self.is_released = False
        self._granted(now)

    def _granted(self, now: float) -> None:
        self.ends_at = now + self.lease_s
        spread = ASK_FROM + (ASK_UNTIL - ASK_FROM) * self._random()
        self.ask_at = now + self.lease_s * spread
        self._asked_at: float | None = None

    @property
    def wake_at(self) -> float:
        """When to ask, or to end the agent."""
        return inf if self.is_released else min(self.ask_at, self.ends_at)

    def asks(self, now: float) -> bool:
        """Whether it is time to ask; asked again in a while if no answer comes."""
        if self.is_released or not self.ask_at <= now < self.ends_at:
            return False
        self.ask(now)
        return True

    def ask(self, now: float) -> None:
        """Note that it asks, also if it does not have to yet."""
        self._asked_at = now
        self.ask_at = max(self.ask_at, now + self.lease_s * (1 - ASK_UNTIL) / 2)

    def answered(self, answer: LeaseAnswer, now: float) -> bool:
        """Note an answer; whether the agent may go on for now.

        The lease counts from when it was asked for.
        """
        if answer == "yes":
            self._granted(now if self._asked_at is None else self._asked_at)
        return self.is_released or (answer != "no" and now < self.ends_at)

    def is_over(self, now: float) -> bool:
        """Whether the lease is used up."""
        return not self.is_released and now >= self.ends_at

    def release(self) -> None:
        """Exempt the agent deliberately."""
        self.is_released = True


def orphan_s_max(lease_s: float, grace_s: float) -> float:
    """How long an agent lives at most after the last answer to its location; told before it starts."""
    return lease_s + grace_s


def costs(
    way: DetectionWay,
    participants: int,
    survivors: int,
    event: float,
    message: float,
) -> float:
    """The cost per interval, by the formulas II.12 to II.16; `event` and `message` are the costs of one."""
    match way:
        case "active worst":
            return participants * event
        case "active best":
            return 0.0
        case "basic":
            return 2 * participants * event
        case "direct":
            return participants * event + survivors * message
        case "channel":
            return 2 * event
