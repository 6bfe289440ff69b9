"""Cursors that are nobody's subscription: whoever is in the node can have one, and take its events."""

from __future__ import annotations

import pytest

from protocol.rig import Rig, event, reliable
from tidings.errors import Refused
from tidings.event import Batch
from tidings.exchange import Need, Positions, Rows
from tidings.protocol import cursors
from tidings.protocol.cursor import Cursor, CursorConsumer
from tidings.store.interface import Durable


class Link(CursorConsumer):
    """What takes events of a cursor to another place, which says up to where it has them."""

    def __init__(self, cursor: Cursor, need: Need = Need.RELIABLE) -> None:
        self.cursor = cursor
        self.taken: list[int | None] = []
        self._need = need
        cursor.attach(self)

    def need(self, count: int) -> Need:
        return self._need

    def deliver(self, batch: Batch, rows: Rows, positions: Positions) -> None:
        self.taken += [None if positions is None else positions[row] for row in rows]

    @property
    def passed(self) -> int:
        return self.cursor.acknowledged

    def part(self, reason: str) -> None:
        self.taken.append(-1)
        self.cursor.detach()


def opened(rig: Rig, name: str = "far", filter: str = "n > 0") -> Cursor:
    found = rig.broker.cursors.find("links", name)
    if found is None:
        found = Cursor(rig.broker, Durable(name, "links", filter, 0, 0))
        rig.broker.cursors.open(found)
    return found


def test_a_consumer_gets_what_matches_with_its_position_once_it_is_there() -> None:
    rig = Rig()
    link, ann = Link(opened(rig)), rig.peer()
    ann.publish(reliable(1, n=1), event(2, n=2), reliable(3, n=-3), reliable(4, n=4))
    rig.run()
    assert link.taken == [1, None, 2]


def test_what_is_published_while_nobody_consumes_is_in_the_store_and_counted_if_it_is_not() -> None:
    rig = Rig()
    link, ann = Link(opened(rig)), rig.peer()
    link.cursor.detach()
    ann.publish(reliable(1, n=1), event(2, n=2))
    rig.run()
    assert (link.taken, [one.first for one in rig.stored]) == ([], [1])
    assert rig.broker.tallies["dropped", "away"] == 1


def test_a_cursor_is_where_it_was_after_a_restart() -> None:
    rig = Rig()
    cursor, ann = opened(rig), rig.peer()
    ann.publish(*(reliable(counter, n=counter) for counter in range(1, 4)))
    rig.run()
    cursor.acknowledge(2)
    rig.run()
    again = opened(rig.restart())
    assert (again.acknowledged, str(again.filter), again.consumer) == (2, "n > 0", None)


def test_the_stream_is_trimmed_behind_what_consumers_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "TRIM_AFTER", 1)
    rig = Rig()
    link, ann = Link(opened(rig)), rig.peer()
    for counter in range(1, 4):
        ann.publish(reliable(counter, n=counter))
        rig.run()
    link.cursor.acknowledge(2)
    rig.run()
    assert [one.first for one in rig.stored] == [3]


def test_a_consumer_parts_when_a_client_takes_its_cursor_or_ends_it() -> None:
    rig = Rig()
    ann = rig.peer("s", name="links")
    link = Link(opened(rig, filter=""))
    ann.subscribe(durable="far")
    assert link.taken == [-1]
    ann.ask("unsubscribe", durable="far")
    assert rig.broker.cursors.named == []


def test_a_node_has_so_many_cursors_with_names_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "DURABLES_MAX", 1)
    rig = Rig()
    opened(rig)
    with pytest.raises(Refused, match="at most 1"):
        opened(rig, "further")
    assert [one.name for one in rig.broker.cursors.named] == ["far"]
