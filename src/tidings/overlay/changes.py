"""Changes of a network between two looks at it, as `tidings topology --watch` shows them.

A link is *up* in the tree, *stands by*, is *cut*, or *lost*, by what both its ends say; of its own links a
node also says whether it suspects the neighbour. A link that others have made round a node that is gone
appears as new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tidings.overlay.coordinating import Subnets
from tidings.overlay.records import LinkRecord, NodeRecord
from tidings.overlay.tree import edges_of

GONE = "gone"
"""State of a node or a link that is not known (any more)."""


class Change(Struct, frozen=True):
    """Link or node that has another state than before."""

    kind: str  # link, or node
    names: tuple[str, ...]
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.kind} {' – '.join(self.names)}: {self.was} → {self.now}"


class NetworkSight:
    """The state of each node and link in one reply to `topology`."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        records = {one.node: one for one in msgspec.convert(reply["records"], list[NodeRecord])}
        tree = {tuple(sorted(edge)) for edge in reply["tree"]}
        self.names = {node: record.name or node for node, record in records.items()}
        self.states: dict[tuple[str, ...], str] = {}
        subnets = Subnets(records.values(), edges_of(records.values()))
        for node, record in records.items():
            state = "coordinator" if subnets.members[node] else "there"
            self.states[node,] = "leaf" if node in subnets.leaves else state
            for link in record.links:
                ends = tuple(sorted((node, link.neighbour)))
                back = _link(records.get(link.neighbour), node)
                if back is not None:
                    is_up = link.is_up and back.is_up
                    state = ("up" if ends in tree else "stands by") if is_up else "cut"
                    self.states[ends] = "lost" if (link.lost or back.lost) and not is_up else state
        for status in reply["links"]:
            ends = tuple(sorted((reply["node"], status["node"])))
            if status.get("suspected") and ends in self.states:
                self.states[ends] = "suspected"

    def since(self, before: NetworkSight) -> Iterator[Change]:
        """Yield what has changed since an earlier look."""
        names = before.names | self.names
        for ends in sorted(before.states.keys() | self.states.keys(), key=lambda ends: (len(ends), ends)):
            was, now = before.states.get(ends, GONE), self.states.get(ends, GONE)
            if was != now:
                named = tuple(sorted(names.get(end, end) for end in ends))
                yield Change("node" if len(ends) == 1 else "link", named, was, now)


def _link(record: NodeRecord | None, neighbour: str) -> LinkRecord | None:
    """Return what a node says of its link to a neighbour; None if nothing."""
    links = () if record is None else record.links
    return next((one for one in links if one.neighbour == neighbour), None)
