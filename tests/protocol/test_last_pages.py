"""Last values by key: which are kept, over restarts and failures, and which are dropped."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest
from effort import SEED, often
from msgspec.structs import replace

from protocol.guarded import ALL, Book, come, guarded, may
from protocol.rig import Peer, Rig, event, with_header
from tidings.event import Event
from tidings.event.header import DELIVERIES
from tidings.event.wire import HEAD_SIZE, array_head, decode_event, encode_events
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.node.assembly import CoreSettings
from tidings.protocol import consumer, last_pages
from tidings.protocol.last_pages import VALUE_COST, raws_of
from tidings.protocol.last_values import last_values, search_values
from tidings.protocol.memory import Budgets
from tidings.protocol.messages import Publish
from tidings.steps import finish
from tidings.store.interface import SetRecord


def about(subject: str, counter: int, delivery: str = "reliable", **header: Any) -> Event:
    return with_header(event(counter, n=counter), subject=subject, delivery=delivery, **header)


def seeds(count: int) -> list[int]:
    return [SEED + number for number in range(often(count))]


def with_budget(values: float) -> Rig:
    """A node with room for so many values such as those of `s1`."""
    rig = Rig()
    rig.peer().publish(about("s1", 1))
    budgets = Budgets(last_values_max=int(values * rig.broker.last_pages.size))
    return Rig(settings=CoreSettings(budgets=budgets))


def asked(rig: Rig, filter: str = "", **arguments: Any) -> list[int]:
    """The counters of the last values that somebody gets who comes now."""
    peer = rig.peer("asking", name="zoe")
    peer.subscribe(filter=filter, last=True, **arguments)
    counters = peer.counters()
    peer.lose()
    return counters


def held(rig: Rig) -> dict[str, int]:
    """What the node keeps by key, the oldest first."""
    found = reversed(list(rig.broker.last_pages.all()))
    return {str(key[2]): decode_event(value.raw).counter for key, value in found}


# Which are kept


@pytest.mark.parametrize("delivery", ["reliable", "persistent"])
def test_the_last_value_of_each_subject_is_there_after_a_restart(delivery: str) -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(about("hall", 1, delivery), about("attic", 2, delivery), about("hall", 3, delivery))
    rig.run()
    assert asked(rig) == [2, 3]
    rig = rig.restart()
    assert asked(rig) == [2, 3]
    rig.peer("a", epoch=2).publish(about("attic", 4, delivery))
    rig.run()
    assert asked(rig) == [3, 4]
    assert asked(rig.restart(), "subject = 'attic'") == [4]


def test_values_of_different_sources_and_types_are_different_values() -> None:
    rig = Rig()
    rig.peer("a", name="ann").publish(
        about("hall", 1), with_header(event(2, "u"), subject="hall", delivery="reliable")
    )
    rig.peer("b", name="bob").publish(about("hall", 3))
    rig.run()
    peer = rig.restart().peer("c")
    peer.subscribe(last=True)
    assert peer.counters() == [1, 2, 3]


def test_transient_events_and_those_without_a_subject_are_not_stored_for_this() -> None:
    rig = Rig()
    without = with_header(event(2, text="subject"), delivery="persistent")
    rig.peer("a").publish(about("hall", 1, "transient"), without, with_header(event(3), subject="x"))
    rig.run()
    assert asked(rig) == [1, 2, 3]
    assert len(rig.broker.last_pages) == 0
    assert asked(rig.restart()) == []


def test_the_value_of_a_sender_that_encodes_names_in_another_way_is_kept() -> None:
    rig = Rig()
    (plain,) = raws_of(encode_events([about("hall", 1)]))
    other = bytes(plain).replace(b"\xa7subject", b"\xd9\x07subject")
    rig.peer("a").send(Publish(), array_head(1) + other)
    rig.run()
    assert asked(rig.restart()) == [1]


def test_an_older_event_is_not_the_value_of_a_key_whose_last_event_does_not_match() -> None:
    rig = Rig()
    rig.peer("a").publish(about("hall", 1), about("attic", 2), about("hall", 3))
    rig.run()
    assert asked(rig, "n < 3") == [2]
    assert asked(rig.restart(), "n < 3") == [2]


def test_a_value_goes_further_back_than_recent_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.protocol.publishing.RECENT_SIZE_MAX", 100)
    rig = Rig()
    rig.peer("a").publish(*(about(f"s{counter % 40}", counter) for counter in range(1, 101)))
    rig.run()
    assert asked(rig) == list(range(61, 101))


def test_an_event_that_is_published_while_values_are_looked_for_is_not_among_them() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(*(about(f"s{counter}", counter) for counter in range(1, 6)))
    rig.run()
    rig = rig.restart()
    ann = rig.peer("a", epoch=2)
    ann.publish(event(6))
    looking = last_values(rig.broker, Filter())
    next(looking)  # at the recent event
    ann.publish(about("s2", 7), about("new", 8))
    assert [one.counter for _, batch in finish(looking) for one in batch] == [1, 3, 4, 5, 6]


def test_the_answer_to_a_request_is_not_kept() -> None:
    rig = Rig()
    rig.peer("a").publish(about("inbox.ann/mine", 1, "persistent"))
    rig.run()
    assert asked(rig.restart()) == []


CONDITIONS = (
    "n < 20",
    "type = 'a'",
    "subject = 'x'",
    "subject IS NULL",
    "source = 'ann'",
    "type LIKE '%b'",
    "STARTS_WITH(subject, 'y')",
    "type IN ('b', 'c') AND n > 7",
    "source <> 'ann'",
    "text = 'x'",
)


def values_by_hand(events: list[Event], where: Filter) -> list[int]:
    """What is found by looking at every event, from the newest on."""
    found: dict[Any, Event | None] = {}
    for one in reversed(events):
        key = one.source, one.type, one.subject
        if key not in found and where.matches(one):
            found[key] = one
        elif one.subject is not None and one.delivery != "transient":
            found.setdefault(key)
    return [one.counter for one in reversed(found.values()) if one is not None]


@pytest.mark.parametrize("seed", seeds(3))
def test_the_values_are_those_that_are_found_by_looking_at_every_event(seed: int) -> None:
    random, rig, events = Random(seed), Rig(), list[Event]()
    peers = {name: rig.peer(name, name=name) for name in ("ann", "bob")}
    for counter in range(1, 41):
        source, subject = random.choice(("ann", "bob")), random.choice((None, "x", "y", "yz"))
        one = event(counter, random.choice("ab"), n=counter)
        one = with_header(one, subject=subject, delivery=random.choice(DELIVERIES))
        peers[source].publish(one)
        events.append(replace(one, origin=Origin(source, 1, source)))
    rig.run()
    kept = [one for one in events if one.subject is not None and one.delivery != "transient"]
    again = rig.restart()
    for first, word, second in product(CONDITIONS, ("AND", "OR", "AND NOT"), CONDITIONS):
        where = Filter(f"{first} {word} ({second})")
        assert found_in(rig, where) == values_by_hand(events, where), where
        assert found_in(again, where) == values_by_hand(kept, where), where


def found_in(rig: Rig, where: Filter) -> list[int]:
    return [one.counter for _, batch in finish(last_values(rig.broker, where)) for one in batch]


def test_what_an_earlier_release_has_stored_of_another_node_is_not_taken_for_this_ones() -> None:
    """Its records do not say which node took an event in; the source of another's names it."""
    rig = Rig()
    raws = {n: encode_events([about("hall", n)])[HEAD_SIZE:] for n in (1, 2)}
    sections = [["sys", 1, "oven", [raws[1]]], ["sys", 1, "oven@far", [raws[2]]]]
    rig.store.commit([SetRecord("last", '["1"]', msgspec.msgpack.encode({"sections": sections}))])
    rig.store.sync()
    rig = rig.restart()
    assert asked(rig) == [1, 2]
    own = finish(search_values(rig.broker, Filter(), is_own=True))
    assert [one.origin and one.origin.source for one in own] == ["oven"]
    assert {value.node for _, value in rig.restart().broker.last_pages.all()} == {"", "?"}


