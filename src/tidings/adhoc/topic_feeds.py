"""Topics of a node that meets hosts by chance: publications whose `subject` is the name of a topic.

A topic is held by a host, which announces it. Where it is known, a publication with its name as `subject` is
carried to its holder, and the holder sends it on to all durable subscribers that are out of reach, as one
message. A node subscribes at the holder for its own durable subscriptions that may match, as long as it has
any. Hosts in the network of the node get all that over its links; nothing is carried to these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidings.adhoc.carried_events import options_of, pack
from tidings.adhoc.records import SUBSCRIBERS, SubscriberRecord
from tidings.adhoc.topics import SUBSCRIPTION_S, AdhocTopic, TopicSubscriber
from tidings.errors import UserError
from tidings.event import Batch, Event
from tidings.event.relayed import RelayedBatch
from tidings.exchange import EventSink, NodeSubscription, Positions, Rows
from tidings.filters import Filter
from tidings.ids import ForwardedOrigin, Origin
from tidings.protocol.broker import Broker
from tidings.queues.message import event_bytes
from tidings.timers import renewal_s

if TYPE_CHECKING:
    from tidings.adhoc.service import AdhocService


class TopicFeeds:
    """Topics that are known to a node, and its own part in each."""

    def __init__(self, service: AdhocService, broker: Broker) -> None:
        self._service = service
        self._broker = broker
        self._feeds: dict[str, NodeSubscription] = {}
        self._subscribed: dict[str, tuple[str, float]] = {}  # by topic: its holder, and when to renew that
        self._stored: dict[str, set[str]] = {}  # subscribers that are stored, by topic
        service.messaging.on_change = self.keep_subscribers
        for (name, host), one in SUBSCRIBERS.known(broker.state).items():
            topic = service.messaging.known_topic(name)
            if topic is not None:
                ends_at = broker.deadline(one.ends, SUBSCRIPTION_S)
                topic.restore(host, TopicSubscriber(one.durable, ends_at, one.stamp, one.is_ended))
                self._stored.setdefault(name, set()).add(host)
            else:
                broker.store(SUBSCRIBERS.drop((name, host)))
        self.look()

    # Subscribers

    def drop_subscribers(self, name: str) -> None:
        """Forget who has subscribed to a topic that is not held here any more."""
        self._service.messaging.topics.pop(name, None)
        for host in self._stored.pop(name, ()):
            self._broker.store(SUBSCRIBERS.drop((name, host)))

    def keep_subscribers(self, topic: AdhocTopic) -> None:
        """Store who has subscribed to a topic that is, was or may be held here."""
        stored, known = self._stored.setdefault(topic.name, set()), topic.subscribers | topic.ended
        for host, one in known.items():
            ends = one.ends_at - self._broker.now + self._broker.wall
            record = SubscriberRecord(one.durable, ends, one.stamp, one.is_ended)
            self._broker.store(SUBSCRIBERS.set((topic.name, host), record))
        for gone in stored - known.keys():
            self._broker.store(SUBSCRIBERS.drop((topic.name, gone)))
        self._stored[topic.name] = set(known)

    # This node's part

    def look(self) -> None:
        """Follow the topics that are known, and subscribe to those that are wanted here."""
        now = self._broker.now
        topics = {place.name: place.holder for place in self._service.host.registry if place.kind == "topic"}
        for name in self._feeds.keys() - topics.keys():
            self._broker.exchange.unsubscribe(self._feeds.pop(name))
        for name in topics.keys() - self._feeds.keys():
            feed = NodeSubscription(Filter("subject = :topic", topic=name), _TopicSink(self, name), True)
            feed.is_local = True  # what other nodes take in is for them to send on
            self._feeds[name] = feed
            self._broker.exchange.subscribe(feed)
        for name, holder in topics.items():
            if holder != self._service.host.name:
                self._subscribe(name, holder, now)
            else:
                self._service.do(self._service.messaging.want(name, self._is_wanted(name), now))
        for name in self._subscribed.keys() - topics.keys():
            del self._subscribed[name]

    def _subscribe(self, topic: str, holder: str, now: float) -> None:
        wanted = self._is_wanted(topic)
        at, renew_at = self._subscribed.get(topic, ("", 0.0))
        if self._service.paths.is_linked(holder):
            return
        messaging = self._service.messaging
        if wanted and (at != holder or renew_at <= now):
            self._subscribed[topic] = holder, now + renewal_s(SUBSCRIPTION_S)
            self._service.do(messaging.subscribe(topic, now, durable=True))
        elif not wanted and at:
            del self._subscribed[topic]
            self._service.do(messaging.unsubscribe(topic, now))

    def _is_wanted(self, topic: str) -> bool:
        feed = self._feeds[topic].filter
        wanting = (one for one in self._broker.cursors.named if not (one.is_archive or one.has_left))
        return any(feed.overlaps(cursor.subscription.filter) for cursor in wanting)

    def publish(self, topic: str, event: Event) -> None:
        """Send a publication of this node on its way."""
        service, host = self._service, self._service.host.name
        origin = event.origin or Origin()
        source = f"{origin.source}@{host}" if origin.source else host
        raw = pack(event_bytes(event), replace(origin, source=source))
        try:
            service.do(service.messaging.publish(topic, raw, self._broker.now, **options_of(event)))
        except UserError:
            service.host.tallies["refused", "publication"] += 1


class _TopicSink(EventSink):
    """Takes the publications of this node's own clients to a topic."""

    def __init__(self, feeds: TopicFeeds, topic: str) -> None:
        self._feeds = feeds
        self._topic = topic

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:  # noqa: ARG002
        """Send these rows on their way, unless other hosts or nodes have brought them."""
        if isinstance(batch, RelayedBatch) or isinstance(batch.origin, ForwardedOrigin):
            return
        for row in map(int, rows):
            event = batch[row]
            if event.route != "direct":
                self._feeds.publish(self._topic, event)
