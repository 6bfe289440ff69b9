"""Comparing: how two nodes whose link comes up find the records of nodes that one of them lacks.

Each sends a digest of every slot of its records, the stamps of the slots that differ, and the records that
are newer than these. If the digests in their greetings are equal, it sends the stamp of its own record only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import blake2b

from msgspec.structs import replace

from tidings.errors import CodecError
from tidings.overlay.known_records import KnownRecords
from tidings.overlay.records import (
    NODES_MAX,
    SLOTS,
    Digest,
    NodeRecord,
    Stamp,
    Stamps,
    in_messages,
    is_newer,
    slot_of,
)
from tidings.overlay.topology_effects import Effect, SendDigest, SendOwn, SendRecords, SendStamps

OWN = -1
"""What a neighbour may send once besides the stamps of each slot: its own record, or the stamp of that."""

TakeRecord = Callable[[str, NodeRecord, str, float], list[Effect]]
"""Takes a neighbour's own record: the neighbour, the record, its place in the message, and the time."""


class Comparing:
    """Comparison of what is known with each neighbour, once for each of its connections."""

    def __init__(self, node: str, known: KnownRecords, take: TakeRecord) -> None:
        self.repeated = 0
        """Digests and stamps that a neighbour has sent twice over one connection; they are passed over."""
        self._node = node
        self._known = known
        self._take = take
        self._unasked: dict[str, set[int]] = {}  # of each connected neighbour: what it may still send

    @property
    def connected(self) -> Collection[str]:
        """The neighbours whose links are up."""
        return self._unasked.keys()

    def begin(self, neighbour: str, theirs: bytes) -> list[Effect]:
        """Begin to compare with a neighbour that has just come, and had this digest in its greeting."""
        self._unasked[neighbour] = set(range(OWN, SLOTS))
        own = self._known[self._node]
        if theirs == self.digest(neighbour):
            return [SendOwn(neighbour, own.stamp)]
        digests = self._known.digests(without=(self._node, neighbour))
        return [SendDigest(neighbour, Digest(own, digests))]

    def end(self, neighbour: str) -> bool:
        """A neighbour is not connected any more; whether it was."""
        return self._unasked.pop(neighbour, None) is not None

    def digest(self, neighbour: str) -> bytes:
        """Return a digest of all records but those of this node and a neighbour, for a greeting."""
        slots = self._known.digests(without=(self._node, neighbour))
        return blake2b(b"".join(slot.to_bytes(8, "big") for slot in slots), digest_size=8).digest()

    def hear_own(self, neighbour: str, stamp: Stamp, now: float) -> list[Effect]:
        """Take the stamp of a neighbour's own record: after a cut mostly the known one, under a new number.

        If it is another one it is asked for, by the stamps of its slot.
        """
        if not self._may_ask(neighbour, OWN):
            return []
        epoch, version, fingerprint = stamp
        known = self._known.get(neighbour)
        if known is not None and known.stamp >= stamp:
            return [SendRecords(neighbour, (known,))] if known.stamp > stamp else []
        record = None if known is None else replace(known, epoch=epoch, version=version)
        if record is not None and record.fingerprint == fingerprint:
            return self._take(neighbour, record, "$.own[{}]", now)
        slot = slot_of(neighbour)
        return [SendStamps(neighbour, Stamps(slot, self._known.stamps(slot)))]

    def hear_digest(self, neighbour: str, digest: Digest, now: float) -> list[Effect]:
        """Take a neighbour's own record, and send it the stamps of all slots that differ from those here."""
        if digest.record.node != neighbour:
            raise CodecError("$.record.node", f"{digest.record.node!a} is not the neighbour, {neighbour!a}")
        if len(digest.slots) != SLOTS:
            raise CodecError("$.slots", f"has {len(digest.slots)} slots, not {SLOTS}")
        if not self._may_ask(neighbour, OWN):
            return []
        effects = self._take(neighbour, digest.record, "$.record", now)
        known = self._known.get(neighbour)
        if known is not None and is_newer(known, digest.record):  # of a former life: it takes a later epoch
            effects.append(SendRecords(neighbour, (known,)))
        mine = self._known.digests(without=(self._node, neighbour))
        for slot in range(SLOTS):
            if mine[slot] != digest.slots[slot]:
                effects.append(SendStamps(neighbour, Stamps(slot, self._known.stamps(slot))))
        return effects

    def hear_stamps(self, neighbour: str, stamps: Stamps) -> list[Effect]:
        """Send a neighbour the records of a slot that it has not, or older."""
        if not 0 <= stamps.slot < SLOTS:
            raise CodecError("$.slot", f"{stamps.slot} is not within 0..{SLOTS - 1}")
        if len(stamps.stamps) > NODES_MAX:
            raise CodecError("$.stamps", f"has {len(stamps.stamps)} nodes; at most {NODES_MAX} are allowed")
        if not self._may_ask(neighbour, stamps.slot):
            return []
        newer = self._known.newer(stamps.slot, stamps.stamps)
        return [SendRecords(neighbour, part) for part in in_messages(newer)]

    def _may_ask(self, neighbour: str, what: int) -> bool:
        """Whether a neighbour is connected and asks this for the first time over its connection."""
        unasked = self._unasked.get(neighbour)
        if unasked is None:
            return False
        if what not in unasked:
            self.repeated += 1
            return False
        unasked.discard(what)
        return True
