"""Topic at its holder: who has subscribed, and who is sent a publication in which way.

A durable subscriber is sent what is published while it is away too, epidemically; its subscription ends when
it says so, and by its lease in any case. A non-durable one is sent publications over a path only: if there is
none, its subscription is removed, and it must subscribe again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

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
    """One subscription at the holder of the topic."""

    durable: bool
    ends_at: float


def read_change(raw: bytes) -> SubscriptionChange:
    """Read the message of a subscriber; CodecError for anything else."""
    try:
        return msgspec.msgpack.decode(raw, type=SubscriptionChange)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CodecError("subscription", f"is none: {error}") from None


class AdhocTopic:
    """Subscriptions of one topic."""

    def __init__(self, name: str, subscribers_max: int = SUBSCRIBERS_MAX) -> None:
        self.name = name
        self.subscribers: dict[str, TopicSubscriber] = {}
        self._subscribers_max = subscribers_max
        self._leases: Leases[str] = Leases(lambda host: self.subscribers[host].ends_at)

    def change(self, host: str, change: SubscriptionChange, now: float) -> bool:
        """Begin, renew or end the subscription of a host; False if there is no room."""
        if change.action == "unsubscribe":
            self._remove(host)
            return True
        if host not in self.subscribers and len(self.subscribers) >= self._subscribers_max:
            return False
        ends_at = now + granted_s(change.lease_s, SUBSCRIPTION_S)
        self._remove(host)
        self.subscribers[host] = TopicSubscriber(change.durable, ends_at)
        self._leases.watch(host)
        return True

    def restore(self, host: str, subscriber: TopicSubscriber) -> None:
        """Know again a subscription that was stored."""
        self.subscribers[host] = subscriber
        self._leases.watch(host)

    def _remove(self, host: str) -> None:
        self.subscribers.pop(host, None)
        self._leases.cancel(host)

    def recipients(self, has_path: Callable[[str], bool], now: float) -> tuple[list[str], list[str]]:
        """Who is sent a publication over a path, and who epidemically; those out of reach are removed."""
        for host in self._leases.ended(now):
            del self.subscribers[host]
        reached = [host for host in self.subscribers if has_path(host)]
        away = [host for host in self.subscribers if host not in set(reached)]
        for host in away:
            if not self.subscribers[host].durable:
                self._remove(host)
        return reached, [host for host in away if host in self.subscribers]
