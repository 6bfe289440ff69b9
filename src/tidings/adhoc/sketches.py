"""Summaries of many ids whose size goes with the difference of two hosts, not with what they have.

First the difference is estimated: 256 sums of random signs, one sign for each id. The mean square of how far
those of two hosts are apart is the number of ids that only one of them has (Alon, Matias, Szegedy).

Then a host sends so many *symbols*, coded by a rateless invertible lookup table (Yang, Gilad, Alizadeh 2024).
Symbol 0 has all ids, later ones ever fewer. What two hosts have in common cancels out, and about 1.4 symbols
for each id that differs are enough to recover these; if not, more symbols go on where the first ended.

Ids are hashed with a salt that is new for each meeting: nobody can prepare ids that collide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import ceil, sqrt
from struct import Struct

from tidings.adhoc.messages import MessageId
from tidings.errors import CodecError

SALT_SIZE = 16
SIGNS = 256
"""Sums by which a difference is estimated: its error is about 9 %."""
SYMBOLS_MAX = 100_000
"""Symbols of one meeting."""

_LANE = 4  # bytes
_SPREAD = [
    sum(((byte >> bit) & 1) << (8 * _LANE * bit) for bit in range(8)) for byte in range(256)
]  # each bit of a byte in a lane of its own
_COUNTS = Struct(f">{SIGNS}h")
_SYMBOL = Struct(">QIh")
SYMBOL_SIZE = _SYMBOL.size
_MASK = (1 << 64) - 1
_STEP = 0xDA942042E4DD58B5


def hashes_of(ids: Iterable[MessageId], salt: bytes) -> dict[int, MessageId]:
    """Return ids by their hashes, of 64 bits; of two with one hash one is left out."""
    return {int.from_bytes(_hashed(id, salt, 8), "big"): id for id in ids}


def _hashed(id: MessageId, salt: bytes, size: int) -> bytes:
    text = f"{id.system} {id.epoch} {id.counter}".encode()
    return blake2b(text, key=salt, digest_size=size).digest()


def signs_of(ids: Iterable[MessageId], salt: bytes) -> bytes:
    """Return the sums of signs of some ids, as they are sent."""
    total, count = 0, 0
    for id in ids:
        digest = _hashed(id, salt, SIGNS // 8)
        spread = b"".join(_SPREAD[byte].to_bytes(8 * _LANE, "big") for byte in digest)
        total += int.from_bytes(spread, "big")
        count += 1
    lanes = total.to_bytes(SIGNS * _LANE, "big")
    ones = [int.from_bytes(lanes[at : at + _LANE], "big") for at in range(0, len(lanes), _LANE)]
    return _COUNTS.pack(*[max(-32_768, min(32_767, 2 * one - count)) for one in ones])


def estimated(one: bytes, other: bytes) -> float:
    """Return about how many ids only one of two hosts has, by their sums; CodecError for what is none."""
    if len(one) != _COUNTS.size or len(other) != _COUNTS.size:
        raise CodecError("sketch", f"has {len(one)} and {len(other)} bytes of signs, not {_COUNTS.size}")
    pairs = zip(_COUNTS.unpack(one), _COUNTS.unpack(other), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs)) / SIGNS


def symbols_for(difference: float) -> int:
    """Return how many symbols to ask for."""
    return min(ceil(1.6 * difference) + 16, SYMBOLS_MAX)


class Symbols:
    """The first symbols of a set of hashes; `sign` is -1 for a set that is taken away."""

    def __init__(self, count: int) -> None:
        self.sums = [0] * count
        self.checks = [0] * count
        self.counts = [0] * count

    def add(self, hash: int, sign: int = 1) -> list[int]:
        """Add a hash, or take it away; the symbols that have changed."""
        check, changed = _check(hash), _places(hash, len(self.sums))
        for at in changed:
            self.sums[at] ^= hash
            self.checks[at] ^= check
            self.counts[at] += sign
        return changed

    def packed(self, start: int = 0) -> bytes:
        """Return the symbols from one on, as they are sent."""
        rows = zip(self.sums[start:], self.checks[start:], self.counts[start:], strict=True)
        return b"".join(_SYMBOL.pack(sum, check, _short(count)) for sum, check, count in rows)

    @classmethod
    def unpacked(cls, data: bytes) -> Symbols:
        """Read symbols; CodecError if they are none, or too many."""
        if len(data) % SYMBOL_SIZE or len(data) > SYMBOLS_MAX * SYMBOL_SIZE:
            raise CodecError("sketch", f"has {len(data)} bytes of symbols")
        made = cls(0)
        for sum, check, count in _SYMBOL.iter_unpack(data):
            made.sums.append(sum)
            made.checks.append(check)
            made.counts.append(count)
        return made

    def decode(self, own: Iterable[int]) -> tuple[set[int], set[int]] | None:
        """Return the hashes that only the other has, and those that only this set has; None if it can't be.

        The symbols are used up.
        """
        for hash in own:
            self.add(hash, -1)
        theirs: set[int] = set()
        ours: set[int] = set()
        pure = list(range(len(self.sums)))
        left = 4 * len(self.sums) + 16  # a host that sends what was not made so must not keep this one busy
        while pure and left:
            at = pure.pop()
            count = _short(self.counts[at])
            if count not in (1, -1) or self.checks[at] != _check(self.sums[at]):
                continue
            left -= 1
            hash = self.sums[at]
            (theirs if count > 0 else ours).add(hash)
            pure += self.add(hash, -count)
        is_done = not any(self.sums) and not any(map(_short, self.counts))
        return (theirs, ours) if is_done and self.sums else None


def _short(count: int) -> int:
    """Return a count as two bytes have it: only that of a whole set may run over."""
    return (count + 32_768) % 65_536 - 32_768


def _check(hash: int) -> int:
    mixed = ((hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    return ((mixed ^ (mixed >> 29)) * 0xC4CEB9FE1A85EC53 & _MASK) >> 32


def _places(hash: int, count: int) -> list[int]:
    """Return the symbols below a number that have a hash: the first, and later ones ever more seldom."""
    found: list[int] = []
    at, state = 0, hash | 1
    while at < count:
        found.append(at)
        state = state * _STEP & _MASK
        at += ceil((at + 1.5) * ((1 << 32) / sqrt(state + 1) - 1))
    return found


def picked(hashes: Mapping[int, MessageId], packed: bytes) -> list[MessageId]:
    """Return the ids of hashes that were sent, as far as they are known; CodecError if these are none."""
    if len(packed) % 8:
        raise CodecError("sketch", f"has {len(packed)} bytes of hashes")
    wanted = (int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed), 8))
    return [hashes[hash] for hash in wanted if hash in hashes]


def packed_hashes(hashes: Iterable[int]) -> bytes:
    """Return hashes as they are sent."""
    return b"".join(hash.to_bytes(8, "big") for hash in hashes)
