"""The part of a bus for hosts that its node meets by chance: what the node carries, and whom it meets."""

from __future__ import annotations

from typing import Any, Literal

from tidings.client.bus_part import BusPart
from tidings.errors import Refused, UserError
from tidings.event import Event
from tidings.event.wire import encode_events

PlaceKind = Literal["queue", "topic"]


class BusAdhoc(BusPart):
    """The part of a bus for hosts that meet; for nodes that are run with `--adhoc`."""

    async def adhoc_status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return what the node carries, and what it has counted; takes the right to manage."""
        status: dict[str, Any] = await self._ask("adhoc.status", {}, timeout_s)
        return status

    async def adhoc_neighbours(self, *, timeout_s: float | None = None) -> list[dict[str, Any]]:
        """Return the hosts that are met now, and those that were, the last one first."""
        hosts: list[dict[str, Any]] = await self._ask("adhoc.neighbours", {}, timeout_s)
        return hosts

    async def adhoc_why(self, id: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return where a message is as far as the node knows, who has it, and why it waits.

        `id` is that of the message, or of an event that was put at this node.
        """
        why: dict[str, Any] = await self._ask("adhoc.why", {"id": id}, timeout_s)
        return why

    async def adhoc_hold(
        self,
        name: str,
        *,
        kind: PlaceKind = "queue",
        host: str = "",
        replicas: int = 0,
        follow: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Have the node hold a queue or a topic, which it announces to all hosts that it meets.

        As many `replicas` are at hosts that it often meets: one of these stands in for it when it is gone.
        With `follow` a queue goes to the host whose clients want most to read it.
        With a `host` the queue or topic is known to be there instead: an entry by hand, for a host that was
        never met.
        """
        about = {"name": name, "kind": kind, "host": host, "replicas": replicas, "follow": follow}
        await self._ask("adhoc.hold", about, timeout_s)

    async def adhoc_release(self, name: str, *, timeout_s: float | None = None) -> None:
        """Have the node hold a queue or topic no longer, or forget an entry."""
        await self._ask("adhoc.release", {"name": name}, timeout_s)

    async def adhoc_cast(self, area: str, event: Event, *, timeout_s: float | None = None) -> str:
        """Have an event carried to all nodes within an area, a polygon in WKT; return the id of the message.

        It is published at each of them, as long as its `ttl_s` lasts: a day, if it has none. Needs the extra
        `geo` at this node and at those within.
        """
        told = await self._ask("adhoc.cast", {"area": area, "raw": encode_events([event])}, timeout_s)
        return str(told["id"])

    async def adhoc_move(self, x: float, y: float, *, timeout_s: float | None = None) -> None:
        """Say where the node is from now on; takes the right to manage."""
        await self._ask("adhoc.move", {"x": float(x), "y": float(y)}, timeout_s)

    async def _ask(self, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        try:
            return await self._link.call(operation, arguments, timeout_s, "again")
        except Refused as error:
            if error.code == "not-found" and "operation" in str(error):
                raise UserError("this node meets no hosts by chance; run it with --adhoc") from None
            raise
