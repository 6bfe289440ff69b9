"""The rules for links, each switched off: an exact test finds it. Storms find others (see `simulator/`).

`docs/architecture.md` has a table of the rules and of the code that keeps each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from overlay import (
    test_away,
    test_bad_neighbours,
    test_bereaved,
    test_disagreeing,
    test_inboxes,
    test_moving,
    test_new_offers,
    test_restarts,
    test_waiting,
)
from overlay.network import Network

from tidings.event import Delivery
from tidings.event.relayed import FirstNode, RelayedBatch
from tidings.ids import Origin
from tidings.overlay import spreading
from tidings.overlay.bereaved import Bereavement
from tidings.overlay.inboxes import InboxRoutes
from tidings.overlay.keeping import Keeping
from tidings.overlay.relaying import LinkConsumer, LinkCursor
from tidings.overlay.routing import Routing
from tidings.overlay.service import Overlay
from tidings.overlay.tables import Tables
from tidings.overlay.waiting import Holding
from tidings.overlay.wholeness import Wholeness
from tidings.protocol.arguments import InForce
from tidings.protocol.missed import Missed
from tidings.protocol.relays import FIRST, Relays
from tidings.replies import Deferred, resolved
from tidings.store.interface import StoredBatch

Finder = Callable[[pytest.MonkeyPatch], None]
Switch = tuple[Any, str, Any]


# What is taken once


def once(change: Callable[[RelayedBatch], RelayedBatch], delivery: Delivery) -> None:
    """Let b take a batch of a, and then the same, changed: its subscriber gets two events, each once."""
    net = Network(("a", "b"))
    got = net.app("b").subscribe("x > 0")
    app = net.app("a")
    intake = net.neighbour("b", "a").intake
    assert intake is not None
    taken: list[RelayedBatch] = []
    deliver = intake.deliver

    def note(batch: Any, positions: Any, redelivered: bool) -> None:
        taken.append(batch)
        deliver(batch, positions, redelivered)

    intake.deliver = note  # type: ignore[method-assign]
    app.publish(1, 2, delivery=delivery)
    net.run()
    for batch in taken[:]:
        deliver(change(batch), None, False)
    net.run()
    assert got.values == [1, 2]


@pytest.mark.parametrize("delivery", ["transient", "reliable"])
def test_what_comes_twice_is_taken_once(delivery: Delivery) -> None:
    once(lambda batch: batch, delivery)


def _of_an_earlier_start(batch: RelayedBatch) -> RelayedBatch:
    first = FirstNode(batch.first.node, batch.first.epoch - 1, batch.first.is_volatile)
    numbers = [number + 1_000 for number in batch.numbers]
    origin = Origin("another", 1, batch.origin.source if batch.origin else None)
    return RelayedBatch(batch.raw, origin, first, numbers, 0)


def test_what_a_node_has_numbered_before_its_last_start_is_not_taken_after_what_it_has_since() -> None:
    once(_of_an_earlier_start, "reliable")


# Rules, switched off


def answer_for_all(self: Overlay, _asked: Any, _request: Any) -> Deferred[Any]:
    numbers = (self.numbers.epoch, 0)
    nodes = {self.topology.name_of(node) or node: numbers for node in self.topology.tree.nodes}
    return resolved(InForce(nodes)).map(lambda told: {"nodes": told.nodes, "missing": []})


def narrow_always(self: Tables) -> None:
    for neighbour in self._known.in_tree:
        neighbour.announcer.may_narrow = neighbour.offerer.may_narrow = True


def hold_at_once(self: Holding) -> None:
    waiting, self._waiting = self._waiting, []
    for _, _, reply in waiting:
        reply.resolve(None)


def take_from_any_link(self: Routing, _neighbour: Any, batch: RelayedBatch) -> str:
    return "own" if batch.first.node == self._broker.node else ""


def count_no_volatile(self: Relays, batch: RelayedBatch) -> int:
    return 0 if batch.first.is_volatile else HAD(self, batch)


def count_any_epoch(self: Relays, batch: RelayedBatch) -> int:
    self._first_epochs.pop(f"{FIRST}{batch.first.node}", None)
    return HAD(self, batch)


def send_what_was_left_out(self: LinkCursor, batch: RelayedBatch, _position: int) -> bool:
    return batch.via == self.name


def judge_by_what_was_wanted(self: LinkConsumer, batch: Any, rows: range, stored: StoredBatch) -> list[int]:
    """Send what was stored for the neighbour: nothing of what is older than its link."""
    begun = BEGUN.setdefault(id(self.cursor), self.broker.position)
    return WANTED(self, batch, rows, stored) if stored.first > begun else []


def go_on_where_it_was(self: LinkCursor, position: int) -> None:
    BEGIN_AGAIN(self, max(position, self.acknowledged))


BEGIN_AGAIN = LinkCursor._begin_again
HAD, WANTED = Relays._had, LinkConsumer._wanted
BEGUN: dict[int, int] = {}


def plain(finder: Callable[[], None]) -> Finder:
    """A test that changes nothing by itself."""
    return lambda _monkeypatch: finder()


RULES: dict[str, tuple[Switch, Finder]] = {
    "2, all behind a node answer": (
        (Overlay, "_ask_behind", answer_for_all), plain(test_waiting.test_nodes_behind_a_cut_are_missing),
    ),
    "3, answers name the sides that they hold for": (
        (Routing, "check_sides", lambda *_: None),
        plain(test_disagreeing.test_a_subscription_is_not_in_force_by_the_word_of_a_node_that_knows_another_tree),
    ),
    "4, a link is judged by the filters that hold now": (
        (LinkConsumer, "_wanted", judge_by_what_was_wanted), plain(test_moving.test_the_star),
    ),
    "6, a node narrows only when it knows all tables": (
        (Tables, "settle", narrow_always),
        plain(
            test_restarts.test_a_relay_that_is_restored_from_a_backup_takes_nothing_back_before_it_knows_all_tables
        ),
    ),
    "7, events wait for answers to new offers": (
        (LinkCursor, "expect", lambda *_, **_more: None),
        plain(test_new_offers.test_what_is_published_at_once_under_a_new_advertisement_comes_once_and_in_order),
    ),
    "9, a new neighbour is kept for from what all had": (
        (LinkCursor, "_begin_again", go_on_where_it_was),
        plain(test_moving.test_a_new_neighbour_gets_what_the_dead_one_had_and_it_had_not),
    ),
    "10, held is more than stored": (
        (Holding, "look", hold_at_once),
        plain(test_waiting.test_an_event_is_held_when_the_neighbours_that_want_it_have_it),
    ),
    "12, what is given up is a gap": (
        (LinkCursor, "miss", lambda *_: None),
        plain(test_away.test_the_oldest_go_past_the_bytes_and_are_reported_behind_the_neighbour_by_their_numbers),
    ),
    "12, what only the dead kept is a gap": (
        (Bereavement, "_judge", lambda _self: None),
        plain(test_bereaved.test_what_only_dead_nodes_kept_is_a_gap_where_others_have_had_it),
    ),
    "12, what comes after its gap is late": (
        (Missed, "late_rows", lambda *_: []),
        plain(test_away.test_what_comes_after_its_gap_was_reported_is_late_and_comes_once),
    ),
    "13, what was had is handed on": (
        (Relays, "_relay_again", lambda *_: None), plain(test_moving.test_the_star),
    ),
    "14, a node says nothing of what it had a part of": (
        (LinkCursor, "is_left_out", send_what_was_left_out),
        plain(test_moving.test_a_node_sends_nothing_of_a_stream_that_it_has_had_a_part_of),
    ),
    "16, a stream is taken from the way to its first node": (
        (Routing, "refusal", take_from_any_link),
        partial(
            test_bad_neighbours.test_events_of_a_node_to_which_the_neighbour_is_not_the_way_are_refused,
            of="c", reason="way",
        ),
    ),
    "17, an heir waits for the tables behind it": (
        (Wholeness, "_have_answered", lambda *_: True),
        plain(test_moving.test_a_node_is_not_whole_while_the_table_of_a_neighbour_is_out_of_date),
    ),
    "18, numbers find what comes twice": (
        (Relays, "_had", lambda *_: 0), plain(partial(test_what_comes_twice_is_taken_once, "reliable")),
    ),
    "19, numbers are compared by epoch first": (
        (Relays, "_had", count_any_epoch),
        plain(test_what_a_node_has_numbered_before_its_last_start_is_not_taken_after_what_it_has_since),
    ),
    "21, transient events have numbers, too": (
        (Relays, "_had", count_no_volatile),
        plain(partial(test_what_comes_twice_is_taken_once, "transient")),
    ),
    "22, an inbox names the start of its node": (
        (InboxRoutes, "_is_here", lambda *_: True),
        plain(test_inboxes.test_an_answer_to_a_former_life_of_a_node_is_dropped),
    ),
    "22, inboxes are in no table": (
        (spreading, "is_for_inboxes", lambda _filter: False),
        plain(test_inboxes.test_no_filter_for_an_inbox_is_announced),
    ),
    "23, what is kept has a limit": (
        (Keeping, "enforce", lambda *_: None),
        plain(test_away.test_the_oldest_go_past_the_bytes_and_are_reported_behind_the_neighbour_by_their_numbers),
    ),
}  # fmt: skip
"""Rules by their numbers: what is changed to switch each off, and the test that finds it."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_switched_off_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (owner, name, wrong), finder = RULES[rule]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        finder(monkeypatch)


ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+)\. .* \| (.*) \| (.*) \|$", re.MULTILINE)


def test_the_table_of_rules_names_code_and_mistakes_that_exist() -> None:
    rows = ROW.findall((ROOT / "docs" / "architecture.md").read_text())
    assert [int(number) for number, _, _ in rows] == list(range(1, 24))
    storms = (ROOT / "tests" / "simulator" / "test_overlay_storm.py").read_text()
    for number, code, found in rows:
        files = re.findall(r"`(\w+/\w+\.py)`", code)
        assert all((ROOT / "src" / "tidings" / one).exists() for one in files), code
        assert files or "LinkCursor" in code
        for part in found.split("; "):
            where, _, names = part.partition(": ") if ": " in part else ("storms", "", part)
            for name in [names] if where == "storms" else names.split(", "):
                known = f'"{name}": ' in storms
                assert known if where == "storms" else any(name in rule for rule in RULES), (number, name)