# Which are dropped


def test_the_values_that_were_updated_least_recently_are_dropped_and_counted() -> None:
    rig = with_budget(3.5)
    ann = rig.peer("a")
    for counter, subject in enumerate(("s1", "s2", "s3", "s1", "s4"), 1):
        ann.publish(about(subject, counter))
        rig.run()
    assert held(rig) == {"s3": 3, "s1": 4, "s4": 5}
    assert rig.broker.tallies["last_values_dropped", "full"] == 1
    assert rig.broker.status()["last_values"]["values"] == 3
    assert held(rig.restart()) == {"s3": 3, "s1": 4, "s4": 5}


def test_a_node_that_has_less_room_after_a_restart_keeps_the_newest() -> None:
    rig = Rig()
    rig.peer("a").publish(*(about(f"s{counter}", counter) for counter in range(1, 10)))
    rig.run()
    rig.settings = with_budget(2.5).settings
    assert held(rig.restart()) == {"s8": 8, "s9": 9}
    rig.settings = with_budget(0).settings
    again = rig.restart()
    assert held(again) == {}
    again.run()
    assert again.state.kinds.get("last", {}) == {}
    again.peer("a", epoch=2).publish(about("s1", 11))
    again.run()
    assert asked(again) == [11], "it is a recent event"
    assert asked(again.restart()) == []


