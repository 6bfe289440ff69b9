"""Effects of a topology, carried out in the order of their list."""

from __future__ import annotations

from msgspec import Struct

from tidings.overlay.records import Digest, NodeRecord, Stamp, Stamps


class SendOwn(Struct, frozen=True):
    """Send a neighbour that has the same records of others the stamp of this node's; for its `Comparing`."""

    neighbour: str
    stamp: Stamp


class SendDigest(Struct, frozen=True):
    """Send a neighbour the digest of all records, by which it finds what it lacks; for its `Comparing`."""

    neighbour: str
    digest: Digest


class SendStamps(Struct, frozen=True):
    """Send a neighbour the stamps of a slot whose digests differ; for its `Comparing`."""

    neighbour: str
    stamps: Stamps


class SendRecords(Struct, frozen=True):
    """Send a neighbour records; to `hear` there."""

    neighbour: str
    records: tuple[NodeRecord, ...]


class StoreAdjacency(Struct, frozen=True):
    """Store this node's record, which it is to know again when it starts: its links have changed."""

    record: NodeRecord


class TreeChanged(Struct, frozen=True):
    """Read `tree` again: it may be another one. None follows before it was read."""


class TakeEpoch(Struct, frozen=True):
    """Count in this epoch from now on: a former life of this node was in a later one than this life is."""

    epoch: int


class IdentityClash(Struct, frozen=True):
    """Report that another program has the identity of this node: newer records of it come again and again."""

    neighbour: str
    """Where the last one came from."""
    record: NodeRecord


class Approach(Struct, frozen=True):
    """Make a link to this node: those that led to it are lost."""

    record: NodeRecord


class Attach(Struct, frozen=True):
    """Make a link to this node: the coordinator of this node's subnet, or one to link the subnet with."""

    record: NodeRecord


class NodesExceeded(Struct, frozen=True):
    """Report that records are refused, as there are too many nodes or links; once until there is room."""

    neighbour: str
    record: NodeRecord


Effect = (
    SendOwn
    | SendDigest
    | SendStamps
    | SendRecords
    | StoreAdjacency
    | TreeChanged
    | TakeEpoch
    | Approach
    | Attach
    | IdentityClash
    | NodesExceeded
)
