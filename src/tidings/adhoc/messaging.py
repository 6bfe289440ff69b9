"""Queues and topics of hosts that meet by chance: names become hosts, and a path is used where there is one.

A message goes to the host that holds its queue or topic, by the registry. If the routing layer has a path to
that host (`has_path`: the middleware looks at the forwarding table, across layers and on purpose), the
message goes over it; otherwise it is carried. Subscribing is a message to the holder of the topic, and a
publication goes there too: the holder sends one message with a list of recipients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import msgspec
from msgspec import Struct

from tidings.adhoc.effects import AdhocEffect, DeliverMessage
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import CarriedMessage
from tidings.adhoc.registry import HeldPlace
from tidings.adhoc.topics import SUBSCRIPTION_S, AdhocTopic, SubscriptionChange, read_change
from tidings.errors import CodecError, QueueNotFound

QUEUE, TOPIC, SUBSCRIPTION, NEWS = "queue:", "topic:", "subscription:", "news:"
"""How destinations begin: a queue, a publication or a subscription at a holder, and what subscribers get."""


class SendOptions(TypedDict, total=False):
    """How a message is sent."""

    ttl_s: float | None
    persistent: bool
    priority: int
    reliability: float | None
    size: int | None


class ForwardMessage(Struct, frozen=True):
    """Send a message over the path to a host, to `AdhocMessaging.accept` there."""

    host: str
    message: CarriedMessage


MessagingEffect = AdhocEffect | ForwardMessage


class AdhocMessaging:
    """Queues and topics of one host."""

    def __init__(self, host: AdhocHost, has_path: Callable[[str], bool]) -> None:
        self.host = host
        self.topics: dict[str, AdhocTopic] = {}
        self._has_path = has_path
        self.may_publish: Callable[[CarriedMessage], bool] = lambda _message: True
        """Whether a publication may go to the subscribers of a topic that is held here; called once."""
        self.on_change: Callable[[AdhocTopic], None] = lambda _topic: None
        """Called when the subscribers of a topic may have changed."""

    def hold_queue(self, name: str) -> None:
        """Have a queue here, best where its main reader is."""
        self.host.registry.hold(name, "queue")

    def hold_topic(self, name: str) -> AdhocTopic:
        """Have a topic here."""
        self.host.registry.hold(name, "topic")
        return self.topics.setdefault(name, AdhocTopic(name))

    def put(
        self,
        queue: str,
        raw: bytes,
        now: float,
        report_s: float | None = None,
        **options: Unpack[SendOptions],
    ) -> list[MessagingEffect]:
        """Put a message in a queue, wherever it is; QueueNotFound if no host is known to hold it."""
        return self._send((self._holder(queue, now),), QUEUE + queue, raw, now, report_s, options)

    def publish(
        self,
        topic: str,
        raw: bytes,
        now: float,
        report_s: float | None = None,
        **options: Unpack[SendOptions],
    ) -> list[MessagingEffect]:
        """Send a publication to the holder of its topic, which sends it to the subscribers."""
        return self._send((self._holder(topic, now),), TOPIC + topic, raw, now, report_s, options)

    def subscribe(
        self, topic: str, now: float, durable: bool = False, lease_s: float = SUBSCRIPTION_S
    ) -> list[MessagingEffect]:
        """Subscribe at the holder of a topic; a durable subscription is to be renewed within its lease."""
        return self._change(topic, SubscriptionChange("subscribe", durable, lease_s), now)

    def unsubscribe(self, topic: str, now: float) -> list[MessagingEffect]:
        """End a subscription."""
        return self._change(topic, SubscriptionChange("unsubscribe"), now)

    def _change(self, topic: str, change: SubscriptionChange, now: float) -> list[MessagingEffect]:
        raw = msgspec.msgpack.encode(change)
        holder = self._holder(topic, now)
        return self._send((holder,), SUBSCRIPTION + topic, raw, now, None, {"persistent": True})

    def _holder(self, name: str, now: float) -> str:
        place: HeldPlace | None = self.host.registry.find(name, now)
        if place is None:
            raise QueueNotFound(name, "no host is known to hold it")
        return place.holder

    def _send(
        self,
        recipients: tuple[str, ...],
        destination: str,
        raw: bytes,
        now: float,
        report_s: float | None,
        options: SendOptions,
    ) -> list[MessagingEffect]:
        message = self.host.compose(recipients, raw, destination=destination, **options)
        if len(recipients) == 1 and recipients[0] != self.host.name and self._has_path(recipients[0]):
            if message.persistent:
                self.host.awaited.watch(message, now + (message.ttl_s if report_s is None else report_s))
            return [ForwardMessage(recipients[0], message)]
        return self.take(self.host.send(message, now, report_s), now)

    # What comes

    def accept(self, message: CarriedMessage, now: float) -> list[MessagingEffect]:
        """Take a message that has come over a path."""
        return self.take(self.host.accept(message, now), now)

    def take(self, effects: Sequence[MessagingEffect], now: float) -> list[MessagingEffect]:
        """Do what messages for topics held here ask for; everything else stays as it is."""
        done: list[MessagingEffect] = []
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                done += self._deliver(effect, now)
            else:
                done.append(effect)
        return done

    def _deliver(self, effect: DeliverMessage, now: float) -> list[MessagingEffect]:
        kind, _, name = effect.message.destination.partition(":")
        topic = self.topics.get(name) if kind + ":" in (TOPIC, SUBSCRIPTION) else None
        if kind + ":" == SUBSCRIPTION:
            self._change_here(topic, effect.message, now)
            return []
        if kind + ":" == TOPIC:
            if topic is None or not self.may_publish(effect.message):
                self.host.tallies["refused", "publication"] += 1
                return []
            return self._fan_out(topic, effect.message, now)
        return [effect]

    def _change_here(self, topic: AdhocTopic | None, message: CarriedMessage, now: float) -> None:
        try:
            id, change = message.id, read_change(message.raw)
            is_done = topic is not None and topic.change(id.system, change, now, (id.epoch, id.counter))
        except CodecError:
            is_done = False
        if not is_done:
            self.host.tallies["refused", "subscription"] += 1
        elif topic is not None:
            self.on_change(topic)

    def _fan_out(self, topic: AdhocTopic, message: CarriedMessage, now: float) -> list[MessagingEffect]:
        """Send a publication to all subscribers: one message for all that are away."""
        before = len(topic.subscribers)
        reached, away = topic.recipients(self._has_path_or_here, now)
        if len(topic.subscribers) < before:
            self.on_change(topic)
        options = SendOptions(
            ttl_s=message.ttl_s,
            persistent=message.persistent,
            priority=message.priority,
            reliability=message.reliability,
            size=message.size,
        )
        groups = [(host,) for host in reached] + ([tuple(away)] if away else [])
        news = NEWS + topic.name
        return [one for to in groups for one in self._send(to, news, message.raw, now, None, options)]

    def _has_path_or_here(self, host: str) -> bool:
        return host == self.host.name or self._has_path(host)
