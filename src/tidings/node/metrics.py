"""Metrics: the node's counters and gauges, in the text format of Prometheus.

Counters are the broker's tallies, one name for each thing that is counted and a `reason` where it has one;
gauges are read at each request.

The age of durable subscriptions' oldest events is read from the store, and seldom. The storing time of the
first event behind a cursor stays the same until the cursor moves, so it is read once for each cursor, and for
some cursors at a time, so that other readers have their turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tidings.channels.description import ChannelCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HELP = {
    "connections": "Connections that were accepted.",
    "published": "Events that were accepted from clients.",
    "dropped": "Events that a subscription did not get, by reason.",
    "patterns_lost": "Patterns that began anew, as the node with their partial matches was lost.",
    "patterns_unused": "Events that are steps of patterns and could not be used, by reason.",
    "last_values_dropped": "Last values that the node did not keep, by reason.",
    "holds_ended": "Subscriptions that held publishers for too long, by reason.",
    "closed": "Connections that the node ended, by reason.",
    "refused": "Requests that were refused, by reason.",
    "turned_away": "Connections that were not accepted, by reason.",
    "logins_denied": "Logins that were denied, by reason.",
    "joins": "Requests of nodes that have joined by an invitation.",
    "reloads": "Reloads of users and rules, by outcome.",
    "commits": "Commits of the store.",
    "failures": "Failures of the store, by reason.",
    "put": "Messages that were put into queues.",
    "forwarded": "Events that other nodes have forwarded to this one.",
    "forwarded_back": "Events that came round a ring of upstreams, and were dropped.",
    "relayed": "Events that were sent to neighbour nodes.",
    "relayed_again": "Events of neighbour nodes that were had before and handed on, as others may lack them.",
    "compressed_bytes": "Bytes to neighbours over slow links, before and after compression.",
    "answers_dropped": "Answers to inboxes that were dropped on their way between nodes, by reason.",
    "relays_refused": "Events of neighbour nodes that were not taken, by reason.",
    "relays_wasted": "Events that a neighbour node has sent for nobody, by merged filters that match more.",
    "relays_lost": "Events that neighbour nodes could not send, by reason.",
    "links_up": "Links to neighbour nodes that came up.",
    "weights_disagree": "Times that both ends of a link began to weigh it differently.",
    "neighbours_suspected": "Neighbour nodes that were silent, so that others were asked about them.",
    "neighbours_slow": "Neighbour nodes that were suspected, and heard again.",
    "neighbours_dead": "Neighbour nodes that were given up for their silence, by what is dead.",
    "neighbours_stalled": "Neighbour nodes that confirmed nothing for too long, so they count as away.",
    "away_dropped": "Events that were given up for neighbour nodes that are away.",
    "gaps": "Gaps in the events of other nodes that were reported to subscriptions.",
    "late": "Events that came after they were reported as missed.",
    "attached": "Links that were begun to coordinators, and by them.",
    "bypassed": "Links that were begun round lost nodes and links.",
    "twins_refused": "Links that were refused to nodes with the id of another that has one.",
    "announcements_refused": "Announcements that neighbour nodes have not taken.",
    "offers_unanswered": "Times that a neighbour node did not answer an advertisement in time.",
    "handed_out": "Messages delivered to consumers.",
    "acknowledged": "Messages that were acknowledged.",
    "buried": "Messages that became dead letters.",
    "transactions": "Transactions that ended, by outcome.",
    "clients_ahead": "Clients that are ahead of the store, which is an older copy.",
    "leases_ended": "Readers of the log that did not renew their lease in time.",
    "agent_events": "What has happened in groups of agents, by the type of its event.",
    "agent_refusals": "Requests for groups of agents that were refused, by reason.",
    "agent_homes": "Groups with deputies that this node has stood in for or stepped back from, by reason.",
    "adhoc_meetings": "Meetings with other hosts.",
    "adhoc_sent": "Messages of this host that were to be carried.",
    "adhoc_carried": "Messages that were taken into the buffer.",
    "adhoc_received": "Copies that came from other hosts.",
    "adhoc_delivered": "Carried messages that have arrived here.",
    "adhoc_stood_in": "Times that this host has taken the place of the holder of a queue or topic.",
    "adhoc_undelivered": "Carried messages that have arrived and could not be used, by reason.",
    "adhoc_refused": "What hosts have sent that was refused, by reason.",
    "adhoc_dropped": "Messages that left the buffer, by reason.",
}

Labels = Mapping[str, str]
PUBLIC_LABELS = frozenset({"reason"})
"""Labels whose values are the node's own words, not names."""
AGES_MAX = 1_000
"""Durable subscriptions whose oldest event is looked up."""
AT_ONCE = 20
"""Cursors that are looked up in one request to the store."""