def test_a_value_whose_life_is_over_is_not_given_and_so_can_be_forgotten() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(about("hall", 1), about("attic", 2), about("cellar", 3, ttl_s=5_000.0))
    ann.publish(about("hall", 4, ttl_s=0.0))
    rig.run()
    assert asked(rig) == [2, 3]
    assert asked(rig.restart()) == [2, 3]
    assert asked(rig.restart(5_002.0)) == [2]


def test_a_value_that_is_too_large_is_not_kept_nor_is_the_one_before_it() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(about("hall", 1), about("attic", 2))
    large = with_header(event(3, text="x" * last_pages.VALUE_SIZE_MAX), subject="hall", delivery="reliable")
    endless = with_header(event(4), subject="y" * last_pages.VALUE_SIZE_MAX, delivery="reliable")
    ann.publish(large, endless)
    rig.run()
    assert asked(rig) == [2, 3, 4], "they are recent events"
    assert rig.broker.tallies["last_values_dropped", "too large"] == 2
    assert asked(rig.restart()) == [2]


def test_values_count_as_memory_of_the_node_and_leave_room_for_others() -> None:
    rig = Rig(settings=CoreSettings(budgets=Budgets(memory_max=160_000)))
    before = rig.broker.memory.node.used
    rig.peer("a").publish(*(about(f"s{counter}", counter) for counter in range(1, 1_001)))
    rig.run()
    pages = rig.broker.last_pages
    assert 8_000 < pages.size <= 10_000
    recent = sum(len(batch.raw) for batch in rig.broker.publishing.recent)
    assert rig.broker.memory.node.used - before == pages.size + recent


# Who gets them


def test_a_client_without_the_right_does_not_get_a_value_that_was_stored() -> None:
    rig = guarded(ann=[may("subscribe", "type = 'air'")], bob=ALL)
    kept = [
        with_header(event(n, kind), subject="s", delivery="persistent")
        for n, kind in ((1, "air"), (2, "soil"))
    ]
    come(rig, "bob").publish(*kept)
    rig.run()
    again = rig.restart()
    again.broker.authenticator = Book(ann=[may("subscribe", "type = 'air'")], bob=ALL)
    for user, counters in (("ann", [1]), ("bob", [1, 2])):
        peer = come(again, user)
        peer.subscribe(last=True)
        assert peer.counters() == counters


@pytest.mark.parametrize("on_slow", [{}, {"on_slow": "latest", "slow_key": "subject"}, {"on_slow": "block"}])
def test_a_client_gets_all_values_at_its_own_pace_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, on_slow: dict[str, str]
) -> None:
    monkeypatch.setattr(consumer, "WAITING_MAX", 50)
    monkeypatch.setattr(consumer, "WAITING_SIZE_MAX", 2_000)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(about(f"s{counter}", counter) for counter in range(1, 301)))
    rig.run()
    bob.subscribe(1, last=True, credit=10, **on_slow)
    for total in range(20, 310, 10):
        assert bob.counters() == list(range(1, total - 9))
        bob.grant(1, total)
        rig.run()
    assert bob.counters() == list(range(1, 301))
    assert bob.notices == []


def test_after_the_last_values_no_more_than_before_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "WAITING_MAX", 50)
    rig = Rig()
    ann, bob = rig.peer("a"), rig.peer("b")
    ann.publish(*(about(f"s{counter}", counter) for counter in range(1, 301)))
    rig.run()
    bob.subscribe(1, last=True, credit=10)
    bob.grant(1, 300)
    for counter in range(301, 401):
        ann.publish(event(counter))
    rig.run()
    bob.grant(1, 400)
    rig.run()
    assert bob.notices == [("gap", 1, {"dropped": 50, "reason": "slow"})]
    assert bob.counters() == [*range(1, 301), *range(351, 401)]


# The store


