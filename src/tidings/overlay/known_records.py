"""Records that a node has, the newest of each node, and the digests by which two nodes compare theirs.

A record whose node no edges connect with this one is *lost*. It is kept for a while, since the link that
joins them may come back, but it is neither compared nor sent: nodes that forget at different moments would
give such records to each other again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tidings.overlay.records import (
    ALL_LINKS_MAX,
    NODES_MAX,
    SLOTS,
    LinkRecord,
    NodeRecord,
    Stamp,
    slot_of,
)


class KnownRecords:
    """The newest record of each node, by the ids of the nodes."""

    def __init__(self) -> None:
        self.lost: dict[str, float] = {}
        """Nodes that are out of reach, and when each is to be forgotten."""
        self.newest = 0
        """Latest moment since when a link is there, in any record so far."""
        self.run = 0
        """The last run of the tree that any record so far has named."""
        self._records: dict[str, NodeRecord] = {}
        self._links = 0
        self.get = self._records.get

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._records.values())

    def __contains__(self, node: str) -> bool:
        return node in self._records

    def __getitem__(self, node: str) -> NodeRecord:
        return self._records[node]

    def link(self, node: str, neighbour: str) -> LinkRecord | None:
        """Return the link of a node to a neighbour, as the node says; None if it does not name it."""
        return next((link for link in self.links_of(node) if link.neighbour == neighbour), None)

    def links_of(self, node: str) -> tuple[LinkRecord, ...]:
        """Return the links that a node names; none of one that is not known."""
        record = self._records.get(node)
        return () if record is None else record.links

    def names(self, nodes: Collection[str]) -> dict[str, str | None]:
        """Return the ids of some nodes by their names; None for a name that several have."""
        found: dict[str, str | None] = {}
        for record in self:
            if record.node in nodes:
                found[record.name] = None if record.name in found else record.node
        return found

    def fits(self, record: NodeRecord) -> bool:
        """Whether there is room for a record."""
        known = self._records.get(record.node)
        if known is None and len(self._records) >= NODES_MAX:
            return False
        more = len(record.links) - (0 if known is None else len(known.links))
        return more <= 0 or self._links + more <= ALL_LINKS_MAX

    def put(self, record: NodeRecord) -> bool:
        """Put a record in place of an older one; return whether edges may have changed by that."""
        node = record.node
        known = self._records.get(node)
        self._records[node] = record
        is_run, self.run = record.run > self.run, max(record.run, self.run)
        if known is None:
            self._links += len(record.links)
            return self._is_edge(node, record.links) or is_run
        self._links += len(record.links) - len(known.links)
        is_edge = self._is_edge(node, _changed(known.links, record.links, self.run))
        return is_edge or is_run or (known.leaf, known.subnet) != (record.leaf, record.subnet)

    def _is_edge(self, node: str, links: Iterable[LinkRecord]) -> bool:
        """Whether the other end names one of these links of a node, too."""
        is_edge = False
        for link in links:
            if link.since > self.newest or link.lost > self.newest:
                self.newest = max(link.since, link.lost)
            other = self._records.get(link.neighbour)
            is_edge = is_edge or (other is not None and _names(other, node))
        return is_edge

    def drop(self, node: str) -> None:
        """Forget a record."""
        record = self._records.pop(node)
        self._links -= len(record.links)
        self.lost.pop(node, None)

    # Those out of reach

    def reach(self, reached: Collection[str], until: float) -> list[NodeRecord]:
        """Note which nodes are in reach; return the records of those that were not.

        Those that no longer are, are to be forgotten at a moment.
        """
        found = [record for record in self if record.node in reached and record.node in self.lost]
        for record in found:
            del self.lost[record.node]
        for record in self:
            if record.node not in reached:
                self.lost.setdefault(record.node, until)
        return found

    def due(self, now: float) -> list[str]:
        """Return the nodes that were out of reach for so long that they are to be forgotten."""
        return [node for node, moment in self.lost.items() if moment <= now]

    # Comparing

    def stamps(self, slot: int) -> dict[str, Stamp]:
        """Return the stamps of the records in a slot, without the lost ones."""
        found = self._records.items()
        return {node: record.stamp for node, record in found if self._is_in(slot, node)}

    def _is_in(self, slot: int, node: str) -> bool:
        return slot_of(node) == slot and node not in self.lost

    def newer(self, slot: int, stamps: dict[str, Stamp]) -> list[NodeRecord]:
        """Return the records in a slot of which another node has none, or an older one by its stamps."""
        least = (-1, 0, 0)
        mine = self.stamps(slot)
        return [self._records[node] for node, stamp in mine.items() if stamp > stamps.get(node, least)]

    def digests(self, without: tuple[str, ...]) -> tuple[int, ...]:
        """Return one number for each slot, of all records but the lost ones and those of some nodes."""
        slots = [0] * SLOTS
        for node, record in self._records.items():
            if node not in self.lost and node not in without:
                slots[slot_of(node)] ^= record.fingerprint
        return tuple(slots)


def _names(record: NodeRecord, neighbour: str) -> bool:
    """Whether a record names a neighbour."""
    for link in record.links:  # noqa: SIM110  # a generator takes twice as long, for each of all records
        if link.neighbour == neighbour:
            return True
    return False


def _changed(before: Sequence[LinkRecord], after: Sequence[LinkRecord], run: int) -> list[LinkRecord]:
    """Return the links that came, went, or have another place in the order; one that is cut stays an edge."""
    old = {link.neighbour: link for link in before}
    changed = []
    for link in after:
        known = old.pop(link.neighbour, None)
        if known is None or _place(known, run) != _place(link, run):
            changed.append(link)
    return [*changed, *old.values()]


def _place(link: LinkRecord, run: int) -> tuple[int, int, int]:
    """Return what of a link matters for the order of edges."""
    return link.since, link.lost, link.weight_in(run)
