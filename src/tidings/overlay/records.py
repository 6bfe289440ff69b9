"""Link-state records: what a node says of itself and its links, and the messages that compare records.

A node numbers the versions of its record within its epoch, so of two records of one node all nodes call the
same one newer. Two that have one number and differ come from two programs that use one identity; the
fingerprints decide between those, so that all nodes still keep the same one.

    Stamp     of the sender's own record: sent when a link comes up, if all others were equal in the greetings
    Digest    the sender's own record and one number for each slot of all others: sent if not
    Stamps    the stamps of all records in a slot: sent for the slots that differ
    records   those that the other end has not, or older
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, NoReturn
from zlib import crc32

import msgspec
from msgspec import Struct

from tidings.errors import CodecError
from tidings.ids import NUMBER_MAX

NODES_MAX = 10_000
"""Nodes of which one node keeps records; records of further nodes are refused."""
LINKS_MAX = 1_000
"""Links in the record of one node."""
ALL_LINKS_MAX = 200_000
"""Links in all records that a node keeps, each counted at both ends."""
ID_LENGTH_MAX = 64
"""Characters in the id of a node."""
NAME_LENGTH_MAX = 64
"""Characters in the name of a node, as its record has it."""
ADDRESS_LENGTH_MAX = 255
"""Characters in the address that a record shows."""
SUBNET_LENGTH_MAX = 65
"""Characters in the label of a subnet: an id, and a mark before it."""
SINCE_MAX = 2**53 - 1
"""Latest moment at which a link may have been established, in µs: in the year 2255."""
WEIGHT_MAX = 1_000_000_000
"""Largest weight of a link, in thousandths of a millisecond: 1,000 seconds."""
RECORDS_MAX = 500
"""Records in one message to a neighbour."""
SLOTS = 32
"""Parts into which all records are divided, by the ids of their nodes, to be compared."""

Stamp = tuple[int, int, int]
"""Epoch, version and fingerprint of a record: the newer of two records of one node has the higher stamp."""

_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{ID_LENGTH_MAX}}}")
_encoder = msgspec.msgpack.Encoder()


class LinkRecord(Struct, frozen=True, gc=False, array_like=True):
    """Link of a node to a neighbour, as the node sees it."""

    neighbour: str
    since: int
    """When it was established first, in µs; of what both ends say, the larger counts."""
    is_up: bool = True
    lost: int = 0
    """When it had been cut for so long that the tree goes round it, where there is another way; else 0.

    It is counted like `since`, and larger than all moments that were known then.
    """
    weight: int = 0
    """What this end has measured of it last, see `weighing.py`; 0: nothing yet."""
    before: int = 0
    """What it weighed for the tree when that was measured."""
    run: int = 0
    """The run of the tree then: the weight counts from the next one on."""

    def weight_in(self, run: int) -> int:
        """Return what it weighs for the tree in a run; 0 if that is not known."""
        return self.weight if self.run < run else self.before


class NodeRecord(Struct, frozen=True, array_like=True, dict=True):
    """Node and its links, those that are cut too, in the order of the neighbours' ids."""

    node: str
    name: str
    epoch: int
    version: int
    links: tuple[LinkRecord, ...] = ()
    leaf: bool = False
    """Whether it never carries the events of others."""
    address: str = ""
    """Where it can be reached; empty if only those know it that name it in their settings."""
    run: int = 0
    """The last run of the tree that it has begun, or taken over; see `rebuilding.py`."""
    subnet: str = ""
    """Label of the local network that it is on, see `coordinating.py`; empty if that has none."""

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that differ when records do.

        Without a subnet they are those of the release before, which knows of none.
        """
        about = self.node, self.name, self.epoch, self.version
        encoded = _encoder.encode(
            self if self.subnet else (*about, self.links, self.leaf, self.address, self.run)
        )
        return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")

    def loses(self, neighbour: str) -> bool:
        """Whether the node calls its link to a neighbour lost."""
        return any(link.lost and link.neighbour == neighbour for link in self.links)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What of it matters for the tree."""
        return (
            self.leaf,
            self.run,
            self.subnet,
            [(one.neighbour, one.since, one.lost, one.weight, one.before, one.run) for one in self.links],
        )

    @property
    def stamp(self) -> Stamp:
        """By which it is compared with others of its node."""
        return self.epoch, self.version, self.fingerprint


class Digest(Struct, frozen=True, gc=False, array_like=True):
    """Record of the sender, and the digests of all records but those of both ends, slot by slot."""

    record: NodeRecord
    slots: tuple[int, ...]