def test_a_node_without_a_directory_stores_nothing_for_last_values() -> None:
    rig = Rig(settings=CoreSettings(lasts=False))
    rig.peer("a").publish(about("hall", 1))
    rig.run()
    assert "last" not in rig.state.kinds
    assert asked(rig) == [1]


def test_one_record_has_many_values_and_what_was_replaced_takes_little_room() -> None:
    rig = Rig()
    ann = rig.peer("a")
    counter = 0
    for least in range(10):
        ann.publish(*(about(f"s{n}", (counter := counter + 1)) for n in range(200) if n % 10 >= least))
        rig.run()
    pages = rig.broker.last_pages
    sizes = [len(value.raw) for _, value in pages.all()]
    records = rig.state.kinds["last"]
    assert len(sizes) == 200
    assert sum(map(len, records.values())) <= 2 * sum(sizes) + 100 * len(records)


def test_a_value_that_is_published_again_and_again_is_written_once_a_commit() -> None:
    rig = Rig()
    ann = rig.peer("a")
    ann.publish(*(about("hall", counter) for counter in range(1, 1_001)))
    written = [one for one in rig.tick() if isinstance(one, SetRecord) and one.kind == "last"]
    assert len(written) == 1
    assert len(written[0].value) < VALUE_COST


class Story:
    """A node that publishes, commits, fails and crashes as a seed says, and what must be its last values."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.random = Random(seed)
        self.rig = rig
        self.accepted: dict[str, int] = {}
        self.flying: dict[str, int] = {}
        self.published: dict[str, int] = {}
        self.counter = self.systems = 0
        self.come()

    def come(self) -> None:
        self.systems += 1
        self.peer: Peer = self.rig.peer(f"a{self.systems}")

    def go_on(self) -> None:
        """Do the next thing."""
        if self.random.random() < 0.75:
            self.publish(f"s{self.random.randrange(10)}", self.random.choice(DELIVERIES))
        else:
            self.random.choice((self.tick, self.tick, self.sync, self.sync, self.fail, self.crash))()

    def publish(self, subject: str, delivery: str) -> None:
        self.counter += 1
        self.peer.publish(about(subject, self.counter, delivery))
        if delivery != "transient":
            _update(self.published, {subject: self.counter})

    def tick(self) -> None:
        self.rig.tick()
        _update(self.flying, self.published)
        self.published = {}

    def sync(self) -> None:
        self.rig.sync()
        _update(self.accepted, self.flying)
        self.flying = {}

    def fail(self) -> None:
        self.tick()
        self.rig.fail()
        self.flying = {}
        self.tick()
        self.sync()
        self.come()

    def crash(self) -> None:
        self.rig = self.rig.restart()
        self.flying, self.published = {}, {}
        self.come()

    @property
    def is_settled(self) -> bool:
        return not self.flying and not self.published

    def check(self) -> None:
        """What is counted is there, in order, and each page is one record."""
        self.tick()
        self.sync()
        pages = self.rig.broker.last_pages
        values = [value for _, value in pages.all()]
        assert pages.size == sum(value.size for value in values)
        orders = [value.order for value in values]
        assert orders == sorted(orders, reverse=True)
        records = {int(json.loads(key)[0]) for key in self.rig.state.kinds.get("last", {})}
        assert records == set(pages.numbers())


def _update(known: dict[str, int], newer: dict[str, int]) -> None:
    """Note newer values, which stand last."""
    for subject, counter in newer.items():
        known.pop(subject, None)
        known[subject] = counter


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three values in a page."""
    monkeypatch.setattr(last_pages, "PAGE_SIZE", 3 * (VALUE_COST + 60))


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", seeds(20))
def test_last_values_are_those_that_were_accepted_whatever_fails(seed: int) -> None:
    story = Story(Rig(), seed)
    for _ in range(150):
        story.go_on()
        if story.is_settled:
            assert list(held(story.rig).items()) == list(story.accepted.items())
    story.check()
    story.crash()
    story.check()
    assert list(held(story.rig).items()) == list(story.accepted.items())


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", seeds(20))
def test_no_value_comes_back_that_was_replaced_whatever_is_dropped(seed: int) -> None:
    story = Story(with_budget(5.5), seed)
    for _ in range(150):
        story.go_on()
        if story.is_settled:
            assert held(story.rig).items() <= story.accepted.items()
    story.check()
    story.crash()
    story.check()
    assert held(story.rig).items() <= story.accepted.items()
