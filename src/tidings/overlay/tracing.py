"""Tracing: which way an event would take from this node on, and why it does not go elsewhere.

Nothing is published. Each node looks how many of its own subscriptions match and by which filter the event
would pass to each neighbour; it asks those neighbours to go on, and answers with their answers in its own. A
neighbour to which the event would not go is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from tidings.event import Batch, Event
from tidings.exchange import Grant, NodeSubscription
from tidings.filters import Filter
from tidings.overlay.neighbours import Neighbour
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, gathered

HOPS_MAX = 64
"""Hops that are followed: more than any sound tree has between two nodes."""
ANSWER_S = 5.0
"""How long a neighbour may take to answer for itself; one that is further away has less."""


class TraceRequest(Struct, frozen=True):
    """The arguments of `topology.trace` and `link.trace`: an array of one event, and the hops so far."""

    raw: Annotated[bytes, Meta(max_length=64 << 10)]
    hops: int = 0


def local_matches(broker: Broker, batch: Batch, is_link: Callable[[NodeSubscription], bool]) -> int:
    """Return how many subscriptions of this node's own clients match an event."""
    found = [one for one, _ in broker.exchange.match(batch)]
    return sum(not is_link(one) and not isinstance(one.sink, Grant) for one in found)


def passing_filter(neighbour: Neighbour, event: Event) -> Filter | None:
    """Return the first filter of a neighbour that an event matches."""
    if neighbour.table is None:
        return None
    entries = neighbour.table.entries.values()
    return next((entry.granted for entry in entries if entry.granted.matches(event)), None)


def follow(
    neighbour: Neighbour, batch: Batch, hops: int, later: Callable[..., None]
) -> Deferred[dict[str, Any]]:
    """Ask a neighbour to trace an event further; the reply is what is shown of this hop."""
    event = batch[0]
    shown: dict[str, Any] = {"to": neighbour.name or neighbour.node}
    reply: Deferred[dict[str, Any]] = Deferred()
    passed = passing_filter(neighbour, event)

    def stop(why: str) -> None:
        reply.resolve({**shown, "why": why})

    if not neighbour.is_active:
        stop("the link stands by")
    elif passed is None:
        stop(f"none of {0 if neighbour.table is None else len(neighbour.table)} filters matches")
    else:
        shown["passed"] = str(passed)
        if not neighbour.is_up:
            stop("the link is cut; a reliable event waits here")
        elif hops >= HOPS_MAX:
            stop(f"after {HOPS_MAX} hops; the tree has a cycle")
        else:
            asked = neighbour.send("link.trace", TraceRequest(batch.raw, hops + 1))
            asked.then(lambda told: reply.resolve({**shown, "there": told}), lambda error: stop(str(error)))
            later(max(1.0, ANSWER_S - hops * 0.1), lambda: stop("no answer"))
    return reply


def traced(
    node: str, at_us: int, local: int, hops: list[Deferred[dict[str, Any]]]
) -> Deferred[dict[str, Any]]:
    """Return what one node says of an event, when all behind it have answered."""

    def told(shown: list[dict[str, Any]]) -> dict[str, Any]:
        return {"node": node, "at_us": at_us, "subscriptions": local, "hops": shown}

    return gathered(hops).map(told)