class Stamps(Struct, frozen=True, gc=False, array_like=True):
    """Stamps of all records that the sender has in one slot."""

    slot: int
    stamps: dict[str, Stamp]


def slot_of(node: str) -> int:
    """Return the slot of a node's record."""
    return crc32(node.encode()) % SLOTS


def in_messages(records: Sequence[NodeRecord]) -> Iterator[tuple[NodeRecord, ...]]:
    """Yield records as they fit into messages."""
    for start in range(0, len(records), RECORDS_MAX):
        yield tuple(records[start : start + RECORDS_MAX])


def is_newer(record: NodeRecord, known: NodeRecord) -> bool:
    """Whether a record replaces a known one of the same node."""
    if record.version != known.version or record.epoch != known.epoch:
        return (record.epoch, record.version) > (known.epoch, known.version)
    return record is not known and record != known and record.fingerprint > known.fingerprint


def check_record(record: NodeRecord) -> None:
    """Refuse a record that no node makes: CodecError names the place of the mistake in it."""
    node, name, address, last = record.node, record.name, record.address, ""
    if not (
        _ID.fullmatch(node)
        and len(name) <= NAME_LENGTH_MAX
        and len(address) <= ADDRESS_LENGTH_MAX
        and name.isprintable()
        and address.isprintable()
        and len(record.subnet) <= SUBNET_LENGTH_MAX
        and record.subnet.isprintable()
        and 0 <= record.epoch <= NUMBER_MAX
        and 0 <= record.version <= NUMBER_MAX
        and 0 <= record.run <= NUMBER_MAX
        and len(record.links) <= LINKS_MAX
    ):
        _refuse_node(record)
    for number, link in enumerate(record.links):
        neighbour = link.neighbour
        are_moments = 0 <= link.since <= SINCE_MAX and 0 <= link.lost <= SINCE_MAX
        are_weights = 0 <= link.weight <= WEIGHT_MAX and 0 <= link.before <= WEIGHT_MAX
        are_numbers = are_moments and are_weights and 0 <= link.run <= NUMBER_MAX
        if not (last < neighbour != node and are_numbers and _ID.fullmatch(neighbour)):
            _refuse_link(record, number, last)
        last = neighbour


def _refuse_node(record: NodeRecord) -> NoReturn:
    _check_id(record.node, "$.node")
    _check_text(record.name, NAME_LENGTH_MAX, "$.name")
    _check_text(record.address, ADDRESS_LENGTH_MAX, "$.address")
    _check_text(record.subnet, SUBNET_LENGTH_MAX, "$.subnet")
    _check_number(record.epoch, NUMBER_MAX, "$.epoch")
    _check_number(record.version, NUMBER_MAX, "$.version")
    _check_number(record.run, NUMBER_MAX, "$.run")
    raise CodecError("$.links", f"has {len(record.links)} links; at most {LINKS_MAX} are allowed")


def _refuse_link(record: NodeRecord, number: int, last: str) -> NoReturn:
    link, place = record.links[number], f"$.links[{number}]"
    _check_number(link.since, SINCE_MAX, f"{place}.since")
    _check_number(link.lost, SINCE_MAX, f"{place}.lost")
    _check_number(link.weight, WEIGHT_MAX, f"{place}.weight")
    _check_number(link.before, WEIGHT_MAX, f"{place}.before")
    _check_number(link.run, NUMBER_MAX, f"{place}.run")
    _check_id(link.neighbour, f"{place}.neighbour")
    problem = "is the node itself" if link.neighbour == record.node else f"does not follow {last!r} in order"
    raise CodecError(f"{place}.neighbour", f"{link.neighbour!r} {problem}")


def _check_id(text: str, place: str) -> None:
    if _ID.fullmatch(text) is None:
        allowed = f"1 to {ID_LENGTH_MAX} letters, digits, '_' or '-'"
        raise CodecError(place, f"{text[:80]!a} is no id of a node: {allowed}")


def _check_text(text: str, longest: int, place: str) -> None:
    if len(text) > longest:
        raise CodecError(place, f"has {len(text)} characters; at most {longest} are allowed")
    if not text.isprintable():
        raise CodecError(place, f"{text!a} has characters that can't be printed")


def _check_number(number: int, most: int, place: str) -> None:
    if not 0 <= number <= most:
        raise CodecError(place, f"{number} is not within 0..{most}")
