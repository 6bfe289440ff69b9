"""Topic at its holder: who has subscribed, and who is sent a publication in which way.

A durable subscriber is sent what is published while it is away too, epidemically; its subscription ends when
it says so, and by its lease in any case. A non-durable one is sent publications over a path only: if there is
none, its subscription is removed, and it must subscribe again.

What a subscriber says may come in any order, and by hosts that have held the topic meanwhile. So each
subscription has the stamp of the message that has made or ended it, by which its subscriber counts: an older
one changes nothing, and the lists of two hosts are merged by what is newer. An ended subscription is
remembered for as long as the longest lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from tidings.adhoc.messages import HostName, Number
from tidings.errors import CodecError
from tidings.timers import Leases, granted_s

SUBSCRIPTION_S = 7 * 86_400.0
"""Lease of a durable subscription whose subscriber names none, and the longest one."""
SUBSCRIBERS_MAX = 1_000
"""Subscribers of one topic, which stand in one message."""


class SubscriptionChange(Struct, frozen=True, array_like=True):
    """Message to the holder of a topic: begin, renew or end a subscription."""

    action: Literal["subscribe", "unsubscribe"]
    durable: bool = False
    lease_s: Annotated[float, Meta(gt=0)] = SUBSCRIPTION_S


class TopicSubscriber(Struct):
    """One subscription at the holder of the topic; of one that has ended it is remembered that it has."""

    durable: bool
    ends_at: float
    stamp: tuple[int, int] = (0, 0)
    """Epoch and counter of the message of its subscriber."""
    is_ended: bool = False


class SubscriberState(Struct, frozen=True, array_like=True):
    """One subscription as it is known to one host, for another that holds the topic, too."""

    host: HostName
    stamp: tuple[Number, Number]
    left_s: Annotated[float, Meta(gt=0)]
    is_ended: bool = False


def read_change(raw: bytes) -> SubscriptionChange:
    """Read the message of a subscriber; CodecError for anything else."""
    try:
        return msgspec.msgpack.decode(raw, type=SubscriptionChange)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CodecError("subscription", f"is malformed: {error}") from None


class AdhocTopic:
    """Subscriptions of one topic; of as many subscribers as may be it is remembered that they have ended."""

    def __init__(self, name: str, subscribers_max: int = SUBSCRIBERS_MAX) -> None:
        self.name = name
        self.subscribers: dict[str, TopicSubscriber] = {}
        self.ended: dict[str, TopicSubscriber] = {}
        self._subscribers_max = subscribers_max
        self._leases: Leases[str] = Leases(self._ends_at)

    def _known(self, host: str) -> TopicSubscriber | None:
        return self.subscribers.get(host) or self.ended.get(host)

    def _ends_at(self, host: str) -> float:
        known = self._known(host)
        return inf if known is None else known.ends_at

    def change(self, host: str, change: SubscriptionChange, now: float, stamp: tuple[int, int]) -> bool:
        """Begin, renew or end the subscription of a host, unless that is old; False if there is no room."""
        is_ended = change.action == "unsubscribe"
        lease_s = SUBSCRIPTION_S if is_ended else granted_s(change.lease_s, SUBSCRIPTION_S)
        return self._put(host, TopicSubscriber(change.durable, now + lease_s, stamp, is_ended))

    def _put(self, host: str, one: TopicSubscriber) -> bool:
        known = self._known(host)
        if known is not None and one.stamp <= known.stamp:
            return True
        there = self.ended if one.is_ended else self.subscribers
        is_new = host not in there
        if is_new and len(there) >= self._subscribers_max and not one.is_ended:
            return False
        self.restore(host, one)
        if len(self.ended) > self._subscribers_max:
            self._remove(next(iter(self.ended)))
        return True

    def restore(self, host: str, one: TopicSubscriber) -> None:
        """Know a subscription in place of what was known of that host."""
        self._remove(host)
        (self.ended if one.is_ended else self.subscribers)[host] = one
        self._leases.watch(host)

    def _remove(self, host: str) -> None:
        self.subscribers.pop(host, None)
        self.ended.pop(host, None)
        self._leases.cancel(host)

    def _sweep(self, now: float) -> None:
        for host in self._leases.ended(now):
            self.subscribers.pop(host, None)
            self.ended.pop(host, None)

    def states(self, now: float) -> list[SubscriberState]:
        """Return all durable subscriptions, and those that have ended, for another host."""
        self._sweep(now)
        known = [*self.subscribers.items(), *self.ended.items()]
        return [
            SubscriberState(host, one.stamp, one.ends_at - now, one.is_ended)
            for host, one in known
            if one.durable or one.is_ended
        ]

    def merge(self, states: Iterable[SubscriberState], now: float) -> int:
        """Take what another host knows, as far as it is newer; how many there was no room for."""
        refused = 0
        for one in states:
            ends_at = now + min(one.left_s, SUBSCRIPTION_S)
            refused += not self._put(one.host, TopicSubscriber(True, ends_at, one.stamp, one.is_ended))
        return refused

    def recipients(self, has_path: Callable[[str], bool], now: float) -> tuple[list[str], list[str]]:
        """Who is sent a publication over a path, and who epidemically; those out of reach are removed."""
        self._sweep(now)
        reached = [host for host in self.subscribers if has_path(host)]
        away = [host for host in self.subscribers if host not in set(reached)]
        for host in away:
            if not self.subscribers[host].durable:
                self._remove(host)
        return reached, [host for host in away if host in self.subscribers]