CHANNELS_NAMED_MAX = 1_000
"""Channels that have metrics of their own."""

Look = Callable[[int], int | None]
"""Returns when the first event from a position on was stored, None if there is none; called in a thread."""
Ask = Callable[..., Future[Any]]


class Metric(NamedTuple):
    """All values of one name."""

    name: str
    kind: str  # counter or gauge
    help: str
    values: Sequence[tuple[Labels, float]]


def counters(tallies: Mapping[tuple[str, str], int]) -> Iterable[Metric]:
    """Yield one counter for each thing that is counted."""
    for what, group in groupby(sorted(tallies.items()), key=lambda item: item[0][0]):
        values = [({"reason": reason} if reason else {}, float(times)) for (_, reason), times in group]
        yield Metric(f"tidings_{what}_total", "counter", HELP.get(what, f"How often: {what}."), values)


def gauge(name: str, help: str, value: float) -> Metric:
    """Return a gauge of one value without labels."""
    return Metric(f"tidings_{name}", "gauge", help, [({}, float(value))])


def durable_gauges(
    durables: Iterable[Mapping[str, Any]], ages_s: Mapping[tuple[str, str], float]
) -> Iterable[Metric]:
    """Yield depth and oldest age of each durable subscription; the age is 0 where nothing waits."""
    named = [({"name": one["name"], "owner": one["owner"]}, one) for one in durables]
    depths = [(labels, float(one["depth"])) for labels, one in named]
    help = "Stored events behind the cursor of a durable subscription."
    yield Metric("tidings_durable_depth", "gauge", help, depths)
    ages = [(labels, ages_s.get((one["owner"], one["name"]), 0.0)) for labels, one in named]
    help = "Age of the oldest stored event behind the cursor."
    yield Metric("tidings_durable_oldest_age_seconds", "gauge", help, ages)


def peer_gauges(peers: Iterable[Mapping[str, Any]]) -> Iterable[Metric]:
    """Yield the state and backlog of each peer."""
    there = [({"peer": one["name"]}, float(one["state"] == "there")) for one in peers]
    yield Metric("tidings_peer_there", "gauge", "Whether a peer is connected.", there)
    waiting = [({"peer": one["name"]}, float(one["waiting"])) for one in peers]
    yield Metric("tidings_peer_waiting", "gauge", "Messages that wait here for a peer.", waiting)


def away_gauges(events: int, size: int) -> Iterable[Metric]:
    """What is kept for neighbour nodes that are away."""
    yield gauge("away_events", "Events that are kept for neighbour nodes that are away.", events)
    yield gauge("away_bytes", "Bytes of these events.", size)


def adhoc_metrics(
    tallies: Mapping[tuple[str, str], int], messages: int, size: int, here: int
) -> Iterable[Metric]:
    """Yield what a node does for hosts that it meets by chance."""
    yield from counters({(f"adhoc_{what}", reason): times for (what, reason), times in tallies.items()})
    yield gauge("adhoc_messages", "Messages that are carried.", messages)
    yield gauge("adhoc_bytes", "Bytes of these messages.", size)
    yield gauge("adhoc_here", "Hosts that are met now.", here)


def queue_gauges(queues: Sequence[Mapping[str, Any]]) -> Iterable[Metric]:
    """Yield the depth, readers and age of each queue."""
    for field, name, help in (
        ("messages", "messages", "Messages that wait in a queue."),
        ("in_flight", "in_flight", "Messages of a queue that are in flight."),
        ("delayed", "delayed", "Messages of a queue that are not due yet."),
        ("waiting", "waiting_readers", "Readers that wait at a queue."),
        ("age_s", "next_age_seconds", "Time that the next message has waited."),
    ):
        values = [({"queue": one["name"]}, float(one[field])) for one in queues]
        yield Metric(f"tidings_queue_{name}", "gauge", help, values)


