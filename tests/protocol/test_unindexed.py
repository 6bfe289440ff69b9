"""Filters that must be tried on every event: each user has so many, however it subscribes."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.guarded import ALL, come, guarded, may
from protocol.rig import Peer, Rig, event
from tidings import exchange
from tidings.errors import Refused
from tidings.event import Batch
from tidings.filters import Filter
from tidings.matching.clues import UNINDEXED_MAX, Unindexed


def limited(rig: Rig, most: int) -> Rig:
    rig.broker.exchange.unindexed = Unindexed(most)
    return rig


def refusal(peer: Peer, operation: str = "subscribe", **arguments: Any) -> str:
    error = peer.ask(operation, credit=10, **arguments).error
    assert error is not None
    assert error.code == "limit"
    return error.text


def test_a_user_has_a_limited_number_of_them_and_others_have_their_own() -> None:
    rig = limited(guarded(ann=ALL, bob=ALL), 2)
    ann, again, bob = come(rig, "ann"), come(rig, "ann", "other"), come(rig, "bob")
    ann.subscribe(1, "a < b")
    again.subscribe(1, "a < c")
    assert "UNINDEXED_MAX = 2" in refusal(ann, number=2, filter="a < d")
    assert "'ann'" in refusal(again, number=2, filter="a < d")
    bob.subscribe(1, "a < d")
    ann.subscribe(2, "a < 3")
    ann.subscribe(3, "TOPIC(subject, '*.x') AND a < b")
    assert rig.broker.status()["unindexed"] == 3
    assert rig.broker.tallies["refused", "limit"] == 2


def test_without_users_all_clients_share_the_limit() -> None:
    rig = limited(Rig(), 1)
    rig.peer("a", name="ann").subscribe(1, "a < b")
    refusal(rig.peer("b", name="bob"), number=1, filter="a < c")


@pytest.mark.parametrize(
    "options", [{}, {"durable": "d"}, {"since": 1}, {"on_slow": "spill"}, {"passive": True}]
)
def test_every_sort_of_subscription_counts_until_it_ends(options: dict[str, Any]) -> None:
    rig = limited(Rig(), 1)
    ann = rig.peer()
    for number in (1, 2, 3):
        ann.subscribe(number, "a < b", **options)
        refusal(ann, number=9, filter="a < c", **options | ({"durable": "e"} if "durable" in options else {}))
        ended = {"durable": "d"} if "durable" in options else {"number": number}
        assert ann.ask("unsubscribe", **ended).error is None
    assert rig.broker.status()["unindexed"] == 0
    ann.subscribe(1, "a < b")
    ann.lose()
    assert rig.broker.status()["unindexed"] == 0


def test_a_durable_subscription_that_is_there_is_opened_again_whatever_the_limit() -> None:
    rig = limited(Rig(), 1)
    rig.peer().subscribe(1, "a < b", durable="d")
    rig.peer("other").subscribe(1, "a < b", durable="d")
    rig = limited(rig.restart(), 0)
    rig.peer().subscribe(1, "a < b", durable="d")


def test_bound_queues_and_watches_count_too() -> None:
    rig = limited(Rig(), 2)
    ann = rig.peer()
    assert ann.ask("queue.create", name="jobs").error is None
    assert ann.ask("queue.create", name="bound", bind="a < b").error is None
    ann.subscribe(1, "a < b", queue="jobs")
    assert rig.broker.status()["unindexed"] == 2
    refusal(ann, number=2, filter="a < c", queue="jobs")
    error = ann.ask("queue.create", name="more", bind="a < c").error
    assert error is not None
    assert error.code == "limit"
    assert ann.ask("queue.create", name="bound", bind="a < b").error is None
    assert ann.ask("unsubscribe", number=1).error is None
    assert ann.ask("queue.delete", queue="bound").error is None
    assert rig.broker.status()["unindexed"] == 0


def test_conditions_count_not_filters() -> None:
    counted = Unindexed(10)
    counted.add("one", "ann", Filter(" OR ".join(f"a < b{n}" for n in range(8))))
    counted.check("ann", Filter("a < b AND c < d"))
    with pytest.raises(Refused, match="UNINDEXED_MAX = 10"):
        counted.check("ann", Filter("a < b AND (c < d OR e < f)"))
    counted.check("bob", Filter("a < b AND (c < d OR e < f)"))
    counted.remove("one")
    counted.remove("one")
    counted.check("ann", Filter("a < b AND (c < d OR e < f)"))
    assert len(counted) == 0
    assert UNINDEXED_MAX == 500, "as docs/node.md says"


def noted_sizes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of events in each part that is matched from now on."""
    sizes: list[int] = []
    match = rig.broker.exchange.match
    monkeypatch.setattr(
        rig.broker.exchange, "match", lambda batch, origin: sizes.append(len(batch)) or match(batch, origin)
    )
    return sizes


def test_a_long_batch_is_matched_in_parts_where_filters_must_be_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "TRIED_AT_ONCE", 6)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in (1, 2):
        bob.subscribe(number, "n < m", on_slow="block")  # others are tried later
    sizes = noted_sizes(rig, monkeypatch)
    ann.publish(*(event(counter, n=1, m=counter) for counter in range(1, 9)))
    rig.run()
    assert max(sizes) <= 3
    assert sum(sizes) == 8
    assert bob.counters(1) == bob.counters(2) == list(range(2, 9))
    assert ann.accepted == [8]


def test_the_first_part_of_a_later_batch_is_as_long_as_was_quick_and_no_longer_than_is_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "FOUND_AT_ONCE", 20)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 11):
        bob.subscribe(number, f"n = {number}")
    sizes = noted_sizes(rig, monkeypatch)
    for first in (1, 31, 61):
        ann.publish(*(event(counter, n=1) for counter in range(first, first + 30)))
        rig.run()
    assert sizes == [2, 4, 8, 16, 16, 14, 16, 14]
    assert bob.counters(1) == list(range(1, 91))


def test_parts_of_a_batch_grow_while_they_are_quick_and_shrink_when_they_are_slow() -> None:
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    for number in range(1, 41):
        bob.subscribe(number, f"n = 1 AND a < {'b' * number}", credit=0)
    sizes: list[int] = []
    match, passed = rig.broker.exchange.match, [0.0]

    def matched(batch: Batch, origin: Any) -> Any:
        sizes.append(len(batch))
        passed[0] += len(batch) * (1e-6 if sum(sizes) < 1_000 else 1e-2)  # all at once it becomes slow
        return match(batch, origin)

    rig.broker.exchange.match = matched  # type: ignore[method-assign]
    rig.broker.turns.clock = lambda: passed[0]
    ann.publish(*(event(counter, n=2) for counter in range(1, 6_001)))
    for _ in range(100_000):
        if ann.accepted[-1:] == [6_000]:
            break
        rig.run()
    assert sum(sizes) == 6_000
    assert sizes[0] <= 4_096 // 40
    assert sizes[1] == 2 * sizes[0]
    assert max(sizes) <= 4_096
    assert sizes[-2] == 1


def test_what_rules_add_to_a_filter_makes_it_no_easier_to_find() -> None:
    rules = [may("subscribe", "type LIKE 'a.%'"), may("subscribe", "type LIKE 'b.%'")]
    rig = limited(guarded(ann=rules), 10)
    ann = come(rig, "ann")
    ann.subscribe(1, "a < b")
    assert rig.broker.status()["unindexed"] == 1
    ann.subscribe(2, "TOPIC(subject, '*.x')")
    assert rig.broker.status()["unindexed"] == 1
