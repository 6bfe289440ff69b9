"""The pages of a node for those who watch over it: whether it lives, whether it serves, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings.node import metrics
from tidings.node.http import PLAIN_TEXT, HttpError
from tidings.protocol.access import Denied

if TYPE_CHECKING:
    from tidings.node.server import Node


class NodePages:
    """Pages of one node, by their paths."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.by_path = {"/metrics": self.show_metrics, "/healthz": self._health, "/readyz": self._readiness}

    async def _health(self, _authorization: str) -> tuple[str, str]:
        """The page for who asks whether the process lives and its loop turns, which answering shows."""
        return PLAIN_TEXT, "ok\n"

    async def _readiness(self, _authorization: str) -> tuple[str, str]:
        """The page for who asks whether clients are served: the store is open, and so are all ports."""
        if self._node.phase != "serving":
            raise HttpError(503, self._node.phase)
        return PLAIN_TEXT, "ready\n"

    async def show_metrics(self, authorization: str) -> tuple[str, str]:
        """The page of metrics, for the responder."""
        if self._node.phase == "stopping":
            raise HttpError(503, self._node.phase)
        shows_names = self._shows_names(authorization)
        found = self.collect(await self._node.driver.oldest_ages_s())
        listed = found if shows_names else map(metrics.nameless, found)
        return metrics.CONTENT_TYPE, metrics.render(listed)

    def _shows_names(self, authorization: str) -> bool:
        """Whether one who asks for metrics may know what queues, durables and peers there are."""
        if self._node.guard is None:
            return True
        now, broker = self._node.driver.time(), self._node.driver.broker
        try:
            return self._node.guard.is_manager(authorization, now, broker.wall)
        except Denied as denied:
            broker.count("logins_denied", reason=denied.reason)
            raise HttpError(401, str(denied)) from None

    def collect(self, ages_s: dict[tuple[str, str], float]) -> Iterator[metrics.Metric]:
        """Return all metrics; what waits longest for each durable subscription has this age."""
        driver, broker = self._node.driver, self._node.driver.broker
        status = broker.status()
        yield from metrics.counters(broker.tallies)
        yield metrics.gauge("connections", "Open connections.", driver.connections)
        yield metrics.gauge("subscriptions", "Subscriptions.", status["subscriptions"])
        yield metrics.gauge(
            "subscriptions_unindexed", "Subscriptions tried on every event.", status["unindexed"]
        )
        yield metrics.gauge("advertisements", "Advertisements.", status["advertisements"])
        yield metrics.gauge("position", "Position of the last stored event.", status["position"])
        yield metrics.gauge("outbox_bytes", "Bytes that wait to be sent.", driver.outbox_size)
        yield metrics.gauge("memory_bytes", "Bytes held for clients.", broker.memory.node.used)
        yield metrics.gauge(
            "memory_max_bytes", "The budget for `tidings_memory_bytes`.", broker.memory.node.limit
        )
        last_values = status["last_values"]
        yield metrics.gauge("last_values", "Last values that are kept by key.", last_values["values"])
        yield metrics.gauge("last_values_bytes", "Bytes that they count for.", last_values["bytes"])
        yield metrics.gauge("loop_lag_seconds", "Recent delay of the event loop.", driver.lag_s)
        yield from metrics.durable_gauges(status["durables"], ages_s)
        yield from metrics.queue_gauges(status["queues"])
        yield from metrics.log_gauges(status["log"])
        yield from metrics.peer_gauges(status["peers"])
        yield from metrics.channel_metrics(driver.core.channels.measured())
        yield from metrics.away_gauges(*driver.core.overlay.keeping.stored)
        if (adhoc := driver.core.adhoc) is not None:
            buffer, here = adhoc.host.buffer, len(adhoc.meetings)
            yield from metrics.adhoc_metrics(adhoc.host.tallies, len(buffer), buffer.size, here)
        if self._node.gateway is not None:
            yield from self._node.gateway.metrics()
