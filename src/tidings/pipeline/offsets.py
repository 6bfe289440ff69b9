"""Offsets: the position of a stream at each of its nodes, as Spark keeps it in a checkpoint.

    {"127.0.0.1:7300": 4711, "ID 127.0.0.1:7300": "vKq3", "READER 127.0.0.1:7300": "spark-5ad1"}

The number is the first position that has not been read. The id is that of the node which had it: another node
at the same address, or the same one without its disk, counts its positions anew, and going on as if nothing
had happened would leave events out. The reader is the one that has created demand and kept events there: if
it is gone without having left, some may be missing. A query without demand has none, nor have checkpoints of
earlier versions. Spark compares offsets as text, so nodes stand in order of their names.

Spark does not store where a query began before its first batch is done: it asks anew, and the answer may have
changed. So the end of the first batch says that, too: `"BEGAN 127.0.0.1:7300": "4700"`.

The rule kept: the same two offsets mean the same events, on every call and in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct

ID = "ID "
READER = "READER "
BEGAN = "BEGAN "

Offset = dict[str, int | str]


class NodeExtent(Struct, frozen=True):
    """The extent of a node's log: its id, the lowest readable position, and one past the last."""

    node: str
    first: int
    end: int


class OffsetRange(Struct, frozen=True):
    """Positions from `first` up to `end`, without it, at one node."""

    label: str
    node: str
    first: int
    end: int


class Loss(Struct, frozen=True):
    """Events that a stream should have read and can't."""

    label: str
    problem: str


def offset_of(places: Mapping[str, int], ids: Mapping[str, str], reader: str | None = None) -> Offset:
    """Return the offset with these places, and the name of the reader that is there."""
    made: Offset = {}
    for label in sorted(places):
        made[label] = places[label]
        made[ID + label] = ids[label]
        if reader is not None:
            made[READER + label] = reader
    return made


def places_of(offset: Mapping[str, int | str]) -> dict[str, int]:
    """Return the place at each node."""
    return {label: place for label, place in offset.items() if isinstance(place, int)}


def id_of(offset: Mapping[str, int | str], label: str) -> str:
    """Return the id of the node that had the place."""
    return str(offset.get(ID + label, ""))


def readers_of(offset: Mapping[str, int | str]) -> dict[str, str]:
    """Return the name of the reader at each node that has one."""
    return {key.removeprefix(READER): str(name) for key, name in offset.items() if key.startswith(READER)}


def begun(end: Offset, start: Offset) -> Offset:
    """Return the end of the first batch, with the place where that began."""
    return {**end, **{BEGAN + label: str(place) for label, place in places_of(start).items()}}


def later(offset: Offset) -> Offset:
    """Return the same place for a batch that is not the first one."""
    return {key: value for key, value in offset.items() if not key.startswith(BEGAN)}


def losses(start: Offset, standings: Mapping[str, NodeExtent]) -> list[Loss]:
    """Return the events that can't be read any more after an offset."""
    found = []
    for label, place in places_of(start).items():
        standing = standings.get(label)
        problem = "the option 'node' no longer names it" if standing is None else None
        if standing is not None:
            problem = _problem(place, id_of(start, label), standing)
        if problem is not None:
            come = f"the stream has come to position {place} at node {label}"
            found.append(Loss(label, f"{come}, but {problem}"))
    return found


def _problem(place: int, node: str, standing: NodeExtent) -> str | None:
    if node != standing.node:
        return f"another node is there now: its id is {standing.node!r}, and was {node!r}"
    if place > standing.end:
        return f"its log ends at {standing.end}: it has lost what it had"
    if place < standing.first:
        return f"its log begins at {standing.first}: what came before has been pruned"
    return None


def resume_at(place: int, node: str, standing: NodeExtent) -> int:
    """Return where reading goes on at a node: at the place, or at the first position if that is gone."""
    return standing.first if _problem(place, node, standing) else place


def advance(
    start: Offset,
    standings: Mapping[str, NodeExtent],
    limit: int | None = None,
    targets: Mapping[str, int] | None = None,
    new: Mapping[str, int] | None = None,
    reader: str | None = None,
) -> Offset:
    """Return the offset up to which the next batch reads: everything, or so many positions of it.

    Nothing is read yet from a node that the start does not have: this batch only sets where the one after it
    begins there, at the place in `new` or at the end of the log. Nothing beyond the targets is read.
    """
    begins, ends = {}, {}
    for label, standing in standings.items():
        place = start.get(label)
        end = standing.end if targets is None else min(standing.end, targets.get(label, standing.end))
        if isinstance(place, int):
            begins[label] = resume_at(place, id_of(start, label), standing)
            ends[label] = max(begins[label], end)
        else:
            begins[label] = ends[label] = end if new is None else new.get(label, end)
    if limit is not None:
        shares = share(limit, {label: ends[label] - begins[label] for label in ends})
        ends = {label: begins[label] + shares[label] for label in ends}
    return offset_of(ends, {label: standing.node for label, standing in standings.items()}, reader)


def share(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share a number among all, to each in proportion to its wish and never more than that."""
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    shares = {label: limit * much // total for label, much in wanted.items()}
    left = limit - sum(shares.values())
    # The one that lost most by rounding comes first; names decide between equals, so that all agree.
    for label in sorted(wanted, key=lambda label: (-(limit * wanted[label] % total), label))[:left]:
        shares[label] += 1
    return shares


def spans(start: Offset, end: Offset) -> list[OffsetRange]:
    """Return the spans between two offsets."""
    found = []
    for label, last in places_of(end).items():
        node = id_of(end, label)
        first = start.get(label)
        if not isinstance(first, int):
            continue
        if BEGAN + label in end and BEGAN + label not in start:  # a batch after the first may end there, too
            first = int(end[BEGAN + label])
        elif id_of(start, label) != node or first > last:
            first = 0  # begun anew: all that this node has
        if first < last:
            found.append(OffsetRange(label, node, first, last))
    return found


def split(spans: Iterable[OffsetRange], pieces: int, least: int) -> list[OffsetRange]:
    """Return the same positions in about so many pieces, none needlessly shorter than `least`."""
    whole = [span for span in spans if span.first < span.end]
    total = sum(span.end - span.first for span in whole)
    size = max(least, -(-total // pieces)) if whole else 1
    cut = []
    for span in whole:
        length = span.end - span.first
        count = max(1, round(length / size))
        edges = [span.first + length * number // count for number in range(count + 1)]
        cut += [OffsetRange(span.label, span.node, *ends) for ends in pairwise(edges) if ends[0] < ends[1]]
    return cut
