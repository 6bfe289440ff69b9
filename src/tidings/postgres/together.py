"""Groups with several messages in flight: those of one client, which takes all there are.

Such a client is the *owner* of the messages, and its name is stored with them. It may have a message that is
not the first of its group if it gets the one before that too, or if it owns all messages of the group that
are in flight. If another node has taken one of them in the meantime, those that follow stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidings.postgres.catalog import Known
from tidings.postgres.connection import UnitOfWork
from tidings.postgres.readers import CandidateRow, PostgresReader

_HAS_GROUPS = "SELECT 1 FROM tidings.messages WHERE queue = %s AND queue_group IS NOT NULL LIMIT 1"
_FOLLOWED = """
SELECT number, (
    SELECT number FROM tidings.messages AS other
    WHERE other.queue = messages.queue AND other.queue_group = messages.queue_group
    AND other.holder IS NULL AND other.place < messages.place
    ORDER BY place DESC LIMIT 1
) FROM tidings.messages WHERE queue = %s AND number = ANY(%b::bigint[])
"""
_OWNERS = """
SELECT here.number, min(other.owner) FROM tidings.messages AS here JOIN tidings.messages AS other
ON other.queue = here.queue AND other.queue_group = here.queue_group AND other.number <> here.number
WHERE here.queue = %s AND here.number = ANY(%b::bigint[])
AND (other.holder > 0 OR (other.holder < 0 AND other.deliveries > 0))
GROUP BY here.number
HAVING bool_and(other.holder > 0 AND other.owner IS NOT NULL) AND min(other.owner) = max(other.owner)
"""


def has_groups(turn: UnitOfWork, known: Known) -> bool:
    """Whether a queue has messages of groups."""
    return turn.row(_HAS_GROUPS, known.key) is not None


def joined(turn: UnitOfWork, known: Known, page: Sequence[CandidateRow]) -> list[CandidateRow]:
    """Return a page in which messages of a group name the one before them, or the owner of those before."""
    behind = [one.number for one in page if not one.is_in_turn]
    if not behind:
        return list(page)
    followed: dict[int, int | None] = dict(turn.rows(_FOLLOWED, known.key, behind))
    first = [number for number, before in followed.items() if before is None]
    owners: dict[int, str] = dict(turn.rows(_OWNERS, known.key, first)) if first else {}
    return [one._replace(follows=followed.get(one.number), owner=owners.get(one.number)) for one in page]


def unbroken(promised: Mapping[int, PostgresReader], locked: Collection[int]) -> list[int]:
    """Return those of the promised messages, in their order, that are locked and follow no lost one."""
    lost: set[int | None] = set()  # never None: the first of a group follows no other
    for number, reader in promised.items():
        candidate, _ = reader.taken[number]
        if number not in locked or candidate.follows in lost:
            lost.add(number)
    return [number for number in promised if number not in lost]


def own(turn: UnitOfWork, known: Known, readers: Sequence[PostgresReader]) -> None:
    """Make clients the owners of the messages that they have taken."""
    for reader in readers:
        if reader.owner is not None and reader.taken:
            turn.do(
                "UPDATE tidings.messages SET owner = %s WHERE queue = %s AND number = ANY(%b::bigint[])"
                " AND queue_group IS NOT NULL AND owner IS NULL",
                reader.owner,
                known.key,
                list(reader.taken),
            )
