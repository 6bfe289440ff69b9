"""Queues and topics of hosts that meet by chance: names become hosts, and a path is used where there is one.

A message goes to the host that holds its queue or topic, by the registry. If the routing layer has a path to
that host (`has_path`: the middleware looks at the forwarding table, across layers and on purpose), the
message goes over it; otherwise it is carried. Subscribing is a message to the holder of the topic, and a
publication goes there too: the holder sends one message with a list of recipients.

The deputies of a topic have *replicas* of it, its list of subscribers. One that stands in goes by that, and
returns it to the next holder. What still comes to it then is done as before: each publication goes to one
host, which sends it on, so no subscriber gets it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypedDict, Unpack

import msgspec
from msgspec import Meta, Struct

from tidings.adhoc.effects import AdhocEffect, DeliverMessage, LeavePlace, StorePlace, TakePlace
from tidings.adhoc.following import FollowedQueues
from tidings.adhoc.frames import Naming
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import CarriedMessage
from tidings.adhoc.registry import HeldPlace
from tidings.adhoc.topics import (
    SUBSCRIBERS_MAX,
    SUBSCRIPTION_S,
    AdhocTopic,
    SubscriberState,
    SubscriptionChange,
    read_change,
)
from tidings.errors import CodecError, QueueNotFound
from tidings.timers import renewal_s

QUEUE, TOPIC, SUBSCRIPTION, NEWS = "queue:", "topic:", "subscription:", "news:"
"""How destinations begin: a queue, a publication or a subscription at a holder, and what subscribers get."""
READER, OFFER = "reader:", "offer:"
"""How the destinations begin of what hosts that want to read a queue say to its holder, and of its answer."""
LIST = "subscribers:"
"""How the destination begins of what one holder of a topic tells another of its subscribers."""


class SendOptions(TypedDict, total=False):
    """How a message is sent."""

    ttl_s: float | None
    persistent: bool
    priority: int
    reliability: float | None
    size: int | None


class SubscriberList(Struct, frozen=True, array_like=True):
    """Subscribers of a topic, from its holder to a deputy; or back, with the naming of that deputy."""

    states: Annotated[list[SubscriberState], Meta(max_length=2 * SUBSCRIBERS_MAX)]
    naming: Naming | None = None


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
        self.replicas: dict[str, AdhocTopic] = {}
        """Topics that this host may hold, or has held, in place of another."""
        self.namings: dict[str, Naming] = {}
        """By which it has held them."""
        self._wanted: dict[str, float] = {}  # topics held here: when to renew that
        self.following = FollowedQueues(host)
        self._has_path = has_path
        self.may_publish: Callable[[CarriedMessage, float], bool] = lambda _message, _left_s: True
        """Whether a publication, with what is left of its life, may go to the subscribers of a topic that is
        held here; called once."""
        self.on_change: Callable[[AdhocTopic], None] = lambda _topic: None
        """Called when the subscribers of a topic may have changed."""

    def hold_queue(self, name: str, replicas: int = 0) -> None:
        """Have a queue here, best where its main reader is, with so many deputies."""
        self.host.registry.hold(name, "queue", replicas)

    def hold_topic(self, name: str, replicas: int = 0) -> AdhocTopic:
        """Have a topic here, with so many deputies."""
        self.host.registry.hold(name, "topic", replicas)
        return self.topics.setdefault(name, AdhocTopic(name))

    def known_topic(self, name: str) -> AdhocTopic | None:
        """The topic that is, was or may be held here, None for any other."""
        known = self.topics.get(name) or self.replicas.get(name)
        if known is None and (name in self.host.registry.vacancies or name in self.namings):
            known = self.replicas[name] = AdhocTopic(name)
        return known

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
                continue
            done.append(effect)
            if isinstance(effect, TakePlace) and effect.kind == "topic":
                self.topics[effect.name] = self.replicas.pop(effect.name, AdhocTopic(effect.name))
            elif isinstance(effect, LeavePlace) and effect.kind == "topic":
                done += self._leave(effect, now)
            elif isinstance(effect, StorePlace):
                done += self._name_deputies(effect.name, now)
        return done

    # Readers

    def wish(self, queue: str, now: float) -> list[MessagingEffect]:
        """A client here wants to read a queue to which there is no path: have its holder know."""
        holder = self.following.wish(queue, now)
        options = SendOptions(ttl_s=self.host.registry.lease_s)  # by then it would not count
        return [] if holder is None else self._send((holder,), READER + queue, b"1", now, None, options)

    def offer(self, now: float) -> list[MessagingEffect]:
        """Offer queues that follow their main readers to the hosts of these."""
        effects: list[MessagingEffect] = []
        for queue, host, offer in self.following.offers(now):
            raw = msgspec.msgpack.encode(offer)
            options = SendOptions(ttl_s=self.host.registry.lease_s, persistent=True)
            effects += self._send((host,), OFFER + queue, raw, now, None, options)
        return effects

    def _follow(self, kind: str, queue: str, message: CarriedMessage, now: float) -> list[MessagingEffect]:
        """Take the wish of a reader, or the offer of a holder."""
        if kind == READER:
            if not self.following.note(queue, message.id.system, now):
                self.host.tallies["refused", "reader"] += 1
            return []
        taken = self.following.take(queue, message, now)
        if taken is None:
            self.host.tallies["refused", "offer"] += 1
            return []
        return [taken, *self.host.wake(now)]

    # Deputies

    def _name_deputies(self, name: str, now: float) -> list[MessagingEffect]:
        """Tell the deputies of a topic that is held here who has subscribed; forget replicas of no use."""
        place, topic = self.host.registry.find(name, now), self.topics.get(name)
        if name not in self.host.registry.vacancies and name not in self.namings:
            self.replicas.pop(name, None)
        if topic is None or place is None or not place.deputies:
            return []
        states = topic.states(now)
        if name in self._wanted:
            states.append(self._own_state(True))
        return self._send_list(name, place.deputies, SubscriberList(states), now)

    def want(self, name: str, is_wanted: bool, now: float) -> list[MessagingEffect]:
        """Have this host sent the publications of a topic that is held here, should another hold it."""
        renew_at = self._wanted.get(name)
        is_known = renew_at is None if not is_wanted else renew_at is not None and now < renew_at
        if is_known:
            return []
        if is_wanted:
            self._wanted[name] = now + renewal_s(SUBSCRIPTION_S)
        else:
            del self._wanted[name]
        place = self.host.registry.find(name, now)
        if place is None or not place.deputies:
            return []
        return self._send_list(name, place.deputies, SubscriberList([self._own_state(is_wanted)]), now)

    def _own_state(self, is_wanted: bool) -> SubscriberState:
        return SubscriberState(self.host.name, self.host.next_stamp(), SUBSCRIPTION_S, not is_wanted)

    def _send_list(
        self, name: str, to: tuple[str, ...], subscribers: SubscriberList, now: float
    ) -> list[MessagingEffect]:
        raw = msgspec.msgpack.encode(subscribers)
        return self._send(to, LIST + name, raw, now, None, {"persistent": True})

    def _leave(self, effect: LeavePlace, now: float) -> list[MessagingEffect]:
        """Return the subscribers of a topic that was held here to its next holder."""
        topic = self.replicas[effect.name] = self.topics.pop(effect.name)
        self.namings[effect.name] = effect.naming
        return self._send_list(
            effect.name, (effect.holder,), SubscriberList(topic.states(now), effect.naming), now
        )

    def _hear_of(self, name: str, message: CarriedMessage, now: float) -> list[MessagingEffect]:
        """Take what another holder knows of the subscribers of a topic."""
        registry, topic = self.host.registry, self.topics.get(name)
        try:
            told = msgspec.msgpack.decode(message.raw, type=SubscriberList)
        except (msgspec.DecodeError, msgspec.ValidationError):
            told = None
        vacancy = registry.vacancies.get(name)
        if told is not None and topic is None and vacancy is not None:
            if vacancy.naming.holder == message.id.system:
                topic = self.replicas.setdefault(name, AdhocTopic(name))
        elif told is None or not self._is_deputy(name, message.id.system, told.naming):
            topic = None
        if topic is None or told is None:
            self.host.tallies["refused", "subscribers"] += 1
            return []
        self.host.tallies["refused", "subscription"] += topic.merge(told.states, now)
        self.on_change(topic)
        return []

    def _is_deputy(self, name: str, host: str, naming: Naming | None) -> bool:
        """Whether a host was named as a deputy of a topic, by this host or with it."""
        if naming is None or host not in naming.deputies:
            return False
        is_ours = self.host.name in (naming.holder, *naming.deputies)
        return is_ours and self.host.registry.has_named(name, "topic", naming)

    def _deliver(self, effect: DeliverMessage, now: float) -> list[MessagingEffect]:
        kind, _, name = effect.message.destination.partition(":")
        is_held = kind + ":" in (TOPIC, SUBSCRIPTION)
        topic = (self.topics.get(name) or self.replicas.get(name)) if is_held else None
        if kind + ":" == LIST:
            return self._hear_of(name, effect.message, now)
        if kind + ":" in (READER, OFFER):
            return self._follow(kind + ":", name, effect.message, now)
        if kind + ":" == SUBSCRIPTION:
            return self._change_here(topic, effect.message, now)
        if kind + ":" == TOPIC:
            if topic is None or not self.may_publish(effect.message, effect.left_s):
                self.host.tallies["refused", "publication"] += 1
                return []
            return self._fan_out(topic, effect.message, effect.left_s, now)
        return [effect]

    def _change_here(
        self, topic: AdhocTopic | None, message: CarriedMessage, now: float
    ) -> list[MessagingEffect]:
        """Do what a subscriber asks for; the deputies, or the host that holds the topic now, hear of it."""
        try:
            id, change = message.id, read_change(message.raw)
            is_done = topic is not None and topic.change(id.system, change, now, (id.epoch, id.counter))
        except CodecError:
            is_done = False
        if topic is None or not is_done:
            self.host.tallies["refused", "subscription"] += 1
            return []
        self.on_change(topic)
        place = self.host.registry.find(topic.name, now)
        states = [one for one in topic.states(now) if one.host == message.id.system]
        if place is None or not states:
            return []
        if topic.name in self.topics:
            to, naming = place.deputies, None
        else:
            to, naming = (place.holder,), self.namings.get(topic.name)
        return self._send_list(topic.name, to, SubscriberList(states, naming), now) if to else []

    def _fan_out(
        self, topic: AdhocTopic, message: CarriedMessage, left_s: float, now: float
    ) -> list[MessagingEffect]:
        """Send a publication to all subscribers with the rest of its life: one message for all away."""
        before = len(topic.subscribers)
        reached, away = topic.recipients(self._has_path_or_here, now)
        if len(topic.subscribers) < before:
            self.on_change(topic)
        options = SendOptions(
            ttl_s=left_s,
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
