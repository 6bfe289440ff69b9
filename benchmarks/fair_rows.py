"""The rows of `tidings bench fair`: what one client may do to a node within every documented limit.

A new operation has its row here: a name, a sentence, what is done, and the sizes, whole and quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks import fair_events, fair_gateway, fair_queues, fair_systems, fair_wire
from benchmarks.arena import Act
from benchmarks.hostile import Load

Sizes = dict[str, int]


@dataclass(frozen=True)
class Row:
    """One thing that a hostile client does; `prepare` is done before the canary is listened to."""

    name: str
    what: str
    attack: Act
    prepare: Act | None = None
    sizes: Sizes = field(default_factory=dict)
    quick: Sizes = field(default_factory=dict)
    needs_gateway: bool = False  # and the canary is a network that speaks to it

    def sizes_of(self, is_quick: bool) -> Sizes:
        """The sizes of a run."""
        return self.quick if is_quick else self.sizes


def _nothing(load: Load) -> None:
    """Be there, and do nothing."""
    load.connect().rest(load.deadline)


EVENTS = (
    Row("idle", "nothing hostile", _nothing),
    Row(
        "interest",
        "advertisements and subscriptions that overlap, then some that come and go",
        fair_events.interest,
        sizes={"advertisements": 1_000, "subscriptions": 120, "turns": 100},
        quick={"advertisements": 60, "subscriptions": 40, "turns": 10},
    ),
    Row(
        "leave",
        "a session with many subscriptions is gone at once",
        fair_events.leave,
        fair_events.leave_prepare,
        sizes={"subscriptions": 9_990, "advertisements": 100},
        quick={"subscriptions": 300, "advertisements": 10},
    ),
    Row(
        "advertisement lists",
        "the list of very many advertisements, again and again",
        fair_events.lists,
        fair_events.lists_prepare,
        sizes={"advertisements": 9_990, "lists": 20},
        quick={"advertisements": 300, "lists": 5},
    ),
    Row(
        "subscription lists",
        "the list of very many subscriptions, again and again",
        fair_events.demands,
        fair_events.demands_prepare,
        sizes={"subscriptions": 9_990, "lists": 20},
        quick={"subscriptions": 300, "lists": 5},
    ),
    Row(
        "topics",
        "filters with wildcards in front, and events in one batch",
        fair_events.topics,
        sizes={"filters": 9_990, "events": 2_000},
        quick={"filters": 300, "events": 200},
    ),
    Row(
        "comparisons",
        "filters that compare attributes, and events in one batch",
        fair_events.comparisons,
        sizes={"filters": 9_990, "events": 2_000},
        quick={"filters": 300, "events": 200},
    ),
    Row(
        "long filters",
        "filters of 250 kB each",
        fair_events.long_filters,
        sizes={"filters": 30, "length": 250_000},
        quick={"filters": 6, "length": 50_000},
    ),
    Row(
        "last values",
        "8 MB of small events, then subscriptions that ask for the last values",
        fair_events.last,
        fair_events.last_prepare,
        sizes={"events": 120_000, "subscriptions": 20},
        quick={"events": 5_000, "subscriptions": 4},
    ),
    Row(
        "latest",
        "subscriptions that keep the newest of each key and take none",
        fair_events.latest,
        sizes={"subscriptions": 100, "events": 9_000},
        quick={"subscriptions": 10, "events": 500},
    ),
    Row(
        "fan-out",
        "8.5 MB for 300 subscriptions of one session that do not read",
        fair_events.fan_out,
        sizes={"sessions": 1, "subscriptions": 300, "bytes": 8_500_000},
        quick={"sessions": 1, "subscriptions": 30, "bytes": 1_000_000},
    ),
    Row(
        "fan-out sessions",
        "8.5 MB for 300 subscriptions of 30 sessions that do not read",
        fair_events.fan_out,
        sizes={"sessions": 30, "subscriptions": 300, "bytes": 8_500_000},
        quick={"sessions": 6, "subscriptions": 30, "bytes": 1_000_000},
    ),
    Row(
        "block",
        "a subscriber that has publishers wait and takes nothing",
        fair_events.block,
        sizes={"events": 10_000},
        quick={"events": 1_000},
    ),
)

QUEUES = (
    Row(
        "search",
        "searches by LIKE in a long queue, which find nothing",
        fair_queues.search,
        fair_queues.fill,
        sizes={"messages": 100_000, "searches": 100},
        quick={"messages": 5_000, "searches": 20},
    ),
    Row(
        "first search",
        "the first search by each of seven attributes in a long queue",
        fair_queues.search_first,
        fair_queues.fill,
        sizes={"messages": 100_000},
        quick={"messages": 5_000},
    ),
    Row(
        "purge",
        "a long queue is purged by a filter, another one deleted",
        fair_queues.purge,
        fair_queues.fill_two,
        sizes={"messages": 100_000},
        quick={"messages": 5_000},
    ),
    Row(
        "never reads",
        "answers of 1 MB each, of which none is read",
        fair_queues.never_reads,
        fair_queues.fill_large,
        sizes={"requests": 200},
        quick={"requests": 20},
    ),
    Row(
        "storm",
        "small requests and settlements, as many as can be sent",
        fair_queues.storm,
        sizes={"requests": 100_000},
        quick={"requests": 4_000},
    ),
    Row(
        "sessions",
        "connections with a search and a long filter each, all at once",
        fair_queues.sessions,
        fair_queues.fill,
        sizes={"sessions": 100, "messages": 20_000, "words": 2_000, "turns": 3},
        quick={"sessions": 20, "messages": 2_000, "words": 200, "turns": 1},
    ),
)

OTHERS = (
    Row(
        "arrays",
        "a request of millions of empty arrays",
        fair_wire.arrays,
        sizes={"bytes": 7_000_000},
        quick={"bytes": 300_000},
    ),
    Row(
        "replay",
        "readers of a long log who find nothing",
        fair_wire.replay,
        fair_wire.log_prepare,
        sizes={"bytes": 100_000_000, "readers": 50},
        quick={"bytes": 3_000_000, "readers": 20},
    ),
    Row(
        "staged",
        "rows for a sink that are never committed, up to its limit",
        fair_wire.staged,
        sizes={"pieces": 90},
        quick={"pieces": 4},
    ),
)

SYSTEMS = (
    Row(
        "patterns",
        "patterns that take every event, each of another key",
        fair_systems.patterns,
        sizes={"patterns": 900, "events": 20_000},
        quick={"patterns": 90, "events": 500},
    ),
    Row(
        "pattern of one key",
        "a pattern with as many open matches as there may be",
        fair_systems.one_key,
        sizes={"events": 20_000},
        quick={"events": 1_000},
    ),
    Row(
        "channels",
        "channels that are made, listed again and again, and deleted",
        fair_systems.channels,
        sizes={"channels": 10_000, "lists": 20},
        quick={"channels": 200, "lists": 5},
    ),
    Row(
        "members",
        "a causal channel with members that do not read, and its events",
        fair_systems.members,
        sizes={"members": 9_990, "events": 2_000},
        quick={"members": 300, "events": 200},
    ),
    Row(
        "groups",
        "groups of agents, and the list of all of them again and again",
        fair_systems.groups,
        sizes={"groups": 9_990, "lists": 20},
        quick={"groups": 100, "lists": 5},
    ),
    Row(
        "crowd",
        "a group with as many agents as there may be, renewed and shown at once, then ended",
        fair_systems.crowd,
        fair_systems.crowd_prepare,
        sizes={"agents": 9_990, "turns": 20},
        quick={"agents": 300, "turns": 5},
    ),
    Row(
        "delayed",
        "messages that are all due at one moment, with readers that wait for them",
        fair_systems.delayed,
        sizes={"messages": 100_000, "readers": 100, "due_s": 5},
        quick={"messages": 3_000, "readers": 10, "due_s": 1},
    ),
    Row(
        "collapses",
        "collapses of a long log to a row for each event, several at once",
        fair_systems.collapses,
        fair_wire.log_prepare,
        sizes={"bytes": 100_000_000, "readers": 20},
        quick={"bytes": 3_000_000, "readers": 5},
    ),
)

GATEWAY = (
    Row(
        "gateway",
        "a WebSocket message of a byte a frame; the canary is another network",
        fair_gateway.tiny_frames,
        sizes={"frames": 1_000_000},
        quick={"frames": 20_000},
        needs_gateway=True,
    ),
)

ROWS: dict[str, Row] = {row.name: row for row in (*EVENTS, *QUEUES, *OTHERS, *SYSTEMS, *GATEWAY)}
