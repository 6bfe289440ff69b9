"""Queues: messages that wait until someone fetches them, each for one reader; without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.protocol.broker import Broker
from tidings.queues.description import Description
from tidings.queues.manager import QueueManager
from tidings.queues.message import QueuedMessage
from tidings.queues.queue import MessageQueue
from tidings.queues.service import QueueService
from tidings.queues.types import Sqlite, Volatile
from tidings.store.interface import Store, StoredMessage

__all__ = [
    "Description",
    "MessageQueue",
    "QueueManager",
    "QueuedMessage",
    "Sqlite",
    "Volatile",
    "open_queues",
]


def open_queues(
    broker: Broker,
    store: Store,
    lasts: bool,
    types: Iterable[type[Volatile]] = (),
    messages: Iterator[StoredMessage] | None = None,
) -> QueueManager:
    """Give a broker its queues, with what was stored of them; `lasts`: what is stored survives a restart.

    `messages` are those of the queues, where the store has others too.
    """
    manager = QueueManager(broker, lasts, types)
    manager.restore(store.state.queues, store.messages() if messages is None else messages)
    broker.add(QueueService(manager))
    return manager
