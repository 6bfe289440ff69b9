"""Flooding: records on their way to all neighbours of a node, except the one they came from.

A neighbour whose link comes up is sent the record of this node with the digest of the others, so the next
flooding of that version leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidings.overlay.comparing import Comparing
from tidings.overlay.records import NodeRecord, in_messages
from tidings.overlay.topology_effects import Effect, SendRecords


class Flooding:
    """Records for the neighbours that are connected, by what `comparing` knows."""

    def __init__(self, comparing: Comparing) -> None:
        self._comparing = comparing
        self._sent: dict[str, int] = {}  # the last version of this node's record that each was sent

    def up(self, neighbour: str, version: int) -> None:
        """Note that a neighbour is sent this version of this node's record."""
        self._sent[neighbour] = version

    def down(self, neighbour: str) -> None:
        """Note that a neighbour is connected no longer."""
        self._sent.pop(neighbour, None)

    def own(self, record: NodeRecord) -> list[Effect]:
        """Send this node's record to those that were not sent this version."""
        connected = self._comparing.connected
        due = [one for one in connected if self._sent.get(one) != record.version]
        self._sent = dict.fromkeys(connected, record.version)
        return [SendRecords(one, (record,)) for one in due]

    def others(self, records: Sequence[NodeRecord], source: str = "") -> list[Effect]:
        """Send records to all but the one they came from."""
        parts, connected = list(in_messages(records)), self._comparing.connected
        return [SendRecords(one, part) for one in connected if one != source for part in parts]