def channel_metrics(measured: Iterable[tuple[str, int, ChannelCounts]]) -> Iterable[Metric]:
    """Yield members and counts of the channels of a node, each by `name@node`.

    Private ones, which have no name here, and those beyond `CHANNELS_NAMED_MAX` become one.
    """
    members: Counter[str] = Counter()
    totals: dict[str, Counter[str]] = {"joins": Counter(), "leaves": Counter(), "sent": Counter()}
    for label, count, counts in measured:
        name = label if label in members or len(members) < CHANNELS_NAMED_MAX else ""
        members[name] += count
        for what, total in totals.items():
            total[name] += getattr(counts, what)
    for name, kind, help, values in (
        ("members", "gauge", "Members of a channel at this node.", members),
        ("joins_total", "counter", "Members that have joined a channel here.", totals["joins"]),
        ("leaves_total", "counter", "Members that have left it.", totals["leaves"]),
        ("sent_total", "counter", "Events that members have sent here.", totals["sent"]),
    ):
        labelled = [({"channel": one}, float(value)) for one, value in values.items()]
        yield Metric(f"tidings_channel_{name}", kind, help, labelled)


def log_gauges(log: Mapping[str, Any]) -> Iterable[Metric]:
    """Yield positions and sizes of the log."""
    yield gauge("log_first", "The lowest position in the log.", log["first"])
    yield gauge("log_end", "The position after the last one in the log.", log["end"])
    yield gauge("log_sealed", "The position up to which the log is sealed.", log["sealed"])
    yield gauge("log_files", "Files that the log is sealed into.", log["files"])
    yield gauge("log_sealed_bytes", "Bytes of these files.", log["sealed_bytes"])
    yield Metric(
        "tidings_logged_bytes_total", "counter", "Bytes written to the log.", [({}, float(log["bytes"]))]
    )


def nameless(metric: Metric) -> Metric:
    """Return the metric for a client that may not learn names of queues, subscriptions, users and peers.

    The values of a metric with names become one: their sum, or the highest of seconds.
    """
    if all(labels.keys() <= PUBLIC_LABELS for labels, _ in metric.values):
        return metric
    values = [value for _, value in metric.values]
    return metric._replace(values=[({}, max(values) if metric.name.endswith("_seconds") else sum(values))])


def render(metrics: Iterable[Metric]) -> str:
    """Return the text of the page; metrics without values are left out."""
    lines: list[str] = []
    for metric in metrics:
        if metric.values:
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += [f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.values]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


class Ages:
    """Ages of the oldest events of durable subscriptions. `ask` runs a function in a thread."""

    def __init__(self, look: Look, ask: Ask) -> None:
        self._look = look
        self._ask = ask
        self._stored_us: dict[int, int] = {}  # by cursor

    async def oldest_s(self, durables: Iterable[dict[str, Any]], now: float) -> dict[tuple[str, str], float]:
        """Return the seconds since the oldest event behind each cursor was stored, by owner and name."""
        behind = [one for one in durables if one["depth"]][:AGES_MAX]
        cursors = {one["cursor"] for one in behind}
        known = {cursor: at_us for cursor, at_us in self._stored_us.items() if cursor in cursors}
        unknown = sorted(cursors - known.keys())
        for first in range(0, len(unknown), AT_ONCE):
            some = unknown[first : first + AT_ONCE]
            found = await asyncio.wrap_future(self._ask(self._look_up, some))
            known.update((cursor, at_us) for cursor, at_us in found if at_us is not None)
        self._stored_us = known
        return {
            (one["owner"], one["name"]): max(0.0, now - known[one["cursor"]] / 1e6)
            for one in behind
            if one["cursor"] in known
        }

    def _look_up(self, cursors: Sequence[int]) -> list[tuple[int, int | None]]:
        return [(cursor, self._look(cursor + 1)) for cursor in cursors]
